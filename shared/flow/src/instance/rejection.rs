//! Lifecycle webhooks that are rejected.

use ebb_documents::diagnostic::Diagnostics;
use ebb_protocol::id::TargetKey;
use ebb_protocol::lifecycle::LifecycleData;

use crate::error::RequestError;

#[derive(Debug)]
pub enum LifecycleRejection {
    /// 409: the instance has ended or has not begun, or another one waits for the name. The fields are a code and a text.
    Conflict(&'static str, String),
    /// 403: the scopes of the caller do not cover the target. The value is the error text.
    Forbidden(String),
    /// 404: the target of an event does not exist.
    Unknown(String),
    /// 503: too many events wait.
    Busy(String),
    /// 422: the document has errors.
    Document(Diagnostics),
    /// 422: a field is missing. The value is the error text.
    Missing(String),
    /// 422: a field has an invalid value. The value is the error text.
    Invalid(String),
}

impl LifecycleRejection {
    /// Returns the error text.
    pub(crate) fn detail(self) -> String {
        match self {
            Self::Conflict(_, text)
            | Self::Forbidden(text)
            | Self::Unknown(text)
            | Self::Busy(text)
            | Self::Missing(text)
            | Self::Invalid(text) => text,
            Self::Document(errors) => errors.to_string(),
        }
    }
}

impl From<LifecycleRejection> for RequestError<LifecycleRejection> {
    fn from(rejection: LifecycleRejection) -> Self {
        Self::Rejected(rejection)
    }
}

/// Returns the rejection of a webhook for an instance that has ended or is not the present one.
pub(crate) fn stale(event: &LifecycleData) -> LifecycleRejection {
    let text =
        format!("the {} {:?} with uid {:?} has ended; create it with a new uid", event.kind, event.name, event.uid);
    LifecycleRejection::Conflict("stale", text)
}

/// Returns the rejection of an event for an instance that waits for its name.
pub(crate) fn not_begun(event: &LifecycleData) -> LifecycleRejection {
    let text = format!(
        "the {} {:?} with uid {:?} waits for its name, and an event needs an instance that has begun; send the event again \
         when it has",
        event.kind, event.name, event.uid
    );
    LifecycleRejection::Conflict("stale", text)
}

/// Returns the rejection of a request about an instance of another sender. It names no instance, because a sender must not
/// learn about those of others.
pub(crate) fn foreign(target: TargetKey<'_>) -> LifecycleRejection {
    let text = format!(
        "{target} belongs to another sender, and only its creator changes it: give the target another name, or let a \
         person delete it by `ebb delete {} {}` and send the request again",
        target.kind, target.name
    );
    LifecycleRejection::Conflict("other-owner", text)
}

/// Returns the rejection of a request for a name that a target of another owner has. It names no owner, because a caller
/// must not learn about the targets of others.
pub(crate) fn other_owner(target: TargetKey<'_>) -> LifecycleRejection {
    let text = format!("{target} belongs to another owner: give the target another name");
    LifecycleRejection::Conflict("other-owner", text)
}
