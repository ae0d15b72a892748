use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{RunEvent, Timestamp};
use ebb_protocol::id::TargetKey;

use super::fixture::{StoreFixture, new_run, target, text, written};
use crate::item_table::{ItemKey, ItemPut, TransactionOutcome, WriteExpression};
use crate::{DueItem, TargetHead, TargetList, TargetTransition};

/// The items of one transaction.
const BATCH: usize = 50;
const LATER: Timestamp = Timestamp(u64::MAX / 4);

fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Returns an item with an entry in the due index.
fn entry(partition: &str, shard: u8, due: u64) -> HashMap<String, AttributeValue> {
    let parts = [("pk", text(partition)), ("sk", text("h")), ("g", number(shard)), ("due", number(due))];
    parts.map(|(name, value)| (name.to_owned(), value)).into()
}

impl StoreFixture {
    pub(super) async fn write(&self, items: Vec<HashMap<String, AttributeValue>>) {
        for items in items.chunks(BATCH) {
            let puts = items.iter().map(|item| ItemPut { item: item.clone(), expression: WriteExpression::default() });
            let puts: Vec<_> = puts.collect();
            let token = format!("{:032x}", rand::random::<u128>());
            let response = self.store.table().transact(&puts, &token).await.unwrap();
            assert_eq!(response.value, TransactionOutcome::Written);
        }
    }

    async fn delete(&self, partition: &str) {
        let keys = vec![ItemKey::new(partition, "h")];
        assert_eq!(self.store.table().delete_batch(keys).await.unwrap().value, []);
    }
}

pub(super) async fn a_stale_index_returns_items_that_are_no_longer_due(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy().await;
    let target = DueItem::Target("sandbox".into(), "a".into());
    let due = new_run("a").due;
    let before = store.query_due(LATER, 10).await.unwrap();
    assert_eq!(before, [(due, DueItem::Run(run.clone())), (due, target)]);
    proxy.freeze();
    written(fixture.accept(&run, RunEvent::Closed { version: 0, notified: None }).await);
    assert_eq!(store.query_due(LATER, 10).await.unwrap(), before);
    // The write of a sweep has a condition on the head, so a stale entry changes nothing.
    let head = store.read_run(&run).await.unwrap().unwrap().head;
    assert_eq!(head.due, None);
    let rearmed = RunEvent::Rescheduled { seen: due, version: 0, next: LATER };
    assert_eq!(super::fixture::refused(fixture.accept(&run, rearmed).await).unwrap().head, head);
    assert_eq!(proxy.thaw(), 16);
    assert_eq!(store.query_due(LATER, 10).await.unwrap(), before[1..]);
}

pub(super) async fn a_delayed_index_returns_items_later(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy().await;
    assert_eq!(store.query_due(LATER, 10).await.unwrap(), []);
    assert_eq!(store.list_targets(TargetList::Active, None, None, 10).await.unwrap(), []);
    proxy.freeze();
    let run = fixture.run("a").await;
    assert_eq!(store.query_due(LATER, 10).await.unwrap(), []);
    assert_eq!(store.list_targets(TargetList::Active, None, None, 10).await.unwrap(), []);
    assert!(store.read_run(&run).await.unwrap().is_some());
    assert!(store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().is_some());
    assert_eq!(proxy.thaw(), 17);
    assert_eq!(store.query_due(LATER, 10).await.unwrap().len(), 2);
    assert_eq!(store.list_targets(TargetList::Active, None, None, 10).await.unwrap(), [target("sandbox", "a")]);
}

pub(super) async fn an_index_entry_of_a_deleted_item_is_harmless(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy().await;
    let before = store.query_due(LATER, 10).await.unwrap();
    assert_eq!(before.len(), 2);
    proxy.freeze();
    fixture.delete(&format!("r#{run}")).await;
    fixture.delete("t#sandbox#a").await;
    assert_eq!(store.query_due(LATER, 10).await.unwrap(), before);
    assert_eq!(proxy.thaw(), 16);
    assert_eq!(store.read_run(&run).await.unwrap(), None);
    assert_eq!(store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), None);
    // Writes of a sweep do not create the item again.
    for event in [
        RunEvent::WakeupAdvanced { due: Timestamp(1) },
        RunEvent::VersionBumped,
        RunEvent::Rescheduled { seen: new_run("a").due, version: 0, next: LATER },
        RunEvent::Closed { version: 0, notified: None },
    ] {
        assert_eq!(super::fixture::refused(fixture.accept(&run, event).await), None);
    }
    let seen = TargetHead { version: 2, ..target("sandbox", "a") };
    assert!(!fixture.store.move_target(&TargetTransition::new(seen, Some(1))).await.unwrap());
    assert_eq!(store.query_due(LATER, 10).await.unwrap(), []);
}

/// The most urgent entries are unreadable. The query returns the requested number of readable ones.
pub(super) async fn unreadable_index_entries_are_skipped(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let readable = fixture.store.query_due(LATER, 10).await.unwrap();
    assert_eq!(fixture.meter.take().unreadable, 0);
    let unreadable = ["other", "r#no run", "t#sandbox", "t#a#%FF", "p#sha256:x"];
    fixture
        .write((0..16).flat_map(|shard| unreadable.map(|pk| entry(&format!("{pk}{shard}"), shard, 1))).collect())
        .await;
    // None of these keys can be parsed, except `t#a#%FF0`, whose text is invalid.
    assert_eq!(fixture.store.query_due(LATER, 2).await.unwrap(), readable);
    assert_eq!(fixture.meter.take().unreadable, 80);
    assert_eq!(fixture.store.query_due(LATER, 1).await.unwrap(), readable[..1]);
    assert_eq!(readable[0].1, DueItem::Run(run));
}

pub(super) async fn due_items_of_many_pages_are_found(fixture: StoreFixture) {
    let name = |n: u64| format!("t#sandbox#{n:04}");
    // One shard has more entries than one page.
    fixture.write((0..2_100).map(|n| entry(&name(n), 3, 1_000 + n)).collect()).await;
    fixture.meter.take();
    let found = fixture.store.query_due(LATER, 10_000).await.unwrap();
    assert_eq!(fixture.meter.take().requests["Query"], 15 + 3);
    let expected = |n: u64| (Timestamp(1_000 + n), DueItem::Target("sandbox".into(), format!("{n:04}")));
    assert_eq!(found, (0..2_100).map(expected).collect::<Vec<_>>());
    let some = fixture.store.query_due(LATER, 1_500).await.unwrap();
    assert_eq!(some, found[..1_500]);
}

pub(super) async fn a_list_skips_deleted_targets(fixture: StoreFixture) {
    for n in 0..6 {
        fixture.put(target("sandbox", &n.to_string())).await;
    }
    let (proxy, store) = fixture.proxy().await;
    let names = async |limit| {
        let targets = store.list_targets(TargetList::Active, None, None, limit).await.unwrap();
        targets.into_iter().map(|target| target.name).collect::<Vec<_>>()
    };
    assert_eq!(names(3).await, ["0", "1", "2"]);
    proxy.freeze();
    for n in [0, 2] {
        fixture.delete(&format!("t#sandbox#{n}")).await;
    }
    // A page with gaps is filled from the next one.
    assert_eq!(names(3).await, ["1", "3", "4"]);
    assert_eq!(proxy.thaw(), 1);
    assert_eq!(names(10).await, ["1", "3", "4", "5"]);
}
