//! The record of an attempt as a function of its updates and results, and the comparison of the table with it.

use ebb_protocol::record::{AttemptRecord, CallbackRefusals, InstanceIds, StateWait, StoredText};
use proptest::prelude::*;

use super::fixture::*;

/// Applies an update. A record with a result stays unchanged.
fn update(record: &mut AttemptRecord, update: &AttemptUpdate) {
    if record.result.is_some() {
        return;
    }
    match update {
        AttemptUpdate::Started(at) => record.started = record.started.or(Some(*at)),
        AttemptUpdate::Accepted(at) => {
            record.accepted = record.accepted.or(Some(*at));
            record.next_dispatch = None;
            record.leased_until = None;
        }
        AttemptUpdate::DispatchAgain(at) => {
            record.next_dispatch = Some(*at);
            record.repeats += 1;
            record.leased_until = None;
        }
        AttemptUpdate::DispatchEarlier(at) => {
            record.next_dispatch = Some(*at);
            record.leased_until = None;
        }
        AttemptUpdate::Posted(at, by) => {
            record.posted = record.posted.or(Some(*at));
            record.posted_by = record.posted_by.take().or(by.clone());
        }
        AttemptUpdate::Leased(until) => record.leased_until = Some(*until),
        AttemptUpdate::Postponed(at, why) => {
            record.next_dispatch = Some(*at);
            record.slot_wait.clone_from(why);
            record.started = None;
        }
        AttemptUpdate::Heartbeat(at, progress) => {
            record.heartbeat = Some(*at);
            record.progress = progress.clone().or(record.progress.take());
        }
        AttemptUpdate::Refused(reason) => {
            let count = record.refused.take().map_or(0, |refused| refused.count) + 1;
            record.refused = Some(CallbackRefusals { count, reason: reason.clone() });
        }
        AttemptUpdate::Reported(outputs) => record.reported = OutputStorage::Inline(outputs.clone()),
        AttemptUpdate::Waiting { wait, begun, next, seen_by } => {
            record.wait = record.wait.take().or_else(|| Some((**wait).clone()));
            record.started = record.started.or(Some(*begun));
            record.next_dispatch = Some(*next);
            record.leased_until = None;
            record.seen_by = seen_by.clone().or(record.seen_by.take());
        }
        AttemptUpdate::Seen(by) => record.seen_by = Some(by.clone()),
        AttemptUpdate::Instances(ids) => record.instances.merge(ids.clone()),
    }
}

/// Adds a result. The first one stays, and further successes are stored up to a limit.
fn put(record: &mut AttemptRecord, result: &AttemptResult) -> PutOutcome {
    let is_success = |result: &&AttemptResult| result.outcome == AttemptOutcome::Succeeded;
    let Some(first) = record.result.clone() else {
        record.result = Some(result.clone());
        return PutOutcome::Created;
    };
    if first.digest == result.digest {
        return PutOutcome::Duplicate(first);
    }
    if record.further_results.iter().any(|other| other.digest == result.digest) {
        return PutOutcome::Conflict(first);
    }
    let kept = record.further_results.iter().chain([&first]).filter(is_success).count();
    if is_success(&result) && kept >= limits::DISTINCT_RESULTS {
        record.excess += 1;
        return PutOutcome::Excess(first);
    }
    record.further_results.push(result.clone());
    record.further_results.sort_by(|one, other| one.digest.cmp(&other.digest));
    PutOutcome::Conflict(first)
}

#[derive(Clone, Debug)]
enum RecordChange {
    Update(AttemptUpdate),
    Result(AttemptResult),
}

fn updates() -> impl Strategy<Value = AttemptUpdate> {
    let times = || (1..5_u64).prop_map(Timestamp);
    let credentials = || prop::sample::select(vec!["c-1".to_owned(), "c-2".to_owned()]);
    prop_oneof![
        times().prop_map(AttemptUpdate::Started),
        times().prop_map(AttemptUpdate::Accepted),
        times().prop_map(AttemptUpdate::DispatchAgain),
        times().prop_map(AttemptUpdate::DispatchEarlier),
        (times(), prop::option::of(credentials())).prop_map(|(at, by)| AttemptUpdate::Posted(at, by)),
        times().prop_map(AttemptUpdate::Leased),
        (times(), prop::option::of(Just("slot".to_owned()))).prop_map(|(at, why)| AttemptUpdate::Postponed(at, why)),
        (times(), prop::option::of(Just("half".to_owned()))).prop_map(|(at, text)| AttemptUpdate::Heartbeat(at, text)),
        (0..2_u32).prop_map(|number| AttemptUpdate::Refused(format!("reason {number}"))),
        (0..2_u32)
            .prop_map(|number| AttemptUpdate::Reported([(format!("o{number}"), UnitValue::Json("x".into()))].into())),
        (times(), times(), prop::option::of(credentials())).prop_map(|(begun, next, seen_by)| AttemptUpdate::Waiting {
            wait: Box::new(wait(begun)),
            begun,
            next,
            seen_by
        }),
        credentials().prop_map(AttemptUpdate::Seen),
        instances().prop_map(AttemptUpdate::Instances),
    ]
}

