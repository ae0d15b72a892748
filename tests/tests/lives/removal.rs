//! Removals that meet a store that hangs, or damaged state.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_engine::{Millis, Moment, Timestamp};
use ebb_store::{DamagedExpiry, DueExpiries, Expiries, ReadRecords as _, Store, StoreError};
use ebb_wire::api::Phase;
use ebb_wire::id::RunId;
use ebb_wire::record::Kept;
use serde_json::json;

use crate::retention::{KEPT, objects, round_at, stored, world};
use crate::world::{Reply, World, now, run_id};

/// Leaves a life that is gone and was told.
async fn gone(world: &World, name: &str, plugin: &str) {
    world.create(name, plugin).await;
    world.phase(name, Phase::Ready).await;
    world.delete(name).await;
    world.phase(name, Phase::Gone).await;
    world.told(name, &["ready", "gone"]).await;
}

/// A store whose removals of runs fail or hang.
struct Failing<'a> {
    store: &'a Store,
    life: String,
    hangs: bool,
    hits: AtomicUsize,
}

impl<'a> Failing<'a> {
    fn new(world: &'a World, name: &str, hangs: bool) -> Self {
        let life = ebb_wire::id::life("sandbox", name, &format!("{name}-uid"));
        Self { store: world.stack().store().as_ref(), life, hangs, hits: AtomicUsize::new(0) }
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Expiries for Failing<'_> {
    async fn list_expired(&self, now: Timestamp, limit: usize) -> Result<DueExpiries, StoreError> {
        self.store.list_expired(now, limit).await
    }

    async fn postpone_damaged(&self, damaged: &DamagedExpiry, due: Timestamp) -> Result<(), StoreError> {
        self.store.postpone_damaged(damaged, due).await
    }

    async fn delete_expiry(&self, life: &str) -> Result<(), StoreError> {
        self.store.delete_expiry(life).await
    }

    async fn delete_run(&self, run: &RunId) -> Result<(), StoreError> {
        if !run.as_str().starts_with(&self.life) {
            return self.store.delete_run(run).await;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(StoreError::Retryable { operation: "BatchWriteItem", reason: "by plan".to_owned() })
    }

    async fn delete_objects(&self, run: &RunId) -> Result<(), StoreError> {
        self.store.delete_objects(run).await
    }

    async fn release_plan(&self, digest: &str, life: &str) -> Result<(), StoreError> {
        self.store.release_plan(digest, life).await
    }
}

/// An expiry that cannot be read is postponed for ever longer; the lives beside it are removed.
pub(crate) async fn damaged_items_keep_no_other_life() {
    let world = world(Some(KEPT)).await;
    for name in ["damaged", "whole"] {
        gone(&world, name, "long").await;
    }
    let (store, then) = (world.stack().store(), now().plus(Millis(172_800_000)));
    let life = ebb_wire::id::life("sandbox", "damaged", "damaged-uid");
    let (client, table) = (store.dynamo.client(), store.dynamo.table());
    let key = [("pk", format!("end#{life}")), ("sk", "h".to_owned())];
    let key = key.into_iter().map(|(name, value)| (name.to_owned(), AttributeValue::S(value))).collect();
    let request = client.update_item().table_name(table).set_key(Some(key));
    request.update_expression("REMOVE uid").send().await.unwrap();
    let mut due = then;
    for hours in [1, 2, 4] {
        let removed = usize::from(hours == 1);
        assert_eq!(
            ebb_flow::retention::round(world.stack().env(), store.as_ref(), due).await.unwrap(),
            removed
        );
        let wait = hours * 3_600_000;
        let listed = async |at| store.list_expired(at, 10).await.unwrap().damaged;
        assert_eq!(listed(due.plus(Millis(wait - 1))).await, []);
        due = due.plus(Millis(wait));
        assert_eq!(listed(due).await.len(), 1);
    }
    assert_eq!(stored(&world, "whole").await, 0);
    assert!(stored(&world, "damaged").await > 0);
}

/// A look has its time; the lives after it have their turn in the same round.
pub(crate) async fn a_removal_that_hangs_keeps_no_other_life() {
    let world = world(Some(KEPT)).await;
    for name in ["hangs", "next"] {
        gone(&world, name, "long").await;
    }
    let failing = Failing::new(&world, "hangs", true);
    let then = now().plus(Millis(172_800_000));
    let removed = ebb_flow::retention::round(world.stack().env(), &failing, then).await.unwrap();
    assert_eq!((failing.hits(), removed), (1, 1));
    assert_eq!(stored(&world, "next").await, 0);
    assert!(stored(&world, "hangs").await > 0);
    // It is due again an hour later.
    assert_eq!(world.stack().store().list_expired(then, 10).await.unwrap(), DueExpiries::default());
    assert_eq!(round_at(&world, KEPT * 3).await, 1);
}

/// Outputs that the bucket lost do not hide what exists, and do not change when a life is looked at.
pub(crate) async fn lost_outputs_are_named() {
    let world = world(Some(KEPT * 10)).await;
    world.receiver.on("POST /drop", |_, _| Reply::status(400));
    world.create("a", "long").await;
    world.phase("a", Phase::Ready).await;
    world.delete("a").await;
    world.phase("a", Phase::Stuck).await;
    world
        .ask(reqwest::Method::POST, "/v1/targets/sandbox/a/abandon", Some(json!({"reason": "a test"})))
        .await
        .is(202);
    world.phase("a", Phase::Gone).await;
    let store = world.stack().store();
    for (_, _, record) in store.read_all_records(&run_id("a", Moment::BeforeReady)).await.unwrap() {
        let Kept::Bucket(key) = record.result.unwrap().outputs else {
            panic!("the outputs are in the bucket")
        };
        store.bucket.remove(&key).await.unwrap();
    }
    let why = world.why("a").await;
    assert_eq!((why.exists.len(), why.exists[0].outputs_left_out), (1, true));
    assert!(why.notes.iter().any(|note| note.contains("r/make") && note.contains("lost")), "{:?}", why.notes);
    assert_eq!(round_at(&world, KEPT * 20).await, 0);
    // As one whose outputs are there: something of it may exist.
    let listed = async |after: u32| {
        let at = now().plus(Millis(u64::try_from((KEPT * after).as_millis()).unwrap()));
        store.list_expired(at, 10).await.unwrap().lives.len()
    };
    assert_eq!((listed(29).await, listed(31).await), (0, 1));
}
