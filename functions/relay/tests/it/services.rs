//! Requests to Services, through the API server.

use ebb_protocol::relay::{ServiceRequest, ServiceResponse};

use crate::cluster::BUSYBOX;
use crate::fixture::*;
use crate::rights::{grant_role, rights};

/// A CGI program that responds with the parts of its request.
const ECHO: &str = r#"#!/bin/sh
[ "$PATH_INFO" = /slow ] && sleep 30
[ "$PATH_INFO" = /busy ] && echo >>/tmp/requests && echo "Status: 503" && echo && wc -l </tmp/requests && exit
echo "Content-Type: text/plain"; echo
echo "$REQUEST_METHOD $PATH_INFO $QUERY_STRING $CONTENT_TYPE $HTTP_EBB_ATTEMPT"
[ "$PATH_INFO" = /large ] && head -c 1100000 /dev/zero
cat
"#;

fn request(service: &str, path: &str) -> ServiceRequest {
    let headers = [("content-type", "application/json"), ("ebb-attempt", "3")];
    ServiceRequest {
        service: service.to_owned(),
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        body: "{\"a\":1}".to_owned(),
        valid_for_ms: 10_000,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_the_services_of_the_policy_only() {
    let fixture = RelayFixture::with_policy("services", &[], |units| {
        let service = |name: &str| json!({"namespace": units, "name": name, "port": 8080, "path": "/cgi-bin/echo"});
        json!({
            "namespaces": {units: []},
            "services": {
                "echo": service("echo"), "empty": service("empty"), "alias": service("alias"),
                "forbidden": service("echo-2"), "missing": service("missing"),
                "api": {"namespace": "default", "name": "kubernetes", "port": 443},
            },
        })
    })
    .await;
    let units = &*fixture.units;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "echo", "namespace": units, "labels": {"app": "echo"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "echo", "image": BUSYBOX, "env": [{"name": "ECHO", "value": ECHO}],
                "command": ["sh", "-c", "mkdir -p /tmp/w/cgi-bin && printf %s \"$ECHO\" >/tmp/w/cgi-bin/echo && \
                    chmod +x /tmp/w/cgi-bin/echo && exec httpd -f -p 8080 -h /tmp/w"],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
                    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
                },
            }],
        },
    });
    let service = |name: &str, mut spec: Value| {
        spec["ports"] = json!([{"port": 8080}]);
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": units}, "spec": spec})
    };
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        pod,
        service("echo", json!({"selector": {"app": "echo"}})),
        service("echo-2", json!({"selector": {"app": "echo"}})),
        service("empty", json!({"selector": {"app": "none"}})),
        service("alias", json!({"type": "ExternalName", "externalName": "metadata.internal"})),
    ]});
    let cluster = cluster().await;
    cluster.run("kubectl", &["apply", "--filename=-"], &objects.to_string()).unwrap();
    // The chart gives these rights to each service of the policy.
    let mut rules = json!(rights().services);
    rules[0]["resourceNames"] = json!(["echo", "empty", "alias", "missing"]);
    rules[1]["resourceNames"] = json!(["echo:8080", "empty:8080", "missing:8080"]);
    grant_role(&fixture.client, units, units, "services", rules).await;
    let call = async |request: &ServiceRequest| fixture.send(RelayRequest::Call(Box::new(request.clone()))).await;

    let path = "/rpc/v1?a=b";
    let response = until("the service", async || match call(&request("echo", path)).await {
        RelayResponse::Service(response) => Some(response),
        _ => None,
    });
    let body = "POST /rpc/v1 a=b application/json 3\n{\"a\":1}".to_owned();
    let expected = ServiceResponse { status: 200, content_type: Some("text/plain".to_owned()), body };
    assert_eq!(response.await, expected);

    let RelayResponse::Service(busy) = call(&request("echo", "/busy")).await else { panic!("no response") };
    assert_eq!((busy.status, busy.body.trim()), (503, "1"), "the request is sent once");

    for (request, expected) in [
        (request("other", "/"), "--service other=NAMESPACE/SERVICE:PORT"),
        (request("alias", "/"), "is an alias of another host"),
        (request("missing", "/"), "\"missing\" not found"),
        (request("forbidden", "/"), "is forbidden"),
        (request("api", "/"), "is forbidden"),
    ] {
        let response = call(&request).await;
        assert!(matches!(&response, RelayResponse::Refused(why) if why.contains(expected)), "{expected}: {response:?}");
    }
    for (request, expected) in [
        (request("empty", "/"), "no endpoints available"),
        (request("echo", "/large"), "length limit exceeded"),
        (ServiceRequest { valid_for_ms: 0, ..request("echo", "/") }, "has expired and was not sent"),
        (request("echo", "/slow"), "the service `echo` did not respond in time"),
    ] {
        let response = call(&request).await;
        let is_expected = matches!(&response, RelayResponse::Unavailable(why) if why.contains(expected));
        assert!(is_expected, "{expected}: {response:?}");
    }
    fixture.close().await;
}
