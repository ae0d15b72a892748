//! Adds what relays report about the running units of a run: start, progress, heartbeat, and what each unit waits for.
//!
//! 1. Ask for all tasks at once. Their requests share a batch.
//! 2. After a bound, go on without the responses that are missing.
//! 3. Convert ages to times.
//!
//! The description of the table is complete without these reports, so no error of a relay is an error of the response.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_documents::plan::cluster_name;
use ebb_engine::{Attempt, Millis, Timestamp, Unit};
use ebb_flow::env::{Env, TaskReports};
use ebb_flow::loaded_run::Run;
use ebb_flow::run::attempt::{task_id, task_start};
use ebb_protocol::object_status::{MAX_OBJECTS, ObjectStatus};
use ebb_protocol::relay::{self, RunningTask, TaskState, TaskWait, WaitResolution};
use ebb_protocol::{AttemptRecord, ReasonCode, RunDetail, UnitDetail, UnitState, UnitWait, limits, rfc3339};
use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt as _};

/// Maximum units of a run whose relays are asked: one batch.
const MAX_TASKS: usize = relay::BATCH;
/// Maximum time that a response of the API waits for relays.
const MAX_WAIT: Duration = Duration::from_millis(1500);
/// Milliseconds for which readers share the reports. Relays that did not respond in time are spared for longer.
const SHARED_MS: u64 = 5_000;
const SPARED_MS: u64 = 10_000;
/// Maximum bytes of the name of an object, and of the name and value of its awaited field.
pub(super) const NAME: usize = 400;

type UnitRecords = BTreeMap<Unit, Vec<(Attempt, AttemptRecord)>>;

/// Adds the reports of relays to the running units of a run. `records` are those with which the units were described.
pub(super) async fn add_reports(env: &Env, run: &Run, records: &UnitRecords, detail: &mut RunDetail) {
    let units = run.graph().units().zip(&detail.units);
    let running = units.filter(|(unit, shown)| shown.state == UnitState::Running && run.is_relayed(*unit));
    let running = running.map(|(unit, shown)| (unit, Attempt(shown.attempt)));
    let running: Vec<(Unit, Attempt)> = running.take(MAX_TASKS).collect();
    if running.is_empty() {
        return;
    }
    let former = env.task_reports(&run.id);
    let reports = match &former {
        Some(shared) if env.steady() < shared.until => Arc::clone(shared),
        _ => ask(env, run, &running, former.as_deref()).await,
    };
    let connected = if reports.states.len() < running.len() { env.relay.clusters().await } else { Vec::new() };
    for (unit, attempt) in running {
        let Some(shown) = detail.units.get_mut(unit.0 as usize) else { continue };
        // A relay forwards the progress to the record once a minute.
        let record = records.get(&unit).into_iter().flatten().find(|(number, _)| *number == attempt);
        let recorded = record.and_then(|(_, record)| record.heartbeat);
        if let Some((progress, at)) = reports.progress.get(&(unit, attempt))
            && recorded.is_none_or(|recorded| recorded <= *at)
        {
            shown.progress = Some(limits::message(progress));
        }
        match reports.states.get(&(unit, attempt)) {
            Some(report) => add_report(env, run, unit, report, shown),
            // A sweep records an outage only after its own requests have timed out.
            None => {
                // Units of one machine have no relay that could be silent.
                let Some(name) = env.relay.resolve_cluster(run.cluster(unit).name) else { continue };
                let message = match connected.iter().any(|cluster| cluster.name == name) {
                    true => format!("its relay reported no state within {:.1} s", MAX_WAIT.as_secs_f32()),
                    false => format!(
                        "it is not connected: run `ebb cluster connect {name} --apply --image IMAGE --entrypoint-image IMAGE` \
                         if it exists; otherwise the unit fails when it is asked for again, at its deadline at the latest"
                    ),
                };
                shown.waits = vec![cluster_wait(env, run, unit, "", message)];
            }
        }
    }
}

