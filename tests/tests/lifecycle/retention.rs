//! The items of an instance are removed after its retention.

use ebb_engine::target::Notification;
use ebb_engine::{RunEvent, accept};
use ebb_flow::Env;
use ebb_protocol::id::TargetKey;
use ebb_store::item_table::ItemKey;
use ebb_store::{DueExpiries, NotificationState, PatchResult, PendingUpdate, Store, TargetHead, TargetTransition};

use crate::harness::*;

/// A unit whose output is stored in the bucket, and its undo.
pub(crate) const LARGE_OUTPUT: &str = r#"
preStart: {make: {webhook: {url: "RECEIVER/make"}, outputs: {text: {value: "${response.body.text}"}}}}
postStop: {drop: {undoes: make, webhook: {url: "RECEIVER/drop"}}}
"#;

pub(crate) const NO_OUTPUT: &str = "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n";
const NO_LOG: &str =
    "runners: {sh: {image: \"busybox:1\"}}\npreStart: {u: {pod: {runner: sh, script: \"#!/bin/sh\\nexit 0\"}}}\n";

/// Long enough for a test to read the data before its removal.
pub(crate) const RETENTION: Duration = Duration::from_secs(86_400);

pub(crate) async fn harness(retention: Option<Duration>) -> Harness {
    let harness = Harness::with_retention(retention).await;
    harness.receiver.always("POST /make", json!({"text": "x".repeat(10_000)}));
    harness.publish("long@1.0.0", LARGE_OUTPUT).await;
    harness
}

/// Counts the objects of outputs and logs.
pub(crate) async fn objects(harness: &Harness) -> usize {
    let mut count = 0;
    for folder in ["outputs/", "logs/"] {
        count += harness.stack().store().bucket.list(folder).await.unwrap().len();
    }
    count
}

pub(crate) async fn stored(harness: &Harness, name: &str) -> usize {
    let mut items = 0;
    for hook in Hook::ALL {
        let (store, run) = (harness.stack().store(), run_id(name, hook));
        items += store.read_run(&run).await.unwrap().len();
        items += store.read_all_records(&run).await.unwrap().len();
    }
    items
}

/// Removes expired instances as the schedule does at a later time, and returns their number.
pub(crate) async fn remove_expired_after(harness: &Harness, after: Duration) -> usize {
    let then = now().plus(Millis(u64::try_from(after.as_millis()).unwrap()));
    remove_expired_at(harness.stack().env(), harness.stack().store().as_ref(), then).await
}

/// Announces the removal of what has expired at `then`, and removes it after the notice. Returns the number of removals.
pub(crate) async fn remove_expired_at(env: &Env, store: &Store, then: Timestamp) -> usize {
    let mut removed = 0;
    for at in [then, then.plus(env.settings.removal_notice())] {
        removed += ebb_flow::instance::retention::remove_expired(env, store, at).await.unwrap();
    }
    removed
}

/// Creates and deletes an instance, and waits until the platform is notified.
pub(crate) async fn create_and_delete(harness: &Harness, name: &str, plugin: &str) {
    harness.ready(name, plugin).await;
    delete(harness, name).await;
}

async fn delete(harness: &Harness, name: &str) {
    harness.tear_down(name).await;
    harness.notified(name, &["ready", "gone"]).await;
    harness.settled(name).await;
}

