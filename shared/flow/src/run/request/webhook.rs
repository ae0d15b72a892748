//! Dispatches a webhook unit: one signed or authorized HTTP request.

use ebb_documents::Action;
use ebb_documents::render::{RenderedRequest, RequestBody};
use ebb_egress::{HttpRequest, HttpResponse};
use ebb_engine::{AttemptRef, Timestamp};
use ebb_protocol::{AttemptRecord, ReasonCode, TokenKind, limits, unit as headers};
use ebb_store::AttemptUpdate;

use crate::run::credential::{CredentialDigest, credential};
use crate::run::removal::evidence;
use crate::run::removal::visibility::{self, DELETE, STILL_EXISTS};
use crate::run::request::question::{self, WholeAnswer};
use crate::run::request::until::{self, ANSWERED};
use crate::run::request::webhook_response::{UnitAnswers, call_failure};
use crate::run::request::{describe, repeat};
use crate::run::request_headers::{CONTENT_TYPE, GET, add_plugin_headers, signed_headers};
use crate::run::undo::{self, UndoneResult};
use crate::run::wakeup::record_acceptance;
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome, DispatchReason};
use crate::{FlowResult, OriginPermit, SentRequest, telemetry};

pub(crate) async fn post_webhook(
    mut answers: UnitAnswers<'_>,
    request: RenderedRequest,
    undone: &UndoneResult,
    reason: DispatchReason,
) -> FlowResult<DispatchOutcome> {
    let context = answers.attempt;
    let AttemptContext { env, run, attempt, unit, .. } = context;
    let timeout = question::budget(&answers);
    let credential = credential(env, run, unit, timeout).await?;
    if let Some(until) = answers.until()
        && let Some(record) = context.read_record().await?.filter(|record| record.wait.is_some())
    {
        let may_act = undone.may_act_until > Timestamp(0);
        let credential = credential.as_ref().map_err(|problem| &problem.why);
        return until::ask(&answers, until, (&record, may_act), (credential, &request)).await;
    }
    let credential = match credential {
        Ok(credential) => credential,
        Err(problem) => {
            // A request that was sent may have made something. Its question follows.
            let is_sent = |record: AttemptRecord| record.posted.is_some();
            if unit.action.can_describe() && context.read_record().await?.is_some_and(is_sent) {
                return context.repeat(problem.retry_after.unwrap_or(describe::RETRY_SECONDS)).await;
            }
            return Ok(DispatchOutcome::ended(AttemptEnd::Failed(problem.failure(unit))));
        }
    };
    let Some(permit) = OriginPermit::acquire(env, unit.cluster.as_deref(), &request.url).await else {
        // A request that was sent may still act, so the attempt keeps its slots and its deadline.
        let is_sent = |record: AttemptRecord| record.repeats > 0 || record.posted.is_some();
        return match context.read_record().await?.is_some_and(is_sent) {
            true => context.repeat(question::POSTPONEMENT.0 / 1_000).await,
            false => context.postpone(env.now().plus(question::POSTPONEMENT), None).await,
        };
    };
    let body = request.body.as_ref().map(RequestBody::bytes).unwrap_or_default();
    // Each repetition is a request of its own.
    let again = repeat::repetition(&answers).await?;
    let mut list = signed_headers(context, &credential, (again.as_deref().unwrap_or_default(), &body))?;
    if let Some(again) = &again {
        list.iter_mut().filter(|(name, _)| name == headers::IDEMPOTENCY_KEY).for_each(|(_, key)| key.push_str(again));
    }
    // A receiver that does not know Ebb could not use a callback token. A unit that waits for a state asks for it. A
    // verification or a repeated request is judged by its response.
    if credential.is_signed() && answers.until().is_none() && !repeat::is_of(&answers) && !unit.verifies {
        list.extend([
            (headers::CALLBACK_URL.to_owned(), env.settings.callback_url.clone()),
            (headers::CALLBACK_TOKEN.to_owned(), context.token(TokenKind::Webhook, undone.remaining)),
        ]);
    }
    add_plugin_headers(&mut list, request.headers.clone());
    // The proxy of the API server repeats a request without a body if it has a key: `Request.isReplayable` of Go's net/http.
    if unit.cluster.is_some() && body.is_empty() && unit.action.is_non_idempotent() {
        list.retain(|(name, _)| name.trim_start_matches("x-") != headers::IDEMPOTENCY_KEY);
    }
    if request.body.is_some() && !list.iter().any(|(name, _)| name == CONTENT_TYPE) {
        list.push((CONTENT_TYPE.to_owned(), "application/json".to_owned()));
    }
    let sender = credential.digest(env);
    if let Action::Webhook(webhook) = &unit.action
        && unit.action.can_describe()
        && let Some(outcome) =
            Box::pin(describe::before_request(&mut answers, (webhook, &credential), &request)).await?
    {
        return Ok(outcome);
    }
    let begun = env.now();
    telemetry::dispatch_started(run, attempt, begun);
    let RenderedRequest { method, url, describe, line_feed, .. } = &request;
    let message = HttpRequest::new(method, url, list.clone(), body, question::budget(&answers));
    let answer = match credential.call(env, message).await {
        Ok(first) if method == GET => {
            Ok(question::read_pages(&answers, &credential, ("", &request), (url, begun), first).await?)
        }
        Ok(answer) => Ok(WholeAnswer::one(&answers, answer)),
        Err(error) => Err(error),
    };
    permit.end(env);
    let ended = env.now();
    let failure = match &answer {
        Ok(answer) => (answer.response.status >= 400).then_some("status"),
        Err(_) => Some("unanswered"),
    };
    telemetry::dispatch_ended(run, attempt, (begun, ended), failure);
    let request = SentRequest { method, url: request.shown_url(), headers: &list, opened: &answers.opened };
    let (can_describe, line_feed) = (describe.is_some(), line_feed.as_deref());
    let sent = SentWebhook { answers: &answers, undone, request, line_feed, sender, can_describe, begun, ended };
    match answer {
        Ok(answer) => sent.judge(&answer, reason).await,
        Err(error) => sent.fail(call_failure(&error), None).await,
    }
}

