//! Judges the response of a webhook unit.

use ebb_documents::plan::UnitPlan;
use ebb_documents::render;
use ebb_egress::{CallError, HttpResponse, retry_after};
use ebb_engine::Timestamp;
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::{limits, unit as headers};

use crate::response_body;
use crate::run::attempt_end::AttemptFailure;
use crate::run::head::Run;
use crate::run::{evidence, records};

pub(super) enum ResponseVerdict {
    Succeeded(ebb_protocol::value::Outputs),
    /// The resource to remove does not exist.
    NotFound,
    Accepted,
    Repeat(u64),
    Failed(AttemptFailure),
}

/// Judges the response of a webhook unit. 2xx is a success. 202 of a receiver with a callback token announces a callback
/// or, with `Retry-After`, a repetition of the request. 410 is a final failure. For a `DELETE` that undoes a unit, 404 and 410 mean that the
/// resource does not exist.
pub(super) fn judge_response(
    run: &Run,
    unit: &UnitPlan,
    sent: &evidence::SentRequest<'_>,
    response: &HttpResponse,
    now: Timestamp,
) -> ResponseVerdict {
    // A fraction of a second is rounded up, because the server requests a minimum wait.
    let wait = retry_after(&response.headers, now).map(|wait| wait.as_millis().div_ceil(1000));
    let wait = wait.map(|seconds| u64::try_from(seconds).unwrap_or(u64::MAX));
    let undone = sent.method == "DELETE" && !unit.undoes.is_empty() && matches!(response.status, 404 | 410);
    // Others than receivers of Ebb mean by 202 that they have the request.
    let calls_back = sent.headers.iter().any(|(name, _)| name == headers::CALLBACK_TOKEN);
    match (response.status, wait) {
        (202, Some(seconds)) if calls_back => ResponseVerdict::Repeat(seconds),
        (202, None) if calls_back => ResponseVerdict::Accepted,
        (200..=299, _) => {
            outputs(run, unit, sent, response).map_or_else(ResponseVerdict::Failed, ResponseVerdict::Succeeded)
        }
        _ if undone => ResponseVerdict::NotFound,
        (410, _) => ResponseVerdict::Failed(AttemptFailure::new(ReasonCode::Refused, "the server answered 410 Gone")),
        (status, wait) => ResponseVerdict::Failed(AttemptFailure {
            status: Some(status),
            retry_after: wait,
            ..AttemptFailure::new(ReasonCode::HttpStatus, &format!("the server answered {status}"))
        }),
    }
}

/// Returns the declared outputs of a webhook unit from a successful response.
///
/// # Errors
/// Returns the failure of the unit if the response lacks a declared output.
pub(crate) fn outputs(
    run: &Run,
    unit: &UnitPlan,
    sent: &evidence::SentRequest<'_>,
    response: &HttpResponse,
) -> Result<ebb_protocol::value::Outputs, AttemptFailure> {
    if unit.outputs.is_empty() {
        return Ok(ebb_protocol::value::Outputs::default());
    }
    let body = response_body::parse(&response.body, limits::JSON_VALUES).map_err(|problem| {
        AttemptFailure::new(ReasonCode::OutputTooLarge, &format!("the response of the server has {problem}"))
    })?;
    let parsed =
        render::WebhookResponse { status: response.status, headers: response.headers.iter().cloned().collect(), body };
    let outputs = render::outputs_from_response(&run.loaded.compiled, unit, &parsed).map_err(|error| {
        let foreign = sent.foreign_format(unit, response);
        AttemptFailure::new(ReasonCode::OutputInvalid, &foreign.unwrap_or_else(|| error.to_string()))
    })?;
    Ok(outputs.into_iter().map(|(name, value)| (name, records::from_rendered(value))).collect())
}

pub(super) fn call_failure(error: &CallError) -> AttemptFailure {
    let code = match error {
        CallError::Refused(_) => ReasonCode::Refused,
        CallError::Connect(_) => ReasonCode::Connect,
        CallError::Timeout(_) => ReasonCode::Timeout,
        CallError::TooLarge(_) => ReasonCode::OutputTooLarge,
    };
    AttemptFailure::new(code, &error.to_string())
}
