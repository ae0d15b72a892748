//! Applies callbacks of units. This is the function `complete`.
//!
//! 1. Verify the token and load its run.
//! 2. Parse the body. A rejected body is recorded, so that `why` can show it.
//! 3. Record a report (`accepted`, `heartbeat`, `again`), or apply the result of the attempt.

use ebb_egress::MAX_RETRY_AFTER;
use ebb_engine::{AttemptRef, RunPhase, in_flight};
use ebb_protocol::callback_token::{TokenClaims, TokenError, TokenKind};
use ebb_protocol::{Callback, CallbackStatus, limits};
use ebb_store::AttemptUpdate;
use tracing::Instrument as _;

use crate::advance::{Continuation, FollowUp, LateResult, RunProgress, apply_result};
use crate::instance::retention;
use crate::run::callback_result::{parse_end, reported_outputs, unreadable, with_checked_outputs};
use crate::run::{AttemptContext, AttemptEnd, InvocationCache, attempt, wakeup};
use crate::{Counter, Env, FlowResult, Run, telemetry};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// The callback advanced the run, or is a repetition.
    Accepted,
    /// The attempt had already ended with another result. A success is recorded.
    Late(TokenKind),
    /// The attempt or its unit has reported too many distinct results. No undo takes this one into account.
    Excess(TokenKind),
    /// The token is not from this control plane, or its unit is not in the run.
    Forbidden,
    /// The token has expired, and the callback contains no result that must be recorded.
    Expired(TokenKind),
    /// The run does not exist.
    Gone,
    /// The body is not a callback. The value is the error text.
    Malformed(String),
}

pub struct ProvenToken {
    claims: TokenClaims,
    is_expired: bool,
}

/// Verifies the token of a callback. Returns `None` for a token of another control plane. An expired token is verified,
/// too, because a success that it reports is recorded (rule KeepExpiredSuccess).
pub fn verify_token(env: &Env, token: &str) -> Option<ProvenToken> {
    match TokenClaims::verify(token, &env.settings.token_keys, env.now()) {
        Ok(claims) => Some(ProvenToken { claims, is_expired: false }),
        Err(TokenError::Expired(claims)) => Some(ProvenToken { claims, is_expired: true }),
        Err(TokenError::Invalid) => None,
    }
}

/// Applies a callback. The state is durable when this returns.
pub async fn begin(env: &Env, token: ProvenToken, body: &[u8]) -> FlowResult<(CallbackOutcome, FollowUp)> {
    let only = |outcome| Ok((outcome, FollowUp::default()));
    let claims = &token.claims;
    let Some(run) = Run::load(env, &claims.run).await? else { return only(CallbackOutcome::Gone) };
    if retention::is_being_removed(env, &run).await? {
        return only(CallbackOutcome::Gone);
    }
    let attempt = AttemptRef { unit: claims.unit, number: claims.attempt, epoch: claims.epoch };
    let cache = InvocationCache::default();
    let Ok(context) = AttemptContext::new(env, &run, attempt, &cache) else { return only(CallbackOutcome::Forbidden) };
    let callback = match read(body) {
        Ok(callback) => callback,
        Err(reason) => return only(record_rejection(context, &token, (reason, body)).await?),
    };
    let unit = context.unit;
    let span = tracing::info_span!("callback", run = %run.id, unit = unit.key, attempt = attempt.number.0);
    telemetry::callback_received(&run, attempt, attempt::sent_at(claims, unit));
    match apply_callback(context, &token, callback).instrument(span).await? {
        (CallbackOutcome::Malformed(reason), _) => only(record_rejection(context, &token, (reason, body)).await?),
        (outcome, progress) => {
            let moves = progress.end.is_some() || !progress.ready.is_empty();
            Ok((outcome, FollowUp::drive(moves.then(|| Continuation::of(run, claims.epoch, progress, cache)))))
        }
    }
}

fn read(body: &[u8]) -> Result<Callback, String> {
    limits::check_json_values(body, limits::JSON_VALUES).map_err(|problem| format!("the body has {problem}"))?;
    let callback: Callback = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not a callback: {}", without_value(&error)))?;
    match callback.v {
        1 => Ok(callback),
        v => Err(format!("`v` is {v}; this server reads version 1")),
    }
}

/// Returns an error without the value that it shows: the body may have sensitive outputs, and the text is stored.
fn without_value(error: &serde_json::Error) -> String {
    // Members for relays help no webhook.
    let relay_only = ["secrets", "log", "objects", "removal"];
    let text = relay_only.iter().fold(error.to_string(), |text, name| text.replace(&format!(", `{name}`"), ""));
    let shown = ["invalid type: ", "invalid value: "].into_iter().find_map(|start| {
        let (value, expected) = text.strip_prefix(start)?.rsplit_once(", expected ")?;
        let kind = value.split(['"', '`']).next().unwrap_or_default().trim_end();
        let number = expected.strip_prefix("u64").or_else(|| expected.strip_prefix("u32"));
        let expected = number.map_or(expected.to_owned(), |rest| format!("a whole number{rest}"));
        Some(format!("{start}{kind}, expected {expected}"))
    });
    shown.unwrap_or(text)
}

