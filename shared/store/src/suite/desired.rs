use super::fixture::*;

fn desired(delivery: &str, version: u64) -> DesiredTarget {
    DesiredTarget { delivery: delivery.to_owned(), due: Some(Timestamp(2_000)), version, ..sample("desired") }
}

pub(super) async fn a_desired_state_is_due_until_it_has_a_result(StoreFixture { store, .. }: StoreFixture) {
    let first = desired("1", 1);
    let key = &first.key;
    assert_eq!(store.read_desired(key).await.unwrap(), None);
    assert!(store.put_desired(&first).await.unwrap());
    assert_eq!(store.read_desired(key).await.unwrap(), Some(first.clone()));
    let due = DueItem::Desired(key.clone());
    assert_eq!(store.query_due(Timestamp(2_000), 10).await.unwrap(), [(Timestamp(2_000), due)]);
    // A repetition counts as written. Another state of the same version is refused.
    assert!(store.put_desired(&first).await.unwrap());
    assert!(!store.put_desired(&desired("2", 1)).await.unwrap());
    assert!(!store.put_desired(&desired("2", 3)).await.unwrap());
    let failed = DesiredTarget { document: None, result: sample("rejectedResponse"), due: None, ..desired("2", 2) };
    assert!(store.put_desired(&failed).await.unwrap());
    assert_eq!(store.query_due(Timestamp(u64::MAX), 10).await.unwrap(), []);
    assert!(store.put_desired(&desired("3", 3)).await.unwrap());
    assert_eq!(store.read_desired(key).await.unwrap().unwrap().result, None);
}

fn document(name: &str, document: &str) -> NamedDocument {
    NamedDocument { name: name.to_owned(), document: document.to_owned(), changed: Timestamp(7) }
}

pub(super) async fn named_documents_are_replaced_and_listed(fixture: StoreFixture) {
    let store = &fixture.store;
    for kind in [NamedKind::Source, NamedKind::Connection, NamedKind::Subscription] {
        for one in [document("b", "1"), document("a", "1"), document("b", "2")] {
            store.put_document(kind, &one).await.unwrap();
        }
    }
    for kind in [NamedKind::Source, NamedKind::Connection, NamedKind::Subscription] {
        assert_eq!(store.list_documents(kind).await.unwrap(), [document("a", "1"), document("b", "2")]);
        assert_eq!(store.get_document(kind, "b").await.unwrap(), Some(document("b", "2")));
        assert!(store.delete_document(kind, "b").await.unwrap());
        assert!(!store.delete_document(kind, "b").await.unwrap());
        assert_eq!(store.get_document(kind, "b").await.unwrap(), None);
        assert_eq!(store.list_documents(kind).await.unwrap(), [document("a", "1")]);
    }
    // A document that cannot be read hides no other one.
    let damaged = item_at(("n#damaged", "h"), [("l", text("subscription")), ("n", text("damaged"))]);
    fixture.write(vec![damaged]).await;
    assert_eq!(store.list_documents(NamedKind::Subscription).await.unwrap(), [document("a", "1")]);
}

pub(super) async fn undelivered_notifications_are_listed_by_subscription(StoreFixture { store, .. }: StoreFixture) {
    for name in ["a/1-gone-1", "a/2-ready-1", "a/2-ready-2", "a/20-gone-1", "a-b/1", "b/1"] {
        store.put_document(NamedKind::Undelivered, &document(name, "{}")).await.unwrap();
    }
    let names = async |subscription, limit| {
        let found = store.list_undelivered(subscription, limit).await.unwrap();
        found.into_iter().map(|found| found.name).collect::<Vec<_>>()
    };
    assert_eq!(names("a/", 10).await, ["a/1-gone-1", "a/2-ready-1", "a/2-ready-2", "a/20-gone-1"]);
    assert_eq!(names("a/", 2).await, ["a/1-gone-1", "a/2-ready-1"]);
    assert_eq!(names("a/2-", 10).await, ["a/2-ready-1", "a/2-ready-2"]);
    assert_eq!(names("none/", 10).await, [""; 0]);
    assert_eq!(store.count_undelivered("a", 10).await.unwrap(), 4);
    assert_eq!(store.count_undelivered("a", 2).await.unwrap(), 2);
}

pub(super) async fn rejected_events_are_replaced_and_listed(StoreFixture { store, .. }: StoreFixture) {
    assert_eq!(store.read_rejections("a").await.unwrap(), None);
    assert_eq!(store.list_rejections().await.unwrap(), []);
    let first = rejections("a", &["1"], 1);
    assert!(store.put_rejections(&first).await.unwrap());
    // A repetition counts as written. Other events of the same version are refused.
    assert!(store.put_rejections(&first).await.unwrap());
    for (delivery, version) in [("2", 1), ("2", 3)] {
        assert!(!store.put_rejections(&rejections("a", &[delivery, "1"], version)).await.unwrap());
    }
    let second = rejections("a", &["2", "1"], 2);
    let other = rejections("b#", &["1"], 1);
    for written in [&second, &other] {
        assert!(store.put_rejections(written).await.unwrap());
        assert_eq!(store.read_rejections(&written.source).await.unwrap().as_ref(), Some(written));
    }
    let mut listed = store.list_rejections().await.unwrap();
    listed.sort_by(|a, b| a.source.cmp(&b.source));
    assert_eq!(listed, [second, other]);
}
