//! The checks at the end of a simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_documents::plan::document_name;
use ebb_engine::{Attempt, EventName, Hook, RunPhase, Shard, TargetPhase, Unit};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::id::{self, EventRef, RunId};
use ebb_protocol::lifecycle::{FAILED, GONE, READY, STUCK};
use ebb_protocol::record::AttemptOutcome;
use ebb_store::RunHead;

use super::ledger::NotificationEntry;
use super::platform::EVENT;
use super::registry::SimUnit;
use super::simulator::{LINGER_MS, Simulation};
use super::{KIND, receivers};

/// The messages that a simulation may send: per instance, attempt, and hour of an instance.
const MESSAGES_PER_INSTANCE: u64 = 60;
const MESSAGES_PER_ATTEMPT: u64 = 20;
const MESSAGES_PER_INSTANCE_HOUR: u64 = 90;

/// Reports all violations to the ledger. `end` is the time at which nothing was in progress any more.
pub(super) fn all(simulation: &Simulation, end: u64) {
    let mut wrong = simulation.functions.broken();
    wrong.extend(leaks(simulation));
    wrong.extend(runs(simulation));
    wrong.extend(outcomes(simulation));
    wrong.extend(inputs(simulation));
    wrong.extend(messages(simulation, end));
    wrong.extend(receivers::check(simulation));
    for what in wrong {
        simulation.ledger.report_violation(what);
    }
}

/// No object exists, except those whose undo an operator has overridden. These are listed as long as the target is stored.
fn leaks(simulation: &Simulation) -> Vec<String> {
    let left: Vec<(String, Arc<SimUnit>)> = {
        let state = simulation.ledger.state();
        let known = state.objects.iter().filter(|(_, thing)| !thing.unreported);
        known.map(|(id, thing)| (id.clone(), Arc::clone(&thing.unit))).collect()
    };
    let mut wrong = Vec::new();
    for (id, unit) in left {
        if !is_overridden(simulation, &unit) {
            wrong.push(format!("{} leaves {id}", unit.name));
            continue;
        }
        let is_stored = simulation.table.state().targets.values().any(|target| target.uid == unit.uid);
        if is_stored && !listed(simulation, &unit.target).contains(&unit.unit_key) {
            wrong.push(format!("{} leaves {id}, which is not listed", unit.name));
        }
    }
    wrong
}

/// Returns true if the undo of a unit was overridden.
fn is_overridden(simulation: &Simulation, unit: &SimUnit) -> bool {
    let state = simulation.ledger.state();
    let table = simulation.table.state();
    let mut undos = state.units.values().filter(|undo| undo.undoes.contains(&unit.key));
    undos.any(|undo| {
        table.records.iter().any(|((run, unit, _), record)| {
            let of = *unit == Unit(undo.unit)
                && run.hook() == undo.hook
                && run.as_str().starts_with(&id::instance_key(KIND, &undo.target, &undo.uid));
            let reason = record.result.as_ref().and_then(|result| result.reason.as_ref());
            of && reason.is_some_and(|reason| reason.code == ReasonCode::Overridden)
        })
    })
}

/// Returns the units whose resources may exist, as an operator sees them, with the names that their setup had.
fn listed(simulation: &Simulation, name: &str) -> Vec<String> {
    let (functions, name) = (Arc::clone(&simulation.functions), name.to_owned());
    let listed = simulation.runtime.run(async move {
        // An invocation may die here, too.
        for _ in 0..1000 {
            if let Ok(listed) = functions.possible_resources(KIND, &name).await {
                return listed;
            }
        }
        Vec::new()
    });
    let listed: Vec<String> = listed.unwrap_or_default();
    let plain = |key: &String| match key.split_once('/') {
        Some((resource, unit)) => format!("{}/{unit}", document_name(resource)),
        None => key.clone(),
    };
    listed.iter().map(plain).collect()
}

/// Every event that was accepted ran, if its target was not deleted. Nothing is in progress.
pub(super) fn events(simulation: &Simulation) {
    if simulation.target().is_none_or(|target| target.phase != TargetPhase::Ready) {
        return;
    }
    let accepted = simulation.ledger.state().events.clone();
    let name = EventName::new(EVENT).expect("it is a name");
    for (uid, id) in accepted {
        let event = EventRef::new(name, &id);
        let ran = simulation.table.state().heads.keys().any(|run| run.as_str().ends_with(&format!("-on-{event}")));
        if !ran {
            simulation.ledger.report_violation(format!("the event {id} of {uid} was accepted and never ran"));
        }
    }
}

/// A ready target with waiting events is due, so a sweep begins an event that its run does not.
pub(super) fn waiting_events(simulation: &Simulation) {
    let lost: Vec<String> = {
        let state = simulation.table.state();
        let ready = state.targets.values().filter(|target| target.phase == TargetPhase::Ready);
        let lost = ready.filter(|target| !target.events.waiting.is_empty() && target.due.is_none());
        lost.map(|target| target.uid.clone()).collect()
    };
    for uid in lost {
        simulation.ledger.report_violation(format!("an event of {uid} waits, and nothing will begin it"));
    }
}

/// Every run is closed.
pub(super) fn runs(simulation: &Simulation) -> Vec<String> {
    let table = simulation.table.state();
    let roots = table.heads.iter().filter_map(|(run, heads)| Some((run, heads.get(&Shard::ROOT)?)));
    let open = roots.filter(|(_, root)| root.head.phase != RunPhase::Closed || root.head.due.is_some());
    open.map(|(run, root)| format!("{run} is {:?}, due {:?}", root.head.phase, root.head.due)).collect()
}

