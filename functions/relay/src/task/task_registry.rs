//! Keeps the reconcile loops, their wake-ups, and state that is lost when the relay ends.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebb_protocol::relay::{MAX_WAITS, ObjectCount, TaskWait};
use ebb_protocol::{Callback, CallbackStatus, ObjectStatus, RunningTask, TaskId};
use futures::FutureExt as _;
use tokio::sync::{Mutex as Lock, Notify, OwnedMutexGuard};

use crate::task::task_waits;
use crate::{lock, millis};

#[derive(Default)]
pub(crate) struct TaskRegistry(Mutex<RegistryState>);

#[derive(Default)]
struct RegistryState {
    loops: HashMap<TaskId, TaskLoop>,
    /// Tasks that are woken by changes of the objects of a unit.
    subscribers: HashMap<String, HashSet<TaskId>>,
    /// Order the actions of one unit.
    locks: HashMap<String, Arc<Lock<()>>>,
}

#[derive(Default)]
struct TaskLoop {
    wake: Arc<Notify>,
    /// What the task waits for, each with the time of its observation.
    waits: Vec<(Instant, TaskWait)>,
    objects: Option<ObjectCount>,
    object_states: Vec<ObjectStatus>,
    heartbeat: Option<Instant>,
    /// The time at which this process first found the container running. Without a heartbeat, the silence counts from it:
    /// a restarted relay does not know the heartbeats before.
    seen_running: Option<Instant>,
    /// The time at which the entrypoint was found silent, if it has not reported since.
    silent_since: Option<Instant>,
    progress: Option<String>,
    /// The places that could not be listed, once no unmanaged object was found of the units that the task removes.
    searched: Option<Vec<String>>,
    /// The time of the last heartbeat for the control plane.
    forwarded: Option<Instant>,
}

/// The age of an observation that is shown to people as it is.
const FRESH: Duration = Duration::from_secs(3);
/// The time without a report of an entrypoint from which it is named. Entrypoints send one every 15 s.
const LATE: Duration = Duration::from_secs(60);
/// The time between two heartbeats of a task for the control plane, each of which is a write.
const FORWARD_INTERVAL: Duration = Duration::from_secs(60);
/// The last part of the time without a heartbeat. It counts from an observation, because a relay that was stopped, or
/// that did not reach the API server, finds all entrypoints silent at once.
const CONFIRMATION: u32 = 6;

/// The time without a report of an entrypoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub(crate) lasted: Duration,
    /// The time after which to look again. 0 if the entrypoint counts as lost.
    pub(crate) next_check: Duration,
}

impl TaskRegistry {
    /// Wakes the loop of a task. If there is no loop, returns a notification, and the caller must start a loop.
    pub(crate) fn wake_or_register(&self, name: &TaskId) -> Option<Arc<Notify>> {
        let mut state = lock(&self.0);
        if let Some(running) = state.loops.get(name) {
            running.wake.notify_one();
            return None;
        }
        state.subscribers.entry(name.unit.clone()).or_default().insert(name.clone());
        Some(state.loops.entry(name.clone()).or_default().wake.clone())
    }

    pub(crate) fn has_loop(&self, name: &TaskId) -> bool {
        lock(&self.0).loops.contains_key(name)
    }

    pub(crate) fn subscribe(&self, name: &TaskId, units: &[String]) {
        let mut state = lock(&self.0);
        for unit in units {
            state.subscribers.entry(unit.clone()).or_default().insert(name.clone());
        }
    }

    pub(crate) fn notify_unit(&self, unit: &str) {
        let state = lock(&self.0);
        let tasks = state.subscribers.get(unit).into_iter().flatten();
        tasks.filter_map(|name| state.loops.get(name)).for_each(|running| running.wake.notify_one());
    }

    /// Removes the loop of a task. Returns false if it was woken since its last step.
    pub(crate) fn unregister_if_idle(&self, name: &TaskId) -> bool {
        let mut state = lock(&self.0);
        if state.loops.get(name).is_some_and(|running| running.wake.notified().now_or_never().is_some()) {
            return false;
        }
        state.loops.remove(name);
        state.subscribers.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
        true
    }

