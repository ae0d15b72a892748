//! `complete`: takes what units say of themselves.

use base64::Engine as _;
use ebb_engine::follow::in_flight;
use ebb_engine::{RunPhase, Timestamp};
use ebb_outbound::deliver::MAX_RETRY_AFTER;
use ebb_spec::plan::UnitPlan;
use ebb_store::Note;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::limits;
use ebb_wire::token::{Claims, TokenError, TokenKind};
use ebb_wire::value::{Outputs, Value};
use tracing::Instrument as _;

use crate::dispatch::{self, Try};
use crate::drive::Work;
use crate::env::Env;
use crate::error::FlowError;
use crate::follow_up::FollowUp;
use crate::inputs::Memory;
use crate::observe;
use crate::outcome::{self, Ended, Failure, Success};
use crate::results::{self, Late};
use crate::retention;
use crate::run::Run;
use crate::switch::{self, Rule};

/// What became of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It moved the run on, or repeated what had.
    Accepted,
    /// It came too late to count; a success is in the ledger.
    Late(From),
    /// The attempt has reported more distinct results than are kept. It was counted.
    Excess(From),
    /// The token is not one of this control plane, or names a unit that its run does not have.
    Forbidden,
    /// The token has expired, and the callback says nothing that has to be kept.
    Expired(From),
    /// The run of the token does not exist.
    Gone,
    /// It is not a callback; what is wrong.
    Malformed(String),
}

/// Who a callback is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Relay,
    /// The server of a webhook unit.
    Webhook,
}

impl From {
    fn of(claims: &Claims) -> Self {
        match claims.kind {
            TokenKind::Relay => Self::Relay,
            TokenKind::Webhook => Self::Webhook,
        }
    }
}

/// The claims of a token that was verified.
pub struct ProvenToken {
    claims: Claims,
    expiry: Expiry,
}

/// Verifies the token of a callback. Returns `None` for a token that this control plane did not make. An expired token is
/// proven too: a success that it reports is kept.
pub fn prove(env: &Env, token: &str) -> Option<ProvenToken> {
    match env.settings.token_keys.verify(token, env.now()) {
        Ok(claims) => Some(ProvenToken { claims, expiry: Expiry::Valid }),
        Err(TokenError::Expired(claims)) => Some(ProvenToken { claims, expiry: Expiry::Over }),
        Err(_) => None,
    }
}

/// Takes one callback and does what follows from it.
///
/// # Errors
/// The store's: the caller has to come again.
pub async fn complete(env: &Env, token: &str, body: &[u8]) -> Result<Taken, FlowError> {
    let Some(token) = prove(env, token) else { return Ok(Taken::Forbidden) };
    let (taken, follow_up) = begin(env, token, body).await?;
    follow_up.finish(env).await?;
    Ok(taken)
}

/// Takes one callback. Its state is durable when this returns.
///
/// # Errors
/// The store's: the caller has to come again.
pub async fn begin(env: &Env, token: ProvenToken, body: &[u8]) -> Result<(Taken, FollowUp), FlowError> {
    let only = |taken| Ok((taken, FollowUp::default()));
    let ProvenToken { claims, expiry: expired } = token;
    let Some(run) = Run::load(env, &claims.run).await? else { return only(Taken::Gone) };
    if retention::is_being_removed(env, &run).await? {
        return only(Taken::Gone);
    }
    let Some(unit) = run.unit(claims.unit) else { return only(Taken::Forbidden) };
    let callback = match read(body) {
        Ok(callback) => callback,
        Err(reason) => return only(refused(env, &run, &claims, expired, reason).await?),
    };
    let this = Try { unit: claims.unit, attempt: claims.attempt, epoch: claims.epoch };
    let span = tracing::info_span!("callback", run = %run.id, unit = unit.key, attempt = this.attempt.0);
    observe::callback(&run, this, dispatch::sent_at(&claims, unit));
    if expired == Expiry::Over && !switch::holds(Rule::KeepExpiredSuccess) {
        return only(Taken::Expired(From::of(&claims)));
    }
    let place = claims.clone();
    match take(env, &run, unit, claims, expired, callback).instrument(span).await? {
        (Taken::Malformed(reason), _) => only(refused(env, &run, &place, expired, reason).await?),
        taken => Ok(taken),
    }
}

