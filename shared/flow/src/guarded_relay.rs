//! Sends requests to relays through circuit breakers.

use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::relay::{EnsureTask, ServiceRequest, ServiceResponse, TaskId, TaskState};

use crate::breaker::SHORTEST_WAIT_MS;
use crate::env::Env;
use crate::pending_call::PendingCall;
use crate::permits;
use crate::ports::{RelayClient, RelayError};

/// Returns the name of a cluster in the registry. `None` is the default cluster.
pub(crate) fn cluster_name(env: &Env, cluster: Option<&str>) -> String {
    env.relay.resolve_cluster(cluster).unwrap_or_else(|| cluster.unwrap_or_default().to_owned())
}

/// The relays of all clusters. Requests to a cluster with an open circuit fail immediately.
pub(crate) struct GuardedRelay<'a>(pub(crate) &'a Env);

impl GuardedRelay<'_> {
    async fn guard<T>(
        &self,
        cluster: Option<&str>,
        request: impl Future<Output = Result<T, RelayError>> + Send,
    ) -> Result<T, RelayError> {
        let env = self.0;
        let Some(_permit) = permits::admit(env, &cluster_name(env, cluster)).await else {
            let reason = "other sweeps wait for its response; the next request follows later";
            return Err(RelayError::Unreachable(reason.to_owned()));
        };
        let Some(call) = PendingCall::try_begin(env, &cluster_name(env, cluster), usize::MAX) else {
            let reason = "it did not respond to the last requests; the next request follows later";
            return Err(RelayError::Unreachable(reason.to_owned()));
        };
        let result = request.await;
        call.end(|circuit, begun, now| match &result {
            Err(RelayError::Unreachable(_)) => circuit.record_failure(begun, now),
            Err(RelayError::Busy(_)) => circuit.record_busy(begun, now),
            Ok(_) | Err(RelayError::Refused(_)) => circuit.record_response(now),
        });
        result
    }
}

#[async_trait]
impl RelayClient for GuardedRelay<'_> {
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError> {
        self.guard(cluster, self.0.relay.ensure(cluster, request)).await
    }

    async fn cancel(&self, cluster: Option<&str>, task: &TaskId, grace: Duration) -> Result<TaskState, RelayError> {
        self.guard(cluster, self.0.relay.cancel(cluster, task, grace)).await
    }

    async fn dequeue(&self, cluster: Option<&str>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.guard(cluster, self.0.relay.dequeue(cluster, task)).await
    }

    async fn get(&self, cluster: Option<&str>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.guard(cluster, self.0.relay.get(cluster, task)).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, task: &TaskId) -> Result<(), RelayError> {
        self.guard(cluster, self.0.relay.acknowledge(cluster, task)).await
    }

    async fn release(&self, cluster: Option<&str>, instance: &str) -> Result<(), RelayError> {
        self.guard(cluster, self.0.relay.release(cluster, instance)).await
    }

    async fn call(&self, cluster: Option<&str>, request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
        self.guard(cluster, self.0.relay.call(cluster, request)).await
    }
}

/// Returns the time from which requests to `cluster` are sent again, or `None` if they are sent now.
pub(crate) fn circuit_open_until(env: &Env, cluster: &str) -> Option<Timestamp> {
    let now = env.now();
    let circuits = env.cache.breakers.lock();
    circuits.get(cluster).filter(|circuit| circuit.is_open(now)).and_then(|circuit| circuit.retry)
}

/// Returns the time of the next request to `cluster`, which has just failed.
pub(crate) fn retry_at(env: &Env, cluster: Option<&str>) -> Timestamp {
    let (cluster, now) = (cluster_name(env, cluster), env.now());
    let soonest = now.plus(Millis(SHORTEST_WAIT_MS));
    env.cache.breakers.lock().get(&cluster).and_then(|circuit| circuit.retry).unwrap_or(soonest).max(soonest)
}
