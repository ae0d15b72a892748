//! The checks of the model.

use ebb_documents::UnitRef;
use ebb_protocol::AttemptOutcome;
use ebb_protocol::lifecycle::{GONE, READY};
use ebb_store::NotificationState;

use super::*;
use crate::simulation::incomplete;

/// Checks a state. `whole` is true if no fault was used so far.
pub(super) fn now(place: &ModelSimulation, platform: &PlatformState, whole: bool) -> Option<String> {
    let reported = {
        let outer = place.environment.state();
        outer.violations.first().or(outer.overtaken.first().filter(|_| whole)).cloned()
    };
    reported
        .or_else(|| never_sent(place))
        .or_else(|| passed_over(place))
        .or_else(|| undone_twice(place))
        .or_else(|| if place.is_quiet() { quiet(place, whole).or_else(|| at_rest(place, platform)) } else { None })
}

/// A run does not ignore a recorded success of a setup unit.
fn passed_over(place: &ModelSimulation) -> Option<String> {
    let (_, plan) = place.target()?;
    let table = place.table.state();
    for ((run, unit, attempt), record) in &table.records {
        let setup = match run.hook() {
            Hook::PreStart | Hook::PostStart => true,
            hook => plan.hook_plan(hook).is_some_and(|(hook, _)| hook.units[unit.0 as usize].undoes.is_empty()),
        };
        let success = record.outcome() == Some(AttemptOutcome::Succeeded);
        let Some(head) = table.head(run) else { continue };
        let passed = head.attempt(*unit) > *attempt || head.failed.contains(unit);
        if setup && success && passed {
            return Some(format!(
                "unit {} of {run} succeeded in try {}, and the run passed over it",
                unit.0, attempt.0
            ));
        }
    }
    None
}

/// The teardown does not undo what an update has undone, except after a late success.
fn undone_twice(place: &ModelSimulation) -> Option<String> {
    let (target, plan) = place.target().filter(|(target, _)| target.updates > 0)?;
    let (teardown, _) = plan.hook_plan(Hook::PostStop)?;
    let run = target.run(Hook::PostStop);
    let table = place.table.state();
    let outer = place.environment.state();
    let mut undos =
        teardown.units.iter().zip(0..).filter(|(_, position)| outer.has_task(&run, Unit(*position), Attempt(1)));
    let is_done = |at: &UnitRef| table.is_done(&target.run(at.hook), at.unit);
    let has_late =
        |at: &UnitRef| table.head(&target.run(at.hook)).is_some_and(|head| head.late_marks(Unit(at.unit)) > 0);
    let twice = undos.find(|(unit, _)| unit.unless.iter().any(is_done) && !unit.undoes.iter().any(has_late));
    twice.map(|(unit, _)| format!("{} undoes what an update has undone", unit.key))
}

/// A target at rest is ready or has failed. A ready one has all resources of its last document, and the platform knows.
fn at_rest(place: &ModelSimulation, platform: &PlatformState) -> Option<String> {
    if place.is_open() || platform.begun || platform.is_updating {
        return None;
    }
    let (target, plan) = place.target()?;
    let (phase, generation) = (target.phase, target.generation);
    if generation <= platform.updates as u64 {
        return Some(format!("{} updates were accepted, and the target has generation {generation}", platform.updates));
    }
    if phase == TargetPhase::Failed {
        return None;
    }
    if phase != TargetPhase::Ready {
        return Some(format!("the target is {phase:?}, and nothing moves"));
    }
    if !place.environment.state().notifications.contains(&(READY.to_owned(), generation)) {
        return Some(format!("the platform does not know that generation {generation} is ready"));
    }
    let incomplete = incomplete(&place.table.state(), &target, &plan.plan)?;
    Some(format!("the target is ready, and {incomplete} is not done"))
}

