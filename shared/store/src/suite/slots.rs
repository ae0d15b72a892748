use super::fixture::*;

/// A slot lasts 10 ms. A smaller cap takes none away.
pub(super) async fn slots_end_and_are_given_again(StoreFixture { store, .. }: StoreFixture) {
    let take = async |kind, holder: &str, slots, now| {
        store.take_slot((kind, "acme/db"), holder, (slots, Timestamp(now), Timestamp(now + 10))).await.unwrap()
    };
    for (holder, slots, now, in_use) in sample::<Vec<(String, u32, u64, Option<usize>)>>("takenSlots") {
        assert_eq!(take("plugin", &holder, slots, now).await.err(), in_use, "{holder} at {now}");
    }
    assert_eq!(take("connection", "b", 1, 12).await, Ok(()));
    for holder in ["a", "a", "none"] {
        store.release_slot(("plugin", "acme/db"), holder).await.unwrap();
    }
    assert_eq!(take("plugin", "b", 2, 13).await, Ok(()));
    assert_eq!(take("plugin", "a", 2, 13).await, Err(2));
}
