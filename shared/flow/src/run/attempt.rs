//! The identity of an attempt: its name at a relay and its callback token.

use ebb_documents::plan::UnitPlan;
use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use ebb_protocol::relay::TaskId;
use ebb_protocol::token::{TokenClaims, TokenKind};

use crate::env::Env;
use crate::run::head::Run;

/// A callback token stays valid for this long after the unit's own deadline; later results are recorded as late.
const TOKEN_SLACK_MS: u64 = 60 * 60 * 1000;

/// One try of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRef {
    pub unit: Unit,
    pub attempt: Attempt,
    /// The epoch in which it was decided.
    pub epoch: Epoch,
}

/// The name of a try at its relay.
pub fn task_id(run: &Run, unit: Unit, attempt: Attempt) -> TaskId {
    TaskId { unit: TaskId::unit_of(&run.id, unit), attempt: attempt.0 }
}

pub(super) fn token(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan, kind: TokenKind, more: u32) -> String {
    let expires = env.now().0.saturating_add(unit.timeout_ms).saturating_add(TOKEN_SLACK_MS);
    let claims = TokenClaims {
        run: run.id.clone(),
        unit: this.unit,
        attempt: this.attempt,
        epoch: this.epoch,
        expiry: Timestamp(expires),
        kind,
        remaining_results: more,
    };
    env.settings.token_keys.mint(&claims)
}

/// When a try was sent, by its token.
pub(crate) fn sent_at(claims: &TokenClaims, unit: &UnitPlan) -> Timestamp {
    Timestamp(claims.expiry.0.saturating_sub(unit.timeout_ms).saturating_sub(TOKEN_SLACK_MS))
}

/// The resource and the unit of a key `resource/unit`.
pub(super) fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// Returns the resource and the name of the unit that an undo undoes; of the first one, if there are several.
pub(super) fn undone_parts<'a>(run: &'a Run, unit: &UnitPlan) -> Option<(&'a str, &'a str)> {
    let undone = unit.undoes.first().and_then(|&at| run.loaded.plan.unit(at))?;
    Some(split_key(&undone.key))
}
