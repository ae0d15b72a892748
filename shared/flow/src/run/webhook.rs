//! Dispatches a webhook unit: one signed or authorized HTTP request.

use std::time::Duration;

use ebb_documents::plan::Action;
use ebb_documents::render::RenderedRequest;
use ebb_egress::{HttpRequest, HttpResponse};
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::token::TokenKind;
use ebb_protocol::unit as headers;
use ebb_store::AttemptUpdate;

use crate::error::FlowResult;
use crate::permits::OriginPermit;
use crate::run::attempt::AttemptContext;
use crate::run::attempt_end::{AttemptEnd, AttemptFailure, AttemptSuccess};
use crate::run::credential::credential;
use crate::run::dispatch_outcome::{DispatchOutcome, DispatchReason};
use crate::run::removals::{self, RemovalAnswer};
use crate::run::request_headers::{CONTENT_TYPE, add_plugin_headers, signed_headers};
use crate::run::undo::UndoneResult;
use crate::run::wakeup::record_acceptance;
use crate::run::webhook_response::{ResponseVerdict, UnitAnswers, call_failure, judge_response};
use crate::run::{describe, evidence, until};
use crate::telemetry;

/// The wait of a request whose receiver other sweeps already wait for.
const POSTPONEMENT: Millis = Millis(5_000);

