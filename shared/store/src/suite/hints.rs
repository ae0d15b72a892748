use super::fixture::*;

const BATCH: usize = 50;
const LATER: Timestamp = Timestamp(u64::MAX / 4);

fn entry(partition: &str, shard: u8, due: u64) -> Item {
    item_at((partition, "h"), [("g", number(shard)), ("due", number(due))])
}

impl StoreFixture {
    pub(super) async fn write(&self, items: Vec<Item>) {
        for items in items.chunks(BATCH) {
            let puts = items.iter().map(|item| ItemPut { item: item.clone(), expression: WriteExpression::default() });
            let puts: Vec<_> = puts.collect();
            let token = format!("{:032x}", rand::random::<u128>());
            let response = self.table.transact(&puts, &token).await.unwrap();
            assert_eq!(response.value, TransactionOutcome::Written);
        }
    }
}

/// The most urgent entries are unreadable. The query returns the requested number of readable ones.
pub(super) async fn unreadable_index_entries_are_skipped(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let readable = fixture.store.query_due(LATER, 10).await.unwrap();
    let unreadable = ["other", "r#no run", "t#sandbox", "t#a#%FF", "p#sha256:x"];
    fixture
        .write((0..16).flat_map(|shard| unreadable.map(|pk| entry(&format!("{pk}{shard}"), shard, 1))).collect())
        .await;
    // None of these keys can be parsed, except `t#a#%FF0`, whose text is invalid.
    let mut entries = 0;
    for shard in 0..16 {
        let query = ItemQuery::new(QueryRange::Due { shard, until: LATER.0 });
        entries += fixture.table.query(&query, None).await.unwrap().value.items.len();
    }
    assert_eq!(entries, 80 + readable.len());
    assert_eq!(fixture.store.query_due(LATER, 2).await.unwrap(), readable);
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

/// An entry of a stale index names a deleted target.
pub(super) async fn a_list_skips_deleted_targets(fixture: StoreFixture) {
    for n in [1, 3, 4, 5] {
        fixture.put(target("sandbox", &n.to_string())).await;
    }
    let (proxy, store) = fixture.proxy();
    let key = |n: u32| json!({"pk": {"S": format!("t#sandbox#{n}")}, "sk": {"S": "h"}, "l": {"S": "t"}});
    let stale = json!({"Items": [key(0), key(1), key(2)], "LastEvaluatedKey": key(2)});
    proxy.plan("Query", [ProxyFault::Respond(200, stale)]);
    // A page with gaps is filled from the next one.
    let targets = store.list_page(TargetList::Active, None, None, 3).await.unwrap().targets;
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!((names, proxy.hits()), (vec!["1", "3", "4"], 1));
}