/// Asks the relays of running units for the states of their tasks.
async fn ask(env: &Env, run: &Run, running: &[(Unit, Attempt)], former: Option<&TaskReports>) -> Arc<TaskReports> {
    let request = |&(unit, attempt): &(Unit, Attempt)| async move {
        ((unit, attempt), env.relay.status(run.cluster(unit), &task_id(run, unit, attempt)).await)
    };
    let mut requests: FuturesUnordered<_> = running.iter().map(request).collect();
    let mut end = env.clock.sleep(MAX_WAIT);
    let mut states = BTreeMap::new();
    while let Either::Left((Some((task, state)), _)) = select(requests.next(), &mut end).await {
        states.extend(state.ok().map(|state| (task, (state, env.now()))));
    }
    let shared = if states.len() == running.len() { SHARED_MS } else { SPARED_MS };
    // A restarted relay knows no progress until the script reports again.
    let progress = running.iter().filter_map(|task| {
        let last = match states.get(task) {
            Some((TaskState::Running(RunningTask { progress: Some(text), .. }), at)) => (text.clone(), *at),
            _ => former?.progress.get(task)?.clone(),
        };
        Some((*task, last))
    });
    let progress = progress.collect();
    let reports = Arc::new(TaskReports { until: env.steady().plus(Millis(shared)), states, progress });
    env.remember_task_reports(&run.id, &reports);
    reports
}

fn add_report(env: &Env, run: &Run, unit: Unit, (state, at): &(TaskState, Timestamp), shown: &mut UnitDetail) {
    match state {
        TaskState::Running(task) => {
            if let (Some(age), Some(plan), None) = (task.age_ms, run.unit(unit), &shown.started) {
                let started = task_start(run, age, *at);
                shown.started = Some(rfc3339(started));
                shown.deadline = Some(rfc3339(started.plus(Millis(plan.timeout_ms))));
            }
            add_activity(task, *at, shown);
        }
        TaskState::Queued { ahead } => {
            shown.waits = vec![cluster_wait(env, run, unit, "queue of ", queued(*ahead))];
        }
        TaskState::Unknown | TaskState::Ended(_) | TaskState::Tombstoned => {}
    }
}

/// Returns the wait of a unit for its cluster. `prefix` precedes the name of the cluster.
fn cluster_wait(env: &Env, run: &Run, unit: Unit, prefix: &str, message: String) -> UnitWait {
    UnitWait {
        object: format!("{prefix}cluster {}", cluster_of(env, run, unit)),
        code: ReasonCode::Timeout,
        message,
        ..UnitWait::default()
    }
}

fn add_activity(task: &RunningTask, at: Timestamp, shown: &mut UnitDetail) {
    shown.heartbeat = task.heartbeat_ms.map(|age| before(at, age));
    let object_states = task.object_states.iter().take(MAX_OBJECTS).map(|status| ObjectStatus {
        object: limits::clean(&status.object, NAME),
        state: status.state,
        reason: status.reason.as_deref().map(limits::message),
    });
    shown.object_states = object_states.collect();
    shown.objects = task.objects.filter(|objects| objects.total > 0 && objects.ready <= objects.total);
    shown.waits = task.waits.iter().take(relay::MAX_WAITS).map(|wait| unit_wait(wait, at)).collect();
    // The timeout of the unit ends the task too.
    for wait in &mut shown.waits {
        wait.fails_at = wait.fails_at.take().filter(|at| shown.deadline.as_ref().is_none_or(|deadline| at < deadline));
    }
}

fn unit_wait(wait: &TaskWait, at: Timestamp) -> UnitWait {
    let name = |text: &String| limits::clean(text, NAME);
    UnitWait {
        object: name(&wait.object),
        code: wait.code,
        message: limits::message(&wait.message),
        since: wait.since_ms.map(|age| before(at, age)),
        // Without time left, the task is ending.
        fails_at: wait.fails_in_ms.filter(|left| *left > 0).map(|left| rfc3339(at.plus(Millis(left)))),
        field: wait.field.as_ref().map(name),
        last: wait.last.as_ref().map(name),
        resolves: wait.resolves,
    }
}

