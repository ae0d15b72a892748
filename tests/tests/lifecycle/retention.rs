//! The items of an instance are removed after its retention.

use ebb_flow::instance::retention::remove_expired;
use ebb_store::item_table::{AttributeChange, ItemKey, ItemWrite, UpdateImage, WriteAction, WriteExpression};

use crate::harness::*;

/// Long enough for a test to read the data before its removal.
pub(crate) const RETENTION: Duration = Duration::from_secs(86_400);
/// An instance is due as soon as it is gone. The stack removes expired instances a minute after its start at the
/// earliest.
const IMMEDIATE: Duration = Duration::from_millis(1);

async fn harness(retention: Option<Duration>) -> Harness {
    let harness = Harness::with_retention(retention).await;
    harness.receiver.always("POST /make", json!({"text": "x".repeat(10_000)}));
    harness.publish("long@1.0.0", include_str!("documents/long-output.yaml")).await;
    harness
}

/// Returns the environment of another function instance without a platform: its own cache, with the table of the stack.
pub(crate) fn other_instance(harness: &Harness) -> Env {
    let env = harness.stack().env();
    let mut settings = fakes::settings("https://functions.test", None, Millis(1_000));
    settings.retention = env.settings.retention;
    let (store, egress, queue) = (harness.stack().store(), &env.egress, &env.queue);
    fakes::env(Arc::clone(store), Arc::clone(egress), Arc::clone(queue), settings)
}

/// Counts the objects of outputs and logs.
pub(crate) async fn objects(harness: &Harness) -> usize {
    let mut count = 0;
    for folder in ["outputs/", "logs/"] {
        count += harness.stack().store().bucket.list(folder).await.unwrap().len();
    }
    count
}

async fn stored(harness: &Harness, name: &str) -> usize {
    let mut items = 0;
    for hook in Hook::ALL {
        let run = harness.state(name, hook).await;
        items += usize::from(run.head.is_some()) + run.records.len();
    }
    items
}

/// Announces the removal of what has expired after a time, and removes it after the notice. Returns the number of removals.
pub(crate) async fn remove_expired_after(harness: &Harness, after: Duration) -> usize {
    announce_and_remove(harness, now().plus(Millis(u64::try_from(after.as_millis()).unwrap()))).await
}

async fn announce_and_remove(harness: &Harness, then: Timestamp) -> usize {
    let env = harness.stack().env();
    let mut removed = 0;
    for at in [then, then.plus(env.settings.removal_notice())] {
        removed += remove_expired(env, at).await.unwrap();
    }
    removed
}

/// Creates and deletes an instance, and waits until the platform is notified.
async fn create_and_delete(harness: &Harness, name: &str, plugin: &str) {
    harness.ready(name, plugin).await;
    delete(harness, name).await;
}

async fn delete(harness: &Harness, name: &str) {
    harness.tear_down(name).await;
    harness.notified(name, &["ready", "gone"]).await;
    harness.settled(name).await;
}

/// While a removal waits for the end of its notice, the plan is neither read nor removed from memory, where active targets
/// use it.
pub(crate) async fn an_announced_removal_waits_without_the_plan() {
    let harness = harness(Some(IMMEDIATE)).await;
    create_and_delete(&harness, "a", "long").await;
    let (store, env, key) = (harness.stack().store(), harness.stack().env(), instance("a"));
    let digest = store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap().plan;
    let (then, notice) = (now().plus(Millis(1_000)), env.settings.removal_notice());
    let round = async |at: Timestamp| remove_expired(env, at).await.unwrap();
    assert_eq!(round(then).await, 0);
    let plan = store.get_plan(&key).await.unwrap().unwrap();
    store.delete_plan(&key).await.unwrap();
    assert_eq!(round(then.plus(Millis(notice.0 - 1))).await, 0);
    assert_eq!(env.plan(&key, &digest).await.unwrap().digest, digest, "the plan is in memory");
    store.restore_plan(&key, &plan).await.unwrap();
    assert_eq!(round(then.plus(notice)).await, 1, "the removal was neither withdrawn nor postponed");
    assert_eq!(stored(&harness, "a").await, 0);
}

/// A removal is announced first. Another function instance removes a run that this one has in its cache.
pub(crate) async fn a_removed_run_takes_no_results() {
    let harness = harness(Some(IMMEDIATE)).await;
    create_and_delete(&harness, "a", "long").await;
    let token = harness.receiver.call("POST /make", 1).await.token().to_owned();
    let late = json!({"status": "succeeded", "outputs": {"text": "late"}});
    let env = harness.stack().env();
    let [setup, teardown] = [Hook::PreStart, Hook::PostStop].map(|hook| run_id("a", hook));
    assert!(env.facts(&setup).await.unwrap().is_some(), "the cache has the run");
    let (before, other) = (stored(&harness, "a").await, other_instance(&harness));
    let (then, notice) = (now().plus(Millis(1_000)), other.settings.removal_notice());
    let round = async |at: Timestamp| remove_expired(&other, at).await.unwrap();
    assert_eq!(round(then).await, 0);
    harness.callback(&token, &late).await.is_problem(503, "unavailable");
    assert_eq!(round(then.plus(Millis(notice.0 - 1))).await, 0);
    assert_eq!(stored(&harness, "a").await, before);
    assert_eq!(round(then.plus(notice)).await, 1, "the removal was neither withdrawn nor postponed");
    harness.get(&format!("/v1/runs/{setup}")).await.is_problem(404, "not-found");
    harness.get(&format!("/v1/runs/{teardown}/logs?unit=r/make")).await.is_problem(404, "not-found");
    harness.callback(&token, &late).await.is_problem(410, "gone");
    assert_eq!((stored(&harness, "a").await, objects(&harness).await), (0, 0));
}

