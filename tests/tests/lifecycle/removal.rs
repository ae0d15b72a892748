//! Removals of expired instances: with concurrent functions, crashes, a store that hangs, and damaged items.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ebb_engine::TargetPhase;
use ebb_flow::Env;
use ebb_flow::advance::reopen::{ReopenCause, reopen};
use ebb_flow::loaded_run::Run;
use ebb_protocol::id::TargetKey;
use ebb_protocol::record::OutputStorage;
use ebb_store::item_table::{
    AttributeChange, ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemTable, ItemWrite, TableError, TableResponse,
    TransactionOutcome, UpdateImage, WriteAction, WriteExpression, WriteOutcome,
};
use ebb_store::{DueExpiries, Item, Store, StoreError, StoreResult};
use ebb_tests::fakes;
use ebb_tests::virtual_clock::ManualClock;

use crate::harness::*;
use crate::lifecycle::retention::{
    NO_OUTPUT, RETENTION, create_and_delete, harness, objects, remove_expired_after, remove_expired_at, stored,
};

/// An instance is due as soon as it is gone. The stack removes expired instances a minute after its start at the
/// earliest.
const IMMEDIATE: Duration = Duration::from_millis(1);

/// Returns the environment of another function instance without a platform: its own cache, with the table of the stack.
pub(crate) fn other_instance(harness: &Harness) -> Env {
    let env = harness.stack().env();
    let mut settings = fakes::settings("http://functions.test", None, Millis(1_000)).unwrap();
    settings.retention = env.settings.retention;
    let (store, egress, queue) = (harness.stack().store(), &env.egress, &env.queue);
    fakes::env(Arc::clone(store), Arc::clone(egress), Arc::clone(queue), settings)
}

/// Starts a stack with a gone instance `a` that is due. Returns the callback token of its setup.
async fn removable() -> (Harness, String) {
    let harness = harness(Some(IMMEDIATE)).await;
    create_and_delete(&harness, "a", "long").await;
    let token = harness.receiver.call("POST /make", 1).await.token().to_owned();
    (harness, token)
}

/// Returns the body of a late callback.
fn late() -> Value {
    json!({"status": "succeeded", "outputs": {"text": "late"}})
}

/// One function instance removes a run that others have in their caches. By the clock of one of these, the retention has
/// not ended.
pub(crate) async fn a_run_that_another_function_removed_is_gone() {
    let (harness, token) = removable().await;
    let (stack, other) = (harness.stack(), other_instance(&harness));
    let clock = Arc::new(ManualClock::at(now().0 - 59_000));
    let slow = Env { clock, ..other_instance(&harness) };
    let runs = [Hook::PreStart, Hook::PostStop].map(|hook| run_id("a", hook));
    for run in &runs {
        assert!(stack.env().facts(run).await.unwrap().is_some(), "the cache has {run}");
        assert!(slow.facts(run).await.unwrap().is_some(), "the cache has {run}");
    }
    let then = now().plus(Millis(1_000));
    assert_eq!(remove_expired_at(&other, stack.store().as_ref(), then).await, 1);
    let [setup, teardown] = runs;
    assert_eq!(slow.facts(&setup).await.unwrap(), None);
    harness.get(&format!("/v1/runs/{setup}")).await.is_problem(404, "not-found");
    harness.get(&format!("/v1/runs/{teardown}/logs?unit=r/make")).await.is_problem(404, "not-found");
    let response = harness.callback(&token, &late()).await;
    response.is_problem(410, "gone");
    assert_eq!(stored(&harness, "a").await, 0);
}

/// A run and its plan are removed after a function instance has read the facts of the run.
pub(crate) async fn a_run_that_is_removed_with_its_plan_is_gone() {
    let harness = harness(Some(RETENTION)).await;
    create_and_delete(&harness, "a", "long").await;
    let (store, other, run) = (harness.stack().store(), other_instance(&harness), run_id("a", Hook::PreStart));
    assert!(other.facts(&run).await.unwrap().is_some());
    store.delete_plan(&instance("a")).await.unwrap();
    assert!(Run::load(&other, &run).await.is_err(), "the plan of the run is lost");
    store.delete_run(&run).await.unwrap();
    assert!(Run::load(&other, &run).await.unwrap().is_none());
}

