//! Determines an unknown outcome of a request by `describe`. The request of a webhook that is not idempotent is sent once
//! (rule PostOnce).

use std::borrow::Cow;
use std::time::Duration;

use ebb_documents::plan::{Action, UnitRef, WebhookAction};
use ebb_documents::render::{KnownOutputs, ProducerState, RenderedRequest, RenderedUnit};
use ebb_egress::HttpResponse;
use ebb_engine::{Attempt, AttemptRef, Millis, Unit};
use ebb_protocol::{AttemptRecord, ReasonCode, RemovalEvidence, RemovalGrade, limits};
use ebb_store::AttemptUpdate;

use crate::run::credential::{RequestCredential, credential};
use crate::run::removal::visibility::VisibilityCheck;
use crate::run::request::question::{self, SentQuestion, WholeAnswer};
use crate::run::request::until::{self, ANSWERED};
use crate::run::request::webhook_response::{UnitAnswers, call_failure};
use crate::run::{AttemptEnd, AttemptFailure, AttemptSuccess, InvocationCache, inputs, records, rendered_unit, undo};
use crate::{AttemptContext, DispatchOutcome, FlowResult, Run, SentRequest, sealed_values};

/// The least wait in seconds after a question without an answer.
pub(crate) const RETRY_SECONDS: u64 = 10;
/// The words between the note about a request and that about the answer to `describe`.
const DESCRIBED: &str = "; `describe`: ";

/// Returns the failure of an attempt whose request has an unknown outcome, and that has no `describe`.
pub(super) fn unknown_outcome(failure: AttemptFailure) -> DispatchOutcome {
    let why = format!(
        "{}; the webhook is not idempotent, so its request is not sent again and its outcome is unknown",
        failure.reason.message
    );
    let reason = AttemptFailure::new(failure.reason.code, &why).reason;
    DispatchOutcome::ended(AttemptEnd::Failed(AttemptFailure { reason, ..failure }))
}

