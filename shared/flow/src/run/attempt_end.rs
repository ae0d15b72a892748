//! The end of an attempt before it is recorded.

use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::{Evidence, ObjectRemoval, ObjectStatus, Outputs, RemovalEvidence, limits};

#[derive(Clone, Debug, PartialEq)]
pub enum AttemptEnd {
    Succeeded(AttemptSuccess),
    /// The unit had nothing to do. The value is the reason.
    Skipped(String),
    Failed(AttemptFailure),
    /// The attempt was stopped, or must not start. The value is the reason.
    Cancelled(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptSuccess {
    pub outputs: Outputs,
    pub duration_ms: Option<u64>,
    pub log: Option<String>,
    /// True if an undo found nothing to delete, and a request of its undone unit had no response.
    pub found_nothing: bool,
    /// The report of a relay about the objects that it has removed.
    pub observed: Option<ObjectRemoval>,
    /// The evidence of an undo. Without it, the grade follows from the unit, see [`crate::run::removal::evidence`].
    pub removal: Option<RemovalEvidence>,
    /// The digest of the credential of the request, for a webhook with a connection.
    pub sent_by: Option<Box<str>>,
    /// The IDs by which an InfraKit plugin knows what the attempt has made.
    pub made: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptFailure {
    pub reason: FailureReason,
    pub status: Option<u16>,
    /// True if the server has rejected the request because of a limit of requests, with whatever status.
    pub is_limited: bool,
    /// The wait in seconds that the server requests before the next attempt.
    pub retry_after: Option<u64>,
    pub duration_ms: Option<u64>,
    /// The report of the relay, if a relay has executed the attempt.
    pub task: Option<Box<TaskReport>>,
    /// The evidence of the request, for a webhook.
    pub evidence: Option<Box<Evidence>>,
    /// True if the response to the request was a success, and the attempt failed afterwards: its wait for a state ended
    /// without it. Another request would make another thing.
    pub is_made: bool,
    /// True if the response does not tell whether the request has made something.
    pub may_be_made: bool,
    /// True if the failure came before a request, or there was no connection, and the record shows each other dispatcher of the
    /// attempt, or each one is refused by the guard of `egress`, too.
    pub is_unsent: bool,
    /// As in [`AttemptSuccess`].
    pub sent_by: Option<Box<str>>,
    /// The outputs that are known, although the attempt has failed. An undo reads them.
    pub outputs: Box<Outputs>,
}

/// The parts of the end of a task that only a relay sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    pub log: Option<String>,
    /// The applied objects of a task with several ones, as they are stored.
    pub objects: Vec<ObjectStatus>,
}

impl AttemptFailure {
    /// Creates a failure. The message is shortened and made printable.
    pub fn new(code: ReasonCode, message: &str) -> Self {
        Self { reason: FailureReason { code, message: limits::message(message) }, ..Self::default() }
    }

    /// Returns the end of an attempt whose success, with this duration and log, the failure replaces.
    pub(crate) fn instead_of(self, duration_ms: Option<u64>, log: Option<String>) -> AttemptEnd {
        let task = log.map(|log| Box::new(TaskReport { log: Some(log), objects: Vec::new() }));
        AttemptEnd::Failed(Self { duration_ms, task, ..self })
    }
}
