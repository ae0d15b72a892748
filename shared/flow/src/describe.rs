//! Webhooks that are not idempotent: their request is sent once. If its outcome is unknown, their `describe` URL tells it.

use std::time::Duration;

use ebb_engine::{Millis, Timestamp};
use ebb_outbound::Request;
use ebb_spec::plan::{UnitPlan, Webhook};
use ebb_wire::callback::ReasonCode;
use ebb_wire::record::Record;

use crate::dispatch::{self, Sent, Try, Wake};
use crate::env::Env;
use crate::error::FlowError;
use crate::evidence;
use crate::outcome::{Ended, Failure, Success};
use crate::run::Run;

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
    this: Try,
    describe: Option<&str>,
    failure: Failure,
) -> Result<Sent, FlowError> {
    if describe.is_some() {
        return ask_again(env, run, this, ASK_AGAIN).await;
    }
    let why = format!(
        "{}; the webhook is not idempotent, so its request is not sent again and its outcome is unknown",
        failure.reason.message
    );
    let reason = Failure::new(failure.reason.code, &why).reason;
    Ok(Sent::ended(Ended::Failed(Failure { reason, ..failure })))
}

/// Finds out what a try has made whose request was sent before. Nothing is sent again.
///
/// # Errors
/// The store's.
pub(crate) async fn ask(
    env: &Env,
    run: &Run,
    this: Try,
    (unit, webhook): (&UnitPlan, &Webhook),
    describe: Option<String>,
    record: &Record,
) -> Result<Sent, FlowError> {
    if record.result.is_some() || record.accepted.is_some() {
        return Ok(Sent::later(None));
    }
    let posted = record.posted.map_or(env.now(), Timestamp);
    let open_for = posted.plus(env.settings.sending()).since(env.now()).0;
    if record.posted.is_some() && record.again.is_none() && open_for > 0 {
        // Another invocation may still wait for the answer. One that got none has noted when to ask.
        return ask_again(env, run, this, open_for.div_ceil(1000)).await;
    }
    let Some(url) = describe else {
        let failure = Failure::new(ReasonCode::Connect, "no answer to its request is known");
        return unanswered(env, run, this, None, failure).await;
    };
    let headers = dispatch::signed_headers(env, run, this, unit, ("-describe", &[]))?;
    let timeout = env.settings.answer.min(Duration::from_millis(unit.timeout_ms));
    let request = Request {
        method: METHOD.to_owned(),
        url: url.clone(),
        headers: headers.clone(),
        body: Vec::new(),
        timeout,
    };
    let sent = evidence::SentRequest { method: METHOD, url: &url, headers: &headers };
    let ended = match env.outside.call(request).await {
        Ok(response) if (200..300).contains(&response.status) => {
            match dispatch::outputs(run, unit, &sent, &response) {
                Ok(outputs) => Ended::Succeeded(Success { outputs, ..Success::default() }),
                Err(failure) => {
                    let evidence = Some(Box::new(sent.evidence(unit, Some(&response))));
                    Ended::Failed(Failure { evidence, ..failure })
                }
            }
        }
        Ok(response) if response.status == 404 => {
            let acts = Millis(webhook.acts_within_ms.unwrap_or(unit.timeout_ms));
            let wait = posted.plus(env.settings.landing).plus(acts).since(env.now()).0;
            if wait > 0 {
                return ask_again(env, run, this, wait.div_ceil(1000)).await;
            }
            let why = "its request got no answer, and its `describe` URL answers 404: it made nothing";
            Ended::Failed(Failure::new(ReasonCode::Lost, why))
        }
        Ok(_) | Err(_) => {
            return ask_again(env, run, this, ASK_AGAIN).await;
        }
    };
    Ok(Sent::ended(ended))
}

async fn ask_again(env: &Env, run: &Run, this: Try, seconds: u64) -> Result<Sent, FlowError> {
    let at = dispatch::note_again(env, run, this, seconds).await?;
    Ok(Sent::later(Some(Wake::Recorded(at))))
}