pub(super) async fn post_webhook(
    answers: UnitAnswers<'_>,
    request: RenderedRequest,
    undone: &UndoneResult,
    reason: DispatchReason,
) -> FlowResult<DispatchOutcome> {
    let UndoneResult { remaining, may_act_until, is_rejected, .. } = *undone;
    let (context, until) = (answers.attempt, answers.until());
    let AttemptContext { env, run, attempt, unit, .. } = context;
    let credential = credential(env, run, unit).await?;
    if let Some(until) = until {
        let record = context.read_record().await?;
        if let Some(record) = record.filter(|record| record.wait.is_some()) {
            let may_act = may_act_until > Timestamp(0);
            let credential = credential.as_ref().map(|credential| (credential, &request));
            return until::ask(&answers, until, (&record, may_act), credential).await;
        }
    }
    let credential = match credential {
        Ok(credential) => credential,
        // An undo is retried, because an operator can restore a connection.
        Err(why) if unit.undoes.is_empty() => return Ok(DispatchOutcome::failed(ReasonCode::NotStartable, &why)),
        Err(why) => return Ok(DispatchOutcome::failed(ReasonCode::Failed, &why)),
    };
    let Some(permit) = OriginPermit::acquire(env, &request.url).await else {
        return context.postpone(env.now().plus(POSTPONEMENT)).await;
    };
    let body = request.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let mut list = signed_headers(context, &credential, ("", &body))?;
    // A unit that waits for a state asks for it. A verification is judged by its response.
    if credential.permits_callbacks() && until.is_none() && !unit.verifies {
        list.extend([
            (headers::CALLBACK_URL.to_owned(), env.settings.callback_url.clone()),
            (headers::CALLBACK_TOKEN.to_owned(), context.token(TokenKind::Webhook, remaining)),
        ]);
    }
    add_plugin_headers(&mut list, request.headers.clone());
    if request.body.is_some() && !list.iter().any(|(name, _)| name == CONTENT_TYPE) {
        list.push((CONTENT_TYPE.to_owned(), "application/json".to_owned()));
    }
    if let Action::Webhook(webhook) = &unit.action
        && webhook.non_idempotent
    {
        // The intent is recorded before the request is sent. A dispatcher that finds the intent does not post.
        let note = AttemptUpdate::Posted(env.now(), Some(credential.digest(env).text().to_owned()));
        let before = context.update(note).await?;
        if before.posted.is_some() || before.accepted.is_some() || before.result.is_some() {
            return describe::describe_attempt(&answers, (webhook, &credential), &request, &before).await;
        }
    }
    let timeout = env.settings.response_timeout.min(Duration::from_millis(unit.timeout_ms));
    let begun = env.now();
    telemetry::dispatch_started(run, attempt, begun);
    let (method, url, describe_url) = (request.method, request.url, request.describe);
    let request = HttpRequest { method: method.clone(), url: url.clone(), headers: list.clone(), body, timeout };
    let (result, _bytes) = match credential.call(env, request).await {
        Ok((response, bytes)) => (Ok(response), Some(bytes)),
        Err(error) => (Err(error), None),
    };
    permit.end(env);
    let now = env.now();
    let failure = match &result {
        Ok(response) => (response.status >= 400).then_some("status"),
        Err(_) => Some("unanswered"),
    };
    telemetry::dispatch_ended(run, attempt, (begun, now), failure);
    let duration_ms = Some(now.since(begun).0);
    let sent = evidence::SentRequest { method: &method, url: &url, headers: &list, opened: &answers.opened };
    let credential_digest = credential.digest(env);
    let sent_by = unit.action.connection().map(|_| credential_digest.text().into());
    let failed = |failure: AttemptFailure, response: Option<&HttpResponse>| {
        let evidence = Some(Box::new(sent.evidence(unit, response)));
        AttemptEnd::Failed(AttemptFailure { duration_ms, evidence, sent_by: sent_by.clone(), ..failure })
    };
    let end = match &result {
        Err(error) => failed(call_failure(error), None),
        Ok(response) => match (judge_response(&answers, &sent, response, now), until) {
            // Without a `describe` URL, no request may be repeated.
            (ResponseVerdict::Repeat(_), _) if unit.action.is_non_idempotent() && describe_url.is_none() => {
                return handle_accepted(context, reason).await;
            }
            (ResponseVerdict::Accepted, _) => return handle_accepted(context, reason).await,
            (ResponseVerdict::Repeat(seconds), _) => return context.repeat(seconds).await,
            (ResponseVerdict::NotFound, _) if may_act_until > now => {
                // A receiver that has not responded may create the resource until then. The next request finds it.
                return context.postpone(may_act_until).await;
            }
            (ResponseVerdict::Waits, Some(_))
                if !answers.can_ask(response)
                    && let Some(foreign) = sent.foreign_format(unit, response) =>
            {
                let failure = AttemptFailure::new(ReasonCode::OutputInvalid, &foreign);
                failed(AttemptFailure { is_made: true, ..failure }, Some(response))
            }
            (ResponseVerdict::Waits, Some(until)) => {
                let seen_by = (!unit.action.only_asks()).then(|| credential_digest.text().to_owned());
                return until::begin(&answers, until, response, (begun, seen_by)).await;
            }
            (ResponseVerdict::NotFound, Some(until)) if !is_rejected && answers.can_ask(response) => {
                return until::begin(&answers, until, response, (begun, None)).await;
            }
            (ResponseVerdict::NotFound, _) => {
                let found_nothing = may_act_until > Timestamp(0) && !unit.verifies;
                let answer = RemovalAnswer { sent: &sent, status: response.status, by: &credential_digest };
                let removal = removals::of_answer(context, &answer, is_rejected).await?;
                AttemptEnd::Succeeded(AttemptSuccess {
                    duration_ms,
                    found_nothing,
                    removal,
                    sent_by,
                    ..AttemptSuccess::default()
                })
            }
            (ResponseVerdict::Waits, None) => {
                AttemptEnd::Succeeded(AttemptSuccess { duration_ms, ..AttemptSuccess::default() })
            }
            (ResponseVerdict::Succeeded(outputs), _) => {
                let answer = RemovalAnswer { sent: &sent, status: response.status, by: &credential_digest };
                let removal = removals::of_answer(context, &answer, is_rejected).await?;
                let success = AttemptSuccess { outputs, duration_ms, removal, sent_by, ..AttemptSuccess::default() };
                AttemptEnd::Succeeded(success)
            }
            (ResponseVerdict::Failed(failure), _) => failed(failure, Some(response)),
        },
    };
    match end {
        AttemptEnd::Failed(failure) if unit.action.is_non_idempotent() && failure.is_unanswered() => {
            describe::unanswered(context, describe_url.as_deref(), failure).await
        }
        end => Ok(DispatchOutcome::ended(end)),
    }
}

/// Records that a receiver will call back, or leaves that to the caller, who records several acceptances together.
async fn handle_accepted(context: AttemptContext<'_>, reason: DispatchReason) -> FlowResult<DispatchOutcome> {
    // The acceptance in the record ends the lease of a sweep, or the intent of a webhook that is posted once.
    if reason == DispatchReason::Result && !context.unit.action.is_non_idempotent() {
        return Ok(DispatchOutcome { is_accepted: true, ..DispatchOutcome::later(None) });
    }
    record_acceptance(context).await?;
    Ok(DispatchOutcome::later(None))
}
