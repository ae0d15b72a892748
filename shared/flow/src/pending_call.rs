//! A request in progress to a destination with a circuit: a cluster, the platform, or the receiver of a subscription.

use ebb_engine::Millis;

use crate::circuit::{ClusterCircuit, HUNG_MS, MAX_TRIALS, OPEN_AFTER_FAILURES};
use crate::{Env, SteadyTime};

/// A request in progress. Drop records that it was abandoned.
pub(crate) struct PendingCall<'a> {
    env: &'a Env,
    destination: String,
    begun: SteadyTime,
    is_trial: bool,
    has_ended: bool,
}

impl<'a> PendingCall<'a> {
    /// Begins a request. Returns `None` if the circuit is open, its trial requests are in progress, or `most` requests are.
    pub(crate) fn try_begin(env: &'a Env, destination: &str, most: usize) -> Option<Self> {
        let now = env.steady();
        let mut circuits = env.cache.breakers.lock();
        let circuit = circuits.entry(destination.to_owned()).or_default();
        let is_trial = circuit.failures >= OPEN_AFTER_FAILURES;
        if circuit.is_open(now) || (is_trial && circuit.trials >= MAX_TRIALS) || circuit.pending >= most {
            return None;
        }
        circuit.pending += 1;
        circuit.trials += usize::from(is_trial);
        drop(circuits);
        Some(Self { env, destination: destination.to_owned(), begun: now, is_trial, has_ended: false })
    }

    /// Ends the request. `record` gets the circuit, the begin and the end.
    pub(crate) fn end(mut self, record: impl FnOnce(&mut ClusterCircuit, SteadyTime, SteadyTime)) {
        self.has_ended = true;
        let now = self.env.steady();
        self.env.cache.breakers.change(&self.destination, |circuit| record(circuit, self.begun, now));
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let now = self.env.steady();
        let is_dropped = !self.has_ended && now.since(self.begun).0 >= HUNG_MS;
        self.env.cache.breakers.change(&self.destination, |circuit| {
            circuit.pending -= 1;
            circuit.trials -= usize::from(self.is_trial);
            if is_dropped {
                circuit.record_failure(self.begun, now);
            }
        });
    }
}

/// Returns the wait until requests to a destination are sent again. It is zero if they are sent now.
pub(crate) fn circuit_wait(env: &Env, destination: &str) -> Millis {
    let now = env.steady();
    env.cache.breakers.lock().get(destination).and_then(|circuit| circuit.retry).map_or(Millis(0), |at| at.since(now))
}
