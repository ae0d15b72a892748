//! Units that wait for a state of a provider.

use crate::harness::*;

/// `make` waits for the state `ready`.
const ASYNC: &str = include_str!("documents/awaited.yaml");

/// APIs need a header such as their version in each request. Another server does not get it.
pub(crate) async fn a_question_has_the_headers_of_its_webhook() {
    let (harness, other) = (Harness::new().await, TestReceiver::start().await);
    harness.receiver.always("POST /things", json!({"id": "t-1"}));
    let headers = r#"headers: {X-Version: "7", Content-Type: application/x-thing+json}, body:"#;
    let own = ASYNC.replace(r#""RECEIVER/things", body:"#, &format!(r#""RECEIVER/things", {headers}"#));
    let foreign =
        own.replace(r#"url: "RECEIVER/things/${response"#, &format!(r#"url: "{}/things/${{response"#, other.url()));
    for (name, plugin, asked, expected) in [("a", &own, &harness.receiver, "7"), ("b", &foreign, &other, "")] {
        asked.always("GET /things/t-1", json!({"id": "t-1", "state": "ready", "host": "h"}));
        harness.run(name, name, plugin, TargetPhase::Ready).await;
        let question = asked.call("GET /things/t-1", 1).await;
        assert_eq!((question.header("x-version"), question.header("content-type")), (expected, ""), "{name}");
        assert!(!question.header("webhook-signature").is_empty());
    }
}
