use ebb_documents::plan::{HookPlan, OutputRead, RetryPolicy};
use ebb_engine::{Epoch, Timestamp};
use ebb_protocol::{AttemptResult, Evidence, FailureReason};
use serde_json::json;

use super::*;
use crate::tests::rows;

fn unit() -> UnitPlan {
    let action = json!({"webhook": {"method": "DELETE", "url": {"literal": "https://api.example.org/a"}}});
    let (action, undoes) = (serde_json::from_value(action).unwrap(), vec![UnitRef { hook: Hook::PreStart, unit: 0 }]);
    let retry = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
    UnitPlan { key: "r/drop".to_owned(), action, undoes, retry, ..UnitPlan::default() }
}

fn result(outcome: AttemptOutcome) -> AttemptResult {
    AttemptResult { outcome, at: Timestamp(1), ..AttemptResult::default() }
}

fn record(first: AttemptResult) -> AttemptRecord {
    AttemptRecord { result: Some(first), ..AttemptRecord::default() }
}

fn done() -> AttemptResult {
    result(AttemptOutcome::Succeeded)
}

/// Returns the result of a `DELETE` that was answered with this status.
fn deleted(status: &str) -> AttemptResult {
    let removal = RemovalEvidence::new(RemovalGrade::Unconfirmed, "DELETE https://api.example.org/a", status);
    AttemptResult { removal: Some(Box::new(removal)), ..done() }
}

fn with_reason(code: ReasonCode, result: AttemptResult) -> AttemptResult {
    AttemptResult { reason: Some(FailureReason { code, message: "why".to_owned() }), ..result }
}

/// Returns the failure of a request that was answered with this status.
fn refused(method: &str, status: u16) -> AttemptResult {
    let evidence = Evidence {
        method: method.to_owned(),
        url: "https://api.example.org/a".to_owned(),
        status: Some(status),
        ..Evidence::default()
    };
    AttemptResult { evidence: Some(Box::new(evidence)), ..result(AttemptOutcome::Failed) }
}

/// The last attempt, the records by attempt, and the expected grade.
type RecordedAttempts = (u32, Vec<(u32, AttemptRecord)>, RemovalGrade);

/// A block has two attempts, and a reopening skips one block.
#[test]
fn the_lowest_evidence_of_the_last_pass_counts() {
    let more = |result: AttemptResult| AttemptResult { next: Some(Timestamp(2)), ..result };
    let overridden = || record(with_reason(ReasonCode::Overridden, result(AttemptOutcome::Skipped)));
    let failed = || record(result(AttemptOutcome::Failed));
    let late = || AttemptRecord { further_results: vec![done()], ..failed() };
    let rows: [RecordedAttempts; 7] = [
        (1, vec![], RemovalGrade::Reported),
        (1, vec![(1, record(deleted("404")))], RemovalGrade::Unconfirmed),
        (2, vec![(1, failed())], RemovalGrade::Reported),
        // Two results were removed, then both again.
        (3, vec![(1, record(more(deleted("404"))))], RemovalGrade::Unconfirmed),
        (7, vec![(1, record(deleted("404"))), (5, record(more(done())))], RemovalGrade::Reported),
        (5, vec![(1, failed()), (5, overridden())], RemovalGrade::Unconfirmed),
        (5, vec![(1, late()), (5, overridden())], RemovalGrade::Reported),
    ];
    let plan = Plan { hooks: vec![HookPlan { hook: Hook::PostStop, units: vec![unit()] }], ..Plan::empty() };
    for (last, records, expected) in rows {
        let attempts = [(Unit(0), Attempt(last))].into();
        let head = HeadState { done: [Unit(0)].into(), attempts, ..HeadState::new(Epoch::FIRST) };
        let records: Vec<_> = records.into_iter().map(|(number, record)| (Unit(0), Attempt(number), record)).collect();
        let run = RecordedRun { head, records: [(Unit(0), records.clone())].into() };
        let runs = RecordedRuns::from([(Hook::PostStop, run)]);
        let found = evidence(&plan, &runs, UnitRef { hook: Hook::PostStop, unit: 0 });
        assert_eq!(found.map(|evidence| evidence.grade), Some(expected), "{last} {records:?}");
    }
}

/// The verification `2` is confirmed, and the undo `1` was overridden.
#[test]
fn an_override_stays_beside_the_verification_of_another_undo() {
    let at = |unit| UnitRef { hook: Hook::PostStop, unit };
    let rows = [(vec![0, 1], 2, RemovalGrade::Confirmed), (vec![0], 1, RemovalGrade::Unconfirmed)];
    for (dependencies, by, expected) in rows {
        let verify = UnitPlan { verifies: true, dependencies, ..unit() };
        let hook_plan = HookPlan { hook: Hook::PostStop, units: vec![unit(), unit(), verify] };
        let plan = Plan { hooks: vec![hook_plan], ..Plan::empty() };
        let head = HeadState { done: [0, 1, 2].map(Unit).into(), ..HeadState::new(Epoch::FIRST) };
        let overridden = record(with_reason(ReasonCode::Overridden, result(AttemptOutcome::Skipped)));
        let records = [(Unit(1), vec![(Unit(1), Attempt::FIRST, overridden)])].into();
        let runs = RecordedRuns::from([(Hook::PostStop, RecordedRun { head, records })]);
        let (undo, found) = removal(&plan, &runs, &[0, 1, 2].map(at));
        assert_eq!((undo, found.grade), (Some(at(by)), expected));
    }
}

