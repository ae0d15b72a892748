//! Errors between the relay and its cluster, and the limit of their repetition in the log.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ebb_protocol::{Callback, ReasonCode, TaskId};

use crate::{lock, now_ms};

/// A step or a request that did not complete. It does not mean that the task failed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The text is the message of the API server, without its JSON.
    #[error("{}", error_message(.0))]
    Api(#[from] kube::Error),
    /// The record was changed since it was read.
    #[error("the record was changed by another write")]
    Conflict,
    /// A request is rejected. It will never be executed in this form.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    TooLarge(String),
    /// The API server accepted a request and did not respond in time.
    #[error("the API server of the cluster did not respond in time")]
    TimedOut,
    /// A local failure, for example of the HTTP client, or a damaged record.
    #[error("{0}")]
    Internal(String),
}

impl ReconcileError {
    /// Returns what errors with different texts have in common: their kind, and the status of the API server.
    pub(crate) fn kind(&self) -> (Discriminant<Self>, Option<u16>) {
        let status = if let Self::Api(error) = self { status(error) } else { None };
        (discriminant(self), status)
    }

    /// Returns true if the API server did not respond. All tasks meet the same outage.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Api(kube::Error::Service(_) | kube::Error::HyperError(_)))
    }
}

pub(crate) type Result<T, E = ReconcileError> = std::result::Result<T, E>;

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(ReconcileError::Refused(why.into()))
}

/// The end of a step before its last action.
#[derive(Debug)]
pub(crate) enum StepError {
    Failed(Box<Callback>),
    Incomplete(ReconcileError),
}

pub(crate) type StepResult<T> = Result<T, StepError>;

impl<E: Into<ReconcileError>> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::Incomplete(error.into())
    }
}

pub(crate) fn fail<T>(code: ReasonCode, why: &str) -> StepResult<T> {
    Err(StepError::Failed(Box::new(Callback::failed(code, why))))
}

pub(crate) async fn within<T>(time: Duration, done: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(time, done).await.unwrap_or(Err(ReconcileError::TimedOut))
}

pub(crate) fn status(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error { Some(status.code) } else { None }
}

/// Returns the reason why the API server refuses an object, or `None` if the request can be repeated.
pub(crate) fn api_refusal(error: &kube::Error) -> Option<ReasonCode> {
    let kube::Error::Api(status) = error else { return None };
    match status.code {
        // The request may succeed later.
        403 if status.message.contains("exceeded quota") => Some(ReasonCode::Quota),
        // An admission policy, or missing rights of the relay.
        403 => Some(ReasonCode::Denied),
        // An admission webhook may respond with any status.
        _ if status.message.starts_with("admission webhook") => Some(ReasonCode::Denied),
        // After 409, the object must be read again.
        408 | 409 | 425 | 429 => None,
        // The object is not valid in this cluster.
        400..=499 => Some(ReasonCode::NotStartable),
        _ => None,
    }
}

/// Milliseconds after the deadline during which an error may come from an API server that is just starting.
const STARTING_MS: u64 = 60_000;

/// Returns true if an error ends a task with the deadline `until_ms` (milliseconds since 1970). A refusal ends it at
/// the deadline, another status a minute later. A missing response never ends it.
pub(crate) fn is_final(error: &kube::Error, until_ms: u64) -> bool {
    let grace_ms = if api_refusal(error).is_some() { 0 } else { STARTING_MS };
    status(error).is_some() && now_ms() >= until_ms.saturating_add(grace_ms)
}

pub(crate) fn error_message(error: &kube::Error) -> String {
    // The innermost cause, such as a refused connection. Those around it name only layers of the client.
    let outage = |mut cause: &dyn std::error::Error| {
        while let Some(next) = cause.source() {
            cause = next;
        }
        format!("the API server of the cluster does not respond: {cause}")
    };
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(cause) => outage(&**cause),
        kube::Error::HyperError(cause) => outage(cause),
        other => other.to_string(),
    }
}

/// Identifies the lines that repeat each other. An error counts by its kind, because its text can differ at each attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogSubject {
    /// The API server does not respond.
    Outage,
    Step(TaskId, (Discriminant<ReconcileError>, Option<u16>)),
}

/// The last lines by subject, each with the time until which it is not repeated.
#[derive(Default)]
pub(crate) struct LogLimit(Mutex<HashMap<LogSubject, Instant>>);

impl LogLimit {
    /// Returns true if a line about `subject` may be logged now. It may be repeated after `pause`.
    pub(crate) fn allows(&self, subject: LogSubject, pause: Duration, now: Instant) -> bool {
        let mut lines = lock(&self.0);
        lines.retain(|_, until| *until > now);
        let is_new = !lines.contains_key(&subject);
        lines.entry(subject).or_insert(now + pause);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::test_api::rows;

    #[test]
    fn an_outage_has_a_text_for_people() {
        let refused = anyhow::Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = ReconcileError::Api(kube::Error::Service(refused.context("client error (Connect)").into()));
        assert_eq!(error.to_string(), "the API server of the cluster does not respond: connection refused");
        assert!(error.is_outage() && ReconcileError::TimedOut.is_outage());
        let denied = kube::core::Status::failure("denied", "Forbidden").with_code(403);
        assert!(!ReconcileError::Api(kube::Error::Api(Box::new(denied))).is_outage());
    }

    #[test]
    fn an_error_of_the_same_kind_is_repeated_after_its_pause() {
        let (limit, begun) = (LogLimit::default(), Instant::now());
        let task = TaskId { unit: "k-1-pre-start-0".to_owned(), attempt: 1 };
        let rows = rows::<(u64, Option<String>, bool)>("an_error_of_the_same_kind_is_repeated_after_its_pause");
        for (second, reason, expected) in rows {
            let error = reason.map_or(ReconcileError::Conflict, ReconcileError::Refused);
            let now = begun + Duration::from_secs(second);
            let subject = LogSubject::Step(task.clone(), error.kind());
            assert_eq!(limit.allows(subject, Duration::from_secs(10), now), expected, "{second} {error}");
        }
    }
}
