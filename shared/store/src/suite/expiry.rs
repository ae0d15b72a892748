use super::fixture::*;

const LATER: Timestamp = Timestamp(9_000_000_000_000);

fn expiry(name: &str, due: u64) -> InstanceExpiry {
    InstanceExpiry { name: name.to_owned(), due: Timestamp(due), ..sample("expiry") }
}

/// The name, the time and, of an event, its occurrence.
type ExpiryRow = (String, u64, Option<EventRef>);

/// An expiry with the same time is replaced. An instance may have two removal times, and its events have their own.
pub(super) async fn instances_expire_when_they_are_due(StoreFixture { store, .. }: StoreFixture) {
    type ExpiryStep = (String, ExpiryRow, Option<u64>, u64, usize, Vec<ExpiryRow>);
    let of = |(name, due, event): ExpiryRow| InstanceExpiry { event, ..expiry(&name, due) };
    for (step, changed, to, now, limit, expected) in sample::<Vec<ExpiryStep>>("expirySteps") {
        let changed = of(changed);
        match (step.as_str(), to) {
            ("put", None) => store.put_expiry(&changed).await.unwrap(),
            ("delete", None) => store.delete_expiry(&changed).await.unwrap(),
            (_, to) => store.postpone_expiry(&changed, Timestamp(to.unwrap()), 0).await.unwrap(),
        }
        let due = store.list_expired(Timestamp(now), limit).await.unwrap();
        assert_eq!(due.damaged, []);
        assert_eq!(due.readable, expected.into_iter().map(of).collect::<Vec<_>>(), "{step} {changed:?}");
        // The query of due items does not return them.
        assert_eq!(store.query_due(LATER, 10).await.unwrap(), []);
    }
}