/// An attempt that was never received must not time out.
fn never_sent(place: &ModelSimulation) -> Option<String> {
    let table = place.table.state();
    let outer = place.environment.state();
    for ((run, unit, attempt), record) in &table.records {
        let Some(result) = &record.result else { continue };
        let code = result.reason.as_ref().map(|reason| reason.code);
        let together = table.accepted.contains_key(&(run.clone(), *unit, *attempt));
        let begun = record.started.is_some() || record.accepted.is_some() || together;
        let timed_out = result.outcome == AttemptOutcome::Failed && code == Some(ReasonCode::Timeout);
        if timed_out && !begun && !outer.has_task(run, *unit, *attempt) {
            return Some(format!("unit {} of {run} ran out of time, and was never sent", unit.0));
        }
    }
    None
}

/// When the model is quiet, open runs are due in time.
fn quiet(place: &ModelSimulation, whole: bool) -> Option<String> {
    let (_, plan) = place.target()?;
    let table = place.table.state();
    let outer = place.environment.state();
    for (run, present) in &table.heads {
        let head = &present.head;
        if head.phase != RunPhase::Running {
            continue;
        }
        let Some(due) = head.due else { return Some(format!("{run} is open, and never due")) };
        let (_, graph) = plan.hook_plan(run.hook())?;
        let open = ebb_engine::follow::in_flight(graph, head);
        let wait = due.0.saturating_sub(place.runtime.now().0);
        // The run matters only if its target waits for it.
        let awaited = table.targets.values().filter(|target| target.hook == Some(run.hook())).any(|target| {
            let held = target.notification == Some(NotificationState::Held(run.hook()));
            held || matches!(target.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping)
        });
        if awaited && open.is_empty() && wait > SOON_MS {
            return Some(format!("nothing of {run} moves any more, and it is closed in {wait} ms"));
        }
        for (unit, attempt) in open {
            let before = Attempt(attempt.0 - 1);
            let record = table.records.get(&(run.clone(), unit, before));
            let next = record.and_then(|record| Some(record.result.as_ref()?.next?.0));
            // The next attempt is due. A sweep may have dispatched it to a relay that did not respond.
            let now = place.runtime.now().0;
            let what = format!("unit {} of {run}", unit.0);
            if let Some(next) = next
                && due.0 > if next > now { next } else { now + ASKED_AGAIN_MS }
            {
                let late = due.0 - next;
                return Some(format!("{what} is to be tried again, and {run} is due {late} ms later"));
            }
            let known = outer.has_task(run, unit, attempt);
            let silent = run.hook() == Hook::PreStart && place.environment.graph.unreachable == Some(unit.0);
            if whole && !known && next.is_none() && !silent {
                return Some(format!("{what} is ready and was not sent, though nothing went wrong"));
            }
            if whole && known {
                return Some(format!("{what} has ended and {run} does not know, though nothing went wrong"));
            }
            if !known && next.is_none() && wait > SOON_MS {
                return Some(format!("{what} was not sent, and {run} is due in {wait} ms"));
            }
        }
    }
    None
}

/// Maximum time until a request to a relay without a response is repeated.
const ASKED_AGAIN_MS: u64 = 5_000;
/// Maximum time until a sweep of an undispatched attempt, and of a completed run that is open.
const SOON_MS: u64 = 60_000;

pub(super) fn end(place: &ModelSimulation, platform: &PlatformState) -> Option<String> {
    let table = place.table.state();
    let outer = place.environment.state();
    let phase = table.targets.values().next().map(|target| target.phase);
    if !platform.answered {
        return Some("the deletion was never answered".to_owned());
    }
    if phase != Some(TargetPhase::Gone) {
        return Some(format!("the target is {phase:?} in the end"));
    }
    if !outer.objects.is_empty() {
        return Some(format!("left behind: {:?}", outer.objects));
    }
    if let Some((run, present)) = table.heads.iter().find(|(_, present)| present.head.phase != RunPhase::Closed) {
        return Some(format!("{run} is {:?} in the end", present.head.phase));
    }
    if !outer.notifications.iter().any(|(kind, _)| kind == GONE) {
        return Some("the platform does not know that it is gone".to_owned());
    }
    None
}