/// Records that an authentic callback was rejected. The unit still waits for a result, and `why` shows the rejection. Without a
/// result, the undo reads the outputs in the body.
async fn record_rejection(
    context: AttemptContext<'_>,
    token: &ProvenToken,
    (reason, body): (String, &[u8]),
) -> FlowResult<CallbackOutcome> {
    if !token.is_expired {
        context.update(AttemptUpdate::Refused(limits::clean(&reason, limits::REFUSAL))).await?;
        if token.claims.kind == TokenKind::Webhook
            && let Some(outputs) = reported_outputs(context, body)?
        {
            context.update(AttemptUpdate::Reported(outputs)).await?;
        }
    }
    Ok(CallbackOutcome::Malformed(reason))
}

/// Returns why a webhook cannot send a callback with these fields.
fn misplaced_field(callback: &Callback) -> Option<&'static str> {
    let reports = matches!(callback.status, CallbackStatus::Accepted | CallbackStatus::Heartbeat);
    let fields = [
        (!callback.secrets.is_empty(), "`secrets` is for relays: a webhook's outputs are values"),
        (!callback.objects.is_empty(), "`objects` is for relays: a webhook applies none"),
        (
            callback.log.is_some(),
            "`log` is for relays: a webhook unit has no log. Report how far it is by `progress`, and why it failed by \
             `reason`",
        ),
        (
            callback.progress.is_some() && !reports,
            "`progress` is shown while a unit runs: send it with `accepted` or `heartbeat`",
        ),
    ];
    fields.into_iter().find_map(|(is_sent, text)| is_sent.then_some(text))
}

async fn apply_callback(
    context: AttemptContext<'_>,
    &ProvenToken { ref claims, is_expired }: &ProvenToken,
    callback: Callback,
) -> FlowResult<(CallbackOutcome, RunProgress)> {
    let AttemptContext { env, run, attempt, .. } = context;
    let only = |outcome| Ok((outcome, RunProgress::default()));
    let source = claims.kind;
    if source == TokenKind::Webhook
        && let Some(text) = misplaced_field(&callback)
    {
        return only(CallbackOutcome::Malformed(text.to_owned()));
    }
    match callback.status {
        CallbackStatus::Succeeded | CallbackStatus::Failed => {}
        _ if is_expired => return only(CallbackOutcome::Expired(source)),
        CallbackStatus::Accepted => {
            wakeup::record_acceptance(context).await?;
            if let Some(line) = callback.progress.as_deref() {
                context.update(AttemptUpdate::Heartbeat(env.now(), Some(limits::message(line)))).await?;
            }
            return only(CallbackOutcome::Accepted);
        }
        CallbackStatus::Heartbeat => {
            let line = callback.progress.as_deref().map(limits::message);
            context.update(AttemptUpdate::Heartbeat(env.now(), line)).await?;
            return only(CallbackOutcome::Accepted);
        }
        CallbackStatus::Again => {
            let Some(seconds) = callback.retry_after.filter(|&seconds| seconds <= MAX_RETRY_AFTER.as_secs()) else {
                let text = format!("`again` needs `retryAfter`, from 0 to {} seconds", MAX_RETRY_AFTER.as_secs());
                return only(CallbackOutcome::Malformed(text));
            };
            let at = wakeup::record_repeat(context, seconds).await?;
            wakeup::wake_by(env, &run.id, at).await?;
            return only(CallbackOutcome::Accepted);
        }
    }
    let end = match (parse_end(callback, source), source) {
        (Ok(end), _) => with_checked_outputs(context, end),
        (Err(reason), TokenKind::Webhook) => return only(CallbackOutcome::Malformed(reason)),
        // A relay can only repeat this result of a script, so the result counts as a failure of the unit.
        (Err(reason), TokenKind::Relay) => unreadable(&reason),
    };
    if is_expired && !matches!(end, AttemptEnd::Succeeded(_)) {
        // A task may have waited for a slot longer than its token is valid.
        let counts = source == TokenKind::Relay && is_open(context).await?;
        if !counts {
            return only(CallbackOutcome::Expired(source));
        }
    }
    let progress = apply_result::apply_result(context, &end, claims.remaining_results).await?;
    env.cache.taken_results.note(&run.id, attempt.unit, attempt.number);
    if progress.late.is_some() {
        telemetry::count(Counter::LateResults, 1);
    }
    let outcome = match progress.late {
        None => CallbackOutcome::Accepted,
        Some(LateResult::Late) => CallbackOutcome::Late(source),
        Some(LateResult::Excess) => CallbackOutcome::Excess(source),
    };
    Ok((outcome, progress))
}

/// Returns true if the run waits for the result of this attempt.
async fn is_open(AttemptContext { env, run, attempt, .. }: AttemptContext<'_>) -> FlowResult<bool> {
    let head = run.read_head(env).await?;
    let is_running = head.phase == RunPhase::Running && head.epoch == attempt.epoch;
    Ok(is_running && in_flight(run.graph(), &head).contains(&(attempt.unit, attempt.number)))
}
