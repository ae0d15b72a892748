//! Requests to Services, through the API server.

use ebb_protocol::relay::ServiceRequest;

use crate::fixture::*;
use crate::rights::{grant_role, rights};

fn request(service: &str, path: &str) -> ServiceRequest {
    let headers = [("content-type", "application/json"), ("ebb-attempt", "3")];
    let request = json!({
        "service": service, "method": "POST", "path": path, "headers": headers, "body": "{\"a\":1}", "validForMs": 10_000,
    });
    serde_json::from_value(request).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_the_services_of_the_policy_only() {
    let policy = |units: &str| yaml(include_str!("services/policy.yaml"), &[("UNITS", units)]);
    let fixture = RelayFixture::with_policy("services", &[], policy).await;
    let (units, cluster) = (&*fixture.units, cluster().await);
    let objects = include_str!("services/objects.yaml").replace("BUSYBOX", BUSYBOX);
    cluster.run("kubectl", &["apply", "--filename=-", "--namespace", units], &objects).unwrap();
    // The chart gives these rights to each service of the policy.
    let mut rules = json!(rights().services);
    rules[0]["resourceNames"] = json!(["echo", "empty", "foreign", "alias", "missing"]);
    rules[1]["resourceNames"] = json!(["echo:8080", "empty:8080", "foreign:8080", "missing:8080"]);
    grant_role(&fixture.client, units, units, "services", rules).await;
    let call = async |request: &ServiceRequest| fixture.send(RelayRequest::Call(Box::new(request.clone()))).await;

    let path = "/rpc/v1?a=b";
    let response = until("the service", async || match call(&request("echo", path)).await {
        RelayResponse::Service(response) => Some(response),
        _ => None,
    });
    let body = "POST /rpc/v1 a=b application/json 3\n{\"a\":1}".to_owned();
    let response = response.await;
    assert_eq!((response.status, &response.body), (200, &body));
    assert!(response.headers.contains(&("content-type".to_owned(), "text/plain".to_owned())), "{response:?}");
    let host = format!("echo.{units}.svc:8080");
    let of_host = call(&request(&host, "/cgi-bin/echo/rpc/v1?a=b")).await;
    assert!(matches!(&of_host, RelayResponse::Service(response) if response.body == body), "{of_host:?}");
    // The service shows the header, and the relay masks its value.
    for (secret, path, expected) in [
        ("billing", "/key", None),
        ("billing", "/wrong", Some("bad ***")),
        ("missing", "/key", Some("has no text")),
        ("ebb-relay", "/key", Some("belongs to")),
    ] {
        let secret = json!({"namespace": units, "name": secret, "key": "token"});
        let credential = serde_json::from_value(json!({"secret": secret, "header": "x-api-key"})).unwrap();
        let response = call(&ServiceRequest { credential: Some(credential), ..request("echo", path) }).await;
        let is_expected = match (&response, expected) {
            (RelayResponse::Service(response), None) => response.body == "*** x\n",
            (RelayResponse::Refused(why) | RelayResponse::Unavailable(why), Some(expected)) => why.contains(expected),
            _ => false,
        };
        assert!(is_expected, "{expected:?}: {response:?}");
    }
    // The server of the test knows GET and POST only. Without the right, the API server answers 403.
    for method in ["PUT", "PATCH", "DELETE"] {
        let response = call(&ServiceRequest { method: method.to_owned(), ..request("echo", "/") }).await;
        assert!(matches!(&response, RelayResponse::Service(response) if response.status == 404), "{response:?}");
    }

    let RelayResponse::Service(busy) = call(&request("echo", "/busy")).await else { panic!("no response") };
    assert_eq!((busy.status, busy.body.trim()), (503, "1"), "the request is sent once");
    let RelayResponse::Service(moved) = call(&request("echo", "/moved")).await else { panic!("no response") };
    let place = moved.headers.iter().find(|(name, _)| name == "location").map(|(_, place)| place.as_str());
    assert_eq!((moved.status, place), (302, Some("http://169.254.169.254/latest")), "no redirect is followed");

    let calls: Vec<(String, String, u64, String, String)> =
        serde_saphyr::from_str(include_str!("services/calls.yaml")).unwrap();
    for (service, path, valid_for_ms, kind, expected) in calls {
        let response = call(&ServiceRequest { valid_for_ms, ..request(&service, &path) }).await;
        let why = match &response {
            RelayResponse::Refused(why) if kind == "refused" => why,
            RelayResponse::Unavailable(why) if kind == "unavailable" => why,
            other => panic!("{service} {path}: {other:?}"),
        };
        assert!(why.contains(&expected), "{expected}: {response:?}");
    }
    fixture.close().await;
}