    /// Records what a task waits for. An empty list means that it only waits for its own end.
    pub(crate) fn record_waits(&self, name: &TaskId, waits: Vec<TaskWait>) {
        let now = Instant::now();
        if let Some(running) = lock(&self.0).loops.get_mut(name) {
            running.waits = waits.into_iter().take(MAX_WAITS).map(|wait| (now, wait)).collect();
        }
    }

    /// Returns the places that could not be listed, if the units that a task removes have no unmanaged objects elsewhere.
    pub(crate) fn searched(&self, name: &TaskId) -> Option<Vec<String>> {
        lock(&self.0).loops.get(name)?.searched.clone()
    }

    pub(crate) fn mark_searched(&self, name: &TaskId, unlisted: &[String]) {
        if let Some(running) = lock(&self.0).loops.get_mut(name) {
            running.searched = Some(unlisted.to_vec());
        }
    }

    /// Records how many objects of a task are ready, and the state of each if there are several.
    pub(crate) fn record_objects(&self, name: &TaskId, objects: ObjectCount, states: Vec<ObjectStatus>) {
        if let Some(running) = lock(&self.0).loops.get_mut(name) {
            (running.objects, running.object_states) = (Some(objects), states);
        }
    }

    pub(crate) fn record_heartbeat(&self, name: &TaskId) {
        if let Some(running) = lock(&self.0).loops.get_mut(name) {
            (running.heartbeat, running.silent_since) = (Some(Instant::now()), None);
        }
    }

    /// Records the last progress of a script, unless it is `None`. Returns the heartbeat that is due.
    pub(crate) fn record_progress(&self, name: &TaskId, progress: Option<String>) -> Option<Callback> {
        let mut state = lock(&self.0);
        let running = state.loops.get_mut(name)?;
        running.progress = progress.or(running.progress.take());
        if running.forwarded.is_some_and(|at| at.elapsed() < FORWARD_INTERVAL) {
            return None;
        }
        running.forwarded = Some(Instant::now());
        Some(Callback { progress: running.progress.clone(), ..Callback::new(CallbackStatus::Heartbeat) })
    }

    /// Returns the time without a report of the entrypoint of a running container, which counts as lost after `limit`.
    /// Without any report, the time counts from the first call, unless the entrypoint may report elsewhere. Returns `None`
    /// if the task has no loop, or no time counts.
    pub(crate) fn silence(&self, name: &TaskId, limit: Duration, reports_elsewhere: bool) -> Option<Silence> {
        let mut state = lock(&self.0);
        let running = state.loops.get_mut(name)?;
        if reports_elsewhere && running.heartbeat.is_none() {
            return None;
        }
        let lasted = running.heartbeat.unwrap_or(*running.seen_running.get_or_insert_with(Instant::now)).elapsed();
        let confirmation = limit / CONFIRMATION;
        let next_check = match (limit - confirmation).checked_sub(lasted) {
            Some(left) if !left.is_zero() => left,
            _ => {
                let confirmed = running.silent_since.get_or_insert_with(Instant::now).elapsed();
                confirmation.saturating_sub(confirmed).max(limit.saturating_sub(lasted))
            }
        };
        Some(Silence { lasted, next_check })
    }

    pub(crate) fn is_outdated(&self, name: &TaskId) -> bool {
        let state = lock(&self.0);
        let first = state.loops.get(name).and_then(|running| running.waits.first());
        first.is_some_and(|(observed, _)| observed.elapsed() >= FRESH)
    }

    /// Returns what is known here of a running task. Its log and its age are absent.
    pub(crate) fn status(&self, name: &TaskId) -> RunningTask {
        let state = lock(&self.0);
        let Some(running) = state.loops.get(name) else { return RunningTask::default() };
        let since = running.heartbeat.or(running.seen_running).map(|at| at.elapsed()).filter(|since| *since >= LATE);
        let silent = since.map(|since| TaskWait {
            since_ms: Some(millis(since)),
            ..task_waits::wait(
                "heartbeat",
                "the entrypoint has sent none; the script counts as lost after 3 min without one",
            )
        });
        let waits = running.waits.iter().map(|(observed, wait)| {
            let passed = millis(observed.elapsed());
            let since_ms = wait.since_ms.map(|since| since.saturating_add(passed));
            TaskWait { since_ms, fails_in_ms: wait.fails_in_ms.map(|left| left.saturating_sub(passed)), ..wait.clone() }
        });
        RunningTask {
            heartbeat_ms: running.heartbeat.map(|at| millis(at.elapsed())),
            progress: running.progress.clone(),
            objects: running.objects,
            object_states: running.object_states.clone(),
            waits: waits.chain(silent).collect(),
            ..RunningTask::default()
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.0).loops.len()
    }

