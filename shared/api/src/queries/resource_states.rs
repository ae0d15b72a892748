//! Derives the phase of each resource of a target from the units of its last run.

use std::collections::BTreeMap;

use ebb_documents::plan::Plan;
use ebb_engine::{Hook, TargetPhase};
use ebb_flow::group;
use ebb_protocol::{ResourceDetail, RunDetail, UnitDetail, UnitState, limits, rfc3339};
use ebb_store::TargetHead;

use crate::queries::open_units::OpenRun;

type LastRun<'a> = (&'a RunDetail, Vec<&'a UnitDetail>);

/// Returns a function that returns the phase of a resource, the time from which it is known, and the reason. `runs` are in the
/// order of hooks.
pub(super) fn states<'a>(
    target: &'a TargetHead,
    plan: &'a Plan,
    runs: &'a [RunDetail],
) -> impl Fn(&str) -> ResourceDetail + 'a {
    let mut last: BTreeMap<&str, LastRun<'a>> = BTreeMap::new();
    // The run of an event does not change the phases.
    let setup = [Hook::PreStart, Hook::PostStart, Hook::Update(1)];
    for run in runs.iter().rev().filter(|run| setup.iter().any(|hook| hook.name() == run.hook) || is_teardown(run)) {
        let resource_of = |unit: &'a UnitDetail| unit.key.split('/').next().unwrap_or_default();
        for (resource, units) in group(run.units.iter().map(|unit| (resource_of(unit), unit))) {
            last.entry(resource).or_insert((run, units));
        }
    }
    move |resource: &str| state(target, last.get(resource), || has_later_units(plan, resource))
}

fn is_teardown(run: &RunDetail) -> bool {
    Hook::TEARDOWN.iter().any(|hook| hook.name() == run.hook)
}

/// Returns true if a resource has units after the target has stopped.
fn has_later_units(plan: &Plan, resource: &str) -> bool {
    let last = plan.hooks.iter().filter(|planned| planned.hook == Hook::PostStop);
    last.flat_map(|planned| &planned.units).any(|unit| unit.resource() == resource)
}

fn state(target: &TargetHead, last: Option<&LastRun<'_>>, has_later_units: impl Fn() -> bool) -> ResourceDetail {
    let since = rfc3339(target.phase_since());
    let of_target = ResourceDetail { phase: target.phase, since, ..ResourceDetail::default() };
    let Some((run, units)) = last else { return of_target };
    let is_leaving = !target.phase.is_alive();
    let is_teardown = is_teardown(run);
    if target.phase == TargetPhase::Gone {
        return of_target;
    }
    if is_leaving && !is_teardown {
        let reason = Some("its teardown has not begun".to_owned());
        return ResourceDetail { phase: TargetPhase::Stopping, reason, ..of_target };
    }
    if let Some(failed) = units.iter().find(|unit| unit.state == UnitState::Failed && !unit.tolerated) {
        let why = failed.reason.as_ref().map(|reason| format!(": {}", reason.message)).unwrap_or_default();
        return ResourceDetail {
            phase: if is_teardown { TargetPhase::Stuck } else { TargetPhase::Failed },
            since: failed.ended.clone().unwrap_or(of_target.since),
            reason: Some(limits::message(&format!("{}{why}", failed.key))),
            ..ResourceDetail::default()
        };
    }
    let rank = |unit: &&&UnitDetail| match unit.state {
        UnitState::Running => 0,
        UnitState::Retrying => 1,
        UnitState::Waiting => 2,
        _ => 3,
    };
    if let Some(unit) = units.iter().filter(|unit| !unit.lets_pass()).min_by_key(rank) {
        let open = OpenRun::new(run).reasons(unit).into_iter().next();
        let text = open.as_ref().map_or("is blocked by a failure or cancelled", |reason| reason.text.as_str());
        let started = units.iter().filter_map(|unit| unit.started.as_ref()).min();
        let phase = if is_leaving { TargetPhase::Stopping } else { of_target.phase };
        let reason = Some(limits::message(&format!("{} {text}", unit.key)));
        return ResourceDetail { phase, since: started.unwrap_or(&run.started).clone(), reason, ..of_target };
    }
    let phase = match is_teardown {
        false => TargetPhase::Ready,
        true if run.hook == Hook::PreStop.name() && has_later_units() => TargetPhase::Stopping,
        true => TargetPhase::Gone,
    };
    let ended = units.iter().filter_map(|unit| unit.ended.as_ref()).max();
    ResourceDetail { phase, since: ended.cloned().unwrap_or(of_target.since), ..ResourceDetail::default() }
}

#[cfg(test)]
mod tests {
    use ebb_protocol::{FailureReason, ReasonCode, Timestamp};
    use serde_json::json;

    use super::*;

    /// Times of the target, of its run and of its units.
    const TIMES: [(&str, &str); 4] = [
        ("SINCE", "1970-01-01T00:00:09.000Z"),
        ("STARTED", "1970-01-01T00:00:01.000Z"),
        ("BEGUN", "1970-01-01T00:00:02.000Z"),
        ("ENDED", "1970-01-01T00:00:03.000Z"),
    ];

    /// The columns of `tests/resource_states.yaml`, which describes them.
    type StateRow = (TargetPhase, String, Vec<String>, bool, TargetPhase, String, Option<String>);

    fn run(hook: &str, states: &[String]) -> RunDetail {
        let [_, (_, run_started), (_, begun), (_, end)] = TIMES;
        let unit = |(number, state): (usize, &String)| {
            let ended = matches!(state.as_str(), "succeeded" | "failed").then(|| end.to_owned());
            let reason = FailureReason { code: ReasonCode::Exit, message: "code 3".to_owned() };
            let reason = (state == "failed").then_some(reason);
            let started = (state != "waiting").then(|| begun.to_owned());
            let (key, state) = (format!("r/{number}"), serde_json::from_value(json!(state)).unwrap());
            UnitDetail { key, state, started, ended, reason, ..UnitDetail::default() }
        };
        let units = states.iter().enumerate().map(unit).collect();
        RunDetail { hook: hook.to_owned(), started: run_started.to_owned(), units, ..RunDetail::default() }
    }

    #[test]
    fn each_resource_has_a_phase_a_time_and_a_reason() {
        let rows = include_str!("../../tests/resource_states.yaml").to_owned();
        let rows = TIMES.iter().fold(rows, |rows, (name, time)| rows.replace(name, &format!("{time:?}")));
        let rows: Vec<StateRow> = serde_saphyr::from_str(&rows).unwrap();
        for (phase, hook, states, later, expected, since, reason) in rows {
            let mut target = TargetHead::new("sandbox", "a", "a-uid", Timestamp(9_000));
            target.phase = phase;
            let run = run(&hook, &states);
            let last = (&run, run.units.iter().collect());
            let found = state(&target, Some(&last), || later);
            assert_eq!(
                (found.phase, found.since, found.reason),
                (expected, since, reason),
                "{phase:?} {hook} {states:?}"
            );
        }
    }
}
