//! Describes runs and their units for people.

use std::collections::BTreeSet;

use ebb_documents::plan::{Action, UnitPlan};
use ebb_engine::{Attempt, Graph, HeadState, Millis, RunOutcome, RunPhase, Timestamp, Unit, UnitProgress, in_flight};
use ebb_protocol::record::{AttemptOutcome, AttemptRecord, CallbackRefusals};
use ebb_protocol::relay::ObjectCount;
use ebb_protocol::{AttemptDetail, RunDetail, RunId, RunState, UnitDetail, UnitState, limits, rfc3339};

use ebb_flow::run::records::{self, started_at};
use ebb_flow::{Env, FlowResult, Run, group};

use crate::queries::{applied_objects, live};

/// Maximum earlier attempts of a unit.
const EARLIER_ATTEMPTS: usize = 20;

/// Returns a run with its units, or `None` if it has not begun.
pub async fn get(env: &Env, id: &RunId) -> FlowResult<Option<RunDetail>> {
    let Some(run) = Run::load(env, id).await? else { return Ok(None) };
    let head = run.read_head(env).await?;
    let open: BTreeSet<Unit> = in_flight(run.graph(), &head).into_iter().map(|(unit, _)| unit).collect();
    let in_flight: Vec<Unit> = open.iter().copied().collect();
    let outlines = env.store.read_outlines(id).await?;
    let records = records::with_accepted(env, &run, &in_flight, outlines).await?.into_iter();
    let records = group(records.map(|((unit, attempt), record)| (unit, (attempt, record))));
    let state = state(run.graph(), &head);
    let units = {
        let blocked = blocked(&run, &head);
        let snapshot = RunSnapshot { run: &run, head: &head, state, now: env.now(), open, blocked };
        let attempts = |unit: &Unit| records.get(unit).map(Vec::as_slice).unwrap_or_default();
        run.graph().units().map(|unit| snapshot.unit(unit, attempts(&unit))).collect()
    };
    let mut detail = RunDetail {
        id: id.to_string(),
        hook: id.hook().name().to_owned(),
        state,
        started: rfc3339(run.facts.started),
        units,
        next_token: None,
    };
    live::add_reports(env, &run, &records, &mut detail).await;
    Box::pin(applied_objects::add(env, &run, &mut detail)).await;
    Ok(Some(detail))
}

/// Returns the recorded attempts of a unit, the oldest first.
pub async fn attempts(env: &Env, id: &RunId, key: &str) -> FlowResult<Vec<AttemptDetail>> {
    let Some(run) = Run::load(env, id).await? else { return Ok(Vec::new()) };
    let Some((unit, plan)) = run.find_unit(key) else { return Ok(Vec::new()) };
    let records = env.store.read_records(id, &[unit]).await?;
    Ok(records.iter().map(|(_, attempt, record)| attempt_detail(plan, *attempt, record)).collect())
}

/// Keeps the units after the unit `after` that fit into `bytes` of a Lambda event, at least one. Returns the remaining
/// bytes, or `None` if the run has no unit `after`.
pub fn page(run: &mut RunDetail, after: Option<&str>, bytes: usize) -> Option<usize> {
    if let Some(after) = after {
        let position = run.units.iter().position(|unit| unit.key == after)?;
        run.units.drain(..=position);
    }
    let mut remaining = bytes;
    let mut count = 0;
    for unit in &run.units {
        let size = limits::lambda_event_size_of(unit);
        if size > remaining && count > 0 {
            break;
        }
        remaining = remaining.saturating_sub(size);
        count += 1;
    }
    if count < run.units.len() {
        run.units.truncate(count);
        run.next_token = run.units.last().map(|unit| unit.key.clone());
    }
    Some(remaining)
}

pub(super) fn state(graph: &Graph, head: &HeadState) -> RunState {
    match head.phase {
        RunPhase::Running => RunState::Running,
        RunPhase::Cancelling => RunState::Cancelling,
        RunPhase::Closed if head.stopped.is_some() => RunState::Cancelled,
        RunPhase::Closed if ebb_engine::follow::outcome(graph, head) == RunOutcome::Failed => RunState::Failed,
        RunPhase::Closed => RunState::Succeeded,
    }
}

struct RunSnapshot<'a> {
    run: &'a Run,
    head: &'a HeadState,
    state: RunState,
    now: Timestamp,
    /// The units that may be running.
    open: BTreeSet<Unit>,
    blocked: BTreeSet<Unit>,
}