pub(crate) async fn instances_are_removed_after_their_retention() {
    let harness = harness(Some(RETENTION)).await;
    for name in ["ends", "lasts"] {
        harness.ready(name, "long").await;
    }
    let token = harness.receiver.call("POST /make", 1).await.token().to_owned();
    delete(&harness, "ends").await;
    assert_eq!(objects(&harness).await, 2);
    let (ended, lasting) = (stored(&harness, "ends").await, stored(&harness, "lasts").await);
    assert!(ended > 0 && lasting > 0);
    // The retention has not passed.
    assert_eq!(remove_expired_after(&harness, RETENTION / 2).await, 0);
    assert_eq!(stored(&harness, "ends").await, ended);
    let plan = async |name: &str| harness.stack().store().get_plan(&instance(name)).await.unwrap().is_some();
    assert!(plan("ends").await);
    // The table removes the target after its data only: a creation with the same UID would find its runs.
    let removed =
        async || harness.stack().store().read_target(TargetKey::new("sandbox", "ends")).await.unwrap().unwrap().removed;
    assert_eq!(removed().await, None);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 1);
    assert_eq!((stored(&harness, "ends").await, stored(&harness, "lasts").await), (0, lasting));
    assert_eq!((plan("ends").await, plan("lasts").await), (false, true));
    assert_eq!(objects(&harness).await, 1);
    assert_eq!(remove_expired_after(&harness, RETENTION * 4).await, 0, "removed twice");
    // A later callback for the removed run stores nothing.
    let response = harness.callback(&token, &json!({"status": "succeeded", "outputs": {"text": "late"}})).await;
    response.is_problem(410, "gone");
    assert_eq!(stored(&harness, "ends").await, 0);
    assert!(removed().await.is_some());
    // The target remains without its plan.
    let target = harness.target("ends").await.unwrap();
    assert_eq!((target.info.phase, target.info.waits_for, target.runs.len()), (TargetState::Gone, None, 0));
    assert!(harness.why("ends").await.summary.contains("nothing remains"));
    // The other instance is unaffected.
    harness.tear_down("lasts").await;
    assert_eq!(harness.receiver.count("POST /drop"), 2);
    assert!(plan("lasts").await);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 1);
    assert_eq!((stored(&harness, "lasts").await, objects(&harness).await, plan("lasts").await), (0, 0, false));
}

/// An instance whose plan is lost keeps its records and does not block other instances.
pub(crate) async fn an_unreadable_instance_is_postponed() {
    let harness = harness(Some(RETENTION)).await;
    harness.publish("short@1.0.0", NO_OUTPUT).await;
    for (name, plugin) in [("damaged", "long"), ("whole", "short")] {
        create_and_delete(&harness, name, plugin).await;
    }
    let (store, env) = (harness.stack().store(), harness.stack().env());
    let damaged = store.read_target(TargetKey::new("sandbox", "damaged")).await.unwrap().unwrap();
    store.delete_plan(&instance("damaged")).await.unwrap();
    env.forget_plan(&damaged.plan);
    let before = stored(&harness, "damaged").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 1);
    assert_eq!((stored(&harness, "damaged").await, stored(&harness, "whole").await), (before, 0));
    // Its expiry is postponed by a day.
    assert_eq!(store.list_expired(now(), 10).await.unwrap(), DueExpiries::default());
}

/// Outputs and logs are removed even if no record refers to them.
pub(crate) async fn objects_without_a_record_are_removed() {
    let harness = harness(Some(RETENTION)).await;
    harness.publish("short@1.0.0", NO_OUTPUT).await;
    harness.publish("silent@1.0.0", NO_LOG).await;
    for name in ["short", "silent", "long"] {
        harness.ready(name, name).await;
    }
    let store = harness.stack().store();
    let noted = async |name| {
        let key = ItemKey::new(format!("r#{}", run_id(name, Hook::PreStart)), "b");
        store.table().get(key).await.unwrap().value.is_some()
    };
    assert!(noted("long").await && !noted("short").await);
    let before = objects(&harness).await;
    for (name, object) in [("short", "outputs"), ("silent", "logs")] {
        let run = run_id(name, Hook::PreStart);
        if object == "outputs" {
            store.mark_outputs(&run).await.unwrap();
        }
        store.put_object(&format!("{object}/{run}/0/9.x"), vec![1]).await.unwrap();
        delete(&harness, name).await;
    }
    assert_eq!(objects(&harness).await, before + 2);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 2);
    assert_eq!(objects(&harness).await, before);
}

