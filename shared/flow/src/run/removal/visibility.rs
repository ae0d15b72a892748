//! Tells whether an answer has shown a resource to the credential of a request.
//!
//! Providers answer *not found*, or a list without the resource, to what a credential must not see. Such an answer is
//! evidence only for a credential that would see the resource.

use ebb_documents::plan::{Action, UnitPlan, UnitRef};
use ebb_engine::{AttemptRef, Millis, Timestamp, Unit};
use ebb_protocol::{AttemptOutcome, AttemptRecord, AttemptResult, RemovalEvidence, RemovalGrade};
use ebb_store::UnitRecord;

use crate::run::removal::possible_resources;
use crate::run::undo::{self, UndoPasses};
use crate::{AttemptContext, CredentialDigest, Env, FlowResult, Run};

/// The time after which a provider shows a new thing, unless the unit has a `maxProcessingTime`.
const SHOWN_AFTER: Millis = Millis(60_000);
/// The reason of the wait for a provider to show a new thing.
pub(crate) const SHOWN_LATER: &str = "the provider has answered the setup, and may not show the thing yet";
/// The status of an undo whose server has the request and does not report the end of the removal.
const ACCEPTED: &str = "202";
/// The method whose *not found* may be a success.
pub(crate) const DELETE: &str = "DELETE";
/// The beginning of the reason of a verification that has found the resource.
pub(crate) const STILL_EXISTS: &str = "the resource still exists";

/// Returns true if both units undo one unit.
pub(crate) fn is_shared(one: &UnitPlan, other: &UnitPlan) -> bool {
    one.undoes.iter().any(|at| other.undoes.contains(at))
}

/// Returns true if the requests of both units have the credential of one connection, or if both have none.
pub(crate) fn is_same_connection(one: &UnitPlan, other: &UnitPlan) -> bool {
    let name = |unit: &UnitPlan| unit.action.connection().map(|connection| connection.name.clone());
    name(one) == name(other)
}

/// Returns true for a webhook if a verification by a webhook asks for what it makes or undoes, or if an undo waits until its thing is
/// shown. The record of a success is then kept, because it says when and by which credential the resource was made or seen.
pub(crate) fn is_recorded(run: &Run, unit: Unit) -> bool {
    let at = UnitRef { hook: run.hook(), unit: unit.0 };
    let is_webhook = |unit: &UnitPlan| matches!(unit.action, Action::Webhook(_));
    let Some(own) = run.unit(unit).filter(|own| !own.verifies && is_webhook(own)) else { return false };
    let is_of = |other: &UnitPlan| other.undoes.contains(&at) || is_shared(own, other);
    let is_awaited = matches!(&own.action, Action::Webhook(webhook) if webhook.max_processing_time_ms.is_some());
    let asks = |other: &UnitPlan| {
        is_webhook(other) && is_of(other) && (other.verifies || (is_awaited && own.undoes.is_empty()))
    };
    run.loaded.plan.hooks.iter().filter(|hook| hook.hook.is_teardown()).flat_map(|hook| &hook.units).any(asks)
}

/// An attempt of an undo or of a verification whose answer did not have the resource.
pub(crate) struct VisibilityCheck<'a> {
    attempt: AttemptContext<'a>,
    by: &'a CredentialDigest,
    /// The number of results that its pass has removed or verified before it. An attempt is about one result, and in each
    /// pass, a result has the same position.
    position: usize,
    /// The records of the unit about this result.
    own: Vec<AttemptRecord>,
}

impl<'a> VisibilityCheck<'a> {
    /// Reads the records of the unit. `by` is the credential of the request.
    pub(crate) async fn new(attempt: AttemptContext<'a>, by: &'a CredentialDigest) -> FlowResult<Self> {
        let AttemptContext { env, run, attempt: AttemptRef { unit: at, number, .. }, unit, .. } = attempt;
        let records = env.store.read_records(&run.id, &[at]).await?;
        let position = UndoPasses::new(unit, &records).removed_before(number);
        let own = of_result(unit, records, position).collect();
        Ok(Self { attempt, by, position, own })
    }