/// A table whose removals of roots of an instance fail or hang.
#[derive(Debug)]
struct FailingTable {
    table: Arc<dyn ItemTable>,
    roots: String,
    hangs: bool,
    hits: AtomicUsize,
}

/// Returns the table, and a store on it.
fn failing(harness: &Harness, name: &str, hangs: bool) -> (Arc<FailingTable>, Store) {
    let store = harness.stack().store();
    let (table, roots) = (Arc::clone(store.table()), format!("r#{}", instance(name)));
    let failing = Arc::new(FailingTable { table, roots, hangs, hits: AtomicUsize::new(0) });
    (Arc::clone(&failing), Store::new(failing, Arc::clone(&store.bucket)))
}

#[async_trait]
impl ItemTable for FailingTable {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        self.table.get(key).await
    }

    async fn get_batch(
        &self,
        keys: Vec<ItemKey>,
        attributes: Option<&'static [&'static str]>,
    ) -> StoreResult<TableResponse<ItemBatch>> {
        self.table.get_batch(keys, attributes).await
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        self.table.query(query, from).await
    }

    async fn write(&self, write: &ItemWrite) -> Result<TableResponse<WriteOutcome>, TableError> {
        if write.action != WriteAction::Delete || !write.key.partition.starts_with(&self.roots) {
            return self.table.write(write).await;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(StoreError::Retryable { operation: "DeleteItem", reason: "injected".to_owned() }.into())
    }

    async fn transact(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        self.table.transact(puts, token).await
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        self.table.delete_batch(keys).await
    }
}

/// A removal stops after its first step. A late success is rejected then.
pub(crate) async fn the_plan_of_a_target_is_cleared_before_its_runs_are_removed() {
    let (harness, token) = removable().await;
    let before = stored(&harness, "a").await;
    let (stack, (table, failing)) = (harness.stack(), failing(&harness, "a", false));
    let then = now().plus(Millis(1_000));
    assert_eq!(remove_expired_at(stack.env(), &failing, then).await, 0);
    assert_eq!(table.hits.load(Ordering::Relaxed), 1);
    let target = stack.store().read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    assert_eq!((target.phase, target.plan.as_str()), (TargetPhase::Gone, ""));
    let response = harness.callback(&token, &late()).await;
    response.is_problem(410, "gone");
    // The undo is not reopened for a success that was accepted just before.
    let (undo, units) = (run_id("a", Hook::PostStop), [Unit(0)]);
    assert!(!reopen(stack.env(), &undo, &units, ReopenCause::LateSuccess).await.unwrap());
    assert_eq!(stack.store().read_target(TargetKey::new("sandbox", "a")).await.unwrap(), Some(target));
    assert_eq!(stored(&harness, "a").await, before);
    assert_eq!(remove_expired_after(&harness, RETENTION).await, 1);
    assert_eq!((stored(&harness, "a").await, objects(&harness).await), (0, 0));
}

/// Removes what has expired at `at`, in one round. Returns the number of removals.
async fn round(harness: &Harness, at: Timestamp) -> usize {
    let (env, store) = (harness.stack().env(), harness.stack().store());
    ebb_flow::instance::retention::remove_expired(env, store.as_ref(), at).await.unwrap()
}

