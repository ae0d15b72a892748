//! What can go wrong between the relay and its cluster.

use crate::store::now_ms;

/// Why something was not done. It may be tried again: nothing of this says that the task has failed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server gave no answer, or one that does not help.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// Somebody else has written the record meanwhile: read it again.
    #[error("the record was changed meanwhile")]
    Conflict,
    /// A record that cannot be read.
    #[error("the record {name} cannot be read: {why}")]
    Damaged { name: String, why: String },
    /// What is asked for does not fit into a Secret.
    #[error("{0}")]
    TooLarge(String),
    /// What it has to read or make itself, such as its client of HTTP.
    #[error("{0}")]
    Internal(String),
}

/// What the API server's refusal of an object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiRefusal {
    /// A quota does not admit it now.
    Quota,
    /// An admission policy, or the relay's own rights, do not admit it.
    Denied,
    /// It is not what the cluster takes.
    Invalid,
}

/// The HTTP status of an answer.
pub(crate) fn status(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// What a failure says of the object; `None`: nothing, it may be tried again.
pub(crate) fn api_refusal(error: &kube::Error) -> Option<ApiRefusal> {
    let kube::Error::Api(said) = error else { return None };
    match said.code {
        403 if said.message.contains("exceeded quota") => Some(ApiRefusal::Quota),
        403 => Some(ApiRefusal::Denied),
        // A webhook of admission may answer with a status of its own.
        _ if said.message.starts_with("admission webhook") => Some(ApiRefusal::Denied),
        // Not what was read: look again. But for fields that somebody else has applied.
        409 if !said.message.starts_with("Apply failed with") => None,
        408 | 425 | 429 => None,
        400..=499 => Some(ApiRefusal::Invalid),
        _ => None,
    }
}

/// After what was last allowed an answer that says no is not asked for again; what may be a server that is just starting,
/// for a minute.
const STARTING_MS: u64 = 60_000;

/// Whether an error ends what had time until then (milliseconds since 1970): the API server says no, or goes on to fail.
/// One that does not answer ends nothing.
pub(crate) fn is_final(error: &kube::Error, until_ms: u64) -> bool {
    let patience = if api_refusal(error).is_some() { 0 } else { STARTING_MS };
    status(error).is_some() && now_ms() >= until_ms.saturating_add(patience)
}

/// What an error of the API server says, for people.
pub(crate) fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