impl RunSnapshot<'_> {
    fn unit(&self, unit: Unit, attempts: &[(Attempt, AttemptRecord)]) -> UnitDetail {
        let plan = self.run.unit(unit).expect("a unit of the graph is a unit of the plan");
        let attempt = self.head.attempt(unit);
        let record_of =
            |wanted: Attempt| attempts.iter().find(|(attempt, _)| *attempt == wanted).map(|(_, record)| record);
        let record = record_of(attempt);
        let previous = attempt.0.checked_sub(1).and_then(|previous| record_of(Attempt(previous)));
        let previous_result = previous.and_then(|record| record.result.as_ref());
        let result = record.and_then(|record| record.result.as_ref());
        let next_attempt = previous_result.and_then(|result| result.next).filter(|&at| at > self.now);
        let next_request = record.filter(|record| record.result.is_none());
        let next_request = next_request.and_then(|record| next_request_of(plan, record)).filter(|&at| at > self.now);
        let outcome = result.map(|result| result.outcome);
        let is_running = self.state == RunState::Running;
        let state = match self.head.status(unit) {
            UnitProgress::Done if outcome == Some(AttemptOutcome::Skipped) => UnitState::Skipped,
            UnitProgress::Done => UnitState::Succeeded,
            UnitProgress::Failed => UnitState::Failed,
            _ if !self.open.contains(&unit) && is_running && !self.blocked.contains(&unit) => UnitState::Waiting,
            _ if !self.open.contains(&unit) => UnitState::Blocked,
            _ if !is_running || outcome == Some(AttemptOutcome::Cancelled) => UnitState::Cancelled,
            _ if next_attempt.is_some() => UnitState::Retrying,
            _ => UnitState::Running,
        };
        let reason = result.or(previous_result).and_then(|result| result.reason.clone());
        let ended = result.map(|result| result.at);
        let started = record.and_then(begun);
        let cancelled = state == UnitState::Cancelled && self.state == RunState::Cancelling && result.is_none();
        let may_run = state == UnitState::Running || cancelled;
        let deadline = started.filter(|_| may_run).map(|at| at.plus(Millis(plan.timeout_ms)));
        // Scripts send theirs to the relay, which reports the last one.
        let heartbeat = record.filter(|_| may_run && matches!(plan.action, Action::Webhook(_)));
        let heartbeat = heartbeat.and_then(|record| record.heartbeat);
        let has_failed = matches!(state, UnitState::Failed | UnitState::Retrying);
        let object_states = result.or(previous_result).filter(|_| has_failed).map(|result| result.objects.clone());
        let excess = attempts.iter().map(|(_, record)| record.excess).sum::<u64>();
        let after = plan.dependencies.iter().filter_map(|&n| Some(self.run.unit(Unit(n))?.key.clone()));
        UnitDetail {
            key: plan.key.clone(),
            kind: plan.action.kind().to_owned(),
            state,
            tolerated: state == UnitState::Failed && plan.tolerated,
            attempt: attempt.0,
            max_attempts: plan.retry.attempts.max(1),
            attempt_in_series: ebb_engine::retry::attempts_used(attempt, plan.retry.attempts),
            after: after.collect(),
            reason: reason.filter(|_| state != UnitState::Succeeded),
            started: started.map(rfc3339),
            accepted: record.and_then(|record| record.accepted).map(rfc3339),
            ended: ended.map(rfc3339),
            duration_ms: result.and_then(|result| result.duration_ms),
            next: next_attempt.or(next_request).map(rfc3339),
            deadline: deadline.map(rfc3339),
            progress: record.and_then(|record| Some(record.awaited_slot().or(record.progress.as_deref())?.to_owned())),
            heartbeat: heartbeat.map(rfc3339),
            objects: if state == UnitState::Succeeded { ready_objects(plan) } else { None },
            object_states: object_states.unwrap_or_default(),
            waits: Vec::new(),
            log: result.or(previous_result).is_some_and(|result| result.log),
            excess_results: (excess > 0).then_some(excess),
            refused_callbacks: refused(attempts),
            earlier_attempts: earlier_attempts(plan, attempt, attempts),
        }
    }
}

/// Returns the start of an attempt. That of a quick script is not recorded. Its result has the duration.
fn begun(record: &AttemptRecord) -> Option<Timestamp> {
    let computed = || record.result.as_ref().and_then(|result| Some(result.at.minus(Millis(result.duration_ms?))));
    started_at(record).or_else(computed)
}

/// Returns the time of the next request of an attempt, or of its first question about a state.
fn next_request_of(plan: &UnitPlan, record: &AttemptRecord) -> Option<Timestamp> {
    let Some(wait) = &record.wait else { return record.next_dispatch };
    // The record has the time of a sweep, which later questions precede.
    let Action::Webhook(webhook) = &plan.action else { return None };
    let pause = webhook.until.as_ref().map(|until| until.every_ms.min(until.max_every_ms))?;
    record.next_dispatch.map(|sweep| sweep.min(wait.since.plus(Millis(pause))))
}

/// Returns the objects of a unit that has succeeded. All objects of such a unit were ready.
fn ready_objects(plan: &UnitPlan) -> Option<ObjectCount> {
    let Action::Object(object) = &plan.action else { return None };
    let total = object.manifests().len();
    (total > 0).then_some(ObjectCount { total, ready: total })
}

