//! Determines an unknown outcome of a request by `describe`. The request of a webhook that is not idempotent is sent once
//! (rule PostOnce).

use ebb_documents::plan::{Action, UnitRef, WebhookAction};
use ebb_documents::render::{KnownOutputs, ProducerState, RenderedRequest, RenderedUnit};
use ebb_engine::{AttemptRef, Millis, Unit};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::limits;
use ebb_protocol::record::AttemptRecord;
use ebb_protocol::removal::{RemovalEvidence, RemovalGrade};
use ebb_store::AttemptUpdate;

use crate::error::FlowResult;
use crate::run::credential::{RequestCredential, credential};
use crate::run::removal::visibility::VisibilityCheck;
use crate::run::request::question::{self, SentQuestion};
use crate::run::request::until;
use crate::run::request::webhook_response::UnitAnswers;
use crate::run::sent_request::SentRequest;
use crate::run::{
    AttemptContext, AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome, InvocationCache, inputs, records,
    rendered_unit,
};
use crate::{Run, sealed_values};

/// The least wait in seconds after a question without an answer.
pub(crate) const RETRY_SECONDS: u64 = 10;

/// Returns the failure of an attempt whose request has an unknown outcome, and that has no `describe`.
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
    let unanswered = |code, why: &str| {
        let sent = SentRequest { method: &request.method, url: &request.url, headers: &[], opened: &answers.opened };
        AttemptFailure { evidence: Some(Box::new(sent.evidence(unit, None))), ..AttemptFailure::new(code, why) }
    };
    let Some(question) = &request.describe else {
        return Ok(unknown_outcome(unanswered(ReasonCode::Connect, "no response to its request is known")));
    };
    let asked = SentQuestion::new(answers, credential, ("-describe", question), request)?;
    let sent = question::shown(&asked, &question.url, answers);
    let digest = credential.digest(env);
    // Another credential may not see what the request made.
    let is_sender = record.posted_by.as_ref().is_none_or(|by| digest.is(by));
    let answer = asked.ask(answers, credential).await?.and_then(Result::ok);
    let judged = answer.as_ref().and_then(|answer| Some((answer, answers.judged(&sent, &answer.response).ok()?.0)));
    let is_shown = judged.as_ref().and_then(|(answer, response)| match response.status {
        200..=299 if sent.is_page(response) => None,
        // A list that is not whole shows no absence.
        200..=299 => answers.is_shown(response).ok().filter(|&is_shown| is_shown || answer.unread.is_none()),
        404 => Some(false),
        _ => None,
    });
    let end = match (judged, is_shown) {
        (Some((_, response)), Some(true)) => {
            let response = response.as_ref();
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
            let why = record.progress.as_deref().unwrap_or("the request got no response");
            AttemptEnd::Failed(unanswered(
                ReasonCode::Lost,
                &format!("{why}; `describe` reports that nothing was created"),
            ))
        }
        (judged, _) => {
            if let Some(why) = judged.and_then(|(answer, _)| answer.unread.clone()) {
                let note = limits::message(&format!("{} shows no absence: {why}", sent.asked()));
                answers.attempt.update(AttemptUpdate::Heartbeat(env.now(), Some(note))).await?;
            }
            let requested = answer.as_ref().and_then(|answer| answer.response.retry_after_seconds(env.now()));
            return answers.attempt.repeat(requested.unwrap_or_default().max(RETRY_SECONDS)).await;
        }
    };
    Ok(DispatchOutcome::ended(end))
}

/// The answer of `describe` of a setup unit to an undo that lacks outputs.
pub(crate) enum DescribedUnit {
    /// The outputs of the thing.
    Found(UnitRef, ProducerState),
    /// The thing does not exist, by this evidence.
    Missing(RemovalEvidence),
    /// The reason why nothing is known.
    Unknown(String),
}

