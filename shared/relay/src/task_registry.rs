//! Keeps the reconcile loops, their wake-ups, and state that does not survive the relay.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebb_protocol::limits::message;
use ebb_protocol::relay::TaskId;
use futures::FutureExt as _;
use tokio::sync::{Mutex as Lock, Notify, OwnedMutexGuard};

#[derive(Default)]
pub(crate) struct TaskRegistry(Mutex<RegistryState>);

#[derive(Default)]
struct RegistryState {
    wakes: HashMap<TaskId, Arc<Notify>>,
    /// Tasks that are woken by changes of the objects of a unit.
    subscribers: HashMap<String, HashSet<TaskId>>,
    /// The last reason why each task waits.
    pending: HashMap<TaskId, String>,
    heartbeats: HashMap<TaskId, Instant>,
    /// Order the actions of one unit.
    locks: HashMap<String, Arc<Lock<()>>>,
}

impl TaskRegistry {
    /// Wakes the loop of a task. Returns a notification if there is no loop, and the caller must start one.
    pub(crate) fn wake_or_register(&self, name: &TaskId) -> Option<Arc<Notify>> {
        let mut state = self.state();
        if let Some(wake) = state.wakes.get(name) {
            wake.notify_one();
            return None;
        }
        let wake = Arc::new(Notify::new());
        state.wakes.insert(name.clone(), wake.clone());
        state.subscribers.entry(name.unit.clone()).or_default().insert(name.clone());
        Some(wake)
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
        for name in state.subscribers.get(unit).into_iter().flatten() {
            if let Some(wake) = state.wakes.get(name) {
                wake.notify_one();
            }
        }
    }

    /// Removes the loop of a task. Returns false if it was woken since its last step.
    pub(crate) fn unregister_if_idle(&self, name: &TaskId) -> bool {
        let mut state = self.state();
        if state.wakes.get(name).is_some_and(|wake| wake.notified().now_or_never().is_some()) {
            return false;
        }
        state.wakes.remove(name);
        state.pending.remove(name);
        state.heartbeats.remove(name);
        state.subscribers.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
        true
    }

    /// Records the reason why a task waits. `None` means that it only waits for its own end.
    pub(crate) fn record_pending(&self, name: &TaskId, why: Option<&str>) {
        let mut state = self.state();
        match why {
            // Only the end of a loop removes the entry.
            Some(why) if state.wakes.contains_key(name) => {
                state.pending.insert(name.clone(), message(why));
            }
            _ => drop(state.pending.remove(name)),
        }
    }

    pub(crate) fn record_heartbeat(&self, name: &TaskId) {
        let mut state = self.state();
        if state.wakes.contains_key(name) {
            state.heartbeats.insert(name.clone(), Instant::now());
        }
    }

    /// Returns the reason why a task waits, and the time since the last heartbeat of its entrypoint.
    pub(crate) fn status(&self, name: &TaskId) -> (Option<String>, Option<Duration>) {
        let state = self.state();
        let heartbeat = state.heartbeats.get(name).map(Instant::elapsed);
        (state.pending.get(name).cloned(), heartbeat)
    }

    pub(crate) fn count(&self) -> usize {
        self.state().wakes.len()
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
