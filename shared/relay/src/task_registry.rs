//! Keeps the reconcile loops, their wake-ups, and state that is lost when the relay ends.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebb_protocol::relay::{MAX_WAITS, TaskId, TaskWait};
use futures::FutureExt as _;
use tokio::sync::{Mutex as Lock, Notify, OwnedMutexGuard};

use crate::settings::millis;

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
    heartbeat: Option<Instant>,
}

impl TaskRegistry {
    /// Wakes the loop of a task. If there is no loop, returns a notification, and the caller must start a loop.
    pub(crate) fn wake_or_register(&self, name: &TaskId) -> Option<Arc<Notify>> {
        let mut state = self.state();
        if let Some(running) = state.loops.get(name) {
            running.wake.notify_one();
            return None;
        }
        state.subscribers.entry(name.unit.clone()).or_default().insert(name.clone());
        Some(state.loops.entry(name.clone()).or_default().wake.clone())
    }

    /// Subscribes a task to changes of the objects of other units.
    pub(crate) fn subscribe(&self, name: &TaskId, units: &[String]) {
        let mut state = self.state();
        for unit in units {
            state.subscribers.entry(unit.clone()).or_default().insert(name.clone());
        }
    }

    /// Wakes the tasks that are subscribed to a unit.
    pub(crate) fn notify_unit(&self, unit: &str) {
        let state = self.state();
        let tasks = state.subscribers.get(unit).into_iter().flatten();
        tasks.filter_map(|name| state.loops.get(name)).for_each(|running| running.wake.notify_one());
    }

    /// Removes the loop of a task. Returns false if it was woken since its last step.
    pub(crate) fn unregister_if_idle(&self, name: &TaskId) -> bool {
        let mut state = self.state();
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
        if let Some(running) = self.state().loops.get_mut(name) {
            running.waits = waits.into_iter().take(MAX_WAITS).map(|wait| (now, wait)).collect();
        }
    }

    pub(crate) fn record_heartbeat(&self, name: &TaskId) {
        if let Some(running) = self.state().loops.get_mut(name) {
            running.heartbeat = Some(Instant::now());
        }
    }

    /// Returns what a task waits for, and the time since the last heartbeat of its entrypoint.
    pub(crate) fn status(&self, name: &TaskId) -> (Vec<TaskWait>, Option<Duration>) {
        let state = self.state();
        let Some(running) = state.loops.get(name) else { return (Vec::new(), None) };
        let waits = running.waits.iter().map(|(observed, wait)| {
            let since_ms = wait.since_ms.map(|since| since.saturating_add(millis(observed.elapsed())));
            TaskWait { since_ms, ..wait.clone() }
        });
        (waits.collect(), running.heartbeat.as_ref().map(Instant::elapsed))
    }

    pub(crate) fn count(&self) -> usize {
        self.state().loops.len()
    }

    /// Waits for exclusive access to a unit.
    pub(crate) async fn lock(&self, unit: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut state = self.state();
            // Remove locks that are not in use.
            state.locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            state.locks.entry(unit.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