fn read(body: &[u8]) -> Result<Callback, String> {
    let callback: Callback =
        serde_json::from_slice(body).map_err(|error| format!("the body is not a callback: {error}"))?;
    match callback.v {
        1 => Ok(callback),
        v => Err(format!("`v` is {v}; this server reads version 1")),
    }
}

/// Notes in the record that an authentic callback was refused: its unit waits for a result, and `why` shows that it
/// reported something.
async fn refused(
    env: &Env,
    run: &Run,
    claims: &Claims,
    expired: Expiry,
    reason: String,
) -> Result<Taken, FlowError> {
    if expired == Expiry::Valid {
        let note = Note::Refused(limits::clean(&reason, limits::REFUSAL));
        env.store.note_record(&run.id, claims.unit, claims.attempt, &note).await?;
    }
    Ok(Taken::Malformed(reason))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Valid,
    Over,
}

async fn take(
    env: &Env,
    run: &Run,
    unit: &UnitPlan,
    claims: Claims,
    expired: Expiry,
    callback: Callback,
) -> Result<(Taken, FollowUp), FlowError> {
    let only = |taken| Ok((taken, FollowUp::default()));
    let this = Try { unit: claims.unit, attempt: claims.attempt, epoch: claims.epoch };
    let from = From::of(&claims);
    if from == From::Webhook && !callback.secrets.is_empty() {
        return only(Taken::Malformed("`secrets` is for relays: a webhook's outputs are values".to_owned()));
    }
    if from == From::Webhook && callback.log.is_some() {
        let text = "`log` is for relays: a webhook unit has no log. Report how far it is by `progress`, and why it failed by \
                    `reason`";
        return only(Taken::Malformed(text.to_owned()));
    }
    let reports = matches!(callback.status, CallbackStatus::Accepted | CallbackStatus::Heartbeat);
    if from == From::Webhook && callback.progress.is_some() && !reports {
        let text = "`progress` is shown while a unit runs: send it with `accepted` or `heartbeat`";
        return only(Taken::Malformed(text.to_owned()));
    }
    match (callback.status, expired) {
        (CallbackStatus::Succeeded | CallbackStatus::Failed, _) => {}
        (_, Expiry::Over) => return only(Taken::Expired(from)),
        (CallbackStatus::Accepted, _) => {
            dispatch::note_accepted(env, run, this, unit).await?;
            if let Some(line) = callback.progress.as_deref() {
                let note = Note::Beat(env.now(), Some(limits::message(line)));
                env.store.note_record(&run.id, this.unit, this.attempt, &note).await?;
            }
            return only(Taken::Accepted);
        }
        (CallbackStatus::Heartbeat, _) => {
            let line = callback.progress.as_deref().map(limits::message);
            let note = Note::Beat(env.now(), line);
            env.store.note_record(&run.id, this.unit, this.attempt, &note).await?;
            return only(Taken::Accepted);
        }
        (CallbackStatus::Again, _) => {
            let Some(seconds) = callback.retry_after.filter(|&seconds| seconds <= MAX_RETRY_AFTER.as_secs())
            else {
                let text =
                    format!("`again` needs `retryAfter`, from 0 to {} seconds", MAX_RETRY_AFTER.as_secs());
                return only(Taken::Malformed(text));
            };
            dispatch::again(env, run, this, seconds).await?;
            return only(Taken::Accepted);
        }
    }
    let ended = match (parse_ended(callback, from), from) {
        (Ok(ended), _) => checked(run, unit, ended),
        (Err(reason), From::Webhook) => return only(Taken::Malformed(reason)),
        // It comes from a script by way of its relay, which could only send the same again and again.
        (Err(reason), From::Relay) => unreadable(&reason),
    };
    if expired == Expiry::Over && !matches!(ended, Ended::Succeeded(_)) {
        // A script may have waited for its turn for longer than its token is valid.
        let counts = from == From::Relay && is_open(env, run, this).await?;
        if !counts {
            return only(Taken::Expired(from));
        }
    }
    let memory = Memory::default();
    let progress = results::conclude(env, run, this, &ended, claims.more, &memory).await?;
    let late = progress.late;
    if late.is_some() {
        observe::late();
    }
    let moves = progress.over.is_some() || !progress.ready.is_empty();
    let follow_up = FollowUp::drive(moves.then(|| Work::of(run.clone(), claims.epoch, progress, memory)));
    let taken = match late {
        None => Taken::Accepted,
        Some(Late::Recorded | Late::Ignored) => Taken::Late(from),
        Some(Late::Excess) => Taken::Excess(from),
    };
    Ok((taken, follow_up))
}

