//! Reads the result of an attempt from a callback, or from the state that a relay reports.

use base64::Engine as _;
use ebb_documents::plan::UnitPlan;
use ebb_egress::deliver::MAX_RETRY_AFTER;
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::token::TokenKind;
use ebb_protocol::value::{Outputs, UnitValue};

use crate::run::attempt_end::{self, AttemptEnd, AttemptFailure, AttemptSuccess};
use crate::run::head::Run;

/// How a try ended by what its relay has of it; `None` for what says nothing of an end.
pub fn relay_result(callback: Callback) -> Option<AttemptEnd> {
    match callback.status {
        CallbackStatus::Succeeded | CallbackStatus::Failed => {
            Some(parse_end(callback, TokenKind::Relay).unwrap_or_else(|reason| unreadable(&reason)))
        }
        CallbackStatus::Accepted | CallbackStatus::Heartbeat | CallbackStatus::Again => None,
    }
}

/// A success whose outputs are not what the unit declares is a failure.
pub fn with_checked_outputs(run: &Run, unit: &UnitPlan, ended: AttemptEnd) -> AttemptEnd {
    match ended {
        AttemptEnd::Succeeded(success) => {
            match attempt_end::check_outputs(unit, run.loaded.plan.cluster(unit), success.outputs) {
                Ok(outputs) => AttemptEnd::Succeeded(AttemptSuccess { outputs, ..success }),
                Err(failure) => {
                    AttemptEnd::Failed(AttemptFailure { duration_ms: success.duration_ms, log: success.log, ..failure })
                }
            }
        }
        other => other,
    }
}

/// A result that is none has made something all the same: its unit has failed, and is undone.
pub(super) fn unreadable(reason: &str) -> AttemptEnd {
    AttemptEnd::Failed(AttemptFailure::new(ReasonCode::OutputInvalid, &format!("its result cannot be read: {reason}")))
}

pub(super) fn parse_end(callback: Callback, from: TokenKind) -> Result<AttemptEnd, String> {
    let duration_ms = callback.duration_ms;
    let retry_after = callback.retry_after.map(|seconds| seconds.min(MAX_RETRY_AFTER.as_secs()));
    let log = callback.log.filter(|_| from == TokenKind::Relay);
    if callback.status == CallbackStatus::Failed {
        let reason = match callback.reason {
            Some(reason) => AttemptFailure::new(code(reason.code, from), &reason.message),
            None => AttemptFailure::new(ReasonCode::Failed, "the unit says that it failed, and not why"),
        };
        return Ok(AttemptEnd::Failed(AttemptFailure { duration_ms, log, retry_after, ..reason }));
    }
    let mut outputs = Outputs::new();
    for (name, json) in callback.outputs {
        outputs.insert(name, UnitValue::Json(json));
    }
    for (name, text) in callback.binary {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|error| format!("`binary.{name}` is not base64: {error}"))?;
        if outputs.insert(name.clone(), UnitValue::from_bytes(bytes)).is_some() {
            return Err(format!("output `{name}` is given twice"));
        }
    }
    for (name, secret) in callback.secrets {
        if outputs.insert(name.clone(), UnitValue::Secret(secret)).is_some() {
            return Err(format!("output `{name}` is given twice"));
        }
    }
    Ok(AttemptEnd::Succeeded(AttemptSuccess { outputs, duration_ms, log }))
}

/// The classes that a foreign server may claim; the rest are ours to find.
fn code(code: ReasonCode, from: TokenKind) -> ReasonCode {
    match (from, code) {
        (TokenKind::Relay, code) => code,
        (TokenKind::Webhook, ReasonCode::Refused | ReasonCode::Timeout | ReasonCode::Failed) => code,
        (TokenKind::Webhook, _) => ReasonCode::Failed,
    }
}