/// Asks about a request of an earlier attempt with an unknown outcome, and about one that this attempt has sent. Otherwise
/// records what the request of this attempt needs, and returns `None`: it follows.
pub(super) async fn before_request(
    answers: &mut UnitAnswers<'_>,
    (webhook, credential): (&WebhookAction, &RequestCredential),
    request: &RenderedRequest,
) -> FlowResult<Option<DispatchOutcome>> {
    let context = answers.attempt;
    let env = context.env;
    let earlier = unknown_before(context).await?;
    if let Some(earlier) = &earlier {
        let (begun, spent) = (env.now(), answers.spent);
        answers.spent = spent.max(question::reserved(env));
        let outcome = describe_attempt(answers, (webhook, credential), request, earlier).await?;
        answers.spent = spent + Duration::from_millis(env.now().since(begun).0);
        // The earlier request has made nothing.
        let is_lost = |end: &AttemptEnd| matches!(end, AttemptEnd::Failed(why) if why.reason.code == ReasonCode::Lost);
        if !outcome.end.as_ref().is_some_and(is_lost) {
            return Ok(Some(outcome));
        }
    }
    // The intent is recorded before a request that is sent once, or that follows a question. A dispatcher that finds the intent
    // does not send it. For another request, an answer that leaves the outcome unknown records it.
    let before = match webhook.non_idempotent || earlier.is_some() {
        true => {
            let sender = credential.digest(env).text().to_owned();
            Some(context.update(AttemptUpdate::Posted(env.now(), Some(sender))).await?)
        }
        false => context.read_record().await?,
    };
    let is_over = |record: &AttemptRecord| record.accepted.is_some() || record.result.is_some();
    let is_sent = |record: &AttemptRecord| record.posted.is_some() || (webhook.non_idempotent && is_over(record));
    match before.filter(is_sent) {
        Some(before) => describe_attempt(answers, (webhook, credential), request, &before).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the last request of earlier attempts that may have made something, as the record of an attempt that asks about it.
/// Returns `None` if there is none, if this attempt has sent a request, or for a unit without `describe`.
pub(crate) async fn unknown_before(context: AttemptContext<'_>) -> FlowResult<Option<AttemptRecord>> {
    let AttemptContext { env, run, attempt: AttemptRef { unit, number, .. }, unit: plan, .. } = context;
    let Action::Webhook(webhook) = &plan.action else { return Ok(None) };
    // That the thing of an update exists does not show its change.
    let is_asked = plan.makes_thing(run.hook()) || webhook.non_idempotent;
    if number == Attempt::FIRST || webhook.describe.is_none() || !plan.undoes.is_empty() || !is_asked {
        return Ok(None);
    }
    let (mut own, mut last) = (AttemptRecord::default(), None);
    for (_, of, record) in env.store.read_records(&run.id, &[unit]).await? {
        let is_unmade = records::has_code(&record, ReasonCode::Lost) || undo::made_nothing(&record);
        match record.posted {
            _ if of > number => {}
            _ if of == number => own = record,
            // A request follows an unknown one only if that has made nothing.
            Some(_) if is_unmade => last = None,
            // Such an attempt has at most asked.
            None if is_unmade || last.is_some() || webhook.non_idempotent => {}
            _ => last = Some(record),
        }
    }
    let is_sent = own.posted.is_some() || own.accepted.is_some() || own.result.is_some();
    let Some(earlier) = last.filter(|_| !is_sent) else { return Ok(None) };
    // Another request with the same key is harmless at any time, and by any credential.
    let (now, is_once) = (env.now(), webhook.non_idempotent);
    Ok(Some(AttemptRecord {
        started: own.started.or(Some(now)),
        posted: Some(earlier.posted.filter(|_| is_once).unwrap_or_default()),
        posted_by: earlier.posted_by.filter(|_| is_once),
        // An attempt that has ended waits for no response.
        next_dispatch: own.next_dispatch.or(Some(now)),
        ..AttemptRecord::default()
    }))
}

/// Determines the result of an attempt whose request was sent before. Does not send the request again.
async fn describe_attempt(
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
        let (method, url) = (request.method.as_str(), request.shown_url());
        let sent = SentRequest { method, url, headers: &[], opened: &answers.opened };
        AttemptFailure { evidence: Some(Box::new(sent.evidence(unit, None))), ..AttemptFailure::new(code, why) }
    };
    let Some(question) = &request.describe else {
        return Ok(unknown_outcome(unanswered(ReasonCode::Connect, "no response to its request is known")));
    };
    let asked = SentQuestion::new(answers, credential, ("-describe", question), request)?;
    let sent = question::shown(&asked, &question.url);
    let digest = credential.digest(env);
    // Another credential may not see what the request made.
    let is_sender = record.posted_by.as_ref().is_none_or(|by| digest.is(by));
    let answer = asked.ask().await?;
    let requested = answer.iter().flatten().find_map(|answer| answer.response.retry_after_seconds(env.now()));
    let told = match &answer {
        Some(Ok(answer)) => match (judge(answers, &sent, answer), &answer.unread) {
            (Ok((_, false)), Some(why)) => Err(format!("{} shows no absence: {why}", sent.asked())),
            (Ok((_, false)), None) if !is_sender => {
                Err(format!("{} shows nothing to another credential than that of the request", sent.asked()))
            }
            (told, _) => told,
        },
        Some(Err(error)) => Err(format!("{} got no answer: {}", sent.asked(), call_failure(error).reason.message)),
        None => Err(format!("{} waits for other requests to its host", sent.asked())),
    };
    let end = match told {
        Ok((response, true)) => {
            let response = response.as_ref();
            if let Some(until) = answers.until() {
                let begun = record.started.unwrap_or(posted);
                return until::begin(answers, until, response, (begun, Some(digest.text().to_owned()))).await;
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
        Ok((_, false)) => {
            let processing = Millis(webhook.processing_ms(unit.timeout_ms));
            let wait = posted.plus(env.settings.max_in_flight).plus(processing).since(env.now()).0;
            if wait > 0 {
                return answers.attempt.repeat(wait.div_ceil(1000)).await;
            }
            let why = format!("{}; `describe` reports that nothing was created", of_request(record));
            let failure = unanswered(ReasonCode::Lost, &why);
            // The message tells the answer to the request.
            let evidence = failure.evidence.filter(|_| answered_status(record).is_none());
            AttemptEnd::Failed(AttemptFailure { evidence, ..failure })
        }
        Err(why) => {
            let note = limits::message(&format!("{}{DESCRIBED}{why}", of_request(record)));
            if record.progress.as_ref() != Some(&note) {
                answers.attempt.update(AttemptUpdate::Heartbeat(env.now(), Some(note))).await?;
            }
            return answers.attempt.repeat(requested.unwrap_or_default().max(RETRY_SECONDS)).await;
        }
    };
    Ok(DispatchOutcome::ended(end))
}

/// Returns the answer to `describe`, and true if it shows the thing.
///
/// # Errors
/// Returns the reason why it shows nothing.
fn judge<'r>(
    answers: &UnitAnswers<'_>,
    sent: &SentRequest<'_>,
    answer: &'r WholeAnswer,
) -> Result<(Cow<'r, HttpResponse>, bool), String> {
    let answered = || format!("{}{ANSWERED}{}", sent.asked(), sent.answer(answers.attempt.unit, &answer.response));
    let because = |failure: AttemptFailure| format!("{}: {}", answered(), failure.reason.message);
    let (response, _) = answers.judged(sent, &answer.response).map_err(because)?;
    let is_shown = match response.status {
        200..=299 if sent.is_page(&response) => return Err(format!("{}, a page", answered())),
        202 => return Err(format!("{}, so its result is not known yet", answered())),
        200..=299 => answers.is_shown(sent, &response).map_err(because)?,
        404 if sent.is_page(&response) => return Err(format!("{}, a page", answered())),
        404 => false,
        _ => return Err(answered()),
    };
    Ok((response, is_shown))
}

/// Returns the note about the answer to a request, without that about the answer to `describe`.
fn of_request(record: &AttemptRecord) -> &str {
    record.progress.as_deref().and_then(|note| note.split(DESCRIBED).next()).unwrap_or("the request got no response")
}

/// Returns true if an attempt has asked about an earlier one, and sends its request after an answer at the earliest. That is
/// recorded before.
pub(crate) fn asks_first(record: &AttemptRecord) -> bool {
    record.posted.is_none() && record.progress.as_ref().is_some_and(|note| note.contains(DESCRIBED))
}

/// Returns the status of an answer that has left the outcome of a request unknown.
pub(crate) fn answered_status(record: &AttemptRecord) -> Option<u16> {
    of_request(record).split_once(ANSWERED)?.1.get(..3)?.parse().ok()
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
        plan.unit(**at).and_then(|unit| unit.action.webhook()).is_some_and(|webhook| webhook.describe.is_some())
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
    let answers = UnitAnswers { attempt: context, facts, known: read, opened, spent: question::reserved(env) };
    let credential = match credential(env, &setup, context.unit, question::budget(&answers)).await? {
        Ok(credential) => credential,
        Err(problem) => return unknown(&problem.why),
    };
    let purpose = format!("-undo-{}-{}", attempt.unit.0, attempt.number.0);
    let asked = SentQuestion::new(&answers, &credential, (&purpose, question), &request)?;
    let sent = question::shown(&asked, &question.url);
    let answer = match asked.ask().await? {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => return unknown(&format!("{} got no answer: {error}", sent.asked())),
        None => return unknown("the question must not start any more"),
    };
    let (response, is_shown) = match judge(&answers, &sent, &answer) {
        Ok(told) => told,
        Err(why) => return unknown(&why),
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
        (false, _) if !is_sender && !has_seen => unknown("another credential has sent the request of the setup"),
        (true, _) => {
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
        (false, _) if unit.verifies || unit.undoes.len() > 1 || known.get(&at).is_some_and(is_reported) => Ok(None),
        (false, None) => {
            let status = response.status.to_string();
            let grade = if has_seen { RemovalGrade::Reported } else { RemovalGrade::Unconfirmed };
            Ok(Some(DescribedUnit::Missing(RemovalEvidence::new(grade, &sent.asked(), &status))))
        }
        (false, Some(why)) => unknown(why),
    }
}
