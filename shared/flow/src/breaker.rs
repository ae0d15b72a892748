//! Circuit breakers: clusters that give no answer are asked less and less often.
//!
//! Their state is in the memory of one instance of a function. They decide when a cluster is asked, and never how a unit
//! ends. A new instance asks every cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::relay::{EnsureTask, TaskId, TaskState};
use tokio::sync::Notify;

use crate::env::Env;
use crate::ports::{RelayClient, RelayError};

/// A silent cluster is asked again after this part of its silence: an outage delays work by a quarter more at most.
const WAIT_PART: u64 = 4;
const SHORTEST_WAIT_MS: u64 = 5_000;
const LONGEST_WAIT_MS: u64 = 5 * 60 * 1000;
/// Unanswered requests in a row that open a circuit: a single one may have been lost on its way.
const OPEN_AFTER_FAILURES: u32 = 2;
/// One request without an answer for this long opens the circuit.
const HUNG_MS: u64 = 5_000;
/// Trial requests at a time to a cluster whose circuit was open.
const TRIALS: usize = 2;
/// Looks of `sweep` at a time that may wait for a cluster that is not known to be healthy.
const MAX_WAITING_SWEEPS: usize = 2;
/// For how long after an answer a cluster counts as healthy.
const HEALTHY_MS: u64 = 60_000;

/// The circuits of all clusters, by name.
#[derive(Default)]
pub(crate) struct CircuitBreakers {
    circuits: Mutex<BTreeMap<String, ClusterCircuit>>,
    changed: Notify,
}

/// The state of one cluster.
#[derive(Default)]
struct ClusterCircuit {
    /// Requests in a row that were not answered. Those that were under way together count as one.
    failures: u32,
    /// When the first of them began.
    outage_since: Option<Timestamp>,
    /// When the last of them ended.
    last_failure: Option<Timestamp>,
    /// The cluster is asked again then.
    retry: Option<Timestamp>,
    /// When it answered last, unless that was a slow "not now".
    last_response: Option<Timestamp>,
    trials: usize,
    /// Looks that hold a permit for it.
    permits: usize,
}

impl ClusterCircuit {
    fn is_open(&self, now: Timestamp) -> bool {
        self.failures >= OPEN_AFTER_FAILURES && self.retry.is_some_and(|at| at > now)
    }

    fn is_healthy(&self, now: Timestamp) -> bool {
        self.failures == 0 && self.last_response.is_some_and(|at| now.since(at).0 < HEALTHY_MS)
    }

    fn close(&mut self) {
        self.failures = 0;
        self.outage_since = None;
        self.retry = None;
    }

    fn record_response(&mut self, now: Timestamp) {
        self.close();
        self.last_response = Some(now);
    }

    /// Counts an answer "not now". It closes the circuit; a slow one makes looks wait as for a silent cluster.
    fn record_busy(&mut self, begun: Timestamp, now: Timestamp) {
        let has_hung = now.since(begun).0 >= HUNG_MS;
        let helped_since = self.has_responded_since(begun);
        self.close();
        if !has_hung {
            self.last_response = Some(now);
        } else if !helped_since {
            self.last_response = None;
        }
    }

    fn has_responded_since(&self, begun: Timestamp) -> bool {
        self.last_response.is_some_and(|answered| answered >= begun)
    }

    /// Counts a request without an answer, unless the cluster has answered others since it began.
    fn record_failure(&mut self, begun: Timestamp, now: Timestamp) {
        if self.has_responded_since(begun) || self.last_failure.is_some_and(|failed| failed > begun) {
            return;
        }
        let hung = now.since(begun).0 >= HUNG_MS;
        self.failures = self.failures.saturating_add(1).max(if hung { OPEN_AFTER_FAILURES } else { 1 });
        self.last_failure = Some(now);
        let silent = *self.outage_since.get_or_insert(begun);
        self.retry = Some(now.plus(retry_wait(now.since(silent))));
    }
}

/// Returns the wait after a request without an answer at the end of a silence.
fn retry_wait(silence: Millis) -> Millis {
    Millis((silence.0 / WAIT_PART).clamp(SHORTEST_WAIT_MS, LONGEST_WAIT_MS))
}

impl CircuitBreakers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ClusterCircuit>> {
        // A poisoned lock only means that another request panicked; each change of a circuit is whole.
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, cluster: &str, change: impl FnOnce(&mut ClusterCircuit)) {
        change(self.lock().entry(cluster.to_owned()).or_default());
        self.changed.notify_waiters();
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_the_silence_up_to_minutes() {
        let waits = [0, 15, 40, 600, 1_200, 86_400].map(|silence: u64| retry_wait(Millis(silence * 1000)).0 / 1000);
        assert_eq!(waits, [5, 5, 10, 150, 300, 300]);
        let at = |seconds: u64| Timestamp(seconds * 1000);
        let mut circuit = ClusterCircuit::default();
        let mut asked = 0;
        let mut requests = 0;
        // A cluster that is away for ten minutes, and hangs.
        while asked < 600 {
            circuit.record_failure(at(asked), at(asked + 15));
            asked = circuit.retry.unwrap().0 / 1000;
            requests += 1;
        }
        assert!(asked <= 600 * 5 / 4 + 15, "asked after {asked} s");
        assert!(requests <= 15, "{requests} requests");
        circuit.record_response(at(asked));
        circuit.record_failure(at(asked + 1), at(asked + 2));
        assert_eq!(circuit.retry, Some(at(asked + 7)));
    }

    #[test]
    fn a_circuit_opens_by_two_lost_requests_or_by_one_that_hung() {
        let at = |seconds: u64| Timestamp(seconds * 1000);
        let mut lost = ClusterCircuit::default();
        lost.record_failure(at(1), at(1));
        assert!(!lost.is_open(at(1)));
        // It was under way together with the first one.
        lost.record_failure(at(0), at(2));
        assert!(!lost.is_open(at(2)));
        lost.record_failure(at(3), at(3));
        assert!(lost.is_open(at(7)) && !lost.is_open(at(8)));
        let mut hung = ClusterCircuit::default();
        hung.record_failure(at(0), at(15));
        assert!(hung.is_open(at(19)) && !hung.is_open(at(20)));
        // An answer ends the wait, too.
        hung.record_response(at(25));
        assert_eq!(hung.retry, None);
        // It answered another request meanwhile.
        let mut slow = ClusterCircuit { last_response: Some(at(10)), ..ClusterCircuit::default() };
        slow.record_failure(at(0), at(15));
        assert!(!slow.is_open(at(15)));
    }

    #[test]
    fn an_answer_that_is_not_now_closes_a_circuit_and_a_slow_one_limits_looks() {
        let at = |seconds: u64| Timestamp(seconds * 1000);
        let mut circuit = ClusterCircuit::default();
        circuit.record_failure(at(0), at(15));
        assert!(circuit.is_open(at(16)));
        circuit.record_busy(at(25), at(26));
        assert!(!circuit.is_open(at(26)) && circuit.is_healthy(at(26)));
        circuit.record_busy(at(27), at(40));
        assert!(!circuit.is_open(at(40)) && !circuit.is_healthy(at(40)));
        // Another request was answered meanwhile.
        circuit.record_response(at(50));
        circuit.record_busy(at(45), at(58));
        assert!(circuit.is_healthy(at(58)));
    }
}
