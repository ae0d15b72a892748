//! Sends the request of a webhook again while a condition holds, such as one for each page of a list.
//!
//! The condition is about the answer to the request. Or it is about the answer to a question before each request, which then
//! decides what the request contains.

use ebb_documents::plan::{Action, RepeatPlan};
use ebb_documents::render::{Answers, RenderError, RenderedQuestion, RenderedRequest};
use ebb_egress::HttpResponse;
use ebb_engine::Timestamp;
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::record::AttemptRecord;
use serde_json::Value;

use crate::FlowResult;
use crate::run::credential::{RequestCredential, credential};
use crate::run::removal::evidence;
use crate::run::request::question::{self, SentQuestion};
use crate::run::request::webhook_response::{UnitAnswers, call_failure, value};
use crate::run::undo::UndoneResult;
use crate::run::{AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome};

/// The next step of a unit whose request is repeated.
pub(crate) enum RepeatStep {
    /// The request is sent after this answer to its question.
    Send(Value),
    End(DispatchOutcome),
}

fn plan<'a>(answers: &'a UnitAnswers<'_>) -> Option<&'a RepeatPlan> {
    match &answers.attempt.unit.action {
        Action::Webhook(webhook) => webhook.repeat.as_ref(),
        _ => None,
    }
}

/// Asks the question before a request. Returns `None` for a unit without one.
pub(crate) async fn ask(answers: &UnitAnswers<'_>, undone: &UndoneResult) -> FlowResult<Option<RepeatStep>> {
    let context = answers.attempt;
    let end = |end| Ok(Some(RepeatStep::End(DispatchOutcome::ended(end))));
    let found_nothing = undone.may_act_until > Timestamp(0);
    let removed = || {
        let removal = undone.is_rejected.then(evidence::of_rejection);
        end(AttemptEnd::Succeeded(AttemptSuccess { removal, found_nothing, ..AttemptSuccess::default() }))
    };
    let failed = |code, why: &str| end(AttemptEnd::Failed(AttemptFailure::new(code, why)));
    let request = match answers.context().repeat_question() {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(None),
        // The setup has made nothing, so the undo has no ID.
        Err(RenderError::Missing { .. }) if undone.is_rejected => return removed(),
        Err(error) => return failed(ReasonCode::Render, &format!("`repeat`: {error}")),
    };
    let credential = match credential(context.env, context.run, context.unit).await? {
        Ok(credential) => credential,
        Err(problem) => return end(AttemptEnd::Failed(problem.failure(context.unit))),
    };
    let record = context.read_record().await?;
    let (answer, asked) = match send(answers, &credential, &request, record.as_ref()).await? {
        Some((Ok(answer), asked)) => (answer, asked),
        Some((Err(failure), _)) => return end(AttemptEnd::Failed(failure)),
        None => return Ok(Some(RepeatStep::End(context.repeat(1).await?))),
    };
    if !(200..300).contains(&answer.status) {
        if matches!(answer.status, 404 | 410) && !context.unit.undoes.is_empty() {
            // A receiver that has not responded may make the list until then.
            if undone.may_act_until > context.env.now() {
                return Ok(Some(RepeatStep::End(context.postpone(undone.may_act_until).await?)));
            }
            return removed();
        }
        let why = format!("{asked} was answered {}", answer.status);
        let failure = AttemptFailure::new(ReasonCode::HttpStatus, &why);
        let (is_limited, retry_after) = (answer.is_limited(), answer.retry_after_seconds(context.env.now()));
        let status = Some(answer.status);
        return end(AttemptEnd::Failed(AttemptFailure { status, is_limited, retry_after, ..failure }));
    }
    let poll = match value(&answer) {
        Ok(poll) => poll,
        Err(failure) => return end(AttemptEnd::Failed(failure)),
    };
    match answers.context().is_repeated(Answers { response: &Value::Null, poll: Some(&poll) }) {
        Ok(false) => end(AttemptEnd::Succeeded(AttemptSuccess::default())),
        Ok(true) => match excess(answers, record.as_ref()) {
            Some(failure) => end(AttemptEnd::Failed(failure)),
            None => Ok(Some(RepeatStep::Send(poll))),
        },
        Err(error) => failed(ReasonCode::Failed, &format!("{asked}: {error}")),
    }
}

/// Sends the question. Returns its answer, and method and URL.
async fn send(
    answers: &UnitAnswers<'_>,
    credential: &RequestCredential,
    request: &RenderedRequest,
    record: Option<&AttemptRecord>,
) -> FlowResult<Option<(Result<HttpResponse, AttemptFailure>, String)>> {
    let question = RenderedQuestion { url: request.url.clone(), body: None };
    let purpose = format!("-repeat-{}", record.map_or(0, |record| record.repeats));
    let sent = SentQuestion::new(answers, credential, (&purpose, &question), request)?;
    let shown = question::shown(&sent, &question.url, answers);
    let Some(answer) = sent.ask_once(answers, credential).await else { return Ok(None) };
    let answer = answer.map_err(|error| call_failure(&error));
    let answer = answer.and_then(|answer| Ok(answers.judged(&shown, &answer)?.0.into_owned()));
    Ok(Some((answer, shown.asked())))
}

/// Returns true if the request is to be sent again after this answer, or a failure if it was sent too often.
pub(super) async fn is_repeated(
    answers: &UnitAnswers<'_>,
    response: &HttpResponse,
) -> FlowResult<Result<bool, AttemptFailure>> {
    let Some(repeat) = plan(answers) else { return Ok(Ok(false)) };
    let is_success = (200..300).contains(&response.status);
    if repeat.url.is_none() {
        let holds = value(response).and_then(|response| {
            let holds = answers.context().is_repeated(Answers { response: &response, poll: None });
            holds.map_err(|error| AttemptFailure::new(ReasonCode::Failed, &error.to_string()))
        });
        match holds {
            Ok(true) => {}
            Err(failure) if is_success => return Ok(Err(failure)),
            Ok(false) | Err(_) => return Ok(Ok(false)),
        }
    } else if !is_success {
        return Ok(Ok(false));
    }
    let record = answers.attempt.read_record().await?;
    Ok(excess(answers, record.as_ref()).map_or(Ok(true), Err))
}

/// Returns the failure of an attempt that has sent its request as often as it may.
fn excess(answers: &UnitAnswers<'_>, record: Option<&AttemptRecord>) -> Option<AttemptFailure> {
    let repeat = plan(answers)?;
    let sent = record.map_or(0, |record| record.repeats);
    // The record counts the repetitions.
    (sent.saturating_add(1) >= u64::from(repeat.max)).then(|| {
        let why = format!("`while` of `repeat` still holds after {} requests", repeat.max);
        AttemptFailure::new(ReasonCode::Failed, &why)
    })
}

/// Returns the wait in seconds between two requests.
pub(super) fn pause(answers: &UnitAnswers<'_>) -> u64 {
    plan(answers).map_or(1, |repeat| repeat.every_ms.div_ceil(1000))
}