fn instances() -> impl Strategy<Value = InstanceIds> {
    let set = || prop::collection::btree_set(prop::sample::select(vec!["i-1".to_owned(), "i-2".to_owned()]), 0..3);
    let all = (set(), set(), set());
    let all = all.prop_map(|(made, listed, destroyed)| InstanceIds { made, listed, destroyed });
    all.prop_filter("an update has an ID", |ids| !ids.is_empty())
}

fn wait(since: Timestamp) -> StateWait {
    let outputs = Outputs::from([("id".to_owned(), UnitValue::Json("br-1".into()))]);
    let response = StoredText::Inline(format!("sealed {}", since.0));
    StateWait { since, outputs: OutputStorage::Inline(outputs), response }
}

/// Returns results. Some are repeated at another time.
fn results() -> impl Strategy<Value = AttemptResult> {
    let success = |(number, later): (usize, u64)| {
        let success = result(AttemptOutcome::Succeeded, &number.to_string());
        let outputs = Outputs::from([("id".to_owned(), UnitValue::Json(number.into()))]);
        AttemptResult { at: success.at.plus(Millis(later)), outputs: OutputStorage::Inline(outputs), ..success }
    };
    let others = vec![
        full_result(),
        result(AttemptOutcome::Succeeded, "x"),
        result(AttemptOutcome::Skipped, "y"),
        AttemptResult { digest: "short".into(), ..result(AttemptOutcome::Cancelled, "z") },
        AttemptResult { outputs: OutputStorage::Bucket("outputs/k".into()), ..result(AttemptOutcome::Succeeded, "b") },
        AttemptResult { outputs: OutputStorage::Inline(Outputs::new()), ..result(AttemptOutcome::Succeeded, "e") },
    ];
    prop_oneof![
        8 => (0..limits::DISTINCT_RESULTS + 4, 0..3_u64).prop_map(success),
        2 => prop::sample::select(others),
    ]
}

async fn check(fixture: &StoreFixture, run: &RunId, changes: &[RecordChange]) {
    let (unit, attempt) = (Unit(0), Attempt(1));
    let mut model = AttemptRecord::default();
    for change in changes {
        match change {
            RecordChange::Update(change) => {
                let before = fixture.store.update_attempt(run, unit, attempt, change).await.unwrap();
                // An update reads no further results.
                assert_eq!(before, AttemptRecord { further_results: vec![], ..model.clone() }, "{change:?}");
                update(&mut model, change);
            }
            RecordChange::Result(result) => {
                let outcome = fixture.store.put_result(run, unit, attempt, result).await.unwrap();
                assert_eq!(outcome, put(&mut model, result), "{result:?}");
            }
        }
    }
    let mut read = fixture.store.read_records(run, &[unit]).await.unwrap().remove(0).2;
    let mut outline = fixture.store.read_outlines(run).await.unwrap().remove(0).2;
    // The table sorts further results by digest.
    for record in [&mut read, &mut outline, &mut model] {
        record.further_results.sort_by(|one, other| one.digest.cmp(&other.digest));
    }
    assert_eq!(read, model);
    model.reported = OutputStorage::Nothing;
    for result in model.result.iter_mut().chain(&mut model.further_results) {
        (result.outputs, result.evidence) = (OutputStorage::Nothing, None);
    }
    assert_eq!(outline, model);
}

pub(super) async fn the_table_changes_records_like_the_model(fixture: StoreFixture) {
    let runtime = tokio::runtime::Handle::current();
    let names = std::sync::atomic::AtomicU32::new(0);
    // The runner of the cases is not async.
    tokio::task::block_in_place(|| {
        let early = prop::collection::vec(updates().prop_map(RecordChange::Update), 0..24);
        let results = prop::collection::vec(results().prop_map(RecordChange::Result), 1..60);
        let late = updates().prop_map(|update| vec![RecordChange::Update(update)]);
        proptest!(ProptestConfig::with_cases(48), |(early in early, results in results, late in late)| {
            let name = names.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let run = new_run(&format!("run-{name}")).id;
            runtime.block_on(check(&fixture, &run, &[early, results, late].concat()));
        });
    });
}
