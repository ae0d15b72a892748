//! State that the requests of one batch share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::relay::{RESPONSE_MARGIN, RelayRequest};
use tokio::sync::Semaphore;

use crate::answer_budget::ResponseBudget;
use crate::clock::now_ms;

/// Units of one batch that are processed at the same time.
const AT_ONCE: usize = 16;

/// The arrival of a batch, and the limits that its requests share.
#[derive(Clone)]
pub(crate) struct BatchContext {
    pub(crate) at: Instant,
    /// The arrival, in milliseconds since 1970.
    pub(crate) ms: u64,
    /// The time for which the batch was under way.
    transit: Duration,
    /// Limits the requests that are processed at the same time. Waiting for a termination needs no permit.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) responses: Arc<ResponseBudget>,
}

impl BatchContext {
    /// Starts the clock of a batch that arrives now.
    pub(crate) fn new(transit: Duration) -> Self {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        Self { at: Instant::now(), ms: now_ms(), transit, slots, responses: Arc::default() }
    }

    /// Returns the time until which a request must be answered, at most `longest` after the arrival. Without a
    /// response before its timeout, the sender counts the relay as unreachable.
    pub(crate) fn deadline(&self, request: &RelayRequest, longest: Duration) -> Instant {
        let time = request.timeout().saturating_sub(RESPONSE_MARGIN).saturating_sub(self.transit);
        self.at + time.min(longest)
    }
}