/// A request of a webhook unit that has ended, with or without a response.
struct SentWebhook<'a> {
    answers: &'a UnitAnswers<'a>,
    undone: &'a UndoneResult,
    request: SentRequest<'a>,
    /// The expression whose value gives the URL a line feed.
    line_feed: Option<&'a str>,
    sender: CredentialDigest,
    /// True if a question reports an unknown outcome.
    can_describe: bool,
    begun: Timestamp,
    ended: Timestamp,
}

impl SentWebhook<'_> {
    /// Judges the response. 2xx is a success. 202 of a receiver with a callback token announces a callback or, with
    /// `Retry-After`, a repetition of the request. 410 is a final failure. For a `DELETE` that undoes a unit, for an undo whose
    /// `failed` says so, and for a verification, 404 and 410 mean that the resource does not exist. 2xx is a success of a
    /// verification only by its condition.
    async fn judge(&self, answer: &WholeAnswer, reason: DispatchReason) -> FlowResult<DispatchOutcome> {
        let (answers, context, unit) = (self.answers, self.answers.attempt, self.answers.attempt.unit);
        let (response, note) = match answers.judged(&self.request, &answer.response) {
            Ok((response, note)) => (response, note),
            Err(failure) => return self.fail(failure, Some(&answer.response)).await,
        };
        let response = response.as_ref();
        let unread = answer.unread.as_deref().filter(|_| unit.lists || !unit.undoes.is_empty());
        let UndoneResult { may_act_until, is_rejected, .. } = *self.undone;
        // With a date in the past, a receiver is not ready, too: clocks differ.
        let wait = response.retry_after_seconds(self.ended).or(response.header("retry-after").map(|_| 0));
        // By another method, 404 can be about the URL, unless `failed` says that it is about the thing.
        let is_named = response.status != answer.response.status;
        let is_about_thing = self.request.method == DELETE || (is_named && self.request.is_changing());
        let is_undo = is_about_thing && !unit.undoes.is_empty();
        let is_not_found = (is_undo || unit.verifies) && matches!(response.status, 404 | 410);
        let answered =
            || format!("{} was answered {}", self.request.asked(), self.request.answer(unit, &answer.response));
        match repeat::is_repeated(answers, &self.request, response, is_not_found).await? {
            Ok(true) => {
                if is_not_found {
                    context.update(AttemptUpdate::Heartbeat(self.ended, Some(limits::message(&answered())))).await?;
                }
                return context.repeat(repeat::pause(answers)).await;
            }
            Ok(false) => {}
            Err(failure) => {
                let why = format!("{}; {}", failure.reason.message, answered());
                let reason = AttemptFailure::new(failure.reason.code, &why).reason;
                return self.fail(AttemptFailure { reason, ..failure }, Some(&answer.response)).await;
            }
        }
        // Others than receivers of Ebb mean by 202 that they have the request.
        let calls_back = self.request.headers.iter().any(|(name, _)| name == headers::CALLBACK_TOKEN);
        // Without `describe`, no request may be repeated.
        let is_repeatable = !unit.action.is_non_idempotent() || self.can_describe;
        let failure = match (response.status, wait) {
            (202, Some(seconds)) if calls_back && is_repeatable => return context.repeat(seconds).await,
            (202, _) if calls_back => return handle_accepted(context, reason).await,
            (200..=299, _) if let Some(until) = answers.until() => match self.request.foreign_format(unit, response) {
                // Nothing was left to delete, so there is no operation to ask for.
                Some(_)
                    if matches!(response.status, 200 | 204)
                        && response.body.is_empty()
                        && is_undo
                        && !answers.can_ask(response) =>
                {
                    return self.succeed(response, AttemptSuccess::default()).await;
                }
                Some(foreign) if let Some(why) = answers.no_question(response) => {
                    let why = format!("{foreign}; `until`: {why}");
                    AttemptFailure { is_made: true, ..AttemptFailure::new(ReasonCode::Unreadable, &why) }
                }
                _ => {
                    let seen_by = (!unit.only_asks()).then(|| self.sender.text().to_owned());
                    return until::begin(answers, until, response, (self.begun, seen_by)).await;
                }
            },
            (202, _) if unit.verifies || unit.lists => no_absence("it has no result yet (202)"),
            (200..=299, _) if unit.verifies => match answers.is_shown(&self.request, response) {
                Ok(false) if let Some(why) = unread => no_absence(why),
                Ok(false) if let Some((until, why)) = self.open_until().await? => {
                    return context.postpone(until, why).await;
                }
                Ok(false) => return self.succeed(response, AttemptSuccess::default()).await,
                Ok(true) => {
                    let why = format!("{STILL_EXISTS}: the server answered {}", response.status);
                    AttemptFailure::new(ReasonCode::Failed, &why)
                }
                Err(failure) => failure,
            },
            // Another undo finds nothing by outputs of a part of a list. An inventory without a part of it is wrong.
            (200..=299, _) if let Some(why) = unread.filter(|_| unit.lists || unit.only_asks()) => no_absence(why),
            (200..=299, _) => match answers.outputs(&self.request, response) {
                Ok(outputs) => {
                    return self.succeed(response, AttemptSuccess { outputs, ..AttemptSuccess::default() }).await;
                }
                Err(failure) => failure,
            },
            // The resource may be created or shown until then. The next request finds it.
            _ if is_not_found && let Some((until, why)) = self.open_until().await? => {
                return context.postpone(until, why).await;
            }
            _ if is_not_found
                && !is_rejected
                && let Some(until) = answers.until()
                && answers.can_ask(response) =>
            {
                return until::begin(answers, until, response, (self.begun, None)).await;
            }
            _ if is_not_found => {
                let found_nothing = may_act_until > Timestamp(0) && !unit.verifies;
                return self.succeed(response, AttemptSuccess { found_nothing, ..AttemptSuccess::default() }).await;
            }
            (status, retry_after) => {
                let counts_as = if is_named { format!(", which counts as {status}") } else { String::new() };
                let counts_as = note.map(|why| format!("{counts_as}: {why}")).unwrap_or_default();
                let (answered, line_feed) = (answer.response.status_text(), self.request.line_feed(self.line_feed));
                let why = format!("the server answered {answered}{counts_as}{line_feed}");
                if status == 410 {
                    return self.fail(AttemptFailure::new(ReasonCode::Refused, &why), Some(&answer.response)).await;
                }
                let failure = AttemptFailure::new(ReasonCode::HttpStatus, &why);
                AttemptFailure { status: Some(status), is_limited: response.is_limited(), retry_after, ..failure }
            }
        };
        self.fail(failure, Some(&answer.response)).await
    }

    /// Returns the time until which an absence is not final, because a request of the setup may still be processed, or its thing
    /// may not be shown yet.
    async fn open_until(&self) -> FlowResult<Option<(Timestamp, Option<&'static str>)>> {
        let UndoneResult { may_act_until, shown_by, .. } = *self.undone;
        if may_act_until > self.ended && !self.answers.attempt.unit.verifies {
            return Ok(Some((may_act_until, None)));
        }
        let shown_by = visibility::shown_by(self.answers.attempt, (shown_by, self.ended), &self.sender).await?;
        Ok((shown_by > self.ended).then_some((shown_by, Some(visibility::SHOWN_LATER))))
    }

    /// Ends the attempt with a success. That of an undo has the evidence of the response.
    async fn succeed(&self, response: &HttpResponse, success: AttemptSuccess) -> FlowResult<DispatchOutcome> {
        let answer = (&self.request, response);
        let removal = evidence::of_answer(self.answers.attempt, answer, &self.sender, self.undone.is_rejected).await?;
        let (duration_ms, sent_by) = self.facts();
        Ok(DispatchOutcome::ended(AttemptEnd::Succeeded(AttemptSuccess { duration_ms, removal, sent_by, ..success })))
    }

    /// Ends the attempt with a failure, unless its outcome is unknown and `describe` can report it.
    async fn fail(&self, failure: AttemptFailure, response: Option<&HttpResponse>) -> FlowResult<DispatchOutcome> {
        let context = self.answers.attempt;
        let evidence = Some(Box::new(self.request.evidence(context.unit, response)));
        let (duration_ms, sent_by) = self.facts();
        let failure = AttemptFailure { duration_ms, evidence, sent_by, ..failure };
        let unit = context.unit;
        // `failed` says that a repetition is refused, too.
        let is_once = unit.action.is_non_idempotent() && failure.reason.code != ReasonCode::Refused;
        // What an earlier request has made can have the name of this one (409). A response without a result is not repeated.
        let is_conflict = failure.status == Some(409) && self.is_of_own().await?;
        let asks =
            is_conflict || failure.reason.code == ReasonCode::Unreadable || (is_once && failure.leaves_unknown(unit));
        if self.can_describe && asks {
            if let Some(response) = response {
                let note = format!("{}{ANSWERED}{}", self.request.asked(), self.request.answer(unit, response));
                context.update(AttemptUpdate::Heartbeat(self.ended, Some(limits::message(&note)))).await?;
            }
            context.update(AttemptUpdate::Posted(self.ended, Some(self.sender.text().to_owned()))).await?;
            let requested = failure.retry_after.filter(|_| failure.is_limited).unwrap_or_default();
            return context.repeat(requested.max(describe::RETRY_SECONDS)).await;
        }
        Ok(match is_once && failure.leaves_unknown(unit) {
            true => describe::unknown_outcome(failure),
            false => DispatchOutcome::ended(AttemptEnd::Failed(failure)),
        })
    }

    /// Returns true if a thing with the name of this request can be an own one: its question names it by an own name, or an
    /// earlier request may have made it.
    async fn is_of_own(&self) -> FlowResult<bool> {
        let context = self.answers.attempt;
        let Action::Webhook(webhook) = &context.unit.action else { return Ok(false) };
        if !context.unit.makes_thing(context.run.hook()) {
            return Ok(false);
        }
        if context.names_own(&webhook.describe) {
            return Ok(true);
        }
        let AttemptRef { unit, number, .. } = context.attempt;
        let records = context.env.store.read_records(&context.run.id, &[unit]).await?;
        Ok(records.iter().any(|(_, of, record)| match *of == number {
            true => record.repeats > 0 || record.leased_until.is_some(),
            false => *of < number && !undo::made_nothing(record),
        }))
    }

    /// Returns the duration of the request, and its credential if the unit has a connection.
    fn facts(&self) -> (Option<u64>, Option<Box<str>>) {
        let sent_by = self.answers.attempt.unit.action.connection().map(|_| self.sender.text().into());
        (Some(self.ended.since(self.begun).0), sent_by)
    }
}

/// Returns the failure of a question whose answer is a part of a list.
fn no_absence(why: &str) -> AttemptFailure {
    AttemptFailure::new(ReasonCode::Failed, &format!("a list shows no absence while a part of it is unread: {why}"))
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