/// Returns the recorded attempts before `last`, the oldest first.
fn earlier_attempts(plan: &UnitPlan, last: Attempt, attempts: &[(Attempt, AttemptRecord)]) -> Vec<AttemptDetail> {
    let earlier: Vec<_> = attempts.iter().filter(|(attempt, _)| *attempt < last).collect();
    let skipped = earlier.len().saturating_sub(EARLIER_ATTEMPTS);
    earlier[skipped..].iter().map(|(attempt, record)| attempt_detail(plan, *attempt, record)).collect()
}

fn attempt_detail(plan: &UnitPlan, attempt: Attempt, record: &AttemptRecord) -> AttemptDetail {
    let result = record.result.as_ref();
    AttemptDetail {
        attempt: attempt.0,
        attempt_in_series: ebb_engine::retry::attempts_used(attempt, plan.retry.attempts),
        state: match result.map(|result| result.outcome) {
            None => UnitState::Running,
            Some(AttemptOutcome::Succeeded) => UnitState::Succeeded,
            Some(AttemptOutcome::Skipped) => UnitState::Skipped,
            Some(AttemptOutcome::Failed) => UnitState::Failed,
            Some(AttemptOutcome::Cancelled) => UnitState::Cancelled,
        },
        started: begun(record).map(rfc3339),
        ended: result.map(|result| rfc3339(result.at)),
        duration_ms: result.and_then(|result| result.duration_ms),
        reason: result.and_then(|result| result.reason.clone()),
        log: result.is_some_and(|result| result.log),
    }
}

fn refused(attempts: &[(Attempt, AttemptRecord)]) -> Option<CallbackRefusals> {
    let all: Vec<_> = attempts.iter().filter_map(|(_, record)| record.refused.as_ref()).collect();
    let reason = all.last()?.reason.clone();
    Some(CallbackRefusals { count: all.iter().map(|refused| refused.count).sum(), reason })
}

/// Returns the units that depend, directly or indirectly, on a unit without a further attempt whose failure is not tolerated.
fn blocked(run: &Run, head: &HeadState) -> BTreeSet<Unit> {
    let mut blocked = BTreeSet::new();
    if !head.failed.is_empty() {
        for unit in run.graph().order() {
            let fails = |at: &Unit| (head.failed.contains(at) && !run.graph().tolerates(*at)) || blocked.contains(at);
            if run.graph().dependencies(unit).iter().any(fails) {
                blocked.insert(unit);
            }
        }
    }
    blocked
}

#[cfg(test)]
mod tests {
    use ebb_protocol::FailureReason;
    use ebb_protocol::limits::MAX_UNITS;

    use super::*;

    /// Returns a run of failed units with the longest reasons. Each character takes two bytes in an event.
    fn failed(count: usize) -> RunDetail {
        let reason = FailureReason { message: "\"".repeat(limits::MESSAGE), ..FailureReason::default() };
        let unit = |number: usize| UnitDetail {
            key: format!("resource/unit-{number}"),
            state: UnitState::Failed,
            reason: Some(reason.clone()),
            ..UnitDetail::default()
        };
        RunDetail { units: (0..count).map(unit).collect(), ..RunDetail::default() }
    }

    #[test]
    fn pages_fit_into_a_response_and_contain_each_unit_once() {
        // The reasons of the largest run fit into a response, unlike its earlier attempts and objects.
        const BYTES: usize = limits::API_RESPONSE / 8;
        let whole = failed(MAX_UNITS);
        assert!(limits::lambda_event_size_of(&whole) > 2 * BYTES, "the run fits into one response");
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let mut run = whole.clone();
            page(&mut run, after.as_deref(), BYTES).unwrap();
            assert!(limits::lambda_event_size_of(&run) <= BYTES + (limits::LAMBDA_EVENT - limits::API_RESPONSE));
            pages += 1;
            seen.extend(run.units.into_iter().map(|unit| unit.key));
            let Some(token) = run.next_token else { break };
            after = Some(token);
        }
        let all: Vec<String> = whole.units.iter().map(|unit| unit.key.clone()).collect();
        assert!(pages > 1 && seen == all, "{pages} pages with {} units", seen.len());
    }

    #[test]
    fn a_page_has_at_least_one_unit_and_begins_after_an_existing_one() {
        let mut run = failed(3);
        assert_eq!(page(&mut run, None, 1), Some(0));
        assert_eq!((run.units.len(), run.next_token.as_deref()), (1, Some("resource/unit-0")));
        let mut run = failed(3);
        assert!(page(&mut run, Some("resource/unit-1"), limits::API_RESPONSE).is_some());
        assert_eq!((run.units.len(), run.next_token), (1, None));
        assert_eq!(page(&mut failed(3), Some("resource/none"), limits::API_RESPONSE), None);
    }
}
