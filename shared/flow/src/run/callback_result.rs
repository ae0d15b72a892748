//! Converts a callback, or the state of a task, into the end of an attempt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_egress::MAX_RETRY_AFTER;
use ebb_protocol::callback::{Callback, CallbackStatus, FailureReason, ReasonCode};
use ebb_protocol::callback_token::TokenKind;
use ebb_protocol::object_status::stored_objects;
use ebb_protocol::value::{Outputs, UnitValue};
use ebb_protocol::words;

use crate::run::removal::evidence;
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, AttemptSuccess, TaskReport, declared_outputs};

/// Returns the end of an attempt from the last callback of its relay, or `None` if the callback reports no end.
pub(crate) fn relay_result(callback: Callback) -> Option<AttemptEnd> {
    match callback.status {
        CallbackStatus::Succeeded | CallbackStatus::Failed => {
            Some(parse_end(callback, TokenKind::Relay).unwrap_or_else(|reason| unreadable(&reason)))
        }
        CallbackStatus::Accepted | CallbackStatus::Heartbeat | CallbackStatus::Again => None,
    }
}

/// Turns a success into a failure if its outputs do not match the declared ones. A removal of objects gets its evidence.
pub(crate) fn with_checked_outputs(
    AttemptContext { run, unit, .. }: AttemptContext<'_>,
    end: AttemptEnd,
) -> AttemptEnd {
    let AttemptEnd::Succeeded(success) = end else { return end };
    match declared_outputs::check_outputs(unit, run.loaded.plan.cluster(unit), success.outputs) {
        Ok(outputs) => {
            let removal = success.removal.or_else(|| evidence::of_objects(run, unit, success.observed.as_ref()));
            AttemptEnd::Succeeded(AttemptSuccess { outputs, removal, ..success })
        }
        Err(failure) => failure.instead_of(success.duration_ms, success.log),
    }
}

/// Returns the failure for an unreadable result. The unit may have created resources, so it fails and is undone.
pub(crate) fn unreadable(reason: &str) -> AttemptEnd {
    AttemptEnd::Failed(AttemptFailure::new(
        ReasonCode::OutputInvalid,
        &format!("the result cannot be parsed: {reason}"),
    ))
}

pub(crate) fn parse_end(callback: Callback, source: TokenKind) -> Result<AttemptEnd, String> {
    let duration_ms = callback.duration_ms;
    let retry_after = callback.retry_after.map(|seconds| seconds.min(MAX_RETRY_AFTER.as_secs()));
    let log = callback.log.filter(|_| source == TokenKind::Relay);
    if callback.status == CallbackStatus::Failed {
        let reason = match callback.reason {
            Some(reason) => failure(&reason, source),
            None => AttemptFailure::new(ReasonCode::Failed, "the unit reported a failure without a reason"),
        };
        let report = || Box::new(TaskReport { log, objects: stored_objects(callback.objects) });
        let task = (source == TokenKind::Relay).then(report);
        return Ok(AttemptEnd::Failed(AttemptFailure { duration_ms, retry_after, task, ..reason }));
    }
    let mut outputs: Outputs = callback.outputs.into_iter().map(|(name, json)| (name, UnitValue::Json(json))).collect();
    let binary = callback.binary.into_iter().map(|(name, text)| match STANDARD.decode(text) {
        Ok(bytes) => Ok((name, UnitValue::from_bytes(bytes))),
        Err(error) => Err(format!("`binary.{name}` is not base64: {error}")),
    });
    let secrets = callback.secrets.into_iter().map(|(name, secret)| Ok((name, UnitValue::Secret(secret))));
    for value in binary.chain(secrets) {
        let (name, value) = value?;
        if outputs.insert(name.clone(), value).is_some() {
            return Err(format!("output `{name}` is given twice"));
        }
    }
    let observed = callback.removal.filter(|_| source == TokenKind::Relay);
    Ok(AttemptEnd::Succeeded(AttemptSuccess { outputs, duration_ms, log, observed, ..AttemptSuccess::default() }))
}

/// Returns a reported failure. A webhook may report a few codes only; others become `failed`, and precede the message.
pub(crate) fn failure(reason: &FailureReason, source: TokenKind) -> AttemptFailure {
    match (source, reason.code) {
        (TokenKind::Relay, code)
        | (TokenKind::Webhook, code @ (ReasonCode::Refused | ReasonCode::Timeout | ReasonCode::Failed)) => {
            AttemptFailure::new(code, &reason.message)
        }
        (TokenKind::Webhook, code) => {
            let message = format!("{}: {}", words::name(&code), reason.message);
            AttemptFailure::new(ReasonCode::Failed, &message)
        }
    }
}
