use ebb_protocol::api::RejectedEvent;
use ebb_protocol::engine::Timestamp;

use super::fixture::StoreFixture;
use crate::SourceRejections;

fn rejections(source: &str, deliveries: &[&str], version: u64) -> SourceRejections {
    let event = |delivery: &&str| RejectedEvent {
        time: Timestamp(1_000),
        delivery: (*delivery).to_owned(),
        target: Some("sandbox/a".to_owned()),
        uid: None,
        detail: "why".to_owned(),
    };
    SourceRejections { source: source.to_owned(), events: deliveries.iter().map(event).collect(), version }
}

pub(super) async fn rejected_events_are_replaced_and_listed(fixture: StoreFixture) {
    let store = &fixture.store;
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
