//! Sends requests to relays through circuit breakers.

use ebb_engine::{Millis, Timestamp};
use ebb_protocol::relay::{RESPONSE_MARGIN, RESPONSE_TIMEOUT};

use crate::circuit::SHORTEST_WAIT_MS;
use crate::{Env, PendingCall, RelayError, circuit_wait, permits};

/// The end of the reason why a request was not sent.
pub(crate) const NOT_NOW: &str = "the next request follows later";
/// The reason of a request whose sender does not wait any longer.
pub(crate) const NOT_AWAITED: &str = "its response is not awaited any longer";

/// Returns the name of a cluster in the registry. `None` is the default cluster.
pub(crate) fn cluster_name(env: &Env, cluster: Option<&str>) -> String {
    env.relay.resolve_cluster(cluster).unwrap_or_else(|| cluster.unwrap_or_default().to_owned())
}

/// Sends a request to the relay of a cluster. If the circuit of the cluster is open, the request fails immediately.
pub(crate) async fn guarded<T>(
    env: &Env,
    cluster: Option<&str>,
    request: impl Future<Output = Result<T, RelayError>> + Send,
) -> Result<T, RelayError> {
    let Some(_permit) = permits::admit(env, &cluster_name(env, cluster)).await else {
        return Err(RelayError::Unreachable(format!("other sweeps wait for its response; {NOT_NOW}")));
    };
    let Some(call) = PendingCall::try_begin(env, &cluster_name(env, cluster), usize::MAX) else {
        return Err(RelayError::Unreachable(format!("it did not respond to the last requests; {NOT_NOW}")));
    };
    let result = request.await;
    let may_wait = Millis::from(RESPONSE_TIMEOUT.saturating_sub(RESPONSE_MARGIN));
    call.end(|circuit, begun, now| match &result {
        // A relay may wait so long for a Service.
        Err(RelayError::Unreachable(why)) if why == NOT_AWAITED && now.since(begun) < may_wait => {}
        Err(RelayError::Unreachable(_)) => circuit.record_failure(begun, now),
        Err(RelayError::Busy(_)) => circuit.record_busy(begun, now),
        Ok(_) | Err(RelayError::Refused(_)) => circuit.record_response(now),
    });
    result
}

/// Returns the time from which requests to `cluster` are sent again, or `None` if they are sent now.
pub(crate) fn circuit_open_until(env: &Env, cluster: &str) -> Option<Timestamp> {
    let now = env.steady();
    let circuits = env.cache.breakers.lock();
    let retry = circuits.get(cluster).filter(|circuit| circuit.is_open(now)).and_then(|circuit| circuit.retry);
    retry.map(|retry| env.now().plus(retry.since(now)))
}

/// Returns the time of the next request to `cluster`, which has just failed.
pub(crate) fn retry_at(env: &Env, cluster: Option<&str>) -> Timestamp {
    env.now().plus(circuit_wait(env, &cluster_name(env, cluster)).max(Millis(SHORTEST_WAIT_MS)))
}