/// Returns the run of a hook of an instance, in any generation.
pub(super) fn run_of(simulation: &Simulation, uid: &str, hook: Hook) -> Option<RunId> {
    let table = simulation.table.state();
    let is_of = |root: &RunHead| root.facts.as_ref().is_some_and(|facts| facts.uid == uid);
    let mut runs = table.heads.iter().filter(|(run, _)| run.hook() == hook);
    runs.find(|(_, heads)| heads.get(&Shard::ROOT).is_some_and(is_of)).map(|(run, _)| run.clone())
}

/// The platform got the last notification of every instance that has begun, and none of an event that did not happen.
fn outcomes(simulation: &Simulation) -> Vec<String> {
    let mut by_instance: BTreeMap<String, Vec<NotificationEntry>> = BTreeMap::new();
    for one in &simulation.ledger.state().notifications {
        by_instance.entry(one.uid.clone()).or_default().push(one.clone());
    }
    let mut wrong = Vec::new();
    let instances = simulation.ledger.state().instances.clone();
    for (uid, instance) in &instances {
        let mut own = by_instance.remove(uid).unwrap_or_default();
        // A notification may overtake another one. Each has the time of its event.
        own.sort_by(|a, b| (&a.time, a.at).cmp(&(&b.time, b.at)));
        let pre = run_of(simulation, uid, Hook::PreStart);
        let began = instance.has_begun;
        let kinds: Vec<&str> = own.iter().map(|one| one.kind.as_str()).collect();
        let end = kinds.iter().position(|kind| matches!(*kind, STUCK | GONE)).unwrap_or(kinds.len());
        let is_good = matches!((began, kinds.last()), (true, Some(&GONE)) | (false, None))
            && kinds.iter().all(|kind| [READY, FAILED, STUCK, GONE].contains(kind))
            && !kinds[end..].iter().any(|kind| matches!(*kind, READY | FAILED));
        if !is_good {
            wrong.push(format!("{uid} (began: {began}) has the notifications {kinds:?}"));
        }
        // An update can remove what has failed, without a run.
        let key = id::instance_key(KIND, &instance.name, uid);
        let plan = simulation.table.state().plans.get(&key).cloned().unwrap_or_default();
        let is_updated = String::from_utf8_lossy(&plan).contains("\"update\":{");
        if kinds.contains(&READY) && !is_updated && pre.is_some_and(|pre| !is_done(simulation, &pre, uid)) {
            wrong.push(format!("{uid} was reported ready, and not all of its units are done"));
        }
    }
    wrong.extend(by_instance.into_keys().map(|uid| format!("{uid} has notifications and is unknown")));
    wrong
}

/// Returns true if every unit of a run is done.
fn is_done(simulation: &Simulation, run: &RunId, uid: &str) -> bool {
    let table = simulation.table.state();
    let Some(heads) = table.heads.get(run) else { return false };
    let state = simulation.ledger.state();
    let units = state.units.values().filter(|unit| unit.uid == uid && unit.hook == run.hook());
    let done = |unit: u32| {
        let (shard, slot) = Shard::of(Unit(unit));
        heads.get(&shard).is_some_and(|head| head.head.done.contains(&slot))
    };
    units.map(|unit| unit.unit).all(done)
}

/// A setup unit read what the successful attempt of its producer made.
fn inputs(simulation: &Simulation) -> Vec<String> {
    let mut wrong = Vec::new();
    let table = simulation.table.state();
    let state = simulation.ledger.state();
    for this in state.attempts.iter().filter(|this| this.unit.sets_up()) {
        for id in &this.reads {
            let Some(maker) = id.split('.').next().and_then(|key| state.units.get(key)) else { continue };
            // Units of an event read those of its own run.
            let run = if maker.hook == this.unit.hook { this.run.clone() } else { this.run.sibling(maker.hook) };
            let (shard, slot) = Shard::of(Unit(maker.unit));
            let counts = table
                .heads
                .get(&run)
                .and_then(|heads| heads.get(&shard))
                .and_then(|head| head.head.done.contains(&slot).then(|| head.head.attempt(slot)));
            let record = counts.and_then(|attempt| table.records.get(&(run, Unit(maker.unit), attempt)));
            let made = record.and_then(|record| record.result.as_ref()).filter(|result| {
                result.outcome == AttemptOutcome::Succeeded
                    && format!("{:?}", result.outputs).contains(&format!("{id:?}"))
            });
            if made.is_none() {
                let attempt = counts.map_or(0, |Attempt(attempt)| attempt);
                wrong.push(format!(
                    "{} #{} read {id}, which is not what {} #{attempt} made",
                    this.unit.name, this.attempt, maker.name
                ));
            }
        }
    }
    wrong
}

/// Messages do not multiply.
fn messages(simulation: &Simulation, end: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let (sent, last, attempts) = {
        let state = simulation.ledger.state();
        let last = state.messages.last().map_or(0, |(at, _)| *at);
        (state.messages.len() as u64, last, state.attempts.len() as u64)
    };
    let hours = end.div_ceil(3_600_000);
    let instances = simulation.ledger.state().instances.len() as u64;
    let bound =
        instances * (MESSAGES_PER_INSTANCE + MESSAGES_PER_INSTANCE_HOUR * hours) + MESSAGES_PER_ATTEMPT * attempts;
    if sent > bound {
        wrong.push(format!("{sent} messages for {instances} instances with {attempts} attempts in {hours} hours"));
    }
    let quiet = simulation.runtime.elapsed().saturating_sub(LINGER_MS / 3);
    if last > quiet {
        wrong.push("messages are sent although nothing is in progress".to_owned());
    }
    wrong
}
