//! Circuit breakers for clusters, the platform and the receivers of subscriptions. The circuits of other servers are
//! always closed. They hold the time of the last response. Those of limits of requests hold only `retry`, the end of a limit.
//!
//! Their state is in the memory of one function instance. They decide when a request is sent. They never decide how a
//! unit ends. A new instance sends requests to every cluster.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use ebb_engine::Millis;
use tokio::sync::Notify;

use crate::{SteadyTime, lock};

/// The next request follows after 1/4 of the outage so far. An outage therefore delays units by at most a quarter of
/// its duration.
pub(crate) const OUTAGE_PART: u64 = 4;
pub(crate) const SHORTEST_WAIT_MS: u64 = 5_000;
pub(crate) const LONGEST_WAIT_MS: u64 = 5 * 60 * 1000;
/// Consecutive failures that open a circuit. A single request may have been lost.
pub(crate) const OPEN_AFTER_FAILURES: u32 = 2;
/// Duration of a request without a response that opens the circuit at once.
pub(crate) const HUNG_MS: u64 = 5_000;
/// Concurrent trial requests to a cluster whose circuit was open.
pub(crate) const MAX_TRIALS: usize = 2;
/// Concurrent requests to the platform, or to the receiver of a subscription. Further notifications are postponed.
pub(crate) const MAX_DELIVERIES: usize = 12;
/// Concurrent sweeps of runs and targets that may wait for a cluster or another server without a recent response.
pub(crate) const MAX_WAITING_SWEEPS: usize = 2;
/// Time after a response for which a cluster counts as healthy.
pub(crate) const HEALTHY_MS: u64 = 60_000;

#[derive(Default)]
pub(crate) struct CircuitBreakers {
    circuits: Mutex<BTreeMap<String, ClusterCircuit>>,
    pub(crate) changed: Notify,
}

#[derive(Default)]
pub(crate) struct ClusterCircuit {
    /// Consecutive requests without a response. Concurrent ones count as one.
    pub(crate) failures: u32,
    /// The start of the first failed request.
    outage_since: Option<SteadyTime>,
    /// The end of the last failed request.
    last_failure: Option<SteadyTime>,
    /// The time from which requests are sent again.
    pub(crate) retry: Option<SteadyTime>,
    /// The time of the last response, except slow ones that reported *busy*.
    last_response: Option<SteadyTime>,
    pub(crate) trials: usize,
    pub(crate) pending: usize,
    /// Sweeps of runs and targets that hold a permit for the cluster or server.
    pub(crate) permits: usize,
}

impl ClusterCircuit {
    pub(crate) fn is_open(&self, now: SteadyTime) -> bool {
        self.failures >= OPEN_AFTER_FAILURES && self.retry.is_some_and(|at| at > now)
    }

    pub(crate) fn is_healthy(&self, now: SteadyTime) -> bool {
        self.failures == 0 && self.last_response.is_some_and(|at| now.since(at).0 < HEALTHY_MS)
    }

    fn close(&mut self) {
        self.failures = 0;
        self.outage_since = None;
        self.retry = None;
    }

    pub(crate) fn record_response(&mut self, now: SteadyTime) {
        self.close();
        self.last_response = Some(now);
    }

    /// Records a response *busy*. It closes the circuit. After a slow one, sweeps wait as for a cluster that does not
    /// respond.
    pub(crate) fn record_busy(&mut self, begun: SteadyTime, now: SteadyTime) {
        let is_slow = now.since(begun).0 >= HUNG_MS;
        let responded_since = self.has_responded_since(begun);
        self.close();
        if !is_slow {
            self.last_response = Some(now);
        } else if !responded_since {
            self.last_response = None;
        }
    }

    fn has_responded_since(&self, begun: SteadyTime) -> bool {
        self.last_response.is_some_and(|answered| answered >= begun)
    }

    /// Records a request without a response, unless the cluster has responded to others since its start.
    pub(crate) fn record_failure(&mut self, begun: SteadyTime, now: SteadyTime) {
        if self.has_responded_since(begun) || self.last_failure.is_some_and(|failed| failed > begun) {
            return;
        }
        let is_slow = now.since(begun).0 >= HUNG_MS;
        self.failures = self.failures.saturating_add(1).max(if is_slow { OPEN_AFTER_FAILURES } else { 1 });
        self.last_failure = Some(now);
        let since = *self.outage_since.get_or_insert(begun);
        self.retry = Some(now.plus(retry_wait(now.since(since))));
    }
}

/// Returns the wait after a failure, by the duration of the outage so far.
fn retry_wait(outage: Millis) -> Millis {
    Millis((outage.0 / OUTAGE_PART).clamp(SHORTEST_WAIT_MS, LONGEST_WAIT_MS))
}

impl CircuitBreakers {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ClusterCircuit>> {
        lock(&self.circuits)
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
    fn waits_grow_with_the_outage() {
        let waits = [0, 15, 40, 600, 1_200, 86_400].map(|outage: u64| retry_wait(Millis(outage * 1000)).0 / 1000);
        assert_eq!(waits, [5, 5, 10, 150, 300, 300]);
        let at = |seconds: u64| SteadyTime(Millis(seconds * 1000));
        let mut circuit = ClusterCircuit::default();
        let mut requested_at = 0;
        let mut requests = 0;
        // The cluster is down for ten minutes, and each request times out.
        while requested_at < 600 {
            circuit.record_failure(at(requested_at), at(requested_at + 15));
            requested_at = circuit.retry.unwrap().0.0 / 1000;
            requests += 1;
        }
        assert!(requested_at <= 600 * 5 / 4 + 15, "requested after {requested_at} s");
        assert!(requests <= 15, "{requests} requests");
        circuit.record_response(at(requested_at));
        circuit.record_failure(at(requested_at + 1), at(requested_at + 2));
        assert_eq!(circuit.retry, Some(at(requested_at + 7)));
    }

    /// A row has requests that failed, were answered, or were answered with *busy*, and what the circuit is at a time. A
    /// request that was concurrent with an earlier failure, or with a response, opens nothing.
    #[test]
    fn a_circuit_opens_after_two_lost_requests_or_one_that_hung() {
        let at = |seconds: &str| SteadyTime(Millis(seconds.parse::<u64>().unwrap() * 1000));
        for row in crate::tests::rows::<String>("requests_of_circuits") {
            let mut circuit = ClusterCircuit::default();
            for step in row.split(", ") {
                match step.split(' ').collect::<Vec<_>>()[..] {
                    ["failed", begun, ended] => circuit.record_failure(at(begun), at(ended)),
                    ["busy", begun, ended] => circuit.record_busy(at(begun), at(ended)),
                    ["answered", time] => circuit.record_response(at(time)),
                    ["open", time] => assert!(circuit.is_open(at(time)), "{step}: {row}"),
                    ["closed", time] => assert!(!circuit.is_open(at(time)), "{step}: {row}"),
                    ["healthy", time] => assert!(circuit.is_healthy(at(time)), "{step}: {row}"),
                    ["unhealthy", time] => assert!(!circuit.is_healthy(at(time)), "{step}: {row}"),
                    ["untimed"] => assert_eq!(circuit.retry, None, "{row}"),
                    _ => panic!("{step}"),
                }
            }
        }
    }
}