/// An instance with an open run or a pending notification keeps its data.
pub(crate) async fn records_of_open_instances_are_kept() {
    let harness = harness(Some(RETENTION)).await;
    create_and_delete(&harness, "a", "long").await;
    let store = harness.stack().store();
    let seen = store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    let pending = NotificationState { notification: Notification::Gone, attempts: 1, delivered_by: None, reason: None };
    let moves = async |notification: Option<NotificationState>, version: u64| {
        let target = TargetHead { notification, version: version + 1, ..seen.clone() };
        let transition = TargetTransition::new(target, Some(version));
        assert!(store.move_target(&transition).await.unwrap());
    };
    moves(Some(pending), seen.version).await;
    let before = stored(&harness, "a").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 0);
    assert_eq!((stored(&harness, "a").await, objects(&harness).await), (before, 1));
    moves(None, seen.version + 1).await;
    let run = run_id("a", Hook::PostStop);
    let root = store.read_root(&run).await.unwrap().unwrap().head;
    let reopened =
        accept(RunEvent::Reopened { unit: Unit(0), attempt: Attempt::FIRST, epoch: root.epoch, to: Attempt(2) });
    assert!(matches!(store.patch_run(&run, &reopened).await.unwrap(), PatchResult::Written(_)));
    let before = stored(&harness, "a").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 4).await, 0);
    assert_eq!((stored(&harness, "a").await, objects(&harness).await), (before, 1));
}

/// An instance with an overridden undo keeps its records, because its resources may exist.
pub(crate) async fn records_of_possible_resources_are_kept() {
    let harness = harness(Some(RETENTION)).await;
    harness.receiver.always("POST /drop", 400);
    harness.ready("a", "long").await;
    harness.stuck("a").await;
    // The instance is due, and its teardown has not ended.
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 0);
    assert!(stored(&harness, "a").await > 0);
    harness.post("/v1/targets/sandbox/a/force-delete", json!({"reason": "a test"})).await.is(202);
    harness.phase("a", TargetState::Gone).await;
    let before = stored(&harness, "a").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 8).await, 0);
    assert_eq!((stored(&harness, "a").await, objects(&harness).await), (before, 1));
    assert_eq!(harness.why("a").await.remaining.len(), 1);
    // The tombstone of a replaced instance stays as long as its records.
    harness.lifecycle(LifecycleType::Created, &sandbox("a", "b-uid", "long")).await.is(202);
    harness.instance_is_ready("a", "b-uid").await;
    let store = harness.stack().store();
    let expires = async || {
        let found = store.table().get(ItemKey::new(format!("x#{}", instance("a")), "h")).await.unwrap().value;
        found.unwrap()["ttl"].as_n().unwrap().parse::<u64>().unwrap()
    };
    let first = expires().await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 16).await, 0);
    assert!(expires().await > first + 8 * RETENTION.as_secs());
}

/// The plan of the update that waits is kept. That of the update that it has replaced is removed.
pub(crate) async fn the_plan_of_a_replaced_update_is_removed() {
    let harness = harness(Some(RETENTION)).await;
    let hold = harness.receiver.hold("POST /make");
    harness.create("a", "long").await;
    harness.receiver.call("POST /make", 1).await;
    for (generation, plugins) in [(2, "long}, s: {plugin: long"), (3, "long}, t: {plugin: long")] {
        let data = LifecycleData { generation, ..sandbox("a", "a-uid", plugins) };
        harness.lifecycle(LifecycleType::Updated, &data).await.is(202);
    }
    let store = harness.stack().store();
    let target = store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    let waits = target.pending_update.clone().unwrap();
    let replaced = PendingUpdate { generation: 2, ..waits.clone() };
    let keys = [&replaced, &waits].map(|update| target.update_key(update));
    for expected in [[true, true], [false, true]] {
        for (key, is_stored) in keys.iter().zip(expected) {
            assert_eq!(store.get_plan(key).await.unwrap().is_some(), is_stored, "{key}");
        }
        remove_expired_after(&harness, RETENTION * 2).await;
    }
    drop(hold);
}

pub(crate) async fn without_a_retention_everything_is_kept() {
    let harness = harness(None).await;
    harness.ready("a", "long").await;
    harness.tear_down("a").await;
    let before = stored(&harness, "a").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 1000).await, 0);
    assert_eq!(stored(&harness, "a").await, before);
}
