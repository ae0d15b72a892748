//! Large outputs, and versions of plugins that are in memory or withdrawn.

use ebb_protocol::api::PluginDetail;
use ebb_protocol::record::OutputStorage;

use crate::harness::*;
use crate::lifecycle::retention::LARGE_OUTPUT;

/// The resource has the output of `shown` only.
const TWO_OUTPUTS: &str = r#"
preStart:
  shown: {webhook: {url: "RECEIVER/shown"}, outputs: {id: {value: "${response.body.id}"}}}
  kept: {webhook: {url: "RECEIVER/kept"}, outputs: {text: {value: "${response.body.text}"}}}
outputs: {id: "${units.shown.outputs.id}"}
"#;

/// A lost object of an output that no resource refers to does not affect the target.
pub(crate) async fn unreferenced_outputs_are_not_read() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /shown", json!({"id": "the-id"}));
    harness.receiver.always("POST /kept", json!({"text": "x".repeat(10_000)}));
    remove_output_object(&harness, "two", TWO_OUTPUTS).await;
    let target = harness.target("a").await.unwrap();
    assert_eq!(outputs(&target), json!({"id": {"value": "the-id"}}));
    assert_eq!(target.runs[0].units.len(), 2);
}

/// An undo that uses no output of its unit reads no object of the bucket.
pub(crate) async fn an_undo_reads_only_the_outputs_that_it_uses() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({"text": "x".repeat(10_000)}));
    remove_output_object(&harness, "big", LARGE_OUTPUT).await;
    harness.tear_down("a").await;
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

/// Waits until the sandbox `a` of a plugin is ready and removes the only object of its outputs.
async fn remove_output_object(harness: &Harness, plugin: &str, rest: &str) {
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

/// A plugin is read and parsed once. Its withdrawal counts at once.
pub(crate) async fn a_parsed_plugin_is_used_until_its_withdrawal() {
    let harness = Harness::new().await;
    // The document is in the bucket.
    let comment = "x".repeat(110 << 10);
    let rest = format!("preStart: {{u: {{webhook: {{url: \"RECEIVER/u\"}}}}}}\n# {comment}\n");
    harness.run("a", "one", &rest, TargetState::Ready).await;
    let digest = harness.get("/v1/plugins/one/versions/1.0.0").await.is(200).json::<PluginDetail>().info.digest;
    harness.stack().store().bucket.remove(&format!("plugins/{digest}")).await.unwrap();
    harness.ready("b", "one").await;
    harness.request(Method::DELETE, "/v1/plugins/one/versions/1.0.0", None).await.is(204);
    let refused = harness.lifecycle(LifecycleType::Created, &sandbox("c", "c-uid", "one")).await;
    let problem = format!("{:?}", refused.is_problem(422, "invalid-document"));
    assert!(problem.contains("withdrawn-version"), "{problem}");
}

/// A unit without retries, and its undo.
const WITHOUT_RETRIES: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}, retry: {attempts: 1}, outputs: {id: {value: "${response.body.id}"}}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop", body: {id: "${units.make.outputs.id}"}}}
"#;

/// Targets that have a withdrawn version are still updated, retried, explained and torn down. New targets and added
/// resources cannot use it.
pub(crate) async fn a_withdrawn_version_remains_usable_for_existing_targets() {
    let mut harness = Harness::new().await;
    harness.receiver.replies("POST /make", &[400.into(), CannedReply::ok(json!({"id": "id-2"}))]);
    harness.run("a", "made", WITHOUT_RETRIES, TargetState::Failed).await;
    let secret = async |harness: &Harness| harness.get("/v1/plugins/made/signing-secret").await.is(200).body.clone();
    let before = secret(&harness).await;
    harness.request(Method::DELETE, "/v1/plugins/made/versions/1.0.0", None).await.is(204);
    // A restart clears the caches.
    harness.restart().await;
    assert_eq!(secret(&harness).await, before);
    assert_eq!(harness.why("a").await.cause.unwrap().unit, "r/make");
    let refused = async |name: &str, event_type, plugin: &str, words: &[&str]| {
        let event = sandbox(name, &format!("{name}-uid"), plugin);
        let problem = harness.lifecycle(event_type, &event).await.is_problem(422, "invalid-document");
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
    harness.publish("made@1.1.0", WITHOUT_RETRIES).await;
    refused("b", LifecycleType::Created, "made@1.0.0", &["made@1.0.0 was withdrawn", "published: 1.1.0"]).await;
    let update = async |plugin: &str| harness.lifecycle(LifecycleType::Updated, &sandbox("a", "a-uid", plugin)).await;
    // An added resource is a change, which needs a higher generation. An existing one keeps its version.
    update("made}, s: {plugin: made").await.is_problem(409, "outdated");
    for (plugin, result) in [("made", "retrying"), ("made@1.0.0", "unchanged")] {
        assert_eq!(update(plugin).await.is(202).json::<Value>()["result"], result);
        harness.phase("a", TargetState::Ready).await;
    }
    assert_eq!(harness.target("a").await.unwrap().resources["r"].plugin, "made@1.0.0");
    harness.tear_down("a").await;
    let dropped = harness.receiver.calls("POST /drop");
    assert_eq!(dropped.iter().map(|call| &call.body["id"]).collect::<Vec<_>>(), ["id-2"]);
}