    /// Returns true if an earlier answer to this undo, also in an update, has shown the resource to the credential.
    pub(crate) async fn undo_has_seen(&self) -> FlowResult<bool> {
        let unit = self.attempt.unit;
        let shows = |record: &AttemptRecord| shows_resource(record, self.by);
        Ok(self.own.iter().any(shows) || self.records(unit, &unit.unless).await?.iter().any(shows))
    }

    /// Returns true if an answer to this verification, or to the undos that it verifies, has shown the resource to the
    /// credential.
    pub(crate) async fn verification_has_seen(&self) -> FlowResult<bool> {
        for (undo, places) in undos(self.attempt.run, self.attempt.unit) {
            if self.records(undo, &places).await?.iter().any(|record| shows_resource(record, self.by)) {
                return Ok(true);
            }
        }
        Ok(self.own.iter().any(|record| finds_resource(record, self.by)))
    }

    /// Returns true if a list for this verification would have the resource: the provider lists what the setup has made, and
    /// shows it to the credential.
    ///
    /// - No undo has its connection. The author of the plugin has chosen a check that does not depend on the undo.
    /// - Otherwise its credential has sent each request of the setup that may have made something, and the last request of
    ///   each undo.
    pub(crate) async fn list_is_complete(&self) -> FlowResult<bool> {
        let AttemptContext { env, run, unit, .. } = self.attempt;
        if !self.is_listed().await? {
            return Ok(false);
        }
        let mut all = run.loaded.plan.hooks.iter().flat_map(|hook| &hook.units);
        if !all.any(|other| !other.verifies && is_shared(unit, other) && is_same_connection(unit, other)) {
            return Ok(true);
        }
        for (undo, places) in undos(run, unit) {
            let records = self.records(undo, &places).await?;
            let mut sent = records.iter().filter_map(|record| record.result.as_ref()?.sent_by.as_deref());
            if sent.next_back().is_some_and(|last| !self.by.is(last)) {
                return Ok(false);
            }
        }
        is_made_by(env, run, unit, self.by).await
    }

