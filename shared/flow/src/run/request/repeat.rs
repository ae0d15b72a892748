//! Sends the request of a webhook again while a condition holds, such as one for each page of a list.
//!
//! The condition is about the answer to the request. Or it is about the answer to a question before each request, which then
//! decides what the request contains.

use ebb_documents::plan::RepeatPlan;
use ebb_documents::render::{Answers, RenderError, RenderedQuestion};
use ebb_egress::HttpResponse;
use ebb_protocol::callback::ReasonCode;
use serde_json::Value;

use crate::run::credential::{RequestCredential, credential};
use crate::run::removal::{evidence, visibility};
use crate::run::request::question::{self, SentQuestion};
use crate::run::request::webhook_response::{UnitAnswers, call_failure, value};
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome, rendered_unit};
use crate::{FlowResult, SentRequest, UndoneResult};

/// The next step of a unit whose request is repeated.
pub(crate) enum RepeatStep {
    /// The request is sent after this answer to its question.
    Send(Value),
    End(DispatchOutcome),
}

fn plan<'a>(answers: &'a UnitAnswers<'_>) -> Option<&'a RepeatPlan> {
    answers.attempt.unit.action.webhook()?.repeat.as_ref()
}

/// Returns true for a unit whose request is repeated.
pub(super) fn is_of(answers: &UnitAnswers<'_>) -> bool {
    plan(answers).is_some()
}

/// Returns the end of the message id and of the idempotency key of a repetition. Receivers discard a request with a known one.
pub(super) async fn repetition(answers: &UnitAnswers<'_>) -> FlowResult<Option<String>> {
    if plan(answers).is_none() {
        return Ok(None);
    }
    let repeats = answers.attempt.read_record().await?.map_or(0, |record| record.repeats);
    Ok((repeats > 0).then(|| format!("-{repeats}")))
}

/// Asks the question before a request. Returns `None` for a unit without one.
pub(crate) async fn ask(answers: &UnitAnswers<'_>, undone: &UndoneResult) -> FlowResult<Option<RepeatStep>> {
    let context = answers.attempt;
    let end = |end| Ok(Some(RepeatStep::End(DispatchOutcome::ended(end))));
    let failed = |code, why: &str| end(AttemptEnd::Failed(AttemptFailure::new(code, why)));
    let (question, opened) = rendered_unit::repeat_question(context, (&answers.facts, &answers.known));
    let request = match question {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(None),
        // The setup has made nothing, so the undo has no ID.
        Err(RenderError::Missing { .. }) if undone.is_rejected => return removed(answers, undone, None).await,
        Err(error) => return failed(ReasonCode::Render, &format!("`repeat`: {error}")),
    };
    let credential = match credential(context.env, context.run, context.unit, question::budget(answers)).await? {
        Ok(credential) => credential,
        Err(problem) => return end(AttemptEnd::Failed(problem.failure(context.unit))),
    };
    let (facts, known, spent) = (answers.facts.clone(), answers.known.clone(), answers.spent);
    let answers = &UnitAnswers { attempt: context, facts, known, opened, spent };
    let record = context.read_record().await?;
    let question = RenderedQuestion { url: request.url.clone(), body: None };
    let purpose = format!("-repeat-{}", record.as_ref().map_or(0, |record| record.repeats));
    let sent = SentQuestion::new(answers, &credential, (&purpose, &question), &request)?;
    let shown = question::shown(&sent, &question.url);
    let answer = match sent.ask_once().await {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => return end(AttemptEnd::Failed(call_failure(&error))),
        // Nothing was sent, so it is no repetition.
        None => {
            let at = context.env.now().plus(question::POSTPONEMENT);
            return Ok(Some(RepeatStep::End(context.postpone(at, None).await?)));
        }
    };
    let asked = shown.asked();
    // The failure of the question does not look like that of the request.
    let of_question = |failure: AttemptFailure| {
        let reason = AttemptFailure::new(failure.reason.code, &format!("{asked}: {}", failure.reason.message)).reason;
        let evidence = Some(Box::new(shown.evidence(context.unit, Some(&answer.response))));
        end(AttemptEnd::Failed(AttemptFailure { reason, evidence, ..failure }))
    };
    let response = match answers.judged(&shown, &answer.response) {
        Ok((response, _)) => response,
        Err(failure) => return of_question(failure),
    };
    if matches!(response.status, 404 | 410) && !context.unit.undoes.is_empty() {
        let (now, digest) = (context.env.now(), credential.digest(context.env));
        let shown_by = visibility::shown_by(context, (undone.shown_by, now), &digest).await?;
        if shown_by > now {
            return Ok(Some(RepeatStep::End(context.postpone(shown_by, Some(visibility::SHOWN_LATER)).await?)));
        }
        return removed(answers, undone, Some(&credential)).await;
    }
    if !(200..300).contains(&response.status) {
        let why = format!("{asked} was answered {}", response.status_text());
        let (is_limited, retry_after) = (response.is_limited(), response.retry_after_seconds(context.env.now()));
        let failure = AttemptFailure::new(ReasonCode::HttpStatus, &why);
        let status = Some(response.status);
        return end(AttemptEnd::Failed(AttemptFailure { status, is_limited, retry_after, ..failure }));
    }
    let poll = match value(&response) {
        Ok(poll) => poll,
        Err(failure) => return end(AttemptEnd::Failed(failure)),
    };
    match (answers.context().is_repeated(Answers { response: &Value::Null, poll: Some(&poll) }), answer.unread) {
        (Ok(false), Some(why)) => {
            failed(ReasonCode::Failed, &format!("{asked} does not show that nothing is left: {why}"))
        }
        (Ok(false), None) => removed(answers, undone, Some(&credential)).await,
        (Ok(true), _) => match excess(answers, record.as_ref().map_or(0, |record| record.repeats)) {
            Some(failure) => {
                let last =
                    record.and_then(|record| record.progress).map(|last| format!("; {last}")).unwrap_or_default();
                let answered = format!("; {asked} was answered {}", shown.answer(context.unit, &response));
                failed(failure.reason.code, &format!("{}{last}{answered}", failure.reason.message))
            }
            None => Ok(Some(RepeatStep::Send(poll))),
        },
        (Err(error), _) => of_question(answers.unreadable(&shown, &response, ReasonCode::Failed, Some(&error))),
    }
}

