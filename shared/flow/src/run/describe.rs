//! Webhooks that are not idempotent: their request is sent once. If its outcome is unknown, their `describe` URL tells it.

use std::time::Duration;

use ebb_documents::plan::{UnitPlan, WebhookAction};
use ebb_egress::HttpRequest;
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::record::AttemptRecord;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::AttemptRef;
use crate::run::attempt_end::{AttemptEnd, AttemptFailure, AttemptSuccess};
use crate::run::dispatch_outcome::DispatchOutcome;
use crate::run::evidence;
use crate::run::head::Run;
use crate::run::request_headers;
use crate::run::wakeup;
use crate::run::wakeup::AttemptWakeup;
use crate::run::webhook_response;

/// Seconds after which a describe URL that gave no answer is asked again.
const ASK_AGAIN: u64 = 10;

const METHOD: &str = "GET";

/// Ends a try whose request got no answer, or has its describe URL asked later.
///
/// # Errors
/// The store's.
pub(crate) async fn unanswered(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    describe: Option<&str>,
    failure: AttemptFailure,
) -> Result<DispatchOutcome, FlowError> {
    if describe.is_some() {
        return describe_later(env, run, this, ASK_AGAIN).await;
    }
    let why = format!(
        "{}; the webhook is not idempotent, so its request is not sent again and its outcome is unknown",
        failure.reason.message
    );
    let reason = AttemptFailure::new(failure.reason.code, &why).reason;
    Ok(DispatchOutcome::ended(AttemptEnd::Failed(AttemptFailure { reason, ..failure })))
}

/// Finds out what a try has made whose request was sent before. Nothing is sent again.
///
/// # Errors
/// The store's.
pub(crate) async fn describe_attempt(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    (unit, webhook): (&UnitPlan, &WebhookAction),
    describe: Option<String>,
    record: &AttemptRecord,
) -> Result<DispatchOutcome, FlowError> {
    if record.result.is_some() || record.accepted.is_some() {
        return Ok(DispatchOutcome::later(None));
    }
    let posted = record.posted.map_or(env.now(), Timestamp);
    let open_for = posted.plus(env.settings.response_window()).since(env.now()).0;
    if record.posted.is_some() && record.next_dispatch.is_none() && open_for > 0 {
        // Another invocation may still wait for the answer. One that got none has noted when to ask.
        return describe_later(env, run, this, open_for.div_ceil(1000)).await;
    }
    let Some(url) = describe else {
        let failure = AttemptFailure::new(ReasonCode::Connect, "no answer to its request is known");
        return unanswered(env, run, this, None, failure).await;
    };
    let headers = request_headers::signed_headers(env, run, this, unit, ("-describe", &[]))?;
    let timeout = env.settings.response_timeout.min(Duration::from_millis(unit.timeout_ms));
    let request = HttpRequest {
        method: METHOD.to_owned(),
        url: url.clone(),
        headers: headers.clone(),
        body: Vec::new(),
        timeout,
    };
    let sent = evidence::SentRequest { method: METHOD, url: &url, headers: &headers };
    let ended = match env.egress.call(request).await {
        Ok(response) if (200..300).contains(&response.status) => {
            match webhook_response::outputs(run, unit, &sent, &response) {
                Ok(outputs) => AttemptEnd::Succeeded(AttemptSuccess { outputs, ..AttemptSuccess::default() }),
                Err(failure) => {
                    let evidence = Some(Box::new(sent.evidence(unit, Some(&response))));
                    AttemptEnd::Failed(AttemptFailure { evidence, ..failure })
                }
            }
        }
        Ok(response) if response.status == 404 => {
            let processing = Millis(webhook.max_processing_time_ms.unwrap_or(unit.timeout_ms));
            let wait = posted.plus(env.settings.max_in_flight).plus(processing).since(env.now()).0;
            if wait > 0 {
                return describe_later(env, run, this, wait.div_ceil(1000)).await;
            }
            let why = "its request got no answer, and its `describe` URL answers 404: it made nothing";
            AttemptEnd::Failed(AttemptFailure::new(ReasonCode::Lost, why))
        }
        Ok(_) | Err(_) => {
            return describe_later(env, run, this, ASK_AGAIN).await;
        }
    };
    Ok(DispatchOutcome::ended(ended))
}

async fn describe_later(env: &Env, run: &Run, this: AttemptRef, seconds: u64) -> Result<DispatchOutcome, FlowError> {
    let at = wakeup::record_repeat(env, run, this, seconds).await?;
    Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))))
}
