//! Requests without a response, for example during a restart of the server.

use std::time::{Duration, Instant};

/// The longest silence of the server that a command without a time limit bears.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(300);

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
