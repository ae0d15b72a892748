//! Requests without a response, for example during a restart of the server, and requests that it refuses for the moment.

use std::time::{Duration, Instant};

use crate::exit::Result;
use crate::output;

/// The longest silence of the server that a command without a time limit bears.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// The first pause before what the server refused for the moment is sent again. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Maximum repetitions of a request, and of the requests for refused targets.
pub(crate) const REPETITIONS: u32 = 6;

/// Returns the pause before a repetition, which is below [`REPETITIONS`].
pub(crate) fn pause(repetition: u32) -> Duration {
    FIRST_PAUSE * 2_u32.pow(repetition)
}

/// Sends a request that can be repeated. Repeats it while the server refuses it for the moment, and while `has_server` is true
/// also without a response.
pub(crate) async fn repeated<T>(has_server: impl Fn() -> bool, request: impl AsyncFn() -> Result<T>) -> Result<T> {
    let (mut refusals, mut silence) = (0, ServerSilence::default());
    loop {
        let sent = Instant::now();
        match request().await {
            Err(error) if error.is_busy() && refusals < REPETITIONS => {
                tokio::time::sleep(pause(refusals)).await;
                refusals += 1;
            }
            Err(error) if error.is_unreachable() && has_server() && silence.lasted() < LONGEST_SILENCE => {
                tokio::time::sleep(pause(silence.requests.min(REPETITIONS - 1))).await;
                silence.note_failure(sent).into_iter().for_each(output::status_line);
            }
            result => return result,
        }
    }
}

/// The requests since the last response.
#[derive(Debug, Default)]
pub(crate) struct ServerSilence {
    since: Option<Instant>,
    requests: u32,
}

impl ServerSilence {
    /// Records a request without a response. Returns the note for people, if it is the second one.
    pub(crate) fn note_failure(&mut self, sent: Instant) -> Option<&'static str> {
        self.since.get_or_insert(sent);
        self.requests = self.requests.saturating_add(1);
        (self.requests == 2).then_some("the server does not respond; trying again")
    }

    /// Records a response. Returns the note for people after a silence that was reported.
    pub(crate) fn note_response(&mut self) -> Option<&'static str> {
        let ended = std::mem::take(self);
        (ended.requests >= 2).then_some("the server responds again")
    }

    /// Returns the time since the first request without a response, or zero.
    pub(crate) fn lasted(&self) -> Duration {
        self.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}
