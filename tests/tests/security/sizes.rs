//! Everything that can be too large, beside bodies: they are where what takes them is tested.

use crate::harness::*;

/// Returns the status line of an answer to bytes that are sent as they are; it is empty if the connection was closed.
async fn raw(harness: &Harness, head: &[u8]) -> String {
    let mut stream = harness.connect().await;
    let exchange = async {
        // The server may answer and close before all is sent.
        let _ = stream.write_all(head).await;
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut part).await {
            answer.extend_from_slice(&part[..length]);
            if answer.contains(&b'\n') {
                break;
            }
        }
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("an answer comes in time")
}

pub(crate) async fn headers_and_urls() {
    let harness = Harness::new().await;
    let large = "x".repeat(2 << 20);
    let many: String = (0..5_000).map(|number| format!("x-{number}: {number}\r\n")).collect();
    for head in [
        format!("GET /healthz HTTP/1.1\r\nhost: a\r\nx-large: {large}\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{many}\r\n"),
        format!("GET /healthz HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {large}\r\n\r\n"),
        format!("GET /v1/targets/sandbox/{large} HTTP/1.1\r\nhost: a\r\n\r\n"),
        format!("GET /v1/targets?nextToken={large} HTTP/1.1\r\nhost: a\r\n\r\n"),
        "\0\x01\x02 not HTTP\r\n\r\n".to_owned(),
    ] {
        let status = raw(&harness, head.as_bytes()).await;
        let shown: String = head.chars().take(60).collect();
        assert!(status.is_empty() || status.starts_with("HTTP/1.1 4"), "{shown}: {status}");
    }
    // A token as long as a header may be.
    for token in ["x".repeat(60_000), format!("ebb1.{}", "a.".repeat(30_000))] {
        harness.callback(&token, &done()).await.is_problem(403, "invalid-token");
        let (url, token) = (harness.url("/v1/targets"), format!("Bearer {token}"));
        let asked = ApiReply::to(&harness.http, &url, Some(&token), Method::GET, None).await;
        asked.is_problem(401, "invalid-token");
    }
    harness.get("/healthz").await.is(200);
}

/// As many outputs as a body can hold, none of which is declared, and an answer that is too large.
pub(crate) async fn outputs() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", 202);
    let text = r#"
preStart: {make: {webhook: {url: "RECEIVER/make"}, outputs: {id: {value: "${response.body.id}"}}}}
postStart: {say: {webhook: {url: "RECEIVER/say", body: {id: "${units.make.outputs.id}"}}}}
"#;
    harness.begin("a", "many", text).await;
    let call = harness.receiver.call("POST /make", 1).await;
    let mut outputs: serde_json::Map<String, Value> =
        (0..100_000).map(|number| (format!("o{number}"), json!(number))).collect();
    outputs.insert("id".to_owned(), json!("x"));
    let body = json!({"status": "succeeded", "outputs": outputs});
    assert!(body.to_string().len() < limits::CALLBACK_BODY);
    harness.callback(call.token(), &body).await.is(204);
    let target = harness.phase("a", TargetState::Ready).await;
    assert!(serde_json::to_string(&target).unwrap().len() < 10_000);
    let mut deep = Value::Null;
    for _ in 0..120 {
        deep = json!([deep]);
    }
    harness.create("b", "many").await;
    let call = harness.receiver.call("POST /make", 2).await;
    // Deeper than JSON is read.
    let nested =
        format!("{{\"status\":\"succeeded\",\"outputs\":{{\"id\":{}1{}}}}}", "[".repeat(50_000), "]".repeat(50_000));
    harness.callback_bytes(call.token(), nested.into_bytes()).await.is_problem(400, "invalid-callback");
    harness.callback(call.token(), &json!({"status": "succeeded", "outputs": {"id": deep}})).await.is(204);
    harness.phase("b", TargetState::Ready).await;
}

/// A document that is small and stands for much, and one of many documents.
pub(crate) async fn documents() {
    let harness = Harness::new().await;
    let head = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\n";
    let mut bomb = format!("{head}labels:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("  a{level}: &a{level} [{aliases}]\n");
    }
    let many = format!("{head}---\n").repeat(200);
    for (path, document) in [("/v1/plugins", bomb), ("/v1/plans", many)] {
        let answer = harness.post(path, json!({ "document": document })).await;
        let problem = answer.is_problem(422, "invalid-document");
        assert_eq!(problem.errors[0].code, "too-complex", "{problem:?}");
        assert!(problem.errors[0].help.is_some(), "{problem:?}");
    }
}