/// An instance whose plan is lost keeps its records and does not block other instances. Its only run is that of an update.
pub(crate) async fn an_unreadable_instance_is_postponed() {
    let harness = harness(Some(RETENTION)).await;
    request_table::play(&harness, "lifecycle/retention.yaml", "an_unreadable_instance_is_postponed", &[]).await;
    let (store, env) = (harness.stack().store(), harness.stack().env());
    let damaged = store.read_target(TargetKey::new("sandbox", "damaged")).await.unwrap().unwrap();
    store.delete_plan(&instance("damaged")).await.unwrap();
    env.forget_plan(&damaged.plan);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 1);
    let kept = store.read_run(&run_id("damaged", Hook::Update(1))).await.unwrap().is_some();
    assert_eq!((kept, stored(&harness, "whole").await), (true, 0));
}

/// Outputs and logs are removed even if no record refers to them.
pub(crate) async fn objects_without_a_record_are_removed() {
    let harness = harness(Some(RETENTION)).await;
    harness.publish("short@1.0.0", "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n").await;
    harness.publish("silent@1.0.0", include_str!("documents/no-log.yaml")).await;
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
        store.bucket.put_object(&format!("{object}/{run}/0/9.x"), vec![1]).await.unwrap();
        delete(&harness, name).await;
    }
    assert_eq!(objects(&harness).await, before + 2);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 2);
    assert_eq!(objects(&harness).await, before);
}

/// An instance with an overridden undo keeps its records, because its resources may exist. Lost outputs do not hide them.
pub(crate) async fn records_of_possible_resources_are_kept() {
    let harness = Harness::with_retention(Some(RETENTION)).await;
    let (table, test) = ("lifecycle/retention.yaml", "records_of_possible_resources_are_kept");
    request_table::play(&harness, table, test, &[]).await;
    let store = harness.stack().store();
    // The tombstone of a replaced instance stays as long as its records.
    harness.lifecycle(LifecycleType::Created, &sandbox("a", "b-uid", "long")).await.is(202);
    harness.instance_is_ready("a", "b-uid").await;
    let expires = async || {
        let found = store.table().get(ItemKey::new(format!("x#{}", instance("a")), "h")).await.unwrap().value;
        found.unwrap()["ttl"].as_n().unwrap().parse::<u64>().unwrap()
    };
    let first = expires().await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 16).await, 0);
    assert!(expires().await > first + 8 * RETENTION.as_secs());
}

/// An instance with a long teardown is kept for the whole retention, even if another instance takes the name.
pub(crate) async fn a_new_instance_does_not_shorten_the_retention_of_the_former_one() {
    let harness = harness(Some(RETENTION)).await;
    create_and_delete(&harness, "a", "long").await;
    let store = harness.stack().store();
    // The teardown began long before it ended.
    let began = now().plus(Millis(u64::try_from(RETENTION.as_millis()).unwrap() / 4));
    let [expiry] = store.list_expired(now().plus(Millis(u64::MAX / 4)), 10).await.unwrap().readable.try_into().unwrap();
    store.postpone_expiry(&expiry, began, 0).await.unwrap();
    let before = stored(&harness, "a").await;
    harness.lifecycle(LifecycleType::Created, &sandbox("a", "another-uid", "long")).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(remove_expired_after(&harness, RETENTION / 2).await, 0);
    assert_eq!(stored(&harness, "a").await, before);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 1);
    assert_eq!(stored(&harness, "a").await, 0);
    assert_eq!(objects(&harness).await, 1, "the object of the current instance");
}

/// An unreadable expiry is postponed with growing delays. Other instances are removed.
pub(crate) async fn a_damaged_expiry_does_not_block_other_instances() {
    let harness = harness(Some(RETENTION)).await;
    for name in ["damaged", "whole"] {
        create_and_delete(&harness, name, "long").await;
    }
    let (store, then) = (harness.stack().store(), now().plus(Millis(172_800_000)));
    let instance = instance("damaged");
    let all = store.list_expired(then.plus(Millis(u64::MAX / 4)), 10).await.unwrap().readable;
    let expiry = all.iter().find(|expiry| expiry.name == "damaged").unwrap();
    let key = ItemKey::new("retention#", format!("{:020}#{instance}", expiry.due.0));
    let changes = [("b".to_owned(), AttributeChange::Remove)].into();
    let expression = WriteExpression { conditions: Vec::new(), changes };
    let write = ItemWrite { key, expression, action: WriteAction::Update(UpdateImage::After) };
    store.table().write(&write).await.unwrap();
    let mut due = then;
    for hours in [1, 2, 4] {
        let removed = usize::from(hours == 1);
        assert_eq!(announce_and_remove(&harness, due).await, removed);
        let wait = hours * 3_600_000;
        let listed = async |at| store.list_expired(at, 10).await.unwrap().damaged;
        assert_eq!(listed(due.plus(Millis(wait - 1))).await, []);
        due = due.plus(Millis(wait));
        assert_eq!(listed(due).await.len(), 1);
    }
    assert_eq!(stored(&harness, "whole").await, 0);
    assert!(stored(&harness, "damaged").await > 0);
}
