//! Large sandboxes and long lists: an answer about a few things does not read all of them.

use ebb_protocol::api::TargetPage;
use ebb_protocol::record::OutputStorage;

use crate::harness::*;
use crate::lifecycle::retention::LONG;

/// `shown` is the only output that the resource hands on.
const ONE_OF_TWO: &str = r#"
preStart:
  shown: {webhook: {url: "RECEIVER/shown"}, outputs: {id: {value: "${response.body.id}"}}}
  kept: {webhook: {url: "RECEIVER/kept"}, outputs: {text: {value: "${response.body.text}"}}}
outputs: {id: "${units.shown.outputs.id}"}
"#;

/// Outputs that no resource hands on may be missing from the bucket, and the target is ready and shown all the same.
pub(crate) async fn outputs_that_nothing_refers_to_are_not_read() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /shown", json!({"id": "the-id"}));
    harness.receiver.always("POST /kept", json!({"text": "x".repeat(10_000)}));
    without_its_object(&harness, "two", ONE_OF_TWO).await;
    let target = harness.target("a").await.unwrap();
    assert_eq!(outputs(&target), json!({"id": {"value": "the-id"}}));
    assert_eq!(target.runs[0].units.len(), 2);
}

/// An undo that reads nothing of what its unit made needs no object of the bucket.
pub(crate) async fn an_undo_reads_only_what_it_uses() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({"text": "x".repeat(10_000)}));
    without_its_object(&harness, "big", LONG).await;
    harness.tear_down("a").await;
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

/// Waits until the sandbox `a` of a plugin is ready, and removes the only object of its outputs.
async fn without_its_object(harness: &Harness, plugin: &str, rest: &str) {
    harness.run("a", plugin, rest, TargetState::Ready).await;
    harness.notified("a", &["ready"]).await;
    let stored = harness.state("a", Hook::PreStart).await;
    let kept = stored.records.iter().filter_map(|(_, _, record)| match &record.result.as_ref()?.outputs {
        OutputStorage::Bucket(key) => Some(key.clone()),
        _ => None,
    });
    let kept: Vec<String> = kept.collect();
    assert_eq!(kept.len(), 1, "the outputs are in one object of the bucket");
    harness.stack().store().bucket.remove(&kept[0]).await.unwrap();
}

/// Targets that are gone are in a list of their own.
pub(crate) async fn gone_targets_are_listed_apart() {
    let harness = Harness::new().await;
    harness.publish("one@1.0.0", "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n").await;
    let names = async |path: &str| {
        let page: TargetPage = harness.get(path).await.is(200).json();
        page.targets.into_iter().map(|target| target.name).collect::<Vec<_>>()
    };
    for name in ["a", "b"] {
        harness.ready(name, "one").await;
    }
    assert_eq!(names("/v1/targets").await, ["a", "b"]);
    assert_eq!(names("/v1/targets?gone=true").await, Vec::<String>::new());
    harness.tear_down("a").await;
    // A gone target is listed until the platform has accepted its outcome.
    harness.taken("a").await;
    assert_eq!(names("/v1/targets").await, ["b"]);
    assert_eq!(names("/v1/targets?gone=true").await, ["a"]);
}

/// A unit that may fail, and its undo.
const MADE: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}, retry: {attempts: 1}, outputs: {id: {value: "${response.body.id}"}}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop", body: {id: "${units.make.outputs.id}"}}}
"#;

/// A withdrawn version serves the targets that have it to their end: they are updated, retried, explained and torn down. A
/// new target, and a resource that is added, cannot have it.
pub(crate) async fn a_withdrawn_version_serves_those_that_have_it() {
    let mut harness = Harness::new().await;
    harness.receiver.replies("POST /make", &[400.into(), CannedReply::ok(json!({"id": "id-2"}))]);
    harness.run("a", "made", MADE, TargetState::Failed).await;
    let secret = async |harness: &Harness| harness.get("/v1/plugins/made/signing-secret").await.is(200).body.clone();
    let before = secret(&harness).await;
    harness.ask(Method::DELETE, "/v1/plugins/made/versions/1.0.0", None).await.is(204);
    // What was in memory is not any more.
    harness.restart().await;
    assert_eq!(secret(&harness).await, before);
    assert_eq!(harness.why("a").await.cause.unwrap().unit, "r/make");
    let refused = async |name: &str, asked, plugin: &str, words: &[&str]| {
        let event = sandbox(name, &format!("{name}-uid"), plugin);
        let problem = harness.lifecycle(asked, &event).await.is_problem(422, "invalid-document");
        let text = format!("{problem:?}");
        assert!(text.contains("withdrawn-version"), "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    };
    refused("b", LifecycleType::Created, "made@1.0.0", &["made@1.0.0 was withdrawn", "publish another version"]).await;
    refused("b", LifecycleType::Created, "made", &["were withdrawn: 1.0.0"]).await;
    refused("a", LifecycleType::Updated, "made}, s: {plugin: made@1.0.0", &["made@1.0.0 was withdrawn"]).await;
    assert!(harness.target("b").await.is_none());
    harness.publish("made@1.1.0", MADE).await;
    refused("b", LifecycleType::Created, "made@1.0.0", &["made@1.0.0 was withdrawn", "published: 1.1.0"]).await;
    let update = async |plugin: &str| harness.lifecycle(LifecycleType::Updated, &sandbox("a", "a-uid", plugin)).await;
    // What is added is compared, and what is there keeps its version.
    let changes = update("made}, s: {plugin: made").await.is_problem(409, "changed").changes;
    let changes: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.new.as_deref())).collect();
    assert_eq!(changes, [("resources.s", Some("made@1.1.0"))]);
    for (plugin, result) in [("made", "retrying"), ("made@1.0.0", "unchanged")] {
        assert_eq!(update(plugin).await.is(202).json::<Value>()["result"], result);
        harness.phase("a", TargetState::Ready).await;
    }
    assert_eq!(harness.target("a").await.unwrap().resources["r"].plugin, "made@1.0.0");
    harness.tear_down("a").await;
    let dropped = harness.receiver.calls("POST /drop");
    assert_eq!(dropped.iter().map(|call| &call.body["id"]).collect::<Vec<_>>(), ["id-2"]);
}
