//! `complete`: takes what units say of themselves.

use ebb_documents::plan::UnitPlan;
use ebb_egress::deliver::MAX_RETRY_AFTER;
use ebb_engine::RunPhase;
use ebb_engine::follow::in_flight;
use ebb_protocol::callback::{Callback, CallbackStatus};
use ebb_protocol::limits;
use ebb_protocol::token::{TokenClaims, TokenError, TokenKind};
use ebb_store::AttemptUpdate;
use tracing::Instrument as _;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt;
use crate::run::attempt::AttemptRef;
use crate::run::attempt_end::AttemptEnd;
use crate::run::callback_result::parse_end;
use crate::run::callback_result::unreadable;
use crate::run::callback_result::with_checked_outputs;
use crate::run::follow_up::FollowUp;
use crate::run::head::Run;
use crate::run::inputs::InvocationCache;
use crate::run::progress::Continuation;
use crate::run::progress::LateResult;
use crate::run::results;
use crate::run::wakeup;
use crate::sweep::retention;
use crate::telemetry;

/// What became of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// It moved the run on, or repeated what had.
    Accepted,
    /// It came too late to count; a success is in the ledger.
    Late(TokenKind),
    /// The attempt has reported more distinct results than are kept. It was counted.
    Excess(TokenKind),
    /// The token is not one of this control plane, or names a unit that its run does not have.
    Forbidden,
    /// The token has expired, and the callback says nothing that has to be kept.
    Expired(TokenKind),
    /// The run of the token does not exist.
    Gone,
    /// It is not a callback; what is wrong.
    Malformed(String),
}

/// The claims of a token that was verified.
pub struct ProvenToken {
    claims: TokenClaims,
    expiry: TokenExpiry,
}

/// Verifies the token of a callback. Returns `None` for a token that this control plane did not make. An expired token is
/// proven too: a success that it reports is kept.
pub fn verify_token(env: &Env, token: &str) -> Option<ProvenToken> {
    match env.settings.token_keys.verify(token, env.now()) {
        Ok(claims) => Some(ProvenToken { claims, expiry: TokenExpiry::Valid }),
        Err(TokenError::Expired(claims)) => Some(ProvenToken { claims, expiry: TokenExpiry::Expired }),
        Err(_) => None,
    }
}

/// Takes one callback and does what follows from it.
///
/// # Errors
/// The store's: the caller has to come again.
pub async fn complete(env: &Env, token: &str, body: &[u8]) -> Result<CallbackOutcome, FlowError> {
    let Some(token) = verify_token(env, token) else { return Ok(CallbackOutcome::Forbidden) };
    let (taken, follow_up) = begin(env, token, body).await?;
    follow_up.finish(env).await?;
    Ok(taken)
}