/// A late success arrives after a removal was announced. Another instance has the name.
pub(crate) async fn a_late_success_is_not_taken_after_the_announcement_of_a_removal() {
    let (harness, token) = removable().await;
    harness.lifecycle(LifecycleType::Created, &sandbox("a", "another-uid", "long")).await.is(202);
    harness.phase("a", TargetState::Ready).await;
    let before = stored(&harness, "a").await;
    let (then, notice) = (now().plus(Millis(1_000)), harness.stack().env().settings.removal_notice());
    let expiries = async || harness.stack().store().list_expired(then, 10).await.unwrap().readable;
    let scheduled = expiries().await;
    assert_eq!(round(&harness, then).await, 0);
    assert_eq!(expiries().await, scheduled, "the announcement is one write, of the root");
    harness.callback(&token, &late()).await.is_problem(503, "unavailable");
    assert_eq!(round(&harness, then.plus(Millis(notice.0 - 1))).await, 0);
    assert_eq!(stored(&harness, "a").await, before);
    // An invocation that took a result before the announcement stores it now.
    let run = run_id("a", Hook::PreStart);
    harness.stack().store().put_object(&format!("logs/{run}/0/9.log"), vec![1]).await.unwrap();
    harness.stack().store().mark_outputs(&run).await.unwrap();
    assert_eq!(round(&harness, then.plus(notice)).await, 1);
    assert_eq!((stored(&harness, "a").await, objects(&harness).await), (0, 1));
    harness.callback(&token, &late()).await.is_problem(410, "gone");
    assert_eq!(stored(&harness, "a").await, 0);
}

/// While a removal waits for the end of its notice, the plan is neither read nor removed from memory, where active targets
/// use it.
pub(crate) async fn an_announced_removal_waits_without_the_plan() {
    let harness = harness(Some(IMMEDIATE)).await;
    create_and_delete(&harness, "a", "long").await;
    let (store, env, key) = (harness.stack().store(), harness.stack().env(), instance("a"));
    let digest = store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap().plan;
    let (then, notice) = (now().plus(Millis(1_000)), env.settings.removal_notice());
    assert_eq!(round(&harness, then).await, 0);
    let plan = store.get_plan(&key).await.unwrap().unwrap();
    store.delete_plan(&key).await.unwrap();
    assert_eq!(round(&harness, then.plus(Millis(notice.0 - 1))).await, 0);
    assert_eq!(env.plan(&key, &digest).await.unwrap().digest, digest, "the plan is in memory");
    store.restore_plan(&key, &plan).await.unwrap();
    assert_eq!(round(&harness, then.plus(notice)).await, 1, "the removal was neither withdrawn nor postponed");
    assert_eq!(stored(&harness, "a").await, 0);
}

/// An invocation that took a late success before a removal was announced reopens the undo. The data is kept, and the runs
/// take results again.
pub(crate) async fn a_removal_is_withdrawn_for_a_reopened_undo() {
    let (harness, token) = removable().await;
    harness.receiver.always("POST /drop", 202);
    let (then, env) = (now().plus(Millis(1_000)), harness.stack().env());
    assert_eq!(round(&harness, then).await, 0);
    assert!(reopen(env, &run_id("a", Hook::PostStop), &[Unit(0)], ReopenCause::LateSuccess).await.unwrap());
    let before = stored(&harness, "a").await;
    assert_eq!(round(&harness, then.plus(env.settings.removal_notice())).await, 0);
    assert!(stored(&harness, "a").await >= before);
    harness.callback(&token, &late()).await.is(204);
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
    harness.phase("a", TargetState::Ready).await;
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
    let changes = [("uid".to_owned(), AttributeChange::Remove)].into();
    let expression = WriteExpression { conditions: Vec::new(), changes };
    let write = ItemWrite { key, expression, action: WriteAction::Update(UpdateImage::After) };
    store.table().write(&write).await.unwrap();
    let mut due = then;
    for hours in [1, 2, 4] {
        let removed = usize::from(hours == 1);
        assert_eq!(remove_expired_at(harness.stack().env(), store.as_ref(), due).await, removed);
        let wait = hours * 3_600_000;
        let listed = async |at| store.list_expired(at, 10).await.unwrap().damaged;
        assert_eq!(listed(due.plus(Millis(wait - 1))).await, []);
        due = due.plus(Millis(wait));
        assert_eq!(listed(due).await.len(), 1);
    }
    assert_eq!(stored(&harness, "whole").await, 0);
    assert!(stored(&harness, "damaged").await > 0);
}

