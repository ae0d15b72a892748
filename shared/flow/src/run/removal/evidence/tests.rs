use ebb_documents::plan::{HookPlan, OutputRead, RetryPolicy};
use ebb_engine::Epoch;
use serde_json::json;

use super::*;
use crate::tests::{RecordMembers, attempt_record, record_rows, rows};

fn unit() -> UnitPlan {
    let action = json!({"webhook": {"method": "DELETE", "url": {"literal": "https://api.example.org/a"}}});
    let (action, undoes) = (serde_json::from_value(action).unwrap(), vec![UnitRef { hook: Hook::PreStart, unit: 0 }]);
    let retry = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
    UnitPlan { key: "r/drop".to_owned(), action, undoes, retry, ..UnitPlan::default() }
}

/// A block has two attempts, and a reopening skips one block. A row has the last attempt, the records by attempt, and the grade.
#[test]
fn the_lowest_evidence_of_the_last_pass_counts() {
    type Row = (u32, Vec<(u32, RecordMembers)>, RemovalGrade);
    let plan = Plan { hooks: vec![HookPlan { hook: Hook::PostStop, units: vec![unit()] }], ..Plan::empty() };
    for (last, records, expected) in rows::<Row>("attempts_of_an_undo") {
        let attempts = [(Unit(0), Attempt(last))].into();
        let head = HeadState { done: [Unit(0)].into(), attempts, ..HeadState::new(Epoch::FIRST) };
        let numbered = |(number, members)| (Unit(0), Attempt(number), attempt_record(members));
        let records: Vec<_> = records.into_iter().map(numbered).collect();
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
        let reason = Some(FailureReason { code: ReasonCode::Overridden, message: "why".to_owned() });
        let skipped = AttemptResult { outcome: AttemptOutcome::Skipped, reason, ..AttemptResult::default() };
        let overridden = AttemptRecord { result: Some(skipped), ..AttemptRecord::default() };
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
    for (record, shown_to) in record_rows::<Option<String>>("records_that_show_a_resource") {
        for by in [None, Some("a"), Some("b")] {
            let is_shown = shown_to.as_deref() == Some(by.unwrap_or("signed"));
            assert_eq!(visibility::shows_resource(&record, &CredentialDigest::of(by)), is_shown, "{by:?} {record:?}");
        }
    }
}

/// The second sender of an attempt can have another credential than the first one.
#[test]
fn the_result_names_the_last_sender_of_an_attempt() {
    for (record, expected) in record_rows::<bool>("attempts_of_the_sender_one") {
        assert_eq!(visibility::is_sent_by(&record, &CredentialDigest::of(Some("one"))), expected, "{record:?}");
    }
}