    pub(crate) async fn lock(&self, unit: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut state = lock(&self.0);
            // Remove locks that are not in use.
            state.locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            state.locks.entry(unit.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Sets the times of a task back.
    fn pass(registry: &TaskRegistry, name: &TaskId, seconds: u64) {
        let mut state = lock(&registry.0);
        let running = state.loops.get_mut(name).unwrap();
        let [seen, silent] = [&mut running.seen_running, &mut running.silent_since];
        for time in [&mut running.heartbeat, seen, silent, &mut running.forwarded].into_iter().flatten() {
            *time = time.checked_sub(Duration::from_secs(seconds)).unwrap();
        }
    }

    #[test]
    fn an_entrypoint_is_lost_after_a_confirmed_silence() {
        let (registry, name) = (TaskRegistry::default(), TaskId { unit: "run-0".to_owned(), attempt: 1 });
        let next_check = || Some(registry.silence(&name, LIMIT, false)?.next_check.as_millis().div_ceil(1000));
        assert_eq!(next_check(), None);
        registry.wake_or_register(&name);
        assert!(registry.silence(&name, LIMIT, true).is_none(), "it reports to a former relay");
        // A restarted relay has received no report yet.
        assert_eq!(next_check(), Some(50));
        for _ in 0..2 {
            pass(&registry, &name, 50);
            assert_eq!(next_check(), Some(10));
            assert!(registry.status(&name).waits.is_empty());
            pass(&registry, &name, 10);
            assert_eq!(next_check(), Some(0));
            assert_eq!(registry.status(&name).waits[0].object, "heartbeat");
            registry.record_heartbeat(&name);
            assert_eq!(next_check(), Some(50));
        }
        // The relay was stopped for an hour. The entrypoint gets the time to report.
        pass(&registry, &name, 3600);
        assert_eq!(next_check(), Some(10));
        registry.record_heartbeat(&name);
        assert!(registry.silence(&name, LIMIT, true).is_some(), "it reports here");
        pass(&registry, &name, 20);
        assert_eq!(next_check(), Some(30));
    }

    #[test]
    fn heartbeats_are_forwarded_once_a_minute() {
        let (registry, name) = (TaskRegistry::default(), TaskId { unit: "run-0".to_owned(), attempt: 1 });
        assert!(registry.record_progress(&name, None).is_none(), "an unknown task");
        registry.wake_or_register(&name);
        assert!(registry.record_progress(&name, Some("1 %".to_owned())).is_some());
        assert!(registry.record_progress(&name, Some("2 %".to_owned())).is_none());
        pass(&registry, &name, 59);
        assert!(registry.record_progress(&name, None).is_none());
        pass(&registry, &name, 1);
        assert_eq!(registry.record_progress(&name, None).unwrap().progress.as_deref(), Some("2 %"));
    }

    #[test]
    fn the_times_of_a_wait_pass() {
        let (registry, name) = (TaskRegistry::default(), TaskId { unit: "run-0".to_owned(), attempt: 1 });
        registry.wake_or_register(&name);
        let wait = crate::task::task_waits::wait("Pod n/a", "m");
        registry.record_waits(&name, vec![TaskWait { since_ms: Some(12_000), fails_in_ms: Some(48_000), ..wait }]);
        for (observed, _) in &mut lock(&registry.0).loops.get_mut(&name).unwrap().waits {
            *observed = observed.checked_sub(Duration::from_secs(8)).unwrap();
        }
        let wait = registry.status(&name).waits.remove(0);
        let seconds = [wait.since_ms, wait.fails_in_ms].map(|ms| ms.map(|ms| ms / 1000));
        assert!(matches!(seconds, [Some(20), Some(39 | 40)]), "{wait:?}");
    }
}
