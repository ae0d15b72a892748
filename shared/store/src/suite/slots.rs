use super::fixture::*;

/// A slot lasts 10 ms. A smaller cap takes none away.
pub(super) async fn slots_end_and_are_given_again(fixture: StoreFixture) {
    let store = &fixture.store;
    let take = async |kind, holder, slots, now| {
        store.take_slot((kind, "acme/db"), holder, (slots, Timestamp(now), Timestamp(now + 10))).await.unwrap()
    };
    for (holder, slots, now, expected) in [
        ("a", 2, 0, Ok(())),
        ("b", 2, 1, Ok(())),
        ("c", 2, 9, Err(2)),
        ("a", 1, 9, Ok(())),
        ("c", 1, 11, Err(1)),
        ("c", 2, 11, Ok(())),
        ("b", 2, 12, Err(2)),
    ] {
        assert_eq!(take("plugin", holder, slots, now).await, expected, "{holder} at {now}");
    }
    assert_eq!(take("connection", "b", 1, 12).await, Ok(()));
    for holder in ["a", "a", "none"] {
        store.release_slot(("plugin", "acme/db"), holder).await.unwrap();
    }
    assert_eq!(take("plugin", "b", 2, 13).await, Ok(()));
    assert_eq!(take("plugin", "a", 2, 13).await, Err(2));
}