/// `0` searches for what `1` asks for, and `2` deletes it. `3` verifies, and `4` undoes another unit. Of two searches in preStop, `5`
/// deletes what the first one finds, and `6` reports the second one.
#[test]
fn an_undo_on_whose_outputs_another_one_acts_only_looks() {
    let of = |hook, read| {
        let at = UnitRef { hook, unit: read };
        UnitPlan { reads: vec![OutputRead { at, output: "id".to_owned(), optional: false }], ..unit() }
    };
    let after = |read| of(Hook::PostStop, read);
    let get = json!({"webhook": {"method": "GET", "url": {"literal": "https://api.example.org/a"}}});
    let asks = UnitPlan { action: serde_json::from_value(get).unwrap(), ..after(0) };
    let verifies = UnitPlan { verifies: true, ..after(2) };
    let other = UnitPlan { undoes: vec![UnitRef { hook: Hook::PreStart, unit: 1 }], ..after(2) };
    let plain = UnitPlan { undoes: Vec::new(), ..of(Hook::PreStop, 0) };
    let post = json!({"webhook": {"method": "POST", "url": {"literal": "https://api.example.org/a"}}});
    let report = UnitPlan { action: serde_json::from_value(post).unwrap(), undoes: Vec::new(), ..of(Hook::PreStop, 1) };
    let units = vec![unit(), asks, after(1), verifies, other, plain, report];
    let searches = HookPlan { hook: Hook::PreStop, units: vec![unit(), unit()] };
    let mut plan = Plan { hooks: vec![searches, HookPlan { hook: Hook::PostStop, units }], ..Plan::empty() };
    plan.mark_looks();
    let looks: Vec<bool> = plan.hooks.iter().flat_map(|hook| &hook.units).map(|unit| unit.looks).collect();
    assert_eq!(looks, [true, false, true, true, false, false, false, false, false]);
}

/// A target with none of these undos costs no query of records.
#[test]
fn some_undos_can_lack_evidence() {
    for (mut webhook, expected) in rows::<(serde_json::Value, bool)>("undos_that_can_lack_evidence") {
        webhook["url"] = json!({"literal": "https://api.example.org/a"});
        let action = serde_json::from_value(json!({ "webhook": webhook })).unwrap();
        assert_eq!(can_be_unconfirmed(&Plan::empty(), &UnitPlan { action, ..unit() }), expected, "{webhook}");
    }
}

#[test]
fn only_an_answer_other_than_not_found_shows_the_resource() {
    let seen_by = |name: &str| Some(name.to_owned());
    let shows = |record: &AttemptRecord, by| visibility::shows_resource(record, &CredentialDigest::of(by));
    let seen = AttemptRecord { seen_by: seen_by("signed"), ..record(result(AttemptOutcome::Failed)) };
    let found_nothing = record(with_reason(ReasonCode::Skipped, done()));
    let rows = [
        (record(done()), true),
        (record(deleted("202")), true),
        (record(deleted("404")), false),
        (found_nothing, false),
        (record(refused("DELETE", 409)), true),
        (record(refused("DELETE", 423)), true),
        (record(refused("DELETE", 403)), false),
        (record(refused("POST", 409)), false),
        (record(result(AttemptOutcome::Skipped)), false),
        (seen, true),
        (AttemptRecord::default(), false),
    ];
    for (record, expected) in rows {
        assert_eq!(shows(&record, None), expected, "{record:?}");
        assert!(!shows(&record, Some("a")), "{record:?}");
    }
    let of_result = record(AttemptResult { sent_by: seen_by("a"), ..refused("DELETE", 409) });
    let of_attempt = AttemptRecord { seen_by: seen_by("a"), ..AttemptRecord::default() };
    for record in [of_result, of_attempt] {
        assert!(shows(&record, Some("a")) && !shows(&record, Some("b")), "{record:?}");
    }
}

/// The second sender of an attempt can have another credential than the first one.
#[test]
fn the_result_names_the_last_sender_of_an_attempt() {
    let by = CredentialDigest::of(Some("one"));
    let once = record(AttemptResult { sent_by: Some("one".to_owned()), ..refused("POST", 403) });
    let leased = AttemptRecord { leased_until: Some(Timestamp(2)), ..once.clone() };
    let posted = |by: &str| AttemptRecord { posted_by: Some(by.to_owned()), ..leased.clone() };
    let all = [&once, &leased, &posted("one"), &posted("two")].map(|record| visibility::is_sent_by(record, &by));
    assert_eq!(all, [true, false, true, false]);
}
