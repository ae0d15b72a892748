//! Living targets whose documents change: effects that no answer shows. The table has the others.

use ebb_flow::lifecycle;
use ebb_protocol::{TargetKey, TargetStopCause};

use crate::harness::*;
use crate::request_table;

const TABLE: &str = "lifecycle/changed_documents.yaml";

pub(crate) async fn the_newest_update_waits_for_the_run() {
    let harness = Harness::new().await;
    request_table::play(&harness, TABLE, "the_newest_update_waits_for_the_run", &[]).await;
    // A sweep that has read the former TTL does not end the target.
    let (env, cause) = (harness.stack().env(), TargetStopCause::Expired);
    lifecycle::delete(env, TargetKey::new("sandbox", "a").instance("a-uid"), cause).await.unwrap();
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetPhase::Ready);
}

pub(crate) async fn a_failed_setup_is_corrected_by_an_update() {
    let harness = Harness::new().await;
    request_table::play(&harness, TABLE, "a_failed_setup_is_corrected_by_an_update", &[]).await;
    let store = harness.stack().store();
    let target = store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    let facts = store.read_run(&target.run(target.hook.unwrap())).await.unwrap().unwrap().facts;
    assert_eq!((facts.generation, facts.routing_key.as_deref()), (4, Some("third")));
    harness.tear_down("a").await;
    assert_eq!(harness.remaining("a").await, []);
}
