//! Limits the size of the response to a batch.

use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_protocol::limits::BATCH_RESPONSE_BODY;
use ebb_protocol::relay::RelayResponse;

/// Bytes of a [`BatchResponse`](ebb_protocol::relay::BatchResponse) beside its large responses.
const ENVELOPE: usize = 16 << 10;

/// The bytes used so far. The control plane reads at most [`BATCH_RESPONSE_BODY`].
#[derive(Default)]
pub(crate) struct ResponseBudget(AtomicUsize);

impl ResponseBudget {
    /// Returns `response`, or [`RelayResponse::TooLarge`] if it does not fit. The first response always fits.
    pub(crate) fn fit(&self, response: RelayResponse) -> RelayResponse {
        // Serialization cannot fail here. One byte separates two responses.
        let bytes = serde_json::to_vec(&response).map_or(0, |json| json.len() + 1);
        let add = |taken: usize| {
            let sum = taken.saturating_add(bytes);
            (taken == 0 || sum <= BATCH_RESPONSE_BODY - ENVELOPE).then_some(sum)
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => response,
            Err(_) => RelayResponse::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_protocol::relay::{BATCH, BatchResponse, TaskState, VERSION};

    use super::*;

    #[test]
    fn responses_of_a_batch_stay_within_the_limit() {
        let budget = ResponseBudget::default();
        let large = || RelayResponse::State(TaskState::running("x".repeat(1 << 20)));
        let responses: Vec<RelayResponse> = (0..BATCH)
            .map(|at| budget.fit(if at % 2 == 0 { large() } else { RelayResponse::Unavailable("busy".to_owned()) }))
            .collect();
        let count = |wanted: &RelayResponse| responses.iter().filter(|response| *response == wanted).count();
        assert_eq!((count(&large()), count(&RelayResponse::TooLarge)), (5, BATCH / 2 - 5));
        // Small responses still fit.
        assert_eq!(count(&RelayResponse::Unavailable("busy".to_owned())), BATCH / 2);
        let responses = BatchResponse { v: VERSION, cluster: "c".repeat(36), responses };
        assert!(serde_json::to_vec(&responses).unwrap().len() <= BATCH_RESPONSE_BODY);
        // A single response is sent whatever its size.
        let alone = RelayResponse::State(TaskState::running("x".repeat(BATCH_RESPONSE_BODY)));
        assert_eq!(ResponseBudget::default().fit(alone.clone()), alone);
    }
}
