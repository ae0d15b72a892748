//! The end of an attempt before it is recorded.

use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::evidence::Evidence;
use ebb_protocol::limits;
use ebb_protocol::object_status::ObjectStatus;
use ebb_protocol::removal::{ObjectRemoval, RemovalEvidence};
use ebb_protocol::value::Outputs;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    pub reason: FailureReason,
    pub status: Option<u16>,
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
    /// As in [`AttemptSuccess`].
    pub sent_by: Option<Box<str>>,
}

/// The parts of the end of a task that only a relay sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    pub log: Option<String>,
    /// The applied objects of a task with several ones, as they are stored.
    pub objects: Vec<ObjectStatus>,
}

impl TaskReport {
    /// Returns the report with the log of a task without objects.
    pub(crate) fn of_log(log: Option<String>) -> Option<Box<Self>> {
        log.map(|log| Box::new(Self { log: Some(log), objects: Vec::new() }))
    }
}

impl AttemptFailure {
    /// Creates a failure. The message is shortened and made printable.
    pub fn new(code: ReasonCode, message: &str) -> Self {
        let reason = FailureReason { code, message: limits::message(message) };
        Self {
            reason,
            status: None,
            retry_after: None,
            duration_ms: None,
            task: None,
            evidence: None,
            is_made: false,
            sent_by: None,
        }
    }

    /// Returns true if the backend did not respond, so that the request may still arrive or be processed. The
    /// status of a gateway does not count as a response of the server behind it (rule GatewayIsNoAnswer).
    pub(crate) fn is_unanswered(&self) -> bool {
        match (self.reason.code, self.status) {
            _ if self.is_made => false,
            (ReasonCode::Connect | ReasonCode::Timeout, _) => true,
            (ReasonCode::HttpStatus, Some(status)) => {
                matches!(status, 408 | 425 | 499 | 502..=504 | 520..=529)
            }
            _ => false,
        }
    }
}
