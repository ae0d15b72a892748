//! Finds overrides in the attempt records of a unit.

use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::record::{AttemptOutcome, AttemptRecord};

/// Returns the reason with which a unit was overridden, by its records in the order of attempts. Returns `None` if its
/// last result is not an override, or if the attempt that was in progress has succeeded since.
pub(crate) fn override_reason<'a>(
    records: impl DoubleEndedIterator<Item = &'a AttemptRecord>,
) -> Option<&'a FailureReason> {
    let mut ended = records.rev().filter(|record| record.result.is_some());
    let last = ended.next()?;
    let reason = last.result.as_ref()?.reason.as_ref().filter(|reason| reason.code == ReasonCode::Overridden)?;
    let previous = ended.next().filter(|record| outcome(record) == Some(AttemptOutcome::Failed));
    let has_succeeded = [Some(last), previous].into_iter().flatten().any(succeeded_later);
    (!has_succeeded).then_some(reason)
}

/// Returns true if the last request before the override got no response, so that its receiver may still act.
pub(crate) fn is_open(records: &[AttemptRecord]) -> bool {
    let results = records.iter().rev().filter_map(|record| record.result.as_ref());
    results.skip(1).take(1).any(|result| result.unanswered)
}

fn outcome(record: &AttemptRecord) -> Option<AttemptOutcome> {
    record.result.as_ref().map(|result| result.outcome)
}

/// Returns true if a success arrived after the attempt had another result.
fn succeeded_later(record: &AttemptRecord) -> bool {
    record.further_results.iter().any(|other| other.outcome == AttemptOutcome::Succeeded && other.next.is_none())
}

#[cfg(test)]
mod tests {
    use ebb_engine::Timestamp;
    use ebb_protocol::record::AttemptResult;

    use super::*;

    fn result(outcome: AttemptOutcome, code: Option<ReasonCode>) -> AttemptResult {
        AttemptResult {
            reason: code.map(|code| FailureReason { code, message: "why".to_owned() }),
            unanswered: code == Some(ReasonCode::Timeout),
            ..AttemptResult::new(outcome, Timestamp(1), String::new())
        }
    }

    fn record(first: AttemptResult, others: &[AttemptResult]) -> AttemptRecord {
        AttemptRecord { result: Some(first), further_results: others.to_vec(), ..AttemptRecord::default() }
    }

    #[test]
    fn a_late_success_of_the_last_attempt_ends_an_override() {
        let overridden = || result(AttemptOutcome::Skipped, Some(ReasonCode::Overridden));
        let failed = || result(AttemptOutcome::Failed, Some(ReasonCode::Timeout));
        let done = || result(AttemptOutcome::Succeeded, None);
        let partial = || AttemptResult { next: Some(Timestamp(2)), ..done() };
        let rows: [(&[AttemptRecord], bool); 8] = [
            (&[record(failed(), &[])], false),
            (&[record(overridden(), &[])], true),
            (&[record(failed(), &[]), record(overridden(), &[])], true),
            (&[record(failed(), &[done()]), record(overridden(), &[])], false),
            (&[record(overridden(), &[done()])], false),
            (&[record(failed(), &[partial()]), record(overridden(), &[])], true),
            // The unit was done, and a late success of the unit that it undoes reopened it.
            (&[record(done(), &[done()]), record(overridden(), &[])], true),
            (&[record(overridden(), &[]), record(done(), &[])], false),
        ];
        for (records, expected) in rows {
            assert_eq!(override_reason(records.iter()).is_some(), expected, "{records:?}");
        }
        assert!(is_open(&[record(failed(), &[]), record(overridden(), &[])]));
        assert!(!is_open(&[record(failed(), &[]), record(failed(), &[]), record(done(), &[])][2..]));
    }
}
