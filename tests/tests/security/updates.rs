//! Updates of targets that live, wait, or have failed.

use ebb_protocol::api::TargetState;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResponse, LifecycleResult};
use serde_json::json;

use crate::harness::{CannedReply, LifecycleHarness, eventually, plugin};

const SIMPLE: &str = r#"
params: {size: {type: string, default: small}, token: {type: string, sensitive: true, required: false}}
preStart:
  make: {webhook: {url: "RECEIVER/make", body: {size: "${params.size}"}}, retry: {attempts: 1}}
"#;

async fn harness() -> LifecycleHarness {
    let harness = LifecycleHarness::new().await;
    harness.publish(&plugin("simple@1.0.0", SIMPLE)).await;
    harness
}

/// A webhook for the sandbox `a` whose document goes on with `rest`.
fn event(uid: &str, generation: u64, rest: &str) -> LifecycleData {
    LifecycleData {
        kind: "sandbox".to_owned(),
        name: "a".to_owned(),
        uid: uid.to_owned(),
        generation,
        document: Some(format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\n{rest}")),
        routing_key: None,
    }
}

async fn taken(harness: &LifecycleHarness, asked: LifecycleType, event: &LifecycleData) -> (LifecycleResult, u64) {
    let answer: LifecycleResponse = harness.lifecycle(asked, event).await.is(202).json();
    (answer.result, answer.generation)
}

pub(crate) async fn what_changes_nothing() {
    let harness = harness().await;
    let document = "resources: {r: {plugin: simple}, s: {plugin: simple@1.0.0, params: {size: big}}}\n";
    assert_eq!(taken(&harness, LifecycleType::Created, &event("u", 1, document)).await, (LifecycleResult::Starting, 1));
    harness.phase("a", TargetState::Ready).await;
    let newer = plugin("simple@1.1.0", &SIMPLE.replace("default: small", "default: tiny"));
    harness.publish(&newer).await;
    let reordered =
        "# A comment.\nresources:\n  s:\n    params: {size: big}\n    plugin: simple@1.0.0\n  r: {plugin: simple}\n";
    for (generation, document) in [(1, document), (2, document), (2, reordered), (7, reordered)] {
        let again = taken(&harness, LifecycleType::Updated, &event("u", generation, document)).await;
        assert_eq!(again, (LifecycleResult::Unchanged, 1), "{generation} {document}");
    }
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.generation, &target.info.plugins[..]), (1, &["simple@1.0.0".to_owned()][..]));
    assert_eq!(harness.receiver.calls("POST /make").len(), 2);
    let page = harness.get("/v1/plugins/simple").await;
    assert!(page.body.contains("1.1.0"), "{page:?}");
}

pub(crate) async fn what_would_change_something() {
    let harness = harness().await;
    let document = "resources: {r: {plugin: simple}}\n";
    taken(&harness, LifecycleType::Created, &event("u", 1, document)).await;
    harness.phase("a", TargetState::Ready).await;
    harness.publish(&plugin("simple@1.1.0", SIMPLE)).await;
    /// Path, old value, new value.
    type Row = (&'static str, Option<&'static str>, Option<&'static str>);
    let rows: [(&str, &[Row]); 5] = [
        ("ttl: 1h\nresources: {r: {plugin: simple}}\n", &[("ttl", None, Some("1h"))]),
        ("labels: {team: x}\nresources: {r: {plugin: simple}}\n", &[("labels.team", None, Some("x"))]),
        (
            "resources: {r: {plugin: simple@1.1.0}}\n",
            &[("resources.r.plugin", Some("simple@1.0.0"), Some("simple@1.1.0"))],
        ),
        (
            "resources: {r: {plugin: simple, params: {token: {secret: s, key: k}}}}\n",
            &[("resources.r.params.token", None, Some("(sensitive)"))],
        ),
        (
            "resources: {r: {plugin: simple, params: {size: big}}, s: {plugin: simple}}\n",
            &[("resources.r.params.size", Some("small"), Some("big")), ("resources.s", None, Some("simple@1.1.0"))],
        ),
    ];
    for ((document, expected), generation) in rows.into_iter().zip([1, 2, 2, 1, 2]) {
        let answer = harness.lifecycle(LifecycleType::Updated, &event("u", generation, document)).await;
        let problem = answer.is_problem(409, "changed");
        let found: Vec<_> = problem
            .changes
            .iter()
            .map(|change| (change.path.as_str(), change.old.as_deref(), change.new.as_deref()))
            .collect();
        assert_eq!(found, expected, "{document}");
    }
    let keyed = LifecycleData { routing_key: Some("other".to_owned()), ..event("u", 2, document) };
    let problem = harness.lifecycle(LifecycleType::Updated, &keyed).await.is_problem(409, "changed");
    assert_eq!(problem.changes[0].path, "routingKey");
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
}

pub(crate) async fn an_update_retries_what_has_failed() {
    let harness = harness().await;
    let document = "resources: {r: {plugin: simple}}\n";
    harness.receiver.on("POST /make", |_, number| match number {
        1 => CannedReply::status(400),
        _ => CannedReply::ok(json!({})),
    });
    taken(&harness, LifecycleType::Created, &event("u", 1, document)).await;
    eventually("a has failed", async || (harness.target("a").await?.info.phase == TargetState::Failed).then_some(()))
        .await;
    let changed = event("u", 2, "resources: {r: {plugin: simple, params: {size: big}}}\n");
    harness.lifecycle(LifecycleType::Updated, &changed).await.is_problem(409, "changed");
    assert_eq!(harness.receiver.calls("POST /make").len(), 1);
    let again = taken(&harness, LifecycleType::Updated, &event("u", 2, document)).await;
    assert_eq!(again, (LifecycleResult::Retrying, 1));
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /make").len(), 2);
    let again = taken(&harness, LifecycleType::Updated, &event("u", 2, document)).await;
    assert_eq!(again, (LifecycleResult::Unchanged, 1));
}

pub(crate) async fn an_update_of_what_waits() {
    let harness = harness().await;
    let document = "resources: {r: {plugin: simple}}\n";
    taken(&harness, LifecycleType::Created, &event("u", 1, document)).await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(taken(&harness, LifecycleType::Created, &event("v", 1, document)).await.0, LifecycleResult::Waiting);
    assert_eq!(taken(&harness, LifecycleType::Updated, &event("v", 2, document)).await.0, LifecycleResult::Unchanged);
    let changed = event("v", 2, "resources: {r: {plugin: simple, params: {size: big}}}\n");
    harness.lifecycle(LifecycleType::Updated, &changed).await.is_problem(409, "changed");
    assert_eq!(harness.target("a").await.unwrap().waiting_uid.as_deref(), Some("v"));
}
