//! Effects that no answer shows. The tables have the others.

use ebb_flow::{QueueMessage, lifecycle};
use ebb_protocol::TargetStopCause;

use crate::harness::*;
use crate::lifecycle::retention::other_instance;

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

/// The operator removes the URL of the platform while it refuses the `gone` for which the next instance waits.
pub(crate) async fn a_notification_ends_without_a_platform() {
    let harness = Harness::with_platform().await;
    harness.run("a", "simple", SIMPLE, TargetPhase::Ready).await;
    harness.notification_accepted("a").await;
    harness.receiver.always("POST /platform", 503);
    harness.tear_down("a").await;
    let next = sandbox("a", "another-uid", "simple");
    let waiting = harness.lifecycle(LifecycleType::Created, &next).await;
    assert_eq!(waiting.is(202).json::<Value>()["result"], "waiting");
    let without = other_instance(&harness);
    assert_eq!(without.settings.platform_url, None);
    let message = QueueMessage::Target("sandbox".to_owned(), "a".to_owned());
    ebb_flow::sweep::receive_message(&without, &message).await.unwrap();
    harness.instance_is_ready("a", "another-uid").await;
    assert_eq!(harness.receiver.order().iter().filter(|call| **call != "POST /platform").count(), 3);
}

/// The acceptance of a request costs a write unless the callback arrives soon, or before the response to the request.
pub(crate) async fn fast_callbacks_cost_no_acceptance() {
    const UNITS: usize = 20;
    let mut harness = Harness::new().await;
    let numbers = Vec::from_iter((0..UNITS as u32).map(Unit));
    let accepted = async |harness: &Harness, name: &str| {
        harness.stack().store().read_accepted(&run_id(name, Hook::PreStart), &numbers).await.unwrap().len()
    };
    harness.receiver.on("POST /soon", |_, _| CannedReply::status(202).then(async { vec![done()] }));
    let unit = |number: usize| {
        let after = if number == 0 { String::new() } else { format!("after: [u{}], ", number - 1) };
        format!("  u{number}: {{{after}webhook: {{url: \"RECEIVER/soon\"}}}}\n")
    };
    let units: String = (0..UNITS).map(unit).collect();
    harness.run("a", "fast", &format!("preStart:\n{units}"), TargetPhase::Ready).await;
    // A slow machine may store some of them.
    assert!(accepted(&harness, "a").await < UNITS);
    let held = harness.receiver.hold("POST /early");
    harness.receiver.always("POST /early", 202);
    harness.begin("b", "early", "preStart: {make: {webhook: {url: \"RECEIVER/early\"}}}\n").await;
    let call = harness.receiver.call("POST /early", 1).await;
    harness.callback(call.token(), &done()).await.is(204);
    harness.phase("b", TargetPhase::Ready).await;
    drop(held);
    // The end of the stack waits for the dispatch.
    harness.restart().await;
    assert_eq!(accepted(&harness, "b").await, 0);
}
