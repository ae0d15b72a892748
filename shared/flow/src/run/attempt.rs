//! Identifies an attempt, with its name at a relay and its callback token.

use ebb_documents::plan::{UnitPlan, document_name};
use ebb_engine::{Attempt, Timestamp, Unit};
use ebb_protocol::relay::TaskId;
use ebb_protocol::token::{TokenClaims, TokenKind};

use crate::env::Env;
use crate::loaded_run::{AttemptRef, Run, UnitName};

/// Time for which a callback token is valid after the unit's deadline.
const TOKEN_SLACK_MS: u64 = 60 * 60 * 1000;

/// Returns the name of an attempt at its relay.
pub fn task_id(run: &Run, unit: Unit, attempt: Attempt) -> TaskId {
    TaskId { unit: TaskId::unit_of(&run.id, unit), attempt: attempt.0 }
}

/// Returns the start of a task from the age that its relay reports. No task is older than its run.
pub fn task_start(run: &Run, age_ms: u64, now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(age_ms)).max(run.facts.started).min(now)
}

pub(super) fn token(
    env: &Env,
    run: &Run,
    attempt: AttemptRef,
    unit: &UnitPlan,
    kind: TokenKind,
    remaining: u32,
) -> String {
    let expires = env.now().0.saturating_add(unit.timeout_ms).saturating_add(TOKEN_SLACK_MS);
    let claims = TokenClaims {
        run: run.id.clone(),
        unit: attempt.unit,
        attempt: attempt.number,
        epoch: attempt.epoch,
        expiry: Timestamp(expires),
        kind,
        remaining_results: remaining,
    };
    claims.sign(&env.settings.token_keys)
}

/// Returns the dispatch time of an attempt, from its token.
pub(crate) fn sent_at(claims: &TokenClaims, unit: &UnitPlan) -> Timestamp {
    Timestamp(claims.expiry.0.saturating_sub(unit.timeout_ms).saturating_sub(TOKEN_SLACK_MS))
}

/// Returns the name of a unit of `run`.
pub(super) fn unit_name<'a>(run: &Run, unit: &'a UnitPlan) -> UnitName<'a> {
    let (resource, name) = unit.key.split_once('/').unwrap_or(("", &unit.key));
    UnitName { hook: run.hook(), resource, unit: name }
}

/// Returns the name of the unit that an undo reverses, as at its start. Of several units, returns the first.
pub(super) fn undone_name<'a>(run: &'a Run, unit: &UnitPlan) -> Option<UnitName<'a>> {
    let at = *unit.undoes.first()?;
    let undone = unit_name(run, run.loaded.plan.unit(at)?);
    Some(UnitName { hook: at.hook, resource: document_name(undone.resource), ..undone })
}
