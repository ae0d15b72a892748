//! Relays behind circuit breakers, and the permits of sweeps to call them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::relay::{EnsureTask, TaskId, TaskState};

use crate::breaker::{HUNG_MS, MAX_WAITING_SWEEPS, OPEN_AFTER_FAILURES, SHORTEST_WAIT_MS, TRIALS};
use crate::env::Env;
use crate::ports::{RelayClient, RelayError};

/// Returns the name of a cluster as it is connected; `None` is the cluster of documents that name none.
pub(crate) fn cluster_name(env: &Env, cluster: Option<&str>) -> String {
    env.relay.resolve_cluster(cluster).unwrap_or_else(|| cluster.unwrap_or_default().to_owned())
}

/// The relays of all clusters; one that has just left requests unanswered is not asked.
pub(crate) struct GuardedRelay<'a>(pub(crate) &'a Env);

impl GuardedRelay<'_> {
    async fn call<T>(
        &self,
        cluster: Option<&str>,
        request: impl Future<Output = Result<T, RelayError>> + Send,
    ) -> Result<T, RelayError> {
        let env = self.0;
        let mut asking = PendingCall::begin(env, cluster)?;
        let answer = request.await;
        let now = env.now();
        asking.is_over = true;
        env.cache.breakers.change(&asking.cluster, |circuit| match &answer {
            Err(RelayError::Unreachable(_)) => circuit.record_failure(asking.begun, now),
            Err(RelayError::Busy(_)) => circuit.record_busy(asking.begun, now),
            Ok(_) | Err(RelayError::Refused(_)) => circuit.record_response(now),
        });
        answer
    }
}

#[async_trait]
impl RelayClient for GuardedRelay<'_> {
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError> {
        self.call(cluster, self.0.relay.ensure(cluster, request)).await
    }

    async fn cancel(&self, cluster: Option<&str>, name: &TaskId, grace: Duration) -> Result<TaskState, RelayError> {
        self.call(cluster, self.0.relay.cancel(cluster, name, grace)).await
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.call(cluster, self.0.relay.dequeue(cluster, name)).await
    }

    async fn get(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.call(cluster, self.0.relay.get(cluster, name)).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, name: &TaskId) -> Result<(), RelayError> {
        self.call(cluster, self.0.relay.acknowledge(cluster, name)).await
    }

    async fn release(&self, cluster: Option<&str>, life: &str) -> Result<(), RelayError> {
        self.call(cluster, self.0.relay.release(cluster, life)).await
    }
}

/// A request that is under way.
struct PendingCall<'a> {
    env: &'a Env,
    cluster: String,
    begun: Timestamp,
    is_trial: bool,
    is_over: bool,
}

impl<'a> PendingCall<'a> {
    fn begin(env: &'a Env, cluster: Option<&str>) -> Result<Self, RelayError> {
        let (cluster, now) = (cluster_name(env, cluster), env.now());
        let mut circuits = env.cache.breakers.lock();
        let circuit = circuits.entry(cluster.clone()).or_default();
        let is_trial = circuit.failures >= OPEN_AFTER_FAILURES;
        if circuit.is_open(now) || (is_trial && circuit.trials >= TRIALS) {
            let reason = "it has left requests unanswered; it is asked again later";
            return Err(RelayError::Unreachable(reason.to_owned()));
        }
        circuit.trials += usize::from(is_trial);
        drop(circuits);
        Ok(Self { env, cluster, begun: now, is_trial, is_over: false })
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let now = self.env.now();
        let given_up = !self.is_over && now.since(self.begun).0 >= HUNG_MS;
        self.env.cache.breakers.change(&self.cluster, |circuit| {
            circuit.trials -= usize::from(self.is_trial);
            if given_up {
                circuit.record_failure(self.begun, now);
            }
        });
    }
}

/// Returns until when `cluster` is not asked; `None`: it may be asked now.
pub(crate) fn circuit_open_until(env: &Env, cluster: &str) -> Option<Timestamp> {
    let now = env.now();
    let circuits = env.cache.breakers.lock();
    circuits.get(cluster).filter(|circuit| circuit.is_open(now)).and_then(|circuit| circuit.retry)
}

/// Returns when `cluster`, which has just given no answer, is to be asked again.
pub(crate) fn retry_at(env: &Env, cluster: Option<&str>) -> Timestamp {
    let (cluster, now) = (cluster_name(env, cluster), env.now());
    let soonest = now.plus(Millis(SHORTEST_WAIT_MS));
    env.cache.breakers.lock().get(&cluster).and_then(|circuit| circuit.retry).unwrap_or(soonest).max(soonest)
}

/// A permit of one look to ask some clusters.
pub(crate) struct ClusterPermit<'a> {
    env: &'a Env,
    clusters: BTreeSet<String>,
}

impl ClusterPermit<'_> {
    /// Returns whether the permit covers all of `clusters`.
    pub(crate) fn covers(&self, clusters: &BTreeSet<String>) -> bool {
        self.clusters.is_superset(clusters)
    }
}

impl Drop for ClusterPermit<'_> {
    fn drop(&mut self) {
        for cluster in &self.clusters {
            self.env.cache.breakers.change(cluster, |circuit| circuit.permits -= 1);
        }
    }
}

/// Returns a permit for `clusters`, unless [`LOOKS`] looks already wait for one that is not known to be healthy.
pub(crate) fn try_acquire(env: &Env, clusters: BTreeSet<String>) -> Result<ClusterPermit<'_>, BTreeSet<String>> {
    let now = env.now();
    let mut circuits = env.cache.breakers.lock();
    let is_free = |cluster: &String| {
        let circuit = circuits.get(cluster);
        circuit.is_none_or(|one| one.permits < MAX_WAITING_SWEEPS || one.is_healthy(now) || one.is_open(now))
    };
    if !clusters.iter().all(is_free) {
        return Err(clusters);
    }
    for cluster in &clusters {
        circuits.entry(cluster.clone()).or_default().permits += 1;
    }
    drop(circuits);
    Ok(ClusterPermit { env, clusters })
}

/// Waits for the permit of [`try_acquire`].
pub(crate) async fn acquire(env: &Env, mut clusters: BTreeSet<String>) -> ClusterPermit<'_> {
    loop {
        let mut changed = pin!(env.cache.breakers.changed.notified());
        changed.as_mut().enable();
        match try_acquire(env, clusters) {
            Ok(leave) => return leave,
            Err(refused) => clusters = refused,
        }
        changed.await;
    }
}
