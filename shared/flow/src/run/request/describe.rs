//! Handles webhooks that are not idempotent: the request is sent once, and the `describe` URL reports an unknown
//! outcome (rule PostOnce).

use ebb_documents::plan::WebhookAction;
use ebb_documents::render::RenderedRequest;
use ebb_engine::Millis;
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::record::AttemptRecord;

use crate::error::FlowResult;
use crate::run::credential::RequestCredential;
use crate::run::request::until;
use crate::run::request::webhook_response::UnitAnswers;
use crate::run::request_headers::{GET, ask, question_headers};
use crate::run::sent_request::SentRequest;
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome};

/// The wait in seconds after a failed request to the `describe` URL.
pub(super) const RETRY_SECONDS: u64 = 10;

/// Returns the failure of an attempt whose request got no response, and that has no `describe` URL.
pub(super) fn unknown_outcome(failure: AttemptFailure) -> DispatchOutcome {
    let why = format!(
        "{}; the webhook is not idempotent, so its request is not sent again and its outcome is unknown",
        failure.reason.message
    );
    let reason = AttemptFailure::new(failure.reason.code, &why).reason;
    DispatchOutcome::ended(AttemptEnd::Failed(AttemptFailure { reason, ..failure }))
}

/// Determines the result of an attempt whose request was sent before. Does not send the request again.
pub(super) async fn describe_attempt(
    answers: &UnitAnswers<'_>,
    (webhook, credential): (&WebhookAction, &RequestCredential),
    request: &RenderedRequest,
    record: &AttemptRecord,
) -> FlowResult<DispatchOutcome> {
    let AttemptContext { env, unit, .. } = answers.attempt;
    if record.result.is_some() || record.accepted.is_some() {
        return Ok(DispatchOutcome::later(None));
    }
    let posted = record.posted.unwrap_or_else(|| env.now());
    let open_for = posted.plus(env.settings.response_window()).since(env.now()).0;
    if record.posted.is_some() && record.next_dispatch.is_none() && open_for > 0 {
        // Another invocation may still wait for the response. An invocation without a response records the time of the
        // next request.
        return answers.attempt.repeat(open_for.div_ceil(1000)).await;
    }
    let Some(url) = request.describe.clone() else {
        let failure = AttemptFailure::new(ReasonCode::Connect, "no response to its request is known");
        return Ok(unknown_outcome(failure));
    };
    let headers = question_headers(answers.attempt, credential, ("-describe", &url, request))?;
    let sent = SentRequest { method: GET, url: &url, headers: &headers, opened: &answers.opened };
    let digest = credential.digest(env);
    // Another credential may not see what the request made.
    let is_sender = record.posted_by.as_ref().is_none_or(|by| digest.is(by));
    let answer = ask(answers.attempt, credential, &sent).await.and_then(Result::ok);
    let is_shown = answer.as_ref().and_then(|(response, _bytes)| match response.status {
        200..=299 => answers.is_shown(response).ok(),
        404 => Some(false),
        _ => None,
    });
    let end = match (&answer, is_shown) {
        (Some((response, _bytes)), Some(true)) => {
            if let Some(until) = answers.until() {
                let begun = record.started.unwrap_or(posted);
                let seen_by = Some(digest.text().to_owned());
                return until::begin(answers, until, response, (begun, seen_by)).await;
            }
            match answers.outputs(&sent, response) {
                Ok(outputs) => {
                    let sent_by = unit.action.connection().map(|_| digest.text().into());
                    AttemptEnd::Succeeded(AttemptSuccess { outputs, sent_by, ..AttemptSuccess::default() })
                }
                Err(failure) => {
                    let evidence = Some(Box::new(sent.evidence(unit, Some(response))));
                    AttemptEnd::Failed(AttemptFailure { evidence, ..failure })
                }
            }
        }
        (_, Some(false)) if is_sender => {
            let processing = Millis(webhook.processing_ms(unit.timeout_ms));
            let wait = posted.plus(env.settings.max_in_flight).plus(processing).since(env.now()).0;
            if wait > 0 {
                return answers.attempt.repeat(wait.div_ceil(1000)).await;
            }
            let why = "the request got no response, and the `describe` URL reports that nothing was created";
            AttemptEnd::Failed(AttemptFailure::new(ReasonCode::Lost, why))
        }
        _ => return answers.attempt.repeat(RETRY_SECONDS).await,
    };
    Ok(DispatchOutcome::ended(end))
}
