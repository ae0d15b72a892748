//! Converts a callback, or the state of a task, into the end of an attempt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_documents::plan::UnitPlan;
use ebb_egress::MAX_RETRY_AFTER;
use ebb_protocol::object_status::stored_objects;
use ebb_protocol::{Callback, CallbackStatus, FailureReason, Outputs, ReasonCode, TokenKind, UnitValue, limits, words};
use serde_json::Value;

use crate::run::removal::evidence;
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, AttemptSuccess, TaskReport, declared_outputs, masking};
use crate::{FlowResult, sealed_values};

/// Returns the end of an attempt from the last callback of its relay, or `None` if the callback reports no end.
pub(crate) fn relay_result(callback: Callback) -> Option<AttemptEnd> {
    match callback.status {
        CallbackStatus::Succeeded | CallbackStatus::Failed => {
            Some(parse_end(callback, TokenKind::Relay).unwrap_or_else(|reason| unreadable(&reason)))
        }
        CallbackStatus::Accepted | CallbackStatus::Heartbeat | CallbackStatus::Again => None,
    }
}

/// Turns a success into a failure if its outputs do not match the declared ones. A removal of objects gets its evidence. A failure
/// keeps the declared outputs. Sensitive outputs are masked in the others and in the reason.
pub(crate) fn with_checked_outputs(
    AttemptContext { run, unit, .. }: AttemptContext<'_>,
    end: AttemptEnd,
) -> AttemptEnd {
    let success = match end {
        AttemptEnd::Succeeded(success) => success,
        AttemptEnd::Failed(failure) if !failure.outputs.is_empty() => {
            let outputs = declared(unit, *failure.outputs);
            let message = masking::without_sensitive(unit, &outputs, &failure.reason.message);
            let (reason, outputs) = (FailureReason { message, ..failure.reason }, outputs.into());
            return AttemptEnd::Failed(AttemptFailure { reason, outputs, ..failure });
        }
        other => return other,
    };
    match declared_outputs::check_outputs(unit, run.loaded.plan.cluster(unit), success.outputs) {
        Ok(outputs) => {
            let outputs = masking::mask_outputs(unit, outputs, Vec::new());
            let removal = success.removal.or_else(|| evidence::of_objects(run, unit, success.observed.as_ref()));
            AttemptEnd::Succeeded(AttemptSuccess { outputs, removal, ..success })
        }
        Err(failure) => {
            let outputs = masking::mask_outputs(unit, *failure.outputs, Vec::new()).into();
            AttemptFailure { outputs, ..failure }.instead_of(success.duration_ms, success.log)
        }
    }
}

/// Returns the declared ones of the outputs of a unit without a success, which an undo reads.
fn declared(unit: &UnitPlan, sent: Outputs) -> Outputs {
    let mut outputs = declared_outputs::check_outputs(unit, None, sent).unwrap_or_else(|failure| *failure.outputs);
    outputs.retain(|_, value| *value != UnitValue::Json(Value::Null));
    masking::mask_outputs(unit, outputs, Vec::new())
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
    let mut outputs: Outputs = callback.outputs.into_iter().map(|(name, json)| (name, UnitValue::Json(json))).collect();
    if callback.status == CallbackStatus::Failed {
        // A relay sends none.
        let outputs = if source == TokenKind::Webhook { outputs.into() } else { Box::default() };
        let reason = match callback.reason {
            Some(reason) => failure(&reason, source),
            None => AttemptFailure::new(ReasonCode::Failed, "the unit reported a failure without a reason"),
        };
        let report = || Box::new(TaskReport { log, objects: stored_objects(callback.objects) });
        let task = (source == TokenKind::Relay).then(report);
        return Ok(AttemptEnd::Failed(AttemptFailure { duration_ms, retry_after, task, outputs, ..reason }));
    }
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

/// Returns the declared outputs of a setup unit in a rejected callback, encrypted if they are sensitive. `None` if it has none, or
/// if they are not small.
pub(crate) fn reported_outputs(context: AttemptContext<'_>, body: &[u8]) -> FlowResult<Option<Outputs>> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    let is_readable = unit.undoes.is_empty() && limits::check_json_values(body, limits::JSON_VALUES).is_ok();
    let sent = is_readable.then(|| serde_json::from_slice::<Value>(body).ok()).flatten();
    let Some(Value::Object(sent)) = sent.and_then(|mut sent| Some(sent.get_mut("outputs")?.take())) else {
        return Ok(None);
    };
    let sent = sent.into_iter().map(|(name, json)| (name, UnitValue::Json(json))).collect();
    let outputs = declared(unit, sent);
    let outputs = sealed_values::seal_outputs(&env.settings.unit_keys, (&run.id, attempt.unit), unit, outputs)?;
    let is_small = serde_json::to_string(&outputs).is_ok_and(|json| json.len() <= limits::OUTPUTS_INLINE);
    Ok((is_small && !outputs.is_empty()).then_some(outputs))
}

/// Returns a reported failure. A webhook may report a few codes only; others become `failed`, and precede the message.
pub(crate) fn failure(reason: &FailureReason, source: TokenKind) -> AttemptFailure {
    match (source, reason.code) {
        (TokenKind::Relay, code)
        | (TokenKind::Webhook, code @ (ReasonCode::Refused | ReasonCode::Timeout | ReasonCode::Failed)) => {
            AttemptFailure::new(code, &reason.message)
        }
        (TokenKind::Webhook, code) => {
            AttemptFailure::new(ReasonCode::Failed, &format!("{}: {}", words::name(&code), reason.message))
        }
    }
}