fn before(at: Timestamp, age_ms: u64) -> String {
    rfc3339(Timestamp(at.0.saturating_sub(age_ms)))
}

pub(super) fn cluster_of(env: &Env, run: &Run, unit: Unit) -> String {
    let cluster = run.cluster(unit).name;
    env.relay.resolve_cluster(cluster).unwrap_or_else(|| cluster_name(cluster).to_owned())
}

pub(super) fn queued(ahead: usize) -> String {
    match ahead {
        0 => "next in the queue".to_owned(),
        1 => "queued behind 1 other task".to_owned(),
        ahead => format!("queued behind {ahead} other tasks"),
    }
}

/// Returns the wait of units that a person has to end, or else their first wait.
pub(super) fn first_wait(units: &[UnitDetail]) -> Option<(&UnitDetail, &UnitWait)> {
    let mut waits = units.iter().flat_map(|unit| unit.waits.iter().map(move |wait| (unit, wait)));
    let first = waits.clone().next();
    waits.find(|(_, wait)| wait.resolves != WaitResolution::Itself).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(key: &str, waits: Vec<UnitWait>) -> UnitDetail {
        UnitDetail { key: key.to_owned(), state: UnitState::Running, waits, ..UnitDetail::default() }
    }

    fn wait(object: &str, since_ms: Option<u64>, resolves: WaitResolution) -> TaskWait {
        TaskWait {
            object: object.to_owned(),
            code: ReasonCode::Timeout,
            message: "m\u{1b}".repeat(2_000),
            since_ms,
            fails_in_ms: since_ms.map(|since| 60_000_u64.saturating_sub(since)),
            field: None,
            last: None,
            resolves,
        }
    }

    #[test]
    fn ages_become_times_and_texts_are_limited() {
        let waits = vec![wait("Pod a/b", Some(12_000), WaitResolution::Person); relay::MAX_WAITS + 1];
        let objects = Some(relay::ObjectCount { total: 3, ready: 2 });
        let mut task = RunningTask { heartbeat_ms: Some(99_000), objects, waits, ..RunningTask::default() };
        let mut shown = unit("db/create", Vec::new());
        add_activity(&task, Timestamp(60_000), &mut shown);
        // A relay can report an age that is older than this clock.
        assert_eq!(shown.heartbeat.as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(shown.waits.len(), relay::MAX_WAITS);
        let first = &shown.waits[0];
        assert_eq!((first.object.as_str(), first.since.as_deref()), ("Pod a/b", Some("1970-01-01T00:00:48.000Z")));
        assert_eq!(first.fails_at.as_deref(), Some("1970-01-01T00:01:48.000Z"));
        assert!(first.message.len() <= limits::MESSAGE && !first.message.contains('\u{1b}'));
        assert_eq!(shown.objects, objects);
        task.objects = Some(relay::ObjectCount { total: 3, ready: 4 });
        shown.deadline = Some("1970-01-01T00:01:47.000Z".to_owned());
        add_activity(&task, Timestamp(60_000), &mut shown);
        assert_eq!((shown.objects, shown.waits[0].fails_at.as_deref()), (None, None));
    }

    #[test]
    fn the_wait_for_a_person_comes_first() {
        let shown = |object, resolves| unit_wait(&wait(object, None, resolves), Timestamp(0));
        let mut units = vec![unit("a/a", Vec::new()), unit("b/b", vec![shown("first", WaitResolution::Itself)])];
        assert_eq!(first_wait(&units).map(|(unit, wait)| (&*unit.key, &*wait.object)), Some(("b/b", "first")));
        units.push(unit("c/c", vec![shown("second", WaitResolution::Person)]));
        assert_eq!(first_wait(&units).map(|(unit, wait)| (&*unit.key, &*wait.object)), Some(("c/c", "second")));
    }
}