/// Asks `describe` of a unit that this undo reverses, and whose outputs it lacks. Returns `None` if the undo lacks none, or no
/// such unit has one.
pub(crate) async fn undone_unit(undo: AttemptContext<'_>, known: &KnownOutputs) -> FlowResult<Option<DescribedUnit>> {
    let AttemptContext { env, run, attempt, unit, .. } = undo;
    let has = |at: &UnitRef, output: &str| match known.get(at) {
        Some(ProducerState::Outputs(outputs)) => outputs.contains_key(output),
        _ => false,
    };
    let is_reported = |state: &ProducerState| matches!(state, ProducerState::Outputs(outputs) if !outputs.is_empty());
    let plan = &run.loaded.plan;
    let lacks = |at: &&UnitRef| unit.reads.iter().any(|read| read.at == **at && !has(at, &read.output));
    let describes = |at: &&UnitRef| {
        let action = plan.unit(**at).map(|unit| &unit.action);
        matches!(action, Some(Action::Webhook(webhook)) if webhook.describe.is_some())
    };
    let Some(&at) = unit.undoes.iter().filter(lacks).find(describes) else { return Ok(None) };
    let Some((setup, head)) = Run::load_with_head(env, &run.id.sibling(at.hook)).await? else { return Ok(None) };
    let (cache, of_unit) = (InvocationCache::default(), Unit(at.unit));
    let made = AttemptRef { unit: of_unit, number: head.attempt(of_unit), epoch: head.epoch };
    let context = AttemptContext::new(env, &setup, made, &cache)?;
    let read = inputs::read_inputs(env, &setup, context.unit, &cache).await?;
    let facts = setup.target_facts();
    let (rendered, opened) = rendered_unit::rendered(context, (&facts, &read), None);
    let Ok(RenderedUnit::Webhook(request)) = rendered else { return Ok(None) };
    let Some(question) = &request.describe else { return Ok(None) };
    let unknown = |why: &str| {
        Ok(Some(DescribedUnit::Unknown(format!("the outputs of {} are not known: {why}", context.unit.key))))
    };
    let credential = match credential(env, &setup, context.unit).await? {
        Ok(credential) => credential,
        Err(problem) => return unknown(&problem.why),
    };
    let answers = UnitAnswers { attempt: context, facts, known: read, opened, spent: question::reserved(env) };
    let purpose = format!("-undo-{}-{}", attempt.unit.0, attempt.number.0);
    let asked = SentQuestion::new(&answers, &credential, (&purpose, question), &request)?;
    let sent = question::shown(&asked, &question.url, &answers);
    let answer = match asked.ask(&answers, &credential).await? {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => return unknown(&format!("{} got no answer: {error}", sent.asked())),
        None => return unknown("the question must not start any more"),
    };
    let response = match answers.judged(&sent, &answer.response) {
        Ok((response, _)) => response,
        Err(failure) => return unknown(&failure.reason.message),
    };
    let is_shown = match response.status {
        200..=299 if sent.is_page(&response) => Err(format!("{} was answered with a page", sent.asked())),
        200..=299 => answers.is_shown(&response).map_err(|failure| failure.reason.message),
        404 => Ok(false),
        status => Err(format!("{} was answered {status}", sent.asked())),
    };
    let attempts = env.store.read_records(&setup.id, &[of_unit]).await?;
    let digest = credential.digest(env);
    // Another credential may not see the thing, unless an earlier answer to the undo has shown it.
    let has_seen = VisibilityCheck::new(undo, &digest).await?.undo_has_seen().await?;
    let is_sender = attempts.iter().all(|(.., record)| {
        let of_result = record.result.as_ref().and_then(|result| result.sent_by.as_deref());
        record.posted_by.as_deref().or(of_result).is_none_or(|by| digest.is(by))
    });
    match (is_shown, &answer.unread) {
        (Ok(false), _) if !is_sender && !has_seen => unknown("another credential has sent the request of the setup"),
        (Ok(true), _) => {
            let outputs = answers.known_outputs(&response);
            let outputs =
                sealed_values::seal_outputs(&env.settings.unit_keys, (&setup.id, of_unit), context.unit, outputs)?;
            let mut found = records::produced(&setup.id, of_unit, outputs);
            // What the setup has reported stays.
            if let (ProducerState::Outputs(found), Some(ProducerState::Outputs(known))) = (&mut found, known.get(&at)) {
                found.extend(known.clone());
            }
            Ok(Some(DescribedUnit::Found(at, found)))
        }
        // Other things, or what the setup has reported, are undone without these outputs.
        (Ok(false), _) if unit.verifies || unit.undoes.len() > 1 || known.get(&at).is_some_and(is_reported) => Ok(None),
        (Ok(false), None) => {
            let status = response.status.to_string();
            let grade = if has_seen { RemovalGrade::Reported } else { RemovalGrade::Unconfirmed };
            let evidence = RemovalEvidence::new(grade, &sent.asked(), &status);
            Ok(Some(DescribedUnit::Missing(evidence)))
        }
        (Ok(false), Some(why)) => unknown(why),
        (Err(why), _) => unknown(&why),
    }
}
