//! Headers, URLs, outputs and documents that are too large. The tests of each route have the bodies.

use crate::harness::*;

/// Sends bytes and returns the status line of the response. It is empty if the connection was closed.
async fn raw(harness: &Harness, head: &[u8]) -> String {
    let mut stream = harness.connect().await;
    let exchange = async {
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(head).await;
        let (mut response, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut part).await {
            response.extend_from_slice(&part[..length]);
            if response.contains(&b'\n') {
                break;
            }
        }
        String::from_utf8_lossy(&response).lines().next().unwrap_or_default().to_owned()
    };
    tokio::time::timeout(WAIT_TIMEOUT, exchange).await.expect("no response before the timeout")
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
    // Tokens of nearly the maximum size of a header.
    for token in ["x".repeat(60_000), format!("ebb1.{}", "a.".repeat(30_000))] {
        harness.callback(&token, &done()).await.is_problem(403, "invalid-token");
        harness.with_token(&token, "GET /v1/targets", None).await.is_problem(401, "invalid-token");
    }
    harness.get("/healthz").await.is(200);
}

/// Undeclared outputs that fill the body of a callback, and a deeply nested output.
pub(crate) async fn large_outputs() {
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
    // Deeper than the limit of the JSON parser.
    let nested =
        format!("{{\"status\":\"succeeded\",\"outputs\":{{\"id\":{}1{}}}}}", "[".repeat(50_000), "]".repeat(50_000));
    harness.callback_bytes(call.token(), nested.into_bytes()).await.is_problem(400, "invalid-callback");
    harness.callback(call.token(), &json!({"status": "succeeded", "outputs": {"id": deep}})).await.is(204);
    harness.phase("b", TargetState::Ready).await;
    large_public_outputs(&harness).await;
}

/// Public outputs of 5 MB together, which do not fit into a notification.
async fn large_public_outputs(harness: &Harness) {
    const SIZE: usize = 1_000_000;
    harness.receiver.always("POST /large", json!({ "id": "x".repeat(SIZE) }));
    let text = r#"
preStart: {make: {webhook: {url: "RECEIVER/large"}, outputs: {id: {value: "${response.body.id}"}}}}
outputs: {id: "${units.make.outputs.id}", name: "${target.name}"}
"#;
    harness.publish("large@1.0.0", text).await;
    let five = "large}, s: {plugin: large}, t: {plugin: large}, u: {plugin: large}, v: {plugin: large";
    let target = harness.ready("c", five).await;
    let reason = target.outputs_error.unwrap();
    assert!(reason.contains("more than 4 MiB together; read those of one resource with"), "{reason}");
    let data = harness.notified("c", &["ready"]).await.remove(0);
    assert_eq!((&data["outputs"], &data["reason"]), (&Value::Null, &Value::Null));
    let path = data["outputsUrl"].as_str().unwrap().strip_prefix(harness.stack().url()).unwrap();
    for (only, expected) in [("r", vec![("r", 2)]), ("s/id", vec![("s", 1)]), ("s/x", vec![]), ("x", vec![])] {
        let target: ebb_protocol::api::TargetDetail =
            harness.get(&format!("{path}?outputs={only}")).await.is(200).json();
        let resources = target.resources.iter().filter(|(_, resource)| !resource.outputs.is_empty());
        let found: Vec<(&str, usize)> =
            resources.map(|(name, resource)| (name.as_str(), resource.outputs.len())).collect();
        assert_eq!((&found, target.outputs_error.is_none()), (&expected, !expected.is_empty()), "{only}");
        let sizes =
            target.resources.values().filter_map(|one| Some(json!(one.outputs.get("id")?)["value"].as_str()?.len()));
        assert_eq!(sizes.collect::<Vec<_>>(), vec![SIZE; expected.len()], "{only}");
    }
}

/// A document with exponential aliases, and a file with many documents.
pub(crate) async fn large_documents() {
    let harness = Harness::new().await;
    let head = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\n";
    let mut bomb = format!("{head}labels:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("  a{level}: &a{level} [{aliases}]\n");
    }
    let many = format!("{head}---\n").repeat(200);
    for (path, document) in [("/v1/plugins", bomb), ("/v1/plans", many)] {
        let response = harness.post(path, json!({ "document": document })).await;
        let problem = response.is_problem(422, "invalid-document");
        assert_eq!(problem.errors[0].code, "too-complex", "{problem:?}");
        assert!(problem.errors[0].help.is_some(), "{problem:?}");
    }
}
