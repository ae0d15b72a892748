//! Units that wait for a state of a provider.

use ebb_protocol::record::OutputStorage;

use crate::harness::*;
use crate::security::secrets;

/// `make` waits for the state `ready`. `undo` waits until the thing does not exist any more.
const ASYNC: &str = include_str!("documents/awaited.yaml");

fn creating() -> CannedReply {
    CannedReply::status(201).with(json!({"id": "t-1", "state": "creating", "password": "S3CRETpassword"}))
}

fn state(state: &str, host: Option<&str>) -> CannedReply {
    CannedReply::ok(json!({"id": "t-1", "state": state, "host": host, "message": "no capacity"}))
}

/// APIs need a header such as their version in each request. Another server does not get it.
pub(crate) async fn a_question_has_the_headers_of_its_webhook() {
    let (harness, other) = (Harness::new().await, TestReceiver::start().await);
    harness.receiver.always("POST /things", creating());
    let headers = r#"headers: {X-Version: "7", Content-Type: application/x-thing+json}, body:"#;
    let own = ASYNC.replace(r#""RECEIVER/things", body:"#, &format!(r#""RECEIVER/things", {headers}"#));
    let foreign =
        own.replace(r#"url: "RECEIVER/things/${response"#, &format!(r#"url: "{}/things/${{response"#, other.url()));
    for (name, plugin, asked, expected) in [("a", &own, &harness.receiver, "7"), ("b", &foreign, &other, "")] {
        asked.always("GET /things/t-1", state("ready", Some("h")));
        harness.run(name, name, plugin, TargetPhase::Ready).await;
        let question = asked.call("GET /things/t-1", 1).await;
        assert_eq!((question.header("x-version"), question.header("content-type")), (expected, ""), "{name}");
        assert!(!question.header("webhook-signature").is_empty());
    }
}

/// The response is stored encrypted, and deleted with the outputs of the run.
pub(crate) async fn a_wait_survives_a_restart_and_stores_no_secret() {
    let mut harness = Harness::new().await;
    harness.receiver.always("POST /things", creating());
    harness.receiver.always("GET /things/t-1", state("creating", None));
    harness.begin("a", "async", ASYNC).await;
    harness.receiver.call("GET /things/t-1", 1).await;
    let stored = harness.state("a", Hook::PreStart).await;
    let wait = stored.records[0].2.wait.clone().unwrap();
    let OutputStorage::Inline(early) = &wait.outputs else { panic!("{wait:?}") };
    assert_eq!(early.keys().collect::<Vec<_>>(), ["about", "id"]);
    for file in secrets::files(harness.folder()) {
        let bytes = std::fs::read(&file).unwrap_or_default();
        assert!(!secrets::contains(&bytes, b"S3CRETpassword"), "{}", file.display());
    }
    harness.restart().await;
    harness.receiver.always("GET /things/t-1", state("ready", Some("h-2")));
    let target = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(outputs(&target)["host"]["value"], "h-2");
    assert_eq!(harness.receiver.count("POST /things"), 1);
}
