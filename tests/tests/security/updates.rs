//! Updates of targets that live, wait, or have failed.

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

/// A webhook for the sandbox `a` whose document goes on with `rest`.
fn event(uid: &str, generation: u64, rest: &str) -> LifecycleData {
    LifecycleData { generation, ..ebb_tests::platform::sandbox("a", uid, rest) }
}

const DOCUMENT: &str = "resources: {r: {plugin: simple}}\n";
const CHANGED: &str = "resources: {r: {plugin: simple, params: {size: big}}}\n";

async fn taken(harness: &Harness, asked: LifecycleType, event: &LifecycleData) -> (LifecycleResult, u64) {
    let answer: LifecycleResponse = harness.lifecycle(asked, event).await.is(202).json();
    (answer.result, answer.generation)
}

pub(crate) async fn what_changes_nothing() {
    let harness = harness().await;
    let document = "resources: {r: {plugin: simple}, s: {plugin: simple@1.0.0, params: {size: big}}}\n";
    assert_eq!(taken(&harness, LifecycleType::Created, &event("u", 1, document)).await, (LifecycleResult::Starting, 1));
    harness.phase("a", TargetState::Ready).await;
    harness.publish("simple@1.1.0", &SIMPLE.replace("default: small", "default: tiny")).await;
    let reordered =
        "# A comment.\nresources:\n  s:\n    params: {size: big}\n    plugin: simple@1.0.0\n  r: {plugin: simple}\n";
    for (generation, document) in [(1, document), (2, document), (2, reordered), (7, reordered)] {
        let again = taken(&harness, LifecycleType::Updated, &event("u", generation, document)).await;
        assert_eq!(again, (LifecycleResult::Unchanged, 1), "{generation} {document}");
    }
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.generation, &target.info.plugins[..]), (1, &["simple@1.0.0".to_owned()][..]));
    assert_eq!(harness.receiver.count("POST /make"), 2);
    let page = harness.get("/v1/plugins/simple").await;
    assert!(page.body.contains("1.1.0"), "{page:?}");
}

pub(crate) async fn what_would_change_something() {
    let harness = harness().await;
    taken(&harness, LifecycleType::Created, &event("u", 1, DOCUMENT)).await;
    harness.phase("a", TargetState::Ready).await;
    harness.publish("simple@1.1.0", SIMPLE).await;
    /// Path, old value, new value.
    type Row = (&'static str, Option<&'static str>, Option<&'static str>);
    let version = ("resources.r.plugin", Some("simple@1.0.0"), Some("simple@1.1.0"));
    let size = ("resources.r.params.size", Some("small"), Some("big"));
    let token = ("resources.r.params.token", None, Some("(sensitive)"));
    let rows: [(u64, &str, &str, &[Row]); 5] = [
        (1, "ttl: 1h\n", "plugin: simple", &[("ttl", None, Some("1h"))]),
        (2, "labels: {team: x}\n", "plugin: simple", &[("labels.team", None, Some("x"))]),
        (2, "", "plugin: simple@1.1.0", &[version]),
        (1, "", "plugin: simple, params: {token: {secret: s, key: k}}", &[token]),
        (
            2,
            "",
            "plugin: simple, params: {size: big}}, s: {plugin: simple",
            &[size, ("resources.s", None, Some("simple@1.1.0"))],
        ),
    ];
    for (generation, head, resource, expected) in rows {
        let event = event("u", generation, &format!("{head}resources: {{r: {{{resource}}}}}\n"));
        let changes = harness.lifecycle(LifecycleType::Updated, &event).await.is_problem(409, "changed").changes;
        let found = changes.iter().map(|change| (change.path.as_str(), change.old.as_deref(), change.new.as_deref()));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{resource}");
    }
    let keyed = LifecycleData { routing_key: Some("other".to_owned()), ..event("u", 2, DOCUMENT) };
    let problem = harness.lifecycle(LifecycleType::Updated, &keyed).await.is_problem(409, "changed");
    assert_eq!(problem.changes[0].path, "routingKey");
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
}

pub(crate) async fn an_update_retries_what_has_failed() {
    let harness = harness().await;
    harness.receiver.replies("POST /make", &[400, 200]);
    taken(&harness, LifecycleType::Created, &event("u", 1, DOCUMENT)).await;
    harness.phase("a", TargetState::Failed).await;
    harness.lifecycle(LifecycleType::Updated, &event("u", 2, CHANGED)).await.is_problem(409, "changed");
    assert_eq!(harness.receiver.count("POST /make"), 1);
    let again = taken(&harness, LifecycleType::Updated, &event("u", 2, DOCUMENT)).await;
    assert_eq!(again, (LifecycleResult::Retrying, 1));
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.count("POST /make"), 2);
    let again = taken(&harness, LifecycleType::Updated, &event("u", 2, DOCUMENT)).await;
    assert_eq!(again, (LifecycleResult::Unchanged, 1));
}

pub(crate) async fn an_update_of_what_waits() {
    let harness = harness().await;
    taken(&harness, LifecycleType::Created, &event("u", 1, DOCUMENT)).await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(taken(&harness, LifecycleType::Created, &event("v", 1, DOCUMENT)).await.0, LifecycleResult::Waiting);
    assert_eq!(taken(&harness, LifecycleType::Updated, &event("v", 2, DOCUMENT)).await.0, LifecycleResult::Unchanged);
    harness.lifecycle(LifecycleType::Updated, &event("v", 2, CHANGED)).await.is_problem(409, "changed");
    assert_eq!(harness.target("a").await.unwrap().waiting_uid.as_deref(), Some("v"));
}
