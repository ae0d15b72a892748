use super::fixture::*;

pub(super) async fn changes_are_appended_while_a_reader_watches(StoreFixture { store, .. }: StoreFixture) {
    assert_eq!(store.peek_changes().await.unwrap(), ChangeFeed::default());
    let begun = store.watch_changes(Timestamp(AT.0 + 1), Some(AT)).await.unwrap();
    assert_eq!((begun.last, begun.watched, begun.begun), (1, Timestamp(AT.0 + 1), AT));
    let first = store.note_changes(&begun, &["sandbox/a"]).await.unwrap();
    assert_eq!((first.last, first.since(1)), (2, Some(vec!["sandbox/a"])));
    // A writer with an older image, and one that has read nothing, lose no change.
    let second = store.note_changes(&begun, &["sandbox/b"]).await.unwrap();
    let third = store.note_changes(&ChangeFeed::default(), &["sandbox/c"]).await.unwrap();
    assert_eq!((second.last, third.since(1)), (3, Some(vec!["sandbox/a", "sandbox/b", "sandbox/c"])));
    let renewed = store.watch_changes(Timestamp(AT.0 + 2), None).await.unwrap();
    assert_eq!(renewed, ChangeFeed { watched: Timestamp(AT.0 + 2), ..third });
    assert_eq!(store.peek_changes().await.unwrap(), renewed);
    let again = store.watch_changes(Timestamp(AT.0 + 9), Some(Timestamp(AT.0 + 8))).await.unwrap();
    assert_eq!((again.last, again.since(4), again.since(5)), (5, None, Some(vec![])));
}

/// Of several writers with the same image, those that lose leave a gap that readers see.
pub(super) async fn concurrent_changes_are_noticed(StoreFixture { store, .. }: StoreFixture) {
    let begun = store.watch_changes(Timestamp(AT.0 + 1), Some(AT)).await.unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("sandbox/s{number}")).collect();
    let noted = join_all(names.iter().map(async |name| store.note_changes(&begun, &[name]).await)).await;
    assert!(noted.iter().all(Result::is_ok), "{noted:?}");
    let after = store.peek_changes().await.unwrap();
    assert_eq!(after.last, begun.last + 8);
    match after.since(begun.last) {
        Some(targets) => assert_eq!(targets.len(), 8),
        None => assert!(after.ring.after > begun.last || after.ring.last < after.last, "{after:?}"),
    }
}

pub(super) async fn a_look_at_heads_costs_half_a_unit(fixture: StoreFixture) {
    let (store, meter) = (&fixture.store, &fixture.meter);
    let run = fixture.run("a").await;
    store.watch_changes(AT, Some(AT)).await.unwrap();
    meter.take();
    store.peek_changes().await.unwrap();
    let key = TargetKey::new("sandbox", "a");
    let (peeked, head) = (store.peek_target(key).await.unwrap(), store.peek_run(&run).await.unwrap());
    assert_eq!(meter.take().read_units, 1.5);
    assert_eq!((peeked, head), (store.read_target(key).await.unwrap(), store.read_run(&run).await.unwrap()));
    assert_eq!(store.peek_target(TargetKey::new("sandbox", "none")).await.unwrap(), None);
    meter.take();
    let feed = store.peek_changes().await.unwrap();
    for number in 0..100 {
        let name = format!("sandbox/a-preview-of-pull-request-{number}");
        store.note_changes(&feed, &[&name]).await.unwrap();
        meter.take();
    }
    let full = store.peek_changes().await.unwrap();
    store.note_changes(&full, &["sandbox/a"]).await.unwrap();
    let usage = meter.take();
    assert_eq!((usage.read_units, usage.write_units), (0.5, 1.0), "{usage:?}");
}
