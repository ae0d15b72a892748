use super::fixture::*;

/// A slot lasts 10 ms. A smaller cap takes none away.
pub(super) async fn slots_end_and_are_given_again(StoreFixture { store, .. }: StoreFixture) {
    let take = async |kind, holder: &str, slots, now| {
        store.take_slot((kind, "acme/db"), holder, (slots, Timestamp(now), Timestamp(now + 10))).await.unwrap()
    };
    for (holder, slots, now, in_use) in sample::<Vec<(String, u32, u64, Option<usize>)>>("takenSlots") {
        let (is_taken, used) = take("plugin", &holder, slots, now).await;
        assert_eq!((!is_taken).then_some(used.len()), in_use, "{holder} at {now}");
    }
    assert_eq!(take("connection", "b", 1, 12).await, (true, vec![("b".to_owned(), Timestamp(22))]));
    // The slot of `a` ends at 19.
    for (holder, end, is_free) in
        [("a", Some(18), false), ("a", Some(19), true), ("a", None, true), ("none", None, true)]
    {
        store.release_slot(("plugin", "acme/db"), holder, end.map(Timestamp)).await.unwrap();
        assert_eq!(take("plugin", "b", 2, 13).await.0, is_free);
    }
    assert!(!take("plugin", "a", 2, 13).await.0);
}
