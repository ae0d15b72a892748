//! An attempt of a unit, with its name at a relay and its callback token.

use ebb_documents::plan::{Template, UnitPlan, UnitRef, document_name};
use ebb_engine::{Attempt, AttemptRef, Timestamp, Unit};
use ebb_protocol::{AttemptRecord, TaskId, TokenClaims, TokenKind};
use ebb_store::AttemptUpdate;
use serde::Serialize;

use crate::loaded_run::{Run, UnitName};
use crate::{Env, FlowError, FlowResult, InvocationCache};

/// Time for which a callback token is valid after the unit's deadline.
const TOKEN_SLACK_MS: u64 = 60 * 60 * 1000;

/// Returns the name of an attempt at its relay.
pub fn task_id(run: &Run, unit: Unit, attempt: Attempt) -> TaskId {
    TaskId { unit: TaskId::unit_of(&run.id, unit), attempt: attempt.0 }
}

/// Returns the name of a unit of an earlier run of the instance, as relays know it.
pub(crate) fn task_unit(run: &Run, at: UnitRef) -> String {
    TaskId::unit_of(&run.id.sibling(at.hook), Unit(at.unit))
}

/// Returns the start of a task from the age that its relay reports. No task is older than its run.
pub fn task_start(run: &Run, age_ms: u64, now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(age_ms)).max(run.facts.started).min(now)
}

/// An attempt with its unit and run, in the environment of the invocation that works on it.
#[derive(Clone, Copy)]
pub struct AttemptContext<'a> {
    pub env: &'a Env,
    pub run: &'a Run,
    pub attempt: AttemptRef,
    pub unit: &'a UnitPlan,
    pub cache: &'a InvocationCache,
}

impl<'a> AttemptContext<'a> {
    /// Returns an attempt with its unit.
    ///
    /// # Errors
    /// Returns [`FlowError::Broken`] if the run has no such unit.
    pub fn new(env: &'a Env, run: &'a Run, attempt: AttemptRef, cache: &'a InvocationCache) -> FlowResult<Self> {
        let unknown = || FlowError::Broken(format!("run {} has no unit {}", run.id, attempt.unit.0));
        Ok(Self { env, run, attempt, unit: run.unit(attempt.unit).ok_or_else(unknown)?, cache })
    }

    /// Returns true if a part of the unit, or a param that it reads, names the own target.
    pub(crate) fn names_own(&self, part: &impl Serialize) -> bool {
        let part = serde_json::to_string(part).unwrap_or_default();
        let names = |text: &str| ["resource.key", "target.key", "target.uid"].iter().any(|own| text.contains(own));
        // No longer name begins with the one that is read.
        let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || "_-".contains(next));
        let is_read = |name: &str| {
            let of = |before: &str| {
                part.match_indices(&format!("params{before}{name}"))
                    .any(|(at, found)| is_end(&part[at + found.len()..]))
            };
            [".", ".?", "['", "[?'"].into_iter().any(of)
        };
        let resource = self.run.loaded.plan.resource(self.unit.resource());
        let mut params = resource.into_iter().flat_map(|resource| &resource.params).filter(|(name, _)| is_read(name));
        let is_own = |(_, value): (&String, &Template)| {
            let text = serde_json::to_string(value).unwrap_or_default();
            text.contains("${") && names(&text)
        };
        names(&part) || params.any(is_own)
    }

    pub(crate) fn task(&self) -> TaskId {
        task_id(self.run, self.attempt.unit, self.attempt.number)
    }

    pub(crate) fn unit_ref(&self) -> UnitRef {
        UnitRef { hook: self.run.hook(), unit: self.attempt.unit.0 }
    }

    /// Returns a callback token. `remaining` is the number of results that an undo has yet to remove after this one.
    pub(super) fn token(&self, kind: TokenKind, remaining: u32) -> String {
        let expires = self.env.now().0.saturating_add(self.unit.timeout_ms).saturating_add(TOKEN_SLACK_MS);
        let AttemptRef { unit, number: attempt, epoch } = self.attempt;
        let (run, expiry) = (self.run.id.clone(), Timestamp(expires));
        let claims = TokenClaims { run, unit, attempt, epoch, expiry, kind, remaining_results: remaining };
        claims.sign(&self.env.settings.token_keys)
    }

    pub(super) async fn read_record(&self) -> FlowResult<Option<AttemptRecord>> {
        let records = self.env.store.read_records(&self.run.id, &[self.attempt.unit]).await?;
        let record = records.into_iter().find(|(_, number, _)| *number == self.attempt.number);
        Ok(record.map(|(.., record)| record))
    }

    /// Changes the record of the attempt. Returns the record before.
    pub(crate) async fn update(&self, update: AttemptUpdate) -> FlowResult<AttemptRecord> {
        let AttemptRef { unit, number, .. } = self.attempt;
        Ok(self.env.store.update_attempt(&self.run.id, unit, number, &update).await?)
    }
}

/// Returns the dispatch time of an attempt, from its token.
pub(crate) fn sent_at(claims: &TokenClaims, unit: &UnitPlan) -> Timestamp {
    Timestamp(claims.expiry.0.saturating_sub(unit.timeout_ms).saturating_sub(TOKEN_SLACK_MS))
}

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
