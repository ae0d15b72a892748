//! Waits until a provider reports a state, after the response to the request of a webhook.
//!
//! 1. Record the response, encrypted, and the outputs that follow from it. An undo reads these outputs if the wait fails.
//! 2. Ask. A delayed message begins each one, so no function runs during the wait, and an answer that is not
//!    the state costs no write.
//! 3. The run is due at a later time, at which a sweep asks if a message was lost. The messages name this time, so that a
//!    repeated message does not begin a second series of requests after it.
//!
//! An answer that is missing, has no status of a success, or cannot be evaluated says nothing about the state.

use std::borrow::Cow;
use std::time::Duration;

use ebb_documents::plan::UntilPlan;
use ebb_documents::render::{Answers, PollState, RenderError, RenderedRequest};
use ebb_egress::HttpResponse;
use ebb_engine::{AttemptRef, Millis, Timestamp};
use ebb_protocol::{
    AttemptOutcome, AttemptRecord, ReasonCode, RemovalEvidence, RemovalGrade, StateWait, StoredText, id, limits,
    rfc3339, seal,
};
use ebb_store::{AttemptUpdate, OUTPUTS};
use serde_json::Value;

use crate::run::removal::visibility::VisibilityCheck;
use crate::run::request::question::{self, SentQuestion, WholeAnswer};
use crate::run::request::webhook_response::{self, UnitAnswers, call_failure};
use crate::run::wakeup::AttemptWakeup;
use crate::run::{AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome, records, request_headers};
use crate::{AttemptContext, FlowError, FlowResult, QueueMessage, RequestCredential, Run, SentRequest, sealed_values};

/// The words between a question and the status of its answer.
pub(super) const ANSWERED: &str = " was answered ";
/// The time after which a sweep asks, in case the messages are lost: a quarter of the timeout, between these bounds.
const MIN_SWEEP_MS: u64 = 60 * 1000;
const MAX_SWEEP_MS: u64 = 15 * 60 * 1000;
/// Maximum time between the last question and the timeout.
const LAST_MS: u64 = 30 * 1000;
/// Minimum time between two notes of a changed answer.
const NOTE_MS: u64 = 5 * 60 * 1000;
/// Maximum bytes of an encrypted response in the record. Each change of the record writes all of it.
const INLINE: usize = 256;

/// Begins the wait of an attempt whose request, sent at `begun`, was answered. `seen_by` is the digest of the credential that
/// the response showed the thing to.
pub(super) async fn begin(
    answers: &UnitAnswers<'_>,
    until: &UntilPlan,
    response: &HttpResponse,
    (begun, seen_by): (Timestamp, Option<String>),
) -> FlowResult<DispatchOutcome> {
    let AttemptContext { env, run, attempt, unit, .. } = answers.attempt;
    let value = match webhook_response::value(response) {
        Ok(value) => value,
        Err(failure) => return Ok(failed(failure)),
    };
    let outputs = match answers.context().known_outputs(Answers { response: &value, poll: None }) {
        Ok(outputs) => answers.values(outputs),
        Err(error) => return Ok(failed(AttemptFailure::new(ReasonCode::OutputInvalid, &error.to_string()))),
    };
    let keys = &env.settings.unit_keys;
    let outputs = sealed_values::seal_outputs(keys, (&run.id, attempt.unit), unit, outputs)?;
    let (early, _) = records::store_outputs(answers.attempt, &outputs).await?;
    let stored = store_response(answers.attempt, &value).await?;
    let now = env.now();
    let next = sweep_time(answers, begun, now);
    // A message that arrives before the record is written has no effect.
    send_next(answers.attempt, pause(until, Millis(0), Some(response), now), next).await;
    let wait = Box::new(StateWait { since: now, outputs: early, response: stored });
    let sent_by = unit.action.connection().and(seen_by.as_deref()).map(Into::into);
    let update = AttemptUpdate::Waiting { wait, begun, next, seen_by };
    let before = answers.attempt.update(update).await?;
    if let Some(result) = before.result {
        let is_open = matches!(result.outcome, AttemptOutcome::Failed | AttemptOutcome::Cancelled);
        // The attempt ended before its response. As a late success, the outputs reach the undo.
        return Ok(match is_open && before.wait.is_none() && !outputs.is_empty() {
            true => {
                let success = AttemptSuccess { outputs, sent_by, ..AttemptSuccess::default() };
                DispatchOutcome::ended(AttemptEnd::Succeeded(success))
            }
            false => DispatchOutcome::later(None),
        });
    }
    Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(next))))
}

