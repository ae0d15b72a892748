use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;

use super::fixture::*;

pub(super) async fn a_target_is_read_unchanged(fixture: StoreFixture) {
    let full = TargetHead {
        kind: "route group".into(),
        name: "a#b%c".into(),
        labels: [("team".to_owned(), "payments \u{1f40b}".to_owned())].into(),
        release: [None, Some("eu".into())]
            .map(|cluster| SecretRelease { instance: "l".into(), cluster, uid: None })
            .into(),
        ..full_target()
    };
    assert!(fixture.store.move_target(&TargetTransition::new(full.clone(), None)).await.unwrap());
    assert_eq!(fixture.store.read_target(TargetKey::new("route group", "a#b%c")).await.unwrap(), Some(full));
    let bare = TargetHead { hook: None, due: None, ..target("sandbox", "b") };
    assert!(fixture.store.move_target(&TargetTransition::new(bare.clone(), None)).await.unwrap());
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), Some(bare));
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "c")).await.unwrap(), None);
}

pub(super) async fn a_transition_needs_the_expected_version(fixture: StoreFixture) {
    type ExpectedVersion = (String, TargetPhase, u64, Option<u64>, bool);
    let head = |uid, phase, version| TargetHead { uid, phase, version, ..target("sandbox", "a") };
    // A write that follows a deletion does not create the target again. Two writers can make the same change.
    for (uid, phase, version, seen, expected) in sample::<Vec<ExpectedVersion>>("expectedVersions") {
        let transition = TargetTransition::new(head(uid, phase, version), seen);
        assert_eq!(fixture.store.move_target(&transition).await.unwrap(), expected, "{transition:?}");
    }
    let ready = head("u1".to_owned(), TargetPhase::Ready, 2);
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), Some(ready));
}

/// Concurrent invocations that end a run write equal items. Exactly one write succeeds.
pub(super) async fn one_of_several_equal_transitions_is_written(fixture: StoreFixture) {
    let end = TargetHead { phase: TargetPhase::Gone, due: None, version: 2, ..target("sandbox", "a") };
    let plain_move = TargetTransition::new(target("sandbox", "a"), None);
    let end = TargetTransition { tombstone: Some(tombstone("u1")), ..TargetTransition::new(end, Some(1)) };
    for transition in [plain_move, end, begin("b")] {
        let moved = join_all((0..8).map(|_| fixture.store.move_target(&transition))).await;
        let won = moved.into_iter().filter(|moved| match moved {
            Ok(moved) => *moved,
            // All retries conflicted. Nothing was written.
            Err(StoreError::Retryable { .. }) => false,
            Err(error) => panic!("{error}"),
        });
        assert_eq!(won.count(), 1, "{transition:?}");
    }
}

pub(super) async fn the_end_of_a_target_writes_a_tombstone(fixture: StoreFixture) {
    fixture.store.move_target(&TargetTransition::new(target("sandbox", "a"), None)).await.unwrap();
    let removed = Some(Timestamp(1_800_000_000_000));
    let gone = TargetHead { phase: TargetPhase::Gone, due: None, removed, version: 2, ..target("sandbox", "a") };
    let end = TargetTransition { tombstone: Some(tombstone("u1")), ..TargetTransition::new(gone, Some(1)) };
    assert!(fixture.store.move_target(&end).await.unwrap());
    assert!(fixture.store.read_tombstone("u1").await.unwrap().is_some());
    let mut expire = Vec::new();
    for partition in ["t#sandbox#a", "x#u1"] {
        expire.push(fixture.item(partition, "h").await.unwrap()["ttl"].as_n().unwrap().clone());
    }
    assert_eq!(expire, ["1802592000", "1802592000"]);
    // Other targets never expire: those with a pending notification or stored data, and active ones. A tombstone does not
    // expire before the runs of its instance.
    for (n, (phase, due, removed)) in (0..).zip([
        (TargetPhase::Gone, Some(Timestamp(5)), removed),
        (TargetPhase::Gone, None, None),
        (TargetPhase::Ready, None, None),
        (TargetPhase::Stuck, None, None),
    ]) {
        let name = format!("stays-{n}");
        fixture.put(TargetHead { phase, due, removed, ..target("sandbox", &name) }).await;
        let item = fixture.item(&format!("t#sandbox#{name}"), "h").await.unwrap();
        assert!(!item.contains_key("ttl"), "{phase:?}");
    }
    fixture.store.put_tombstone(&Tombstone { needed: None, ..tombstone("u2") }).await.unwrap();
    assert!(!fixture.item("x#u2", "h").await.unwrap().contains_key("ttl"));
}