/// Takes one callback. Its state is durable when this returns.
///
/// # Errors
/// The store's: the caller has to come again.
pub async fn begin(env: &Env, token: ProvenToken, body: &[u8]) -> Result<(CallbackOutcome, FollowUp), FlowError> {
    let only = |taken| Ok((taken, FollowUp::default()));
    let ProvenToken { claims, expiry: expired } = token;
    let Some(run) = Run::load(env, &claims.run).await? else { return only(CallbackOutcome::Gone) };
    if retention::is_being_removed(env, &run).await? {
        return only(CallbackOutcome::Gone);
    }
    let Some(unit) = run.unit(claims.unit) else { return only(CallbackOutcome::Forbidden) };
    let callback = match read(body) {
        Ok(callback) => callback,
        Err(reason) => return only(record_rejection(env, &run, &claims, expired, reason).await?),
    };
    let this = AttemptRef { unit: claims.unit, attempt: claims.attempt, epoch: claims.epoch };
    let span = tracing::info_span!("callback", run = %run.id, unit = unit.key, attempt = this.attempt.0);
    telemetry::callback_received(&run, this, attempt::sent_at(&claims, unit));
    let place = claims.clone();
    match apply_callback(env, &run, unit, claims, expired, callback).instrument(span).await? {
        (CallbackOutcome::Malformed(reason), _) => only(record_rejection(env, &run, &place, expired, reason).await?),
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
async fn record_rejection(
    env: &Env,
    run: &Run,
    claims: &TokenClaims,
    expired: TokenExpiry,
    reason: String,
) -> Result<CallbackOutcome, FlowError> {
    if expired == TokenExpiry::Valid {
        let note = AttemptUpdate::Refused(limits::clean(&reason, limits::REFUSAL));
        env.store.update_attempt(&run.id, claims.unit, claims.attempt, &note).await?;
    }
    Ok(CallbackOutcome::Malformed(reason))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenExpiry {
    Valid,
    Expired,
}

async fn apply_callback(
    env: &Env,
    run: &Run,
    unit: &UnitPlan,
    claims: TokenClaims,
    expired: TokenExpiry,
    callback: Callback,
) -> Result<(CallbackOutcome, FollowUp), FlowError> {
    let only = |taken| Ok((taken, FollowUp::default()));
    let this = AttemptRef { unit: claims.unit, attempt: claims.attempt, epoch: claims.epoch };
    let from = claims.kind;
    if from == TokenKind::Webhook && !callback.secrets.is_empty() {
        return only(CallbackOutcome::Malformed("`secrets` is for relays: a webhook's outputs are values".to_owned()));
    }
    if from == TokenKind::Webhook && callback.log.is_some() {
        let text = "`log` is for relays: a webhook unit has no log. Report how far it is by `progress`, and why it failed by \
                    `reason`";
        return only(CallbackOutcome::Malformed(text.to_owned()));
    }
    let reports = matches!(callback.status, CallbackStatus::Accepted | CallbackStatus::Heartbeat);
    if from == TokenKind::Webhook && callback.progress.is_some() && !reports {
        let text = "`progress` is shown while a unit runs: send it with `accepted` or `heartbeat`";
        return only(CallbackOutcome::Malformed(text.to_owned()));
    }
    match (callback.status, expired) {
        (CallbackStatus::Succeeded | CallbackStatus::Failed, _) => {}
        (_, TokenExpiry::Expired) => return only(CallbackOutcome::Expired(from)),
        (CallbackStatus::Accepted, _) => {
            wakeup::record_acceptance(env, run, this, unit).await?;
            if let Some(line) = callback.progress.as_deref() {
                let note = AttemptUpdate::Heartbeat(env.now(), Some(limits::message(line)));
                env.store.update_attempt(&run.id, this.unit, this.attempt, &note).await?;
            }
            return only(CallbackOutcome::Accepted);
        }
        (CallbackStatus::Heartbeat, _) => {
            let line = callback.progress.as_deref().map(limits::message);
            let note = AttemptUpdate::Heartbeat(env.now(), line);
            env.store.update_attempt(&run.id, this.unit, this.attempt, &note).await?;
            return only(CallbackOutcome::Accepted);
        }
        (CallbackStatus::Again, _) => {
            let Some(seconds) = callback.retry_after.filter(|&seconds| seconds <= MAX_RETRY_AFTER.as_secs()) else {
                let text = format!("`again` needs `retryAfter`, from 0 to {} seconds", MAX_RETRY_AFTER.as_secs());
                return only(CallbackOutcome::Malformed(text));
            };
            wakeup::repeat_after(env, run, this, seconds).await?;
            return only(CallbackOutcome::Accepted);
        }
    }
    let ended = match (parse_end(callback, from), from) {
        (Ok(ended), _) => with_checked_outputs(run, unit, ended),
        (Err(reason), TokenKind::Webhook) => return only(CallbackOutcome::Malformed(reason)),
        // It comes from a script by way of its relay, which could only send the same again and again.
        (Err(reason), TokenKind::Relay) => unreadable(&reason),
    };
    if expired == TokenExpiry::Expired && !matches!(ended, AttemptEnd::Succeeded(_)) {
        // A script may have waited for its turn for longer than its token is valid.
        let counts = from == TokenKind::Relay && is_open(env, run, this).await?;
        if !counts {
            return only(CallbackOutcome::Expired(from));
        }
    }
    let memory = InvocationCache::default();
    let progress = results::apply_result(env, run, this, &ended, claims.remaining_results, &memory).await?;
    let late = progress.late;
    if late.is_some() {
        telemetry::result_late();
    }
    let moves = progress.outcome.is_some() || !progress.ready.is_empty();
    let follow_up = FollowUp::drive(moves.then(|| Continuation::of(run.clone(), claims.epoch, progress, memory)));
    let taken = match late {
        None => CallbackOutcome::Accepted,
        Some(LateResult::Recorded | LateResult::Ignored) => CallbackOutcome::Late(from),
        Some(LateResult::Excess) => CallbackOutcome::Excess(from),
    };
    Ok((taken, follow_up))
}

/// Returns whether the run waits for the result of this very try.
async fn is_open(env: &Env, run: &Run, this: AttemptRef) -> Result<bool, FlowError> {
    let view = run.read_view(env).await?;
    let goes_on = view.root().is_some_and(|root| root.phase == RunPhase::Running && root.epoch == this.epoch);
    Ok(goes_on && in_flight(run.graph(), &view).contains(&(this.unit, this.attempt)))
}
