//! Updates of ready, failed and waiting targets.

use ebb_protocol::id::TargetKey;
use ebb_protocol::lifecycle::{LifecycleResponse, LifecycleResult};

use crate::harness::*;

const SIMPLE: &str = r#"
params: {size: {type: string, default: small}, token: {type: string, sensitive: true, required: false}}
preStart:
  make: {webhook: {url: "RECEIVER/make", body: {size: "${params.size}"}}, retry: {attempts: 1}}
"#;

async fn harness() -> Harness {
    let harness = Harness::new().await;
    harness.publish("simple@1.0.0", SIMPLE).await;
    harness
}

/// Returns an event of the sandbox `a`. `rest` is the rest of its document.
fn event(uid: &str, generation: u64, rest: &str) -> LifecycleData {
    LifecycleData { generation, ..ebb_tests::platform::sandbox("a", uid, rest) }
}

const DOCUMENT: &str = "resources: {r: {plugin: simple}}\n";
const CHANGED: &str = "resources: {r: {plugin: simple, params: {size: big}}}\n";

async fn sent(harness: &Harness, event_type: LifecycleType, event: &LifecycleData) -> (LifecycleResult, u64) {
    let response: LifecycleResponse = harness.lifecycle(event_type, event).await.is(202).json();
    (response.result, response.generation)
}

pub(crate) async fn updates_without_a_change() {
    let harness = harness().await;
    let document = "resources: {r: {plugin: simple}, s: {plugin: simple@1.0.0, params: {size: big}}}\n";
    let begun = sent(&harness, LifecycleType::Created, &event("u", 1, document)).await;
    assert_eq!(begun, (LifecycleResult::Starting, 1));
    harness.phase("a", TargetState::Ready).await;
    harness.publish("simple@1.1.0", &SIMPLE.replace("default: small", "default: tiny")).await;
    let reordered =
        "# A comment.\nresources:\n  s:\n    params: {size: big}\n    plugin: simple@1.0.0\n  r: {plugin: simple}\n";
    for (number, document, generation) in
        [(1, document, 1), (2, document, 2), (2, reordered, 2), (7, reordered, 7), (3, document, 7)]
    {
        let again = sent(&harness, LifecycleType::Updated, &event("u", number, document)).await;
        assert_eq!(again, (LifecycleResult::Unchanged, generation), "{number} {document}");
    }
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.generation, &target.info.plugins[..]), (7, &["simple@1.0.0".to_owned()][..]));
    assert_eq!(harness.receiver.count("POST /make"), 2);
    let page = harness.get("/v1/plugins/simple").await;
    assert!(page.body.contains("1.1.0"), "{page:?}");
}

/// A document that is like the present one is newer than one that arrives after it with a lower generation.
pub(crate) async fn an_older_document_changes_nothing() {
    let harness = harness().await;
    sent(&harness, LifecycleType::Created, &event("u", 1, DOCUMENT)).await;
    harness.phase("a", TargetState::Ready).await;
    sent(&harness, LifecycleType::Created, &event("v", 1, DOCUMENT)).await;
    for uid in ["u", "v"] {
        let again = sent(&harness, LifecycleType::Updated, &event(uid, 3, DOCUMENT)).await;
        assert_eq!(again, (LifecycleResult::Unchanged, 3), "{uid}");
        harness.lifecycle(LifecycleType::Updated, &event(uid, 2, CHANGED)).await.is_problem(409, "outdated");
    }
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
}

/// An update, or a creation with a higher generation, changes an instance that waits. It keeps its routing key.
pub(crate) async fn an_update_of_a_waiting_instance() {
    let harness = harness().await;
    sent(&harness, LifecycleType::Created, &event("u", 1, DOCUMENT)).await;
    harness.phase("a", TargetState::Ready).await;
    let keyed = LifecycleData { routing_key: Some("key".to_owned()), ..event("v", 1, DOCUMENT) };
    let created = sent(&harness, LifecycleType::Created, &keyed).await.0;
    let updated = sent(&harness, LifecycleType::Updated, &event("v", 2, DOCUMENT)).await.0;
    assert_eq!((created, updated), (LifecycleResult::Waiting, LifecycleResult::Unchanged));
    let changed = sent(&harness, LifecycleType::Updated, &event("v", 3, CHANGED)).await;
    assert_eq!(changed, (LifecycleResult::Waiting, 3));
    harness.lifecycle(LifecycleType::Updated, &event("v", 3, DOCUMENT)).await.is_problem(409, "outdated");
    harness.lifecycle(LifecycleType::Created, &event("v", 4, &CHANGED.replace("big", "huge"))).await.is(202);
    assert_eq!(harness.target("a").await.unwrap().waiting_uid.as_deref(), Some("v"));
    harness.lifecycle(LifecycleType::Deleted, &event("u", 1, DOCUMENT)).await.is(202);
    harness.instance_is_ready("a", "v").await;
    let calls = harness.receiver.calls("POST /make");
    assert_eq!(calls.last().unwrap().body["size"], "huge", "{calls:?}");
    let target = harness.stack().store().read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    // The removals that were scheduled while it waited name the runs of its first generation.
    let facts = (target.generation, target.routing_key.as_deref(), target.first_generation);
    assert_eq!(facts, (4, Some("key"), 1));
}