    /// Returns true if the provider certainly lists what the undone webhooks have made.
    pub(crate) async fn is_listed(&self) -> FlowResult<bool> {
        let AttemptContext { env, run, unit, .. } = self.attempt;
        for at in &unit.undoes {
            let records = env.store.read_records(&run.id.sibling(at.hook), &[Unit(at.unit)]).await?;
            if !records.iter().all(|(.., record)| is_listed(env, run.loaded.plan.unit(*at), record)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the records of an undo at these places about the result, in the order of attempts.
    async fn records(&self, undo: &UnitPlan, places: &[UnitRef]) -> FlowResult<Vec<AttemptRecord>> {
        let AttemptContext { env, run, .. } = self.attempt;
        let mut records = Vec::new();
        for at in places {
            let of_undo = env.store.read_records(&run.id.sibling(at.hook), &[Unit(at.unit)]).await?;
            records.extend(of_result(undo, of_undo, self.position));
        }
        Ok(records)
    }
}

/// Returns the time until which the thing of an undo or verification may not be shown yet, or the epoch if an answer has shown
/// it to the credential. `shown_by` is the time by which the provider shows it, and `now` that of the answer.
pub(crate) async fn shown_by(
    attempt: AttemptContext<'_>,
    (shown_by, now): (Timestamp, Timestamp),
    by: &CredentialDigest,
) -> FlowResult<Timestamp> {
    if shown_by <= now {
        return Ok(Timestamp(0));
    }
    let check = VisibilityCheck::new(attempt, by).await?;
    let is_seen =
        if attempt.unit.verifies { check.verification_has_seen().await? } else { check.undo_has_seen().await? };
    Ok(if is_seen { Timestamp(0) } else { shown_by })
}

/// Returns the undos in the run of a verification that have its connection, with their places: first those of the undos of
/// updates that have done the same.
fn undos<'a>(run: &'a Run, verification: &UnitPlan) -> Vec<(&'a UnitPlan, Vec<UnitRef>)> {
    let is_undo = |undo: &UnitPlan| {
        !undo.verifies
            && matches!(undo.action, Action::Webhook(_))
            && is_shared(verification, undo)
            && is_same_connection(verification, undo)
    };
    let undos = run.hook_plan().places().filter(|(_, undo)| is_undo(undo));
    undos.map(|(at, undo)| (undo, [undo.unless.as_slice(), &[at]].concat())).collect()
}

/// Returns true if a credential has sent each request of the undone webhooks that may have made something.
async fn is_made_by(env: &Env, run: &Run, undo: &UnitPlan, by: &CredentialDigest) -> FlowResult<bool> {
    let plan = &run.loaded.plan;
    for &at in &undo.undoes {
        if !plan.unit(at).is_some_and(|unit| matches!(unit.action, Action::Webhook(_))) {
            continue;
        }
        let Some((setup, head)) = Run::load_with_head(env, &run.id.sibling(at.hook)).await? else { continue };
        let unit = Unit(at.unit);
        let records = env.store.read_records(&setup.id, &[unit]).await?;
        let attempts = records.iter().map(|(.., record)| record);
        if !possible_resources::may_have_made((setup.graph(), &head), unit, attempts.clone()) {
            continue;
        }
        let mut made = attempts.filter(|record| !undo::made_nothing(record));
        // A success without a record names no credential.
        if records.is_empty() || !made.all(|record| is_sent_by(record, by)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if a provider certainly lists what an attempt has made.
fn is_listed(env: &Env, unit: Option<&UnitPlan>, record: &AttemptRecord) -> bool {
    let after = unit.and_then(|unit| unit.action.webhook()?.max_processing_time_ms).map_or(SHOWN_AFTER, Millis);
    undo::made_at(record).is_none_or(|at| at.plus(after) <= env.now())
}

/// Returns true if a credential has sent each request of an attempt. The result names that of the last request only.
pub(in crate::run::removal) fn is_sent_by(record: &AttemptRecord, by: &CredentialDigest) -> bool {
    let is_only = record.repeats == 0 && record.leased_until.is_none();
    let of_result = record.result.as_ref().and_then(|result| result.sent_by.as_ref()).filter(|_| is_only);
    record.posted_by.as_ref().or(record.seen_by.as_ref()).or(of_result).is_some_and(|known| by.is(known))
}

/// Returns the records about the result at a position.
fn of_result(unit: &UnitPlan, records: Vec<UnitRecord>, position: usize) -> impl Iterator<Item = AttemptRecord> {
    let passes = UndoPasses::new(unit, &records);
    records
        .into_iter()
        .filter(move |(_, number, _)| passes.removed_before(*number) == position)
        .map(|(.., record)| record)
}

/// Returns true if the answer to this attempt of a verification had the resource.
fn finds_resource(record: &AttemptRecord, by: &CredentialDigest) -> bool {
    let failed = record.result.iter().filter(|result| result.outcome == AttemptOutcome::Failed);
    failed.filter(|result| result.sent_by.as_deref().is_some_and(|sent| by.is(sent))).any(|result| {
        let reason = result.reason.as_ref();
        reason.is_some_and(|reason| reason.message.starts_with(STILL_EXISTS))
    })
}

/// Returns true if an answer to this attempt of an undo has shown the resource to a credential.
pub(crate) fn shows_resource(record: &AttemptRecord, by: &CredentialDigest) -> bool {
    // The results of signed requests name no credential.
    let is_sent = |result: &&AttemptResult| result.sent_by.as_deref().map_or(by.is_signed(), |sent| by.is(sent));
    record.seen_by.as_deref().is_some_and(|seen| by.is(seen))
        || record.results().filter(is_sent).any(|result| match result.outcome {
            AttemptOutcome::Succeeded => {
                // The reason says that there was nothing to delete.
                result.reason.is_none() && result.removal.as_deref().is_none_or(is_answered)
            }
            AttemptOutcome::Failed => result
                .evidence
                .as_ref()
                .is_some_and(|evidence| evidence.method == DELETE && matches!(evidence.status, Some(409 | 423))),
            AttemptOutcome::Skipped | AttemptOutcome::Cancelled => false,
        })
}

/// Returns true if the evidence of an undo has an answer other than *not found*.
pub(crate) fn is_answered(evidence: &RemovalEvidence) -> bool {
    evidence.grade > RemovalGrade::Unconfirmed || evidence.answered.as_deref() == Some(ACCEPTED)
}
