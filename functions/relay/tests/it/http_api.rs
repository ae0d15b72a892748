//! Validation of batches and reports. `request_bodies` has those that the relay rejects by their heads.

use crate::fixture::*;

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_reports_are_validated() {
    let fixture = RelayFixture::new("http", &[]).await;
    let [own_secret, other_secret] = [7, 8].map(|byte| WebhookSecret::from_bytes(&[byte; 32]).unwrap());
    let batch = |cluster: &str, requests: Value| json!({"v": 1, "cluster": cluster, "requests": requests});
    let uid = &*fixture.uid;
    for (body, signer, expected) in [
        (batch(uid, json!([])), &own_secret, 200),
        (batch(uid, json!([])), &other_secret, 401),
        (batch("another", json!([])), &own_secret, 409),
        (json!({"v": 1, "requests": []}), &own_secret, 400),
        // Of an unknown request, only the response says so.
        (batch(uid, json!([{"explode": {}}])), &own_secret, 200),
    ] {
        assert_eq!(fixture.post(&body, signer).await.unwrap().0, expected, "{body}");
    }
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
    let base = format!("http://127.0.0.1:{}", fixture.port());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
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
    let metrics = http.get(format!("{base}/metrics")).send().await.unwrap().text().await.unwrap();
    for line in [
        r#"ebb_relay_requests_total{result="running",verb="ensure"} 2"#,
        "ebb_relay_batches_rejected_total 1",
        r#"ebb_relay_reports_total{result="unauthorized"} 1"#,
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}\n{metrics}");
    }
    fixture.close().await;
}