/// The removal of an instance has a timeout. The following instances are removed in the same sweep.
pub(crate) async fn a_removal_that_hangs_does_not_block_other_instances() {
    let harness = harness(Some(RETENTION)).await;
    for name in ["hangs", "next"] {
        create_and_delete(&harness, name, "long").await;
    }
    let (table, failing) = failing(&harness, "hangs", true);
    let then = now().plus(Millis(172_800_000));
    let removed = remove_expired_at(harness.stack().env(), &failing, then).await;
    assert_eq!((table.hits.load(Ordering::Relaxed), removed), (1, 1));
    assert_eq!(stored(&harness, "next").await, 0);
    assert!(stored(&harness, "hangs").await > 0);
    // It is due again an hour later.
    assert_eq!(harness.stack().store().list_expired(then, 10).await.unwrap(), DueExpiries::default());
    assert_eq!(remove_expired_after(&harness, RETENTION * 3).await, 1);
}

/// The only run of an instance is that of an update. Its plan is lost, so nothing is removed.
pub(crate) async fn an_instance_with_an_update_and_without_its_plan_is_kept() {
    let harness = harness(Some(RETENTION)).await;
    harness.publish("short@1.0.0", NO_OUTPUT).await;
    let empty = ebb_tests::platform::sandbox("a", "a-uid", "resources: {}\n");
    harness.lifecycle(LifecycleType::Created, &empty).await.is(202);
    harness.phase("a", TargetState::Ready).await;
    let filled = LifecycleData { generation: 2, ..sandbox("a", "a-uid", "short") };
    harness.lifecycle(LifecycleType::Updated, &filled).await.is(202);
    harness.generation("a", 2).await;
    harness.phase("a", TargetState::Ready).await;
    harness.tear_down("a").await;
    harness.settled("a").await;
    let (stack, run) = (harness.stack(), run_id("a", Hook::Update(1)));
    let plan = stack.store().read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap().plan;
    stack.store().delete_plan(&instance("a")).await.unwrap();
    stack.env().forget_plan(&plan);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 0);
    assert_eq!(stack.store().read_run(&run).await.unwrap().len(), 1);
}

/// Lost outputs neither hide the remaining resources nor change the expiry of the instance.
pub(crate) async fn lost_outputs_are_reported() {
    let harness = harness(Some(RETENTION * 10)).await;
    harness.receiver.always("POST /drop", 400);
    harness.ready("a", "long").await;
    harness.stuck("a").await;
    harness.post("/v1/targets/sandbox/a/force-delete", json!({"reason": "a test"})).await.is(202);
    harness.phase("a", TargetState::Gone).await;
    let store = harness.stack().store();
    for (_, _, record) in store.read_all_records(&run_id("a", Hook::PreStart)).await.unwrap() {
        let OutputStorage::Bucket(key) = record.result.unwrap().outputs else {
            panic!("the outputs are in the bucket")
        };
        store.bucket.remove(&key).await.unwrap();
    }
    let why = harness.why("a").await;
    assert_eq!((why.remaining.len(), why.remaining[0].outputs_left_out), (1, true));
    assert!(why.notes.iter().any(|note| note.contains("r/make") && note.contains("lost")), "{:?}", why.notes);
    let before = now();
    assert_eq!(remove_expired_after(&harness, RETENTION * 20).await, 0);
    // The expiry is postponed as for an instance with outputs, because a resource may exist.
    let listed = async |time: Timestamp, after: u32| {
        let at = time.plus(Millis(u64::try_from((RETENTION * after).as_millis()).unwrap()));
        store.list_expired(at, 10).await.unwrap().readable.len()
    };
    assert_eq!((listed(before, 29).await, listed(now(), 31).await), (0, 1));
}
