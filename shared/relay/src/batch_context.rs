//! A batch while it is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::relay::{RESPONSE_MARGIN, RelayRequest};
use tokio::sync::Semaphore;

use crate::answer_budget::AnswerBudget;
use crate::store::now_ms;

/// Units of one batch that are acted on at once.
const AT_ONCE: usize = 16;

/// The arrival of a batch, and the limits that its requests share.
#[derive(Clone)]
pub(crate) struct BatchContext {
    /// The arrival, on the clock that never goes back.
    pub(crate) at: Instant,
    /// The arrival, in milliseconds since 1970.
    pub(crate) ms: u64,
    /// How long the batch had been under way by then.
    transit: Duration,
    /// Bounds the requests of the batch that are acted on at once. Waiting for a death needs no permit.
    pub(crate) slots: Arc<Semaphore>,
    /// The bytes of the answers.
    pub(crate) answers: Arc<AnswerBudget>,
}

impl BatchContext {
    /// Returns the arrival, now, of a batch that was under way for `late`.
    pub(crate) fn new(transit: Duration) -> Self {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        Self { at: Instant::now(), ms: now_ms(), transit, slots, answers: Arc::default() }
    }

    /// Returns until when a request has to be answered, `longest` after the arrival at the latest. A sender that gets no
    /// answer before its timeout takes the relay for silent.
    pub(crate) fn deadline(&self, request: &RelayRequest, longest: Duration) -> Instant {
        let time = request.timeout().saturating_sub(RESPONSE_MARGIN).saturating_sub(self.transit);
        self.at + time.min(longest)
    }
}
