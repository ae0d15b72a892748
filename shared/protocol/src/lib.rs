//! Messages, stored records, signatures and limits that cross a boundary between programs.
//!
//! Every message has `"v": 1`. Unknown fields are errors in messages of people and foreign programs. They are ignored
//! in messages of our own programs, because an older relay must work with a newer control plane.

pub mod api;
pub mod api_token;
pub mod callback;
pub mod cloudevents;
pub mod entrypoint;
pub mod error_code;
pub mod evidence;
pub mod history;
pub mod id;
pub mod infrakit;
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
pub mod source_signature;
pub mod time;
pub mod token;
pub mod unit;
pub mod value;
pub mod words;

pub use api_token::TargetAccess;
pub use callback::{Callback, FailureReason, ReasonCode};
pub use ebb_engine as engine;
pub use error_code::ErrorCode;
pub use id::{RunId, TargetKey, digest, short_digest};
pub use lifecycle::{FieldError, OutputValue, TargetStopCause};
pub use listing::ReportedPolicy;
pub use relay::WaitResolution;
pub use time::{parse_rfc3339, rfc3339};

#[cfg(test)]
mod tests;