/// Asks for the state. `may_act` is true if a request of the undone unit had no response.
pub(super) async fn ask(
    answers: &UnitAnswers<'_>,
    until: &UntilPlan,
    (record, may_act): (&AttemptRecord, bool),
    (credential, request): (Result<&RequestCredential, &String>, &RenderedRequest),
) -> FlowResult<DispatchOutcome> {
    let context = answers.attempt;
    let AttemptContext { env, unit, .. } = context;
    let is_undo = !unit.undoes.is_empty();
    let Some(wait) = record.wait.as_ref().filter(|_| record.result.is_none()) else {
        return Ok(DispatchOutcome::later(None));
    };
    let Some(response) = read_response(context, wait).await? else {
        let why = "the stored response cannot be decrypted: the root secret that encrypted it is missing; add it to the \
                   keys of the units again";
        return Ok(failed(AttemptFailure::new(ReasonCode::Failed, why)));
    };
    let (question, shown) = match answers.context().question(&response) {
        Ok(question) => question,
        Err(error) => {
            let why = answers.masked(&format!("`until`: {error}"), Answers { response: &response, poll: None });
            return Ok(failed(AttemptFailure::new(ReasonCode::Render, &why)));
        }
    };
    // Another host than that of the API gets no credential.
    let none = RequestCredential::none();
    let sender = credential.ok().filter(|_| until.within.is_none()).unwrap_or(&none);
    let asked = SentQuestion::new(answers, sender, ("-until", &question), request)?;
    let sent = question::shown(&asked, &shown);
    let is_of_api = request_headers::is_same_origin(&question.url, &request.url);
    let answer = match credential {
        // A question that cannot be sent says nothing about the state. An operator can restore a connection.
        Err(why) => Some(Err(why.clone())),
        Ok(_) => {
            let answer = asked.ask().await?;
            answer.map(|answer| answer.map_err(|error| call_failure(&error).reason.message))
        }
    };
    let digest = credential.map(|credential| credential.digest(env));
    let (is_seen, text) = match &answer {
        None => (false, None),
        Some(Err(why)) => (false, Some(format!(" got no answer: {why}"))),
        Some(Ok(answer)) => match judge((answers, is_of_api), until, &sent, (&response, answer)) {
            Ok(AttemptEnd::Succeeded(success)) if is_undo && !unit.only_asks() => {
                // Providers show nothing of what a credential must not see: *not found*, or a list without it.
                let is_shown = match &digest {
                    // A page can be that of a proxy, which knows no thing.
                    _ if sent.is_page(&answer.response) => false,
                    Ok(digest) => VisibilityCheck::new(context, digest).await?.undo_has_seen().await?,
                    Err(_) => false,
                };
                let grade = if is_shown { RemovalGrade::Confirmed } else { RemovalGrade::Unconfirmed };
                let removal = Some(RemovalEvidence::new(grade, &sent.asked(), &answer.response.status.to_string()));
                let found_nothing = may_act && !is_shown;
                let sent_by = unit.action.connection().and(digest.ok()).map(|digest| digest.text().into());
                let success = AttemptSuccess { removal, found_nothing, sent_by, ..success };
                return Ok(DispatchOutcome::ended(AttemptEnd::Succeeded(success)));
            }
            Ok(end) => return Ok(DispatchOutcome::ended(end)),
            Err(why) => {
                let poll = &answer.response;
                // A page of a gateway shows nothing, nor does an error that has a status of success.
                let is_success = |poll: &HttpResponse| (200..300).contains(&poll.status);
                let is_seen = is_success(poll)
                    && sent.foreign_format(unit, poll).is_none()
                    && (!is_of_api || answers.judged(&sent, poll).is_ok_and(|(poll, _)| is_success(&poll)));
                (is_seen, Some(format!("{ANSWERED}{}{why}", sent.answer(unit, poll))))
            }
        },
    };
    let now = env.now();
    if let Ok(digest) = digest
        && is_seen
        && is_undo
        && !record.seen_by.as_ref().is_some_and(|seen| digest.is(seen))
    {
        context.update(AttemptUpdate::Seen(digest.text().to_owned())).await?;
    }
    if let Some(text) = text {
        note(context, record, &format!("{}{text}", sent.asked())).await?;
    }
    let elapsed = now.since(wait.since);
    let poll = answer.as_ref().and_then(|answer| answer.as_ref().ok()).map(|answer| &answer.response);
    let pause = pause(until, elapsed, poll, now);
    let planned = record.next_dispatch.filter(|&next| next > now);
    let next = planned.unwrap_or_else(|| sweep_time(answers, record.started.unwrap_or(now), now));
    send_next(context, pause, next).await;
    if planned.is_some() {
        return Ok(DispatchOutcome::later(None));
    }
    context.update(AttemptUpdate::DispatchAgain(next)).await?;
    Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(next))))
}

