//! Entries of the history of targets: who changed what, when and why.
//!
//! The entry of a run is written before the transaction that begins the run. If the transaction fails, the entry counts for
//! nothing, because no run began at its time. Of two invocations that begin the same run with different documents, each has
//! its own time. A change without a run has its entry in its own transaction. A decision
//! of an operator is written before its effect. The time of an entry is after the last change of its target, also if the
//! clocks of two invocations differ.

use ebb_documents::plan::Plan;
use ebb_engine::{Hook, RequestSender, TargetPhase, Timestamp};
use ebb_protocol::{HistoryChange, TargetStopCause, limits};
use ebb_store::{HistoryItem, NewRun, TargetHead};

use crate::{Env, FlowResult};

/// The sender of the end of a TTL.
pub const TTL: &str = "ttl";

/// A decision of an operator about a target.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    pub change: HistoryChange,
    /// The verified name of the caller. `None` if it is unknown.
    pub by: Option<&'a str>,
    pub reason: Option<&'a str>,
}

/// Returns the sender that causes a run of a target. Only the platform sends events.
pub(crate) fn cause_of_run(target: &TargetHead, hook: Hook) -> Option<String> {
    if let Hook::Event(_) = hook { RequestSender::Platform.owner() } else { target.changed_by.clone() }
}

pub(crate) fn entry(env: &Env, target: &TargetHead, change: HistoryChange, at: Timestamp) -> HistoryItem {
    let (by, uid, generation) = (target.changed_by.clone(), target.uid.clone(), target.generation);
    let expires = env.settings.retention.map(|retention| at.plus(retention));
    HistoryItem { at, change, by, uid, generation, expires, ..HistoryItem::default() }
}

fn end_of(target: &TargetHead) -> HistoryChange {
    match target.stop_cause {
        TargetStopCause::Expired => HistoryChange::Expired,
        TargetStopCause::Deleted => HistoryChange::Deleted,
    }
}

/// Adds the document that a change applies, and the plugins of its plan. An update keeps the versions that a document leaves
/// open, so the document alone does not lead back to them.
pub(crate) fn applied(entry: HistoryItem, (document, plan): (Option<&str>, &Plan)) -> HistoryItem {
    let Some(document) = document else { return entry };
    let plugins = plan.resources.iter().map(|(name, resource)| (name.clone(), resource.plugin.clone())).collect();
    HistoryItem { document: Some(document.to_owned()), plugins, ..entry }
}

/// Writes the entry of a run that is about to begin. `document` is applied by it. Returns false if another document has an
/// entry of the run at its time.
pub(crate) async fn note_run(
    env: &Env,
    target: &TargetHead,
    run: &NewRun,
    document: (Option<&str>, &Plan),
) -> FlowResult<bool> {
    let change = match run.id.hook() {
        Hook::PreStart | Hook::PostStart => HistoryChange::Created,
        Hook::Update(_) => HistoryChange::Updated,
        Hook::Event(_) => HistoryChange::Event,
        Hook::PreStop | Hook::PostStop => end_of(target),
    };
    let entry = entry(env, target, change, run.facts.started);
    let entry = HistoryItem { by: None, run: Some(run.id.clone()), ..applied(entry, document) };
    Ok(env.store.note_history(target.target_key(), &entry).await?)
}

/// Returns the entry of a change of the phase without a run: of an instance that begins without units, or that is gone
/// without a teardown. Another change has none.
pub(crate) fn without_run(
    env: &Env,
    seen: &TargetHead,
    phase: TargetPhase,
    at: Timestamp,
    document: (Option<&str>, &Plan),
) -> Option<HistoryItem> {
    let change = match (phase, seen.hook) {
        (TargetPhase::Ready, None) if seen.phase == TargetPhase::Starting => HistoryChange::Created,
        (TargetPhase::Gone, hook) if !hook.is_some_and(Hook::is_teardown) => end_of(seen),
        _ => return None,
    };
    Some(applied(entry(env, seen, change, at), document))
}

/// Writes a decision about `units` of a target, as `RESOURCE/UNIT`.
pub(crate) async fn note_decision(
    env: &Env,
    target: &TargetHead,
    Decision { change, by, reason }: Decision<'_>,
    units: impl IntoIterator<Item = String>,
) -> FlowResult<()> {
    let entry = HistoryItem {
        by: by.map(str::to_owned),
        reason: reason.map(limits::message),
        units: units.into_iter().take(HistoryItem::MAX_UNITS).collect(),
        ..entry(env, target, change, target.change_time(env.now()))
    };
    // The id has the whole decision, so another entry with it is the same.
    env.store.note_history(target.target_key(), &entry).await?;
    Ok(())
}