/// Returns whether the run waits for the result of this very try.
async fn is_open(env: &Env, run: &Run, this: Try) -> Result<bool, FlowError> {
    let view = run.look(env).await?;
    let goes_on = view.root().is_some_and(|root| root.phase == RunPhase::Running && root.epoch == this.epoch);
    Ok(goes_on && in_flight(run.graph(), &view).contains(&(this.unit, this.attempt)))
}

/// How a try ended by what its relay has of it; `None` for what says nothing of an end.
pub fn ended(callback: Callback) -> Option<Ended> {
    match callback.status {
        CallbackStatus::Succeeded | CallbackStatus::Failed => {
            Some(parse_ended(callback, From::Relay).unwrap_or_else(|reason| unreadable(&reason)))
        }
        CallbackStatus::Accepted | CallbackStatus::Heartbeat | CallbackStatus::Again => None,
    }
}

/// A success whose outputs are not what the unit declares is a failure.
pub fn checked(run: &Run, unit: &UnitPlan, ended: Ended) -> Ended {
    match ended {
        Ended::Succeeded(success) => {
            match outcome::check_outputs(unit, run.loaded.plan.cluster(unit), success.outputs) {
                Ok(outputs) => Ended::Succeeded(Success { outputs, ..success }),
                Err(failure) => {
                    Ended::Failed(Failure { took_ms: success.took_ms, log: success.log, ..failure })
                }
            }
        }
        other => other,
    }
}

/// A result that is none has made something all the same: its unit has failed, and is undone.
fn unreadable(reason: &str) -> Ended {
    Ended::Failed(Failure::new(ReasonCode::OutputInvalid, &format!("its result cannot be read: {reason}")))
}

fn parse_ended(callback: Callback, from: From) -> Result<Ended, String> {
    let took_ms = callback.took_ms;
    let retry_after = callback.retry_after.map(|seconds| seconds.min(MAX_RETRY_AFTER.as_secs()));
    let log = callback.log.filter(|_| from == From::Relay);
    if callback.status == CallbackStatus::Failed {
        let reason = match callback.reason {
            Some(reason) => Failure::new(code(reason.code, from), &reason.message),
            None => Failure::new(ReasonCode::Failed, "the unit says that it failed, and not why"),
        };
        return Ok(Ended::Failed(Failure { took_ms, log, retry_after, ..reason }));
    }
    let mut outputs = Outputs::new();
    for (name, json) in callback.outputs {
        outputs.insert(name, Value::Json(json));
    }
    for (name, text) in callback.binary {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|error| format!("`binary.{name}` is not base64: {error}"))?;
        if outputs.insert(name.clone(), Value::from_bytes(bytes)).is_some() {
            return Err(format!("output `{name}` is given twice"));
        }
    }
    for (name, secret) in callback.secrets {
        if outputs.insert(name.clone(), Value::Secret(secret)).is_some() {
            return Err(format!("output `{name}` is given twice"));
        }
    }
    Ok(Ended::Succeeded(Success { outputs, took_ms, log }))
}

/// The classes that a foreign server may claim; the rest are ours to find.
fn code(code: ReasonCode, from: From) -> ReasonCode {
    match (from, code) {
        (From::Relay, code) => code,
        (From::Webhook, ReasonCode::Refused | ReasonCode::Timeout | ReasonCode::Failed) => code,
        (From::Webhook, _) => ReasonCode::Failed,
    }
}

/// When a record says that a try was begun.
pub fn begun(record: &ebb_wire::record::Record) -> Option<Timestamp> {
    record.started.into_iter().chain(record.accepted).min().map(Timestamp)
}