/// Returns the end of an attempt whose question was answered with `poll`, or the reason why it waits, as the end of a
/// sentence.
fn judge(
    (answers, is_of_api): (&UnitAnswers<'_>, bool),
    until: &UntilPlan,
    sent: &SentRequest<'_>,
    (response, answer): (&Value, &WholeAnswer),
) -> Result<AttemptEnd, String> {
    let poll = match answers.judged(sent, &answer.response) {
        // Another server than that of the API has other answers.
        _ if !is_of_api => Cow::Borrowed(&answer.response),
        Ok((poll, _)) => poll,
        Err(failure) => {
            let why = answers.masked(&failure.reason.message, Answers { response, poll: None });
            if failure.reason.code == ReasonCode::Refused {
                let reason = AttemptFailure::new(ReasonCode::Refused, &why).reason;
                let evidence = Some(Box::new(sent.evidence(answers.attempt.unit, Some(&answer.response))));
                return Ok(AttemptEnd::Failed(AttemptFailure { reason, evidence, is_made: true, ..failure }));
            }
            return Err(format!(", which shows nothing: {why}"));
        }
    };
    let poll = poll.as_ref();
    if until.gone && matches!(poll.status, 404 | 410) {
        return Ok(AttemptEnd::Succeeded(AttemptSuccess::default()));
    }
    if !(200..300).contains(&poll.status) {
        return Err(String::new());
    }
    let unknown = |why: &str| format!(", which cannot be evaluated: {why}");
    let value = webhook_response::value(poll).map_err(|failure| unknown(&failure.reason.message))?;
    let all = Answers { response, poll: Some(&value) };
    let context = answers.context();
    let failed = |failure: AttemptFailure| {
        let evidence = Some(Box::new(sent.evidence(answers.attempt.unit, Some(poll))));
        Ok(AttemptEnd::Failed(AttemptFailure { evidence, is_made: true, ..failure }))
    };
    // An expression over a body that is not JSON fails with an error about types.
    let unreadable = |error: RenderError| match sent.foreign_format(answers.attempt.unit, poll) {
        Some(_) => ", which is not JSON".to_owned(),
        None => unknown(&error.to_string()),
    };
    match context.state(all).map_err(unreadable)? {
        PollState::Pending if until.ready.is_none() => Err(", so it still exists".to_owned()),
        PollState::Pending => Err(", and `ready` is false".to_owned()),
        PollState::Failed(why) => {
            failed(AttemptFailure::new(ReasonCode::Failed, &sent.scrub(&answers.masked(&why, all))))
        }
        PollState::Ready if !answers.attempt.unit.undoes.is_empty() && answer.unread.is_some() => {
            let why = answer.unread.as_deref().unwrap_or_default();
            Err(format!(", which shows no absence while a part of the list is unread: {why}"))
        }
        PollState::Ready => match context.outputs(all) {
            Ok(outputs) => {
                let outputs = answers.values(outputs);
                Ok(AttemptEnd::Succeeded(AttemptSuccess { outputs, ..AttemptSuccess::default() }))
            }
            Err(error) => {
                let outputs = answers.values(context.known_outputs(all).unwrap_or_default());
                failed(AttemptFailure {
                    outputs: outputs.into(),
                    ..AttemptFailure::new(ReasonCode::Render, &error.to_string())
                })
            }
        },
    }
}

fn failed(failure: AttemptFailure) -> DispatchOutcome {
    DispatchOutcome::ended(AttemptEnd::Failed(AttemptFailure { is_made: true, ..failure }))
}

/// Returns the time at which a sweep asks, or ends the attempt.
fn sweep_time(answers: &UnitAnswers<'_>, begun: Timestamp, now: Timestamp) -> Timestamp {
    let timeout = answers.attempt.unit.timeout_ms;
    let wait = Millis((timeout / 4).clamp(MIN_SWEEP_MS, MAX_SWEEP_MS));
    let deadline = begun.plus(Millis(timeout));
    // The last question comes shortly before the deadline, also if the next one by `every` would come after it.
    let last = begun.plus(Millis(timeout - (timeout / 10).min(LAST_MS)));
    now.plus(wait).min(if now < last { last } else { deadline }).max(now.plus(Millis(1)))
}

/// Returns the wait before the next question, `elapsed` after the response. It doubles with each question, and an answer can
/// ask for a longer one.
fn pause(until: &UntilPlan, elapsed: Millis, answer: Option<&HttpResponse>, now: Timestamp) -> Duration {
    let requested = answer.and_then(|answer| answer.retry_after(now)).unwrap_or_default();
    requested.max(Duration::from_millis(elapsed.0.saturating_add(until.every_ms).min(until.max_every_ms)))
}

/// Sends the message for the next question, unless a sweep at `next` comes first.
async fn send_next(context: AttemptContext<'_>, pause: Duration, next: Timestamp) {
    let AttemptContext { env, run, attempt: AttemptRef { unit, number, .. }, .. } = context;
    if env.now().plus(pause.into()) < next {
        env.queue.send(QueueMessage::Poll { run: run.id.clone(), unit, attempt: number, sweep: next }, pause).await;
    }
}

/// Records an answer for people if it differs from the recorded one. Answers with one status are recorded at most every
/// [`NOTE_MS`], because a provider may report a percentage.
async fn note(context: AttemptContext<'_>, record: &AttemptRecord, answer: &str) -> FlowResult<()> {
    let now = context.env.now();
    let known = record.progress.as_deref();
    let known = known.map(|progress| progress.rsplit_once(", since ").map_or(progress, |(known, _)| known));
    // Another status, such as that of an invalid credential, is recorded at once.
    let status = |text: &str| text.rsplit_once(ANSWERED).and_then(|(_, text)| text.get(..3).map(str::to_owned));
    let is_same_status = known.is_some_and(|known| status(known) == status(answer));
    let is_recent = is_same_status && record.heartbeat.is_some_and(|at| now.since(at).0 < NOTE_MS);
    if is_recent || known == Some(answer) {
        return Ok(());
    }
    let text = limits::message(&format!("{answer}, since {}", rfc3339(now)));
    context.update(AttemptUpdate::Heartbeat(now, Some(text))).await.map(drop)
}

/// Returns the associated data of the encrypted response of an attempt.
fn about(run: &Run, attempt: AttemptRef) -> String {
    format!("response {} {} {}", run.id, attempt.unit.0, attempt.number.0)
}

async fn store_response(
    AttemptContext { env, run, attempt, .. }: AttemptContext<'_>,
    value: &Value,
) -> FlowResult<StoredText> {
    let sealed = seal::seal_value(&env.settings.unit_keys, &about(run, attempt), value.to_string().as_bytes());
    if sealed.len() <= INLINE {
        return Ok(StoredText::Inline(sealed));
    }
    // The key contains the digest, so the responses to two requests do not overwrite each other.
    let digest = id::short_digest(&[&sealed], 26);
    let key = format!("{OUTPUTS}/{}/{}/{}/{digest}.sealed", run.id, attempt.unit.0, attempt.number.0);
    env.store.mark_outputs(&run.id).await?;
    env.store.bucket.put_object(&key, sealed.into_bytes()).await?;
    Ok(StoredText::Bucket(key))
}

/// Returns the stored response, or `None` if it was encrypted with another secret.
///
/// # Errors
/// Returns [`FlowError::Broken`] if the object is missing.
async fn read_response(
    AttemptContext { env, run, attempt, .. }: AttemptContext<'_>,
    wait: &StateWait,
) -> FlowResult<Option<Value>> {
    let sealed = match &wait.response {
        StoredText::Inline(sealed) => sealed.clone(),
        StoredText::Bucket(key) => {
            let object = env.store.bucket.open_object(key).await?;
            let object = object.ok_or_else(|| FlowError::Broken(format!("{key}: it is not in the bucket")))?;
            let _permit = env.cache.budgets.bytes.reserve(object.bytes.unwrap_or(limits::RESPONSE_BODY)).await;
            String::from_utf8_lossy(&object.read().await?).into_owned()
        }
    };
    let plain = seal::open_value(&env.settings.unit_keys, &about(run, attempt), &sealed);
    Ok(plain.and_then(|plain| serde_json::from_slice(&plain).ok()))
}
