//! The body of a callback and of the response of a webhook unit.

use std::collections::BTreeMap;

use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Serialize};

use crate::{ObjectRemoval, ObjectStatus, SecretRef};

/// `POST /v1/callbacks` with `Authorization: Bearer TOKEN`.
#[serde_with::apply(BTreeMap => #[serde(default, skip_serializing_if = "BTreeMap::is_empty")])]
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object with `status`")]
pub struct Callback {
    /// The version of the message. The default is 1.
    #[serde(default = "crate::one")]
    pub v: u32,
    pub status: CallbackStatus,
    /// Outputs by name, any JSON. With `succeeded`, or with `failed` those that are known.
    #[schema(value_type = BTreeMap<String, Object>)]
    pub outputs: BTreeMap<String, serde_json::Value>,
    /// Outputs that are not UTF-8, in base64.
    pub binary: BTreeMap<String, String>,
    /// Outputs that stay in the cluster. Only accepted from a relay.
    pub secrets: BTreeMap<String, SecretRef>,
    /// The reason of a failure.
    #[schema(value_type = Option<ReportedReason>)]
    pub reason: Option<FailureReason>,
    /// With `again`: seconds until the request is repeated, at most one day.
    pub retry_after: Option<u64>,
    /// The progress, in one line for people.
    pub progress: Option<String>,
    /// The end of the log, at most 256 KiB.
    pub log: Option<String>,
    /// The duration in milliseconds, by the clock of the executor.
    pub duration_ms: Option<u64>,
    /// The applied objects of a failed unit, if there are several. Only accepted from a relay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectStatus>,
    /// The report of a task that removes objects. Only accepted from a relay.
    pub removal: Option<ObjectRemoval>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum CallbackStatus {
    /// The unit has started, and its result will come in another callback.
    #[default]
    Accepted,
    /// The unit is still running.
    Heartbeat,
    /// Not ready: repeat the same request after `retryAfter` seconds.
    Again,
    Succeeded,
    /// Failed. The reason and the unit's `retry` decide if there is another attempt.
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", try_from = "ReportedReason")]
pub struct FailureReason {
    pub code: ReasonCode,
    /// For people. Shortened, and without control characters.
    pub message: String,
}

/// The message about the exit code of a script, without the code.
const ENDED_WITH: &str = "the script ended with ";

impl FailureReason {
    /// Maximum characters of a code that a sender chooses.
    pub const MAX_CODE: usize = 40;

    /// Returns the message about a script that ended with `code`.
    pub fn exit_message(code: i32) -> String {
        format!("{ENDED_WITH}{code}")
    }

    /// Returns the exit code of a script, if it is the reason. Relays of all versions report it in the message.
    pub fn exit_code(&self) -> Option<i32> {
        let code = self.message.strip_prefix(ENDED_WITH).filter(|_| self.code == ReasonCode::Exit);
        code.and_then(|code| code.parse().ok())
    }
}

/// A reason in the words of its sender.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(expecting = "an object with `message`")]
pub struct ReportedReason {
    /// A `ReasonCode`, or another word of `a-z` and `-` with at most 40 characters. Such a word counts as `failed`, and
    /// is put before the message. The default is `failed`.
    #[schema(max_length = 40, pattern = "^[a-z][a-zA-Z-]*$")]
    code: Option<String>,
    /// For people. It is shortened to 1 KiB.
    message: String,
}

impl TryFrom<ReportedReason> for FailureReason {
    type Error = String;

    fn try_from(ReportedReason { code, message }: ReportedReason) -> Result<Self, String> {
        let Some(code) = code else { return Ok(Self { code: ReasonCode::Failed, message }) };
        let known: Result<_, serde::de::value::Error> = ReasonCode::deserialize(code.as_str().into_deserializer());
        if let Ok(code) = known {
            return Ok(Self { code, message });
        }
        let is_word = code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !code.starts_with('-');
        if code.is_empty() || code.len() > Self::MAX_CODE || !is_word {
            let code = crate::limits::excerpt(&code, Self::MAX_CODE);
            return Err(format!(
                "`reason.code` is {code:?}; expected a word of a-z and `-`, at most {} characters, such as `no-quota`",
                Self::MAX_CODE
            ));
        }
        Ok(Self { code: ReasonCode::Failed, message: format!("{code}: {message}") })
    }
}

/// Classes of failures, as in `retry.on`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ReasonCode {
    /// The script ended with an exit code other than 0, or by a signal.
    Exit,
    /// The attempt took longer than the unit's `timeout`.
    Timeout,
    /// The executor of the unit vanished: a node, a pod or a local process.
    Lost,
    /// The connection to a webhook's server failed or broke.
    Connect,
    /// The webhook's server responded with the status of a failure.
    HttpStatus,
    /// The webhook's server responded with 410, or the address is not allowed. A retry is pointless.
    Refused,
    /// A declared output is missing.
    OutputMissing,
    OutputTooLarge,
    /// An output cannot be evaluated from the response or object.
    OutputInvalid,
    /// The response of the webhook's server is not JSON, so that the unit cannot judge it.
    Unreadable,
    /// An input or template has no value at dispatch time. Nothing was made.
    Render,
    /// The unit cannot be started as written: no such interpreter, image or cluster. Nothing was made, so a teardown skips its
    /// undo. A task that has applied objects fails with [`Self::Failed`].
    NotStartable,
    ImagePull,
    /// No node can run the pod.
    Unschedulable,
    /// A container exceeded its memory limit.
    OutOfMemory,
    Evicted,
    /// A quota or limit of the namespace is exhausted.
    Quota,
    /// An admission policy of the cluster, or the policy of the relay, rejects the unit as written.
    Denied,
    /// The unit itself reported a failure.
    #[default]
    Failed,
    /// The run was cancelled before the unit ended.
    Cancelled,
    /// There was nothing to do.
    Skipped,
    /// An operator decided that the unit counts as complete.
    Overridden,
}

impl ReasonCode {
    /// Returns true if another attempt may succeed. This is the default of `retry.on`.
    pub fn can_pass(self) -> bool {
        use ReasonCode::*;
        match self {
            Exit | Timeout | Lost | Connect | HttpStatus | Failed | Unreadable | ImagePull | Unschedulable
            | Evicted | Quota => true,
            Refused | OutputMissing | OutputTooLarge | OutputInvalid | Render | NotStartable | OutOfMemory | Denied
            | Cancelled | Skipped | Overridden => false,
        }
    }
}

impl Callback {
    pub fn new(status: CallbackStatus) -> Self {
        Self { v: 1, status, ..Self::default() }
    }

    /// Returns a failure with its reason, shortened and without control characters.
    pub fn failed(code: ReasonCode, message: &str) -> Self {
        let reason = FailureReason { code, message: crate::limits::message(message) };
        Self { reason: Some(reason), ..Self::new(CallbackStatus::Failed) }
    }
}