/// Ends a unit that has nothing left to send. An undo waits until no request of the setup can add to it.
async fn removed(
    answers: &UnitAnswers<'_>,
    undone: &UndoneResult,
    credential: Option<&RequestCredential>,
) -> FlowResult<Option<RepeatStep>> {
    let AttemptContext { env, unit, .. } = answers.attempt;
    if undone.may_act_until > env.now() {
        return Ok(Some(RepeatStep::End(answers.attempt.postpone(undone.may_act_until, None).await?)));
    }
    let removal = undone.is_rejected.then(evidence::of_rejection);
    let credential = credential.filter(|_| unit.action.connection().is_some());
    let sent_by = credential.map(|credential| credential.digest(env).text().into());
    // Without a request, no answer has shown a part.
    let found_nothing = answers.attempt.read_record().await?.is_none_or(|record| record.repeats == 0);
    let success = AttemptSuccess { removal, found_nothing, sent_by, ..AttemptSuccess::default() };
    Ok(Some(RepeatStep::End(DispatchOutcome::ended(AttemptEnd::Succeeded(success)))))
}

/// Returns true if the request is to be sent again after this answer, or a failure if it was sent too often. `is_not_found` is
/// true if what the request removes does not exist. After a question, that is a part, and the next question decides.
pub(super) async fn is_repeated(
    answers: &UnitAnswers<'_>,
    sent: &SentRequest<'_>,
    response: &HttpResponse,
    is_not_found: bool,
) -> FlowResult<Result<bool, AttemptFailure>> {
    let Some(repeat) = plan(answers) else { return Ok(Ok(false)) };
    let is_success = (200..300).contains(&response.status);
    if repeat.url.is_some() {
        return Ok(Ok(is_success || is_not_found));
    }
    let unreadable = |error: RenderError| answers.unreadable(sent, response, ReasonCode::Failed, Some(&error));
    let holds = value(response)
        .and_then(|value| answers.context().is_repeated(Answers { response: &value, poll: None }).map_err(unreadable));
    match holds {
        Ok(true) => {}
        Err(failure) if is_success => return Ok(Err(failure)),
        Ok(false) | Err(_) => return Ok(Ok(false)),
    }
    // The record counts the repetitions.
    let repeats = answers.attempt.read_record().await?.map_or(0, |record| record.repeats);
    Ok(excess(answers, repeats.saturating_add(1)).map_or(Ok(true), Err))
}

/// Returns the failure of an attempt that has sent its request as often as it may.
fn excess(answers: &UnitAnswers<'_>, sent: u64) -> Option<AttemptFailure> {
    let repeat = plan(answers)?;
    (sent >= u64::from(repeat.max)).then(|| {
        let why = format!("`while` of `repeat` still holds after {} requests", repeat.max);
        AttemptFailure::new(ReasonCode::Failed, &why)
    })
}

/// Returns the wait in seconds between two requests.
pub(super) fn pause(answers: &UnitAnswers<'_>) -> u64 {
    plan(answers).map_or(1, |repeat| repeat.every_ms.div_ceil(1000))
}
