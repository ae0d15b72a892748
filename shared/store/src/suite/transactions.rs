use super::fixture::*;

fn begin(name: &str, uid: &str) -> TargetTransition {
    let target = TargetHead { uid: uid.into(), ..target("sandbox", name) };
    TargetTransition { run: Some(new_run(&format!("{name}-{uid}"))), ..TargetTransition::new(target, None) }
}

pub(super) async fn a_transaction_writes_all_items_or_none(fixture: StoreFixture) {
    let store = &fixture.store;
    let first = begin("a", "u1");
    assert!(store.move_target(&first).await.unwrap());
    // The target is refused: neither the run nor the tombstone is written.
    let second = TargetTransition { tombstone: Some(tombstone("u0")), ..begin("a", "u2") };
    assert!(!store.move_target(&second).await.unwrap());
    assert_eq!(store.read_run(&second.run.as_ref().unwrap().id).await.unwrap(), None);
    assert_eq!(store.read_tombstone("u0").await.unwrap(), None);
    // The run is refused: neither the target nor the tombstone is written.
    let third = TargetTransition { run: first.run.clone(), tombstone: Some(tombstone("u0")), ..begin("b", "u3") };
    let error = store.move_target(&third).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken { reason, .. } if reason.contains("exists")), "{error}");
    assert_eq!(store.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), None);
    assert_eq!(store.read_tombstone("u0").await.unwrap(), None);
    // Both are refused: the refusal of the target counts.
    let both = TargetTransition { run: first.run.clone(), ..begin("a", "u4") };
    assert!(!store.move_target(&both).await.unwrap());
    assert_eq!(store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), Some(first.target));
}

/// A transaction that starts an existing run is refused each time. Concurrent completions of that run succeed.
pub(super) async fn completions_succeed_during_rejected_transactions(fixture: StoreFixture) {
    let store = &fixture.store;
    let run = fixture.run("a").await;
    let again = TargetTransition { run: Some(new_run("a")), ..begin("b", "u1") };
    let transactions = join_all((0..10).map(|_| store.move_target(&again)));
    let completions = join_all((0..40).map(|unit| fixture.accept(&run, success(unit))));
    let (refusals, heads) = tokio::join!(transactions, completions);
    assert!(refusals.iter().all(Result::is_err));
    // One writer gets the complete head, so the units after these start once.
    let complete = heads.into_iter().map(written).filter(|head| head.head.done.len() == 40).count();
    assert_eq!(complete, 1);
    assert_eq!(store.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), None);
}
