//! Messages, stored records, signatures and limits that cross a boundary between programs.
//!
//! Every message has `"v": 1`. Unknown fields are errors in messages of people and foreign programs. They are ignored
//! in messages of our own programs, because an older relay must work with a newer control plane.

pub mod api;
pub mod api_token;
pub mod callback;
pub mod callback_token;
pub mod cloudevents;
pub mod entrypoint;
pub mod error_code;
pub mod evidence;
pub mod history;
pub mod id;
pub mod infrakit;
mod jws;
pub mod lifecycle;
pub mod limits;
pub mod listing;
pub mod named_secrets;
pub mod object_status;
pub mod pull;
pub mod record;
pub mod registration;
pub mod relay;
pub mod removal;
pub mod script;
pub mod seal;
pub mod session;
pub mod sign;
mod signed_text;
pub mod source_signature;
pub mod time;
pub mod unit;
pub mod value;
pub mod words;

pub use api::*;
pub use api_token::{TargetAccess, TargetLimit, TokenScope, has_digest, parse_scopes, token_digest};
pub use callback::{Callback, CallbackStatus, FailureReason, ReasonCode};
pub use callback_token::{TokenClaims, TokenKind};
pub use cloudevents::{EventError, LifecycleType};
pub use ebb_engine as engine;
pub use ebb_engine::{Hook, Millis, Timestamp, Unit};
pub use entrypoint::{EntrypointSpec, RelayAddress, ScriptExit};
pub use error_code::ErrorCode;
pub use evidence::Evidence;
pub use history::*;
pub use id::{EventRef, InstanceRef, RunId, TargetKey, TaskId, digest, is_dns_label, short_digest};
pub use lifecycle::{FieldError, LifecycleData, LifecycleResponse, LifecycleResult, OutputValue, TargetStopCause};
pub use listing::{ApiServerState, ClusterListing, RelayInfo, ReportedNamespace, ReportedPolicy};
pub use named_secrets::{NamedSecrets, SecretReader, SecretText, is_secret_name};
pub use object_status::{MAX_OBJECTS, ObjectState, ObjectStatus};
pub use pull::ReplyOutcome;
pub use record::{
    AttemptOutcome, AttemptRecord, AttemptResult, CallbackRefusals, InstanceIds, OutputStorage, StateWait, StoredText,
};
pub use relay::{Batch, BatchResponse, CallbackEndpoint, EnsureTask, ObjectCount, ObjectOutput, ObjectTask};
pub use relay::{RelayRequest, RelayResponse, RunningTask, ScriptOutput, SecretDocument, TaskCompletion, TaskNames};
pub use relay::{TaskState, TaskWait, WaitResolution};
pub use removal::{ObjectRemoval, RemovalEvidence, RemovalGrade, ResourceRemoval};
pub use seal::{open_value, seal_value};
pub use session::{PendingSignIn, SessionId, code_challenge, is_random_text};
pub use sign::{MessageId, OWN_HOOKS, SignatureError, WebhookKeys, WebhookSecret};
pub use time::{parse_rfc3339, rfc3339};
pub use unit::TRACEPARENT;
pub use value::{Outputs, SecretRef, UnitValue};

/// Returns the default of versions and generations.
fn one<N: From<u8>>() -> N {
    1.into()
}

#[cfg(test)]
mod tests;