pub(super) async fn a_missing_table_is_broken_and_a_missing_network_retryable(fixture: StoreFixture) {
    let client = fixture.sdk().client.clone();
    let store = |client, table| Store::new(Arc::new(SdkTable::new(client, table)), fixture.store.bucket.clone());
    let error = store(client, "other").read_target(TargetKey::new("a", "b")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken { operation: "GetItem", .. }), "{error}");
    // An unreachable server, and one that never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_millis(50)).build();
    for endpoint in ["http://127.0.0.1:1", &silent] {
        let config = fixture.sdk().client.config().to_builder().endpoint_url(endpoint);
        let config = config.retry_config(RetryConfig::disabled()).timeout_config(timeouts.clone()).build();
        let client = aws_sdk_dynamodb::Client::from_conf(config);
        let error = store(client, "ebb").read_target(TargetKey::new("a", "b")).await.unwrap_err();
        assert!(matches!(&error, StoreError::Retryable { operation: "GetItem", .. }), "{error}");
    }
}

fn begin_as(name: &str, uid: &str) -> TargetTransition {
    let target = TargetHead { uid: uid.into(), ..target("sandbox", name) };
    TargetTransition { run: Some(new_run(&format!("{name}-{uid}"))), ..TargetTransition::new(target, None) }
}

pub(super) async fn a_transaction_writes_all_items_or_none(StoreFixture { store, .. }: StoreFixture) {
    let first = begin_as("a", "u1");
    assert!(store.move_target(&first).await.unwrap());
    // The target is refused: neither the run nor the tombstone is written.
    let second = TargetTransition { tombstone: Some(tombstone("u0")), ..begin_as("a", "u2") };
    assert!(!store.move_target(&second).await.unwrap());
    assert_eq!(store.read_run(&second.run.as_ref().unwrap().id).await.unwrap(), None);
    assert_eq!(store.read_tombstone("u0").await.unwrap(), None);
    // The run is refused: neither the target nor the tombstone is written.
    let third = TargetTransition { run: first.run.clone(), tombstone: Some(tombstone("u0")), ..begin_as("b", "u3") };
    let error = store.move_target(&third).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken { reason, .. } if reason.contains("exists")), "{error}");
    assert_eq!(store.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), None);
    assert_eq!(store.read_tombstone("u0").await.unwrap(), None);
    // Both are refused: the refusal of the target counts.
    let both = TargetTransition { run: first.run.clone(), ..begin_as("a", "u4") };
    assert!(!store.move_target(&both).await.unwrap());
    assert_eq!(store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), Some(first.target));
}

/// A transaction that starts an existing run is refused each time. Concurrent completions of that run succeed.
pub(super) async fn completions_succeed_during_rejected_transactions(fixture: StoreFixture) {
    let store = &fixture.store;
    let run = fixture.run("a").await;
    let again = TargetTransition { run: Some(new_run("a")), ..begin_as("b", "u1") };
    let transactions = join_all((0..10).map(|_| store.move_target(&again)));
    let completions = join_all((0..40).map(|unit| fixture.accept(&run, success(unit))));
    let (refusals, heads) = tokio::join!(transactions, completions);
    assert!(refusals.iter().all(Result::is_err));
    // One writer gets the complete head, so the units after these start once.
    let complete = heads.into_iter().map(written).filter(|head| head.head.done.len() == 40).count();
    assert_eq!(complete, 1);
    assert_eq!(store.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), None);
}
