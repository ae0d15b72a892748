//! What a unit says of itself: the body of a completion callback, and of a webhook unit's own answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::value::SecretRef;

/// `POST /v1/callbacks` with `Authorization: Bearer TOKEN`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Callback {
    /// Version of this message; 1 if left out.
    #[serde(default = "one")]
    pub v: u32,
    /// What happened.
    pub status: CallbackStatus,
    /// Outputs by name, any JSON. With `succeeded` only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Object>)]
    pub outputs: BTreeMap<String, serde_json::Value>,
    /// Outputs that are no UTF-8 text, in base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binary: BTreeMap<String, String>,
    /// Outputs that stay in the cluster. Taken from a relay only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretRef>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// With `again`: seconds after which to ask again, at most a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// One line for people: how far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The tail of the log, at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Milliseconds that the work took, by the clock of whoever did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum CallbackStatus {
    /// The work has begun and its result will come by another callback.
    Accepted,
    /// It still goes on.
    Heartbeat,
    /// Not ready: send the same request again after `retryAfter` seconds.
    Again,
    /// Done.
    Succeeded,
    /// Failed; whether it is tried again follows from the reason and the unit's `retry`.
    Failed,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureReason {
    /// The class.
    pub code: ReasonCode,
    /// For people; capped and scrubbed, free of secrets.
    pub message: String,
}

/// Classes of failure, as documents name them in `retry.on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReasonCode {
    /// The script ended with another code than 0, or by a signal.
    Exit,
    /// The try took longer than the unit's `timeout`.
    Timeout,
    /// What ran the unit vanished: a node, a pod, a local process.
    Lost,
    /// No connection to a webhook's server, or it broke.
    Connect,
    /// A webhook's server answered with a status that says failure.
    HttpStatus,
    /// A webhook's server answered 410, or the address is not allowed: trying again is pointless.
    Refused,
    /// A declared output is missing.
    OutputMissing,
    /// An output is larger than the limit.
    OutputTooLarge,
    /// A declared output cannot be computed from the response or object.
    OutputInvalid,
    /// An input or template has no value at the time of sending.
    Render,
    /// The work cannot be started as it is written: no such interpreter, image or cluster.
    NotStartable,
    /// A container's image could not be pulled.
    ImagePull,
    /// No node takes the pod.
    Unschedulable,
    /// A container was killed because it needed more memory than it may have.
    OutOfMemory,
    /// The pod was evicted from its node.
    Evicted,
    /// A quota or limit of the namespace does not admit it now.
    Quota,
    /// An admission policy of the cluster, or the relay's allow-list, does not admit it as it is written.
    Denied,
    /// The unit itself says that it failed.
    Failed,
    /// The run was cancelled before the unit could end.
    Cancelled,
    /// Nothing was to be done.
    Skipped,
    /// An operator has decided that it counts as over.
    Overridden,
}

impl ReasonCode {
    /// Returns true if the same try could end otherwise later. Decides where `retry.on` is left out.
    pub fn can_pass(self) -> bool {
        match self {
            Self::Exit
            | Self::Timeout
            | Self::Lost
            | Self::Connect
            | Self::HttpStatus
            | Self::Failed
            | Self::ImagePull
            | Self::Unschedulable
            | Self::Evicted
            | Self::Quota => true,
            Self::Refused
            | Self::OutputMissing
            | Self::OutputTooLarge
            | Self::OutputInvalid
            | Self::Render
            | Self::NotStartable
            | Self::OutOfMemory
            | Self::Denied
            | Self::Cancelled
            | Self::Skipped
            | Self::Overridden => false,
        }
    }
}

fn one() -> u32 {
    1
}

impl Callback {
    /// A callback that says only `status`.
    pub fn new(status: CallbackStatus) -> Self {
        Self {
            v: 1,
            status,
            outputs: BTreeMap::new(),
            binary: BTreeMap::new(),
            secrets: BTreeMap::new(),
            reason: None,
            retry_after: None,
            progress: None,
            log: None,
            duration_ms: None,
        }
    }

    /// A failure with its reason; the message is capped and scrubbed.
    pub fn failed(code: ReasonCode, message: &str) -> Self {
        let reason = FailureReason { code, message: crate::limits::message(message) };
        Self { reason: Some(reason), ..Self::new(CallbackStatus::Failed) }
    }
}
