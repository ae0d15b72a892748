//! Limits how often the log repeats an error.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebb_protocol::id::TaskId;

use crate::error::ErrorKind;

/// Identifies the lines that repeat each other. An error counts by its kind, because its text can differ at each attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogSubject {
    /// The API server does not respond.
    Outage,
    /// A step of a task failed.
    Step(TaskId, ErrorKind),
}

/// The last lines by subject, each with the time until which it is not repeated.
#[derive(Default)]
pub(crate) struct LogLimit(Mutex<HashMap<LogSubject, Instant>>);

impl LogLimit {
    /// Returns true if a line about `subject` may be logged now. It may be repeated after `pause`.
    pub(crate) fn allows(&self, subject: LogSubject, pause: Duration, now: Instant) -> bool {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, until| *until > now);
        let is_new = !lines.contains_key(&subject);
        lines.entry(subject).or_insert(now + pause);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ReconcileError;

    #[test]
    fn an_error_of_the_same_kind_is_repeated_after_its_pause() {
        let (limit, begun) = (LogLimit::default(), Instant::now());
        let task = TaskId { unit: "k-1-pre-start-0".to_owned(), attempt: 1 };
        let refused = |reason: &str| ReconcileError::Refused(reason.to_owned());
        for (second, error, expected) in [
            (0, refused("request 1"), true),
            (1, refused("request 2"), false),
            (1, ReconcileError::Conflict, true),
            (9, refused("request 3"), false),
            (10, refused("request 4"), true),
            (11, refused("request 5"), false),
            (20, refused("request 6"), true),
        ] {
            let now = begun + Duration::from_secs(second);
            let subject = LogSubject::Step(task.clone(), error.kind());
            assert_eq!(limit.allows(subject, Duration::from_secs(10), now), expected, "{second} {error}");
        }
    }
}
