//! A batch while it is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_wire::relay::{ANSWER_MARGIN, Request};
use tokio::sync::Semaphore;

use crate::answer_room::AnswerRoom;
use crate::store::now_ms;

/// Units of one batch that are acted on at once.
const AT_ONCE: usize = 16;

/// The arrival of a batch, and the limits that its requests share.
#[derive(Clone)]
pub(crate) struct Received {
    /// The arrival, on the clock that never goes back.
    pub(crate) at: Instant,
    /// The arrival, in milliseconds since 1970.
    pub(crate) ms: u64,
    /// How long the batch had been under way by then.
    late: Duration,
    /// Bounds the requests of the batch that are acted on at once. Waiting for a death needs no permit.
    pub(crate) acting: Arc<Semaphore>,
    /// The bytes of the answers.
    pub(crate) room: Arc<AnswerRoom>,
}

impl Received {
    /// Returns the arrival, now, of a batch that was under way for `late`.
    pub(crate) fn new(late: Duration) -> Self {
        let acting = Arc::new(Semaphore::new(AT_ONCE));
        Self { at: Instant::now(), ms: now_ms(), late, acting, room: Arc::default() }
    }

    /// Returns until when a request has to be answered, `longest` after the arrival at the latest. A sender that gets no
    /// answer before its timeout takes the relay for silent.
    pub(crate) fn deadline(&self, request: &Request, longest: Duration) -> Instant {
        let time = request.timeout().saturating_sub(ANSWER_MARGIN).saturating_sub(self.late);
        self.at + time.min(longest)
    }
}
