//! Large outputs that are lost, and versions of plugins that are withdrawn.

use ebb_protocol::record::OutputStorage;

use crate::harness::*;
use crate::request_table;

/// A lost object of an output that nothing refers to affects neither the target nor its teardown.
pub(crate) async fn unreferenced_outputs_are_not_read() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /shown", json!({"id": "the-id"}));
    harness.receiver.always("POST /kept", json!({"text": "x".repeat(10_000)}));
    // The resource has the output of `shown` only, and the undo of `kept` reads none.
    harness.run("a", "two", include_str!("documents/two-outputs.yaml"), TargetPhase::Ready).await;
    harness.notified("a", &["ready"]).await;
    let stored = harness.state("a", Hook::PreStart).await;
    let kept = stored.records.iter().filter_map(|(_, _, record)| match &record.result.as_ref()?.outputs {
        OutputStorage::Bucket(key) => Some(key.clone()),
        _ => None,
    });
    let [kept] = &kept.collect::<Vec<String>>()[..] else { panic!("the outputs are in one object of the bucket") };
    harness.stack().store().bucket.remove(kept).await.unwrap();
    let target = harness.target("a").await.unwrap();
    assert_eq!((outputs(&target), target.runs[0].units.len()), (json!({"id": {"value": "the-id"}}), 2));
    harness.tear_down("a").await;
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

/// Targets that have a withdrawn version are still updated, retried, explained and torn down. New targets and added
/// resources cannot use it.
pub(crate) async fn a_withdrawn_version_remains_usable_for_existing_targets() {
    let mut harness = Harness::new().await;
    harness.receiver.replies("POST /make", &[400.into(), CannedReply::ok(json!({"id": "id-2"}))]);
    harness.run("a", "made", MAKE, TargetPhase::Failed).await;
    let secret = async |harness: &Harness| harness.get("/v1/plugins/made/signing-secret").await.is(200).body.clone();
    let before = secret(&harness).await;
    harness.request(Method::DELETE, "/v1/plugins/made/versions/1.0.0", None).await.is(204);
    // The withdrawal counts at once. A restart clears the caches.
    let unused = harness.lifecycle(LifecycleType::Created, &sandbox("b", "b-uid", "made")).await;
    unused.is_problem(422, "invalid-document");
    harness.restart().await;
    assert_eq!(secret(&harness).await, before);
    let (table, test) = ("lifecycle/many.yaml", "a_withdrawn_version_remains_usable_for_existing_targets");
    request_table::play(&harness, table, test, &[]).await;
    assert_eq!((undone(&harness), harness.receiver.count("POST /undo")), (ids(["id-2"]), 1));
}