pub(super) async fn a_damaged_expiry_is_postponed(fixture: StoreFixture) {
    let store = &fixture.store;
    let failed = InstanceExpiry { failures: 3, ..expiry("c", 12) };
    for expiry in [&expiry("a", 10), &expiry("b", 11), &failed] {
        store.put_expiry(expiry).await.unwrap();
    }
    let instance = ebb_protocol::id::instance_key("sandbox", "a", "u");
    let mut item = fixture.item("retention#", &format!("{:020}#{instance}", 10)).await.unwrap();
    assert!(item.remove("b").is_some());
    fixture.write(vec![item]).await;
    let listed = async |now| store.list_expired(Timestamp(now), 10).await.unwrap();
    let due = listed(20).await;
    assert_eq!(due.readable, [expiry("b", 11), failed.clone()]);
    let [damaged] = due.damaged.as_slice() else { panic!("{:?}", due.damaged) };
    assert_eq!((damaged.instance.as_str(), damaged.failures), (instance.as_str(), 0));
    assert!(damaged.reason.contains("attribute b"), "{}", damaged.reason);
    let failed_once = DamagedExpiry { failures: 1, ..damaged.clone() };
    store.postpone_damaged(&failed_once, Timestamp(30)).await.unwrap();
    assert_eq!(listed(29).await.damaged, []);
    let [postponed] = listed(30).await.damaged.try_into().unwrap();
    assert_eq!((postponed.key, postponed.failures), (format!("{:020}#{instance}", 30), 1));
    // A missing expiry is not created.
    store.postpone_damaged(&failed_once, Timestamp(31)).await.unwrap();
    assert_eq!(fixture.item("retention#", &format!("{:020}#{instance}", 31)).await, None);
    // An item with the key of another instance is damaged too.
    let mut other = fixture
        .item("retention#", &format!("{:020}#{}", 11, ebb_protocol::id::instance_key("sandbox", "b", "u")))
        .await
        .unwrap();
    let changed = other["b"].as_s().unwrap().replace(r#""uid":"u""#, r#""uid":"v""#);
    other.insert("b".to_owned(), text(changed));
    fixture.write(vec![other]).await;
    let due = listed(20).await;
    assert_eq!((due.readable, due.damaged.len()), (vec![failed], 1));
}

pub(super) async fn a_run_is_removed_without_others(fixture: StoreFixture) {
    let (one, other) = (fixture.run("a").await, fixture.run("b").await);
    for run in [&one, &other] {
        for unit in 0..60 {
            let done = result(AttemptOutcome::Failed, "x");
            fixture.store.put_result(run, Unit(unit), A1, &done).await.unwrap();
        }
    }
    let outputs = [&one, &other].map(|run| format!("outputs/{run}/0/1/x.json"));
    for key in &outputs {
        fixture.store.bucket.put_object(key, vec![1]).await.unwrap();
    }
    for run in [&one, &other] {
        fixture.store.mark_outputs(run).await.unwrap();
        fixture.store.mark_outputs(run).await.unwrap();
    }
    let before = fixture.store.read_run(&other).await.unwrap();
    assert!(!fixture.store.delete_head(&one).await.unwrap(), "its removal is not announced");
    fixture.store.patch_run(&one, &accept(RunEvent::RemovalAnnounced { at: Timestamp(5) })).await.unwrap();
    for _ in 0..2 {
        assert!(fixture.store.delete_head(&one).await.unwrap());
        assert_eq!(fixture.store.read_run(&one).await.unwrap(), None);
        assert_eq!(fixture.store.read_all_records(&one).await.unwrap().len(), 60);
    }
    for _ in 0..2 {
        fixture.store.delete_run(&one).await.unwrap();
    }
    assert_eq!(fixture.store.read_run(&one).await.unwrap(), None);
    assert_eq!(fixture.store.read_all_records(&one).await.unwrap(), []);
    assert_eq!(fixture.store.read_all_records(&other).await.unwrap().len(), 60);
    assert_eq!(fixture.store.read_run(&other).await.unwrap(), before);
    assert_eq!(fixture.store.bucket.get_object(&outputs[0]).await.unwrap(), None);
    assert!(fixture.store.bucket.get_object(&outputs[1]).await.unwrap().is_some());
}

/// The objects of a run are removed with it if a record refers to objects, even in a further result. Otherwise they are
/// removed explicitly.
pub(super) async fn objects_of_a_run_are_removed(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let named = |digest: &str, outputs| AttemptResult { outputs, ..result(AttemptOutcome::Succeeded, digest) };
    let keys = ["0/1/x.json", "0/1/y.json", "1/1/z.json"].map(|name| format!("outputs/{run}/{name}"));
    let put_objects = async |run| {
        for key in &keys {
            fixture.store.bucket.put_object(key, vec![1]).await.unwrap();
        }
        fixture.store.bucket.put_object(&format!("logs/{run}/0/1.log"), vec![1]).await.unwrap();
    };
    let remaining = async |run| {
        let log = fixture.store.bucket.get_object(&format!("logs/{run}/0/1.log")).await.unwrap();
        let mut remaining = usize::from(log.is_some());
        for key in &keys {
            remaining += usize::from(fixture.store.bucket.get_object(key).await.unwrap().is_some());
        }
        remaining
    };
    let plain = named("x", OutputStorage::Nothing);
    let log = AttemptResult { log: true, ..named("z", OutputStorage::Nothing) };
    // Without a result that refers to objects, the bucket is not listed.
    let stored = named("y", OutputStorage::Bucket(keys[1].clone()));
    for (results, left) in [([&plain, &stored], 0), ([&log, &plain], 0), ([&plain, &plain], 4)] {
        put_objects(&run).await;
        for result in results {
            fixture.store.put_result(&run, Unit(0), A1, result).await.unwrap();
        }
        fixture.store.delete_run(&run).await.unwrap();
        assert_eq!(remaining(&run).await, left, "{results:?}");
    }
    fixture.store.delete_objects(&run).await.unwrap();
    assert_eq!(remaining(&run).await, 0);
}
