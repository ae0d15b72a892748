//! Circuit breakers: clusters that give no answer are asked less and less often.
//!
//! Their state is in the memory of one instance of a function. They decide when a cluster is asked, and never how a unit
//! ends. A new instance asks every cluster.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebb_engine::{Millis, Timestamp};
use tokio::sync::Notify;

/// A silent cluster is asked again after this part of its silence: an outage delays work by a quarter more at most.
pub(crate) const WAIT_PART: u64 = 4;
pub(crate) const SHORTEST_WAIT_MS: u64 = 5_000;
pub(crate) const LONGEST_WAIT_MS: u64 = 5 * 60 * 1000;
/// Unanswered requests in a row that open a circuit: a single one may have been lost on its way.
pub(crate) const OPEN_AFTER_FAILURES: u32 = 2;
/// One request without an answer for this long opens the circuit.
pub(crate) const HUNG_MS: u64 = 5_000;
/// Trial requests at a time to a cluster whose circuit was open.
pub(crate) const TRIALS: usize = 2;
/// Looks of `sweep` at a time that may wait for a cluster that is not known to be healthy.
pub(crate) const MAX_WAITING_SWEEPS: usize = 2;
/// For how long after an answer a cluster counts as healthy.
pub(crate) const HEALTHY_MS: u64 = 60_000;

/// The circuits of all clusters, by name.
#[derive(Default)]
pub(crate) struct CircuitBreakers {
    circuits: Mutex<BTreeMap<String, ClusterCircuit>>,
    pub(crate) changed: Notify,
}

/// The state of one cluster.
#[derive(Default)]
pub(crate) struct ClusterCircuit {
    /// Requests in a row that were not answered. Those that were under way together count as one.
    pub(crate) failures: u32,
    /// When the first of them began.
    outage_since: Option<Timestamp>,
    /// When the last of them ended.
    last_failure: Option<Timestamp>,
    /// The cluster is asked again then.
    pub(crate) retry: Option<Timestamp>,
    /// When it answered last, unless that was a slow "not now".
    last_response: Option<Timestamp>,
    pub(crate) trials: usize,
    /// Looks that hold a permit for it.
    pub(crate) permits: usize,
}

impl ClusterCircuit {
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.failures >= OPEN_AFTER_FAILURES && self.retry.is_some_and(|at| at > now)
    }

    pub(crate) fn is_healthy(&self, now: Timestamp) -> bool {
        self.failures == 0 && self.last_response.is_some_and(|at| now.since(at).0 < HEALTHY_MS)
    }

    fn close(&mut self) {
        self.failures = 0;
        self.outage_since = None;
        self.retry = None;
    }

    pub(crate) fn record_response(&mut self, now: Timestamp) {
        self.close();
        self.last_response = Some(now);
    }

    /// Counts an answer "not now". It closes the circuit; a slow one makes looks wait as for a silent cluster.
    pub(crate) fn record_busy(&mut self, begun: Timestamp, now: Timestamp) {
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
    pub(crate) fn record_failure(&mut self, begun: Timestamp, now: Timestamp) {
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ClusterCircuit>> {
        // A poisoned lock only means that another request panicked; each change of a circuit is whole.
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, cluster: &str, change: impl FnOnce(&mut ClusterCircuit)) {
        change(self.lock().entry(cluster.to_owned()).or_default());
        self.changed.notify_waiters();
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
