use aws_sdk_dynamodb::types::AttributeValue;

use super::fixture::*;

/// The rest of a record with malformed evidence is readable.
pub(super) async fn damaged_evidence_leaves_its_record_readable(fixture: StoreFixture) {
    let run = new_run("a").id;
    let whole = AttemptResult { evidence: None, ..full_result() };
    for (unit, evidence) in (0..).zip([text("{\"method\": 7}"), text("{"), AttributeValue::Bool(true)]) {
        fixture.store.put_result(&run, Unit(unit), A1, &full_result()).await.unwrap();
        let mut item = fixture.item(&format!("r#{run}"), &format!("u#{unit:05}#001")).await.unwrap();
        assert!(item.insert("ev".to_owned(), evidence).is_some());
        fixture.write(vec![item]).await;
    }
    for records in [
        fixture.store.read_records(&run, &[Unit(0), Unit(1), Unit(2)]).await.unwrap(),
        fixture.store.read_all_records(&run).await.unwrap(),
    ] {
        assert_eq!(records.len(), 3);
        for (_, _, record) in records {
            let mut read = record.result.unwrap();
            let evidence = read.evidence.take().unwrap();
            assert!(evidence.damaged.is_some_and(|reason| reason.contains("ev")), "the reason names the attribute");
            assert_eq!(read, whole);
        }
    }
}

pub(super) async fn concurrent_results_share_the_limit(fixture: StoreFixture) {
    let run = new_run("a").id;
    let first = result(AttemptOutcome::Succeeded, "first");
    fixture.store.put_result(&run, Unit(0), A1, &first).await.unwrap();
    let results: Vec<_> = (0..40).map(|number| result(AttemptOutcome::Succeeded, &number.to_string())).collect();
    let puts = results.iter().map(|result| fixture.store.put_result(&run, Unit(0), A1, result));
    let puts: Vec<PutOutcome> = futures::future::try_join_all(puts).await.unwrap();
    let excess = puts.iter().filter(|put| matches!(put, PutOutcome::Excess(_))).count();
    let record = fixture.store.read_records(&run, &[Unit(0)]).await.unwrap().remove(0).2;
    assert_eq!(record.further_results.len(), limits::DISTINCT_RESULTS - 1);
    assert_eq!((excess, record.excess), (41 - limits::DISTINCT_RESULTS, excess as u64));
}

/// One write records the acceptances of many attempts, and its repetition changes nothing.
pub(super) async fn attempts_are_accepted_together(fixture: StoreFixture) {
    let run = new_run("a").id;
    let other = new_run("b").id;
    let (first, second) = (Unit(0), Unit(999));
    let store = &fixture.store;
    fixture.meter.take();
    let attempts: Vec<_> = (0..50).map(|unit| (Unit(unit), A1)).collect();
    for _ in 0..2 {
        store.record_accepted(&run, &attempts, Timestamp(7)).await.unwrap();
    }
    assert_eq!(fixture.meter.take().write_units, 2.0);
    store.record_accepted(&run, &[(first, A1.next())], Timestamp(7)).await.unwrap();
    store.record_accepted(&run, &[(second, A1)], Timestamp(1_800_000_000_000)).await.unwrap();
    store.record_accepted(&other, &[(Unit(1), A1)], Timestamp(9)).await.unwrap();
    // The table expires the item after 30 days.
    let item = fixture.item(&format!("r#{run}"), "c#1800000000000").await.unwrap();
    assert_eq!(item["ttl"].as_n().unwrap(), &(1_800_000_000 + 30 * 86_400).to_string());
    let read = async |units: &[Unit]| {
        let mut found = store.read_accepted(&run, units).await.unwrap();
        found.sort_unstable();
        found
    };
    assert_eq!(read(&[first]).await, [(first, A1, Timestamp(7)), (first, A1.next(), Timestamp(7))]);
    let both = [(Unit(49), A1, Timestamp(7)), (second, A1, Timestamp(1_800_000_000_000))];
    assert_eq!(read(&[second, Unit(49), Unit(50), Unit(998)]).await, both);
    assert_eq!(read(&[]).await, []);
    assert_eq!(store.read_records(&run, &[first]).await.unwrap(), []);
    store.delete_run(&run).await.unwrap();
    assert_eq!(read(&[first, second]).await, []);
}

pub(super) async fn only_the_requested_units_are_read(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    for unit in [0, 1, 2, 40, 41, 999] {
        for attempt in [1, 2, 10, 1000] {
            let done = result(AttemptOutcome::Failed, "x");
            fixture.store.put_result(&run, Unit(unit), Attempt(attempt), &done).await.unwrap();
        }
    }
    fixture.meter.take();
    let read = fixture.store.read_records(&run, &[Unit(999), Unit(0), Unit(2), Unit(5), Unit(41)]).await.unwrap();
    let read: Vec<_> = read.into_iter().map(|(unit, attempt, _)| (unit.0, attempt.0)).collect();
    let wanted: Vec<_> =
        [0, 2, 41, 999].into_iter().flat_map(|unit| [1, 2, 10, 1000].map(|attempt| (unit, attempt))).collect();
    assert_eq!(read, wanted);
    assert_eq!(fixture.meter.take().requests, [("Query", 3)].into());
    assert_eq!(fixture.store.read_records(&run, &[]).await.unwrap(), vec![]);
    assert_eq!(fixture.store.read_all_records(&run).await.unwrap().len(), 24);
}

pub(super) async fn records_of_several_pages_are_read(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    for unit in 0..8 {
        let large = outputs(300_000, &unit.to_string());
        fixture.store.put_result(&run, Unit(unit), A1, &large).await.unwrap();
    }
    fixture.meter.take();
    let units: Vec<Unit> = (0..8).map(Unit).collect();
    let records = fixture.store.read_records(&run, &units).await.unwrap();
    assert_eq!(records.len(), 8);
    assert_eq!(fixture.meter.take().requests["Query"], 2);
    assert!(records.iter().all(|(.., record)| record.result.as_ref().unwrap().outputs != OutputStorage::Nothing));
}
