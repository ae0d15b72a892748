//! The loops that reconcile tasks, and how they are woken.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebb_protocol::limits::message;
use ebb_protocol::relay::TaskId;
use futures::FutureExt as _;
use tokio::sync::{Mutex as Lock, Notify, OwnedMutexGuard};

/// All tasks of a relay.
#[derive(Default)]
pub(crate) struct TaskRegistry(Mutex<RegistryState>);

#[derive(Default)]
struct RegistryState {
    wakes: HashMap<TaskId, Arc<Notify>>,
    /// The tasks that changes of the objects of a unit wake.
    subscribers: HashMap<String, HashSet<TaskId>>,
    /// The version of the record of what this relay starts, if it knows the outcome of every request for its objects.
    confirmed: HashMap<TaskId, String>,
    /// The last known reason why each task waits.
    pending: HashMap<TaskId, String>,
    /// The times of the last reports of entrypoints.
    heartbeats: HashMap<TaskId, Instant>,
    /// One at a time acts on a unit.
    locks: HashMap<String, Arc<Lock<()>>>,
}

impl TaskRegistry {
    /// Wakes the loop of a task; `Some`: there is none, and the caller has to start one that waits on it.
    pub(crate) fn wake_or_register(&self, name: &TaskId) -> Option<Arc<Notify>> {
        let mut known = self.known();
        if let Some(wake) = known.wakes.get(name) {
            wake.notify_one();
            return None;
        }
        let wake = Arc::new(Notify::new());
        known.wakes.insert(name.clone(), wake.clone());
        known.subscribers.entry(name.unit.clone()).or_default().insert(name.clone());
        Some(wake)
    }

    /// Changes of the objects of other units wake the loop of `name`, too.
    pub(crate) fn subscribe(&self, name: &TaskId, units: &[String]) {
        let mut known = self.known();
        for unit in units {
            known.subscribers.entry(unit.clone()).or_default().insert(name.clone());
        }
    }

    /// Something has happened to the objects of a unit.
    pub(crate) fn notify_unit(&self, unit: &str) {
        let known = self.known();
        for name in known.subscribers.get(unit).into_iter().flatten() {
            if let Some(wake) = known.wakes.get(name) {
                wake.notify_one();
            }
        }
    }

    /// Removes the loop of `name`, which would end. False if it was woken since its last step.
    pub(crate) fn unregister_if_idle(&self, name: &TaskId) -> bool {
        let mut known = self.known();
        if known.wakes.get(name).is_some_and(|wake| wake.notified().now_or_never().is_some()) {
            return false;
        }
        known.wakes.remove(name);
        known.confirmed.remove(name);
        known.pending.remove(name);
        known.heartbeats.remove(name);
        known.subscribers.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
        true
    }

    /// The outcome of every request for the objects of a task is known, and noted in this version of its record.
    pub(crate) fn mark_confirmed(&self, name: &TaskId, version: &str) {
        self.known().confirmed.insert(name.clone(), version.to_owned());
    }

    /// Returns true if that holds of this version. One that somebody else has written says nothing of his requests.
    pub(crate) fn is_confirmed(&self, name: &TaskId, version: &str) -> bool {
        self.known().confirmed.get(name).is_some_and(|sure| sure == version)
    }

    /// From now on it does not hold; gives whether it did.
    pub(crate) fn take_confirmed(&self, name: &TaskId, version: &str) -> bool {
        self.known().confirmed.remove(name).is_some_and(|sure| sure == version)
    }

    /// Notes what a task waits for; `None`: it waits for nothing but its own end.
    pub(crate) fn record_pending(&self, name: &TaskId, why: Option<&str>) {
        let mut known = self.known();
        match why {
            // Without a loop nothing would remove it.
            Some(why) if known.wakes.contains_key(name) => {
                known.pending.insert(name.clone(), message(why));
            }
            _ => drop(known.pending.remove(name)),
        }
    }

    /// Notes a heartbeat of a task's entrypoint.
    pub(crate) fn record_heartbeat(&self, name: &TaskId) {
        let mut known = self.known();
        if known.wakes.contains_key(name) {
            known.heartbeats.insert(name.clone(), Instant::now());
        }
    }

    /// Returns what a task waits for, and the time since its entrypoint's last heartbeat. Neither outlasts the relay.
    pub(crate) fn status(&self, name: &TaskId) -> (Option<String>, Option<Duration>) {
        let known = self.known();
        let heartbeat = known.heartbeats.get(name).map(Instant::elapsed);
        (known.pending.get(name).cloned(), heartbeat)
    }

    /// Returns the number of tasks that are reconciled.
    pub(crate) fn count(&self) -> usize {
        self.known().wakes.len()
    }

    /// Waits until nobody else acts on a unit.
    pub(crate) async fn lock(&self, unit: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = self.known();
            // Those that nobody holds or waits for.
            known.locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            known.locks.entry(unit.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }

    fn known(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
