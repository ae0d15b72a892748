//! Authentication and validation of the relay's HTTP requests.

use crate::fixture::*;

#[tokio::test(flavor = "multi_thread")]
async fn http_requests_are_authenticated_and_validated() {
    let fixture = RelayFixture::new("http", &[]).await;
    let base = format!("http://127.0.0.1:{}", fixture.port());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| {
        let response = http.get(format!("{base}{path}")).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!((get("/healthz").await.0, get("/readyz").await.0), (200, 200));
    // A batch needs a valid signature and the UID of this cluster.
    let empty = json!({"v": 1, "cluster": fixture.uid, "requests": []});
    let own_secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
    let other_secret = WebhookSecret::from_bytes(&[8; 32]).unwrap();
    let (status, text) = fixture.post(&empty, &own_secret).await.unwrap();
    assert_eq!(status, 200);
    let cluster = serde_json::from_str::<Value>(&text).unwrap()["cluster"].clone();
    for (body, signer, expected) in [
        (json!({"v": 1, "cluster": cluster, "requests": []}), &own_secret, 200),
        (json!({"v": 1, "cluster": "another", "requests": []}), &own_secret, 409),
        (json!({"v": 1, "requests": []}), &own_secret, 400),
        // Of an unknown request, only the response says so.
        (json!({"v": 1, "cluster": cluster, "requests": [{"explode": {}}]}), &own_secret, 200),
        (empty.clone(), &other_secret, 401),
    ] {
        assert_eq!(fixture.post(&body, signer).await.unwrap().0, expected, "{body}");
    }
    let unsigned = http.post(format!("{base}/v1/batch")).body(empty.to_string()).send().await.unwrap();
    assert_eq!(unsigned.status(), 401);
    // A report needs the token of its attempt and a valid body.
    let [first, second] = ["one", "two"].map(|unit| name(unit, 1));
    for unit in [&first, &second] {
        fixture.run(unit, ScriptJob::new(unit, "echo started; sleep 1000")).await;
    }
    let token = async |unit: &str| fixture.record(unit).await["spec"]["token"].as_str().unwrap().to_owned();
    let (own, other) = (token("one").await, token("two").await);
    let running = json!({"v": 1, "logBytes": 0, "state": "running"}).to_string();
    let result = json!({"result": {"status": "succeeded", "secrets": {"a": {"name": "n", "key": "k"}}}});
    let ended = json!({"v": 1, "logBytes": 0, "state": {"ended": result}}).to_string();
    for (token, path, body, expected) in [
        (&own, "one/1", &running, 204),
        (&other, "one/1", &ended, 401),
        (&own, "one/2", &ended, 410),
        (&own, "none/1", &ended, 410),
        (&own, "one/1", &"{}".to_owned(), 400),
        (&own, "one/1", &ended, 204),
        // Another task with its own token.
        (&other, "two/1", &running, 204),
    ] {
        let url = format!("{base}/v1/reports/{path}");
        let response = http.post(url).bearer_auth(token).body(body.clone()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{path} {body}");
    }
    assert!(fixture.result(&first).await.secrets.is_empty(), "only the relay refers to Secrets");
    fixture.cancel(&second).await;
    let (_, metrics) = get("/metrics").await;
    for line in [
        r#"ebb_relay_requests_total{result="running",verb="ensure"} 2"#,
        "ebb_relay_batches_rejected_total 2",
        r#"ebb_relay_reports_total{result="unauthorized"} 1"#,
        "ebb_relay_tasks",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    fixture.close().await;
}
