//! What has to hold of a simulation in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_engine::{Attempt, Hook, RunPhase, Shard, Unit};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::id::{self, RunId};
use ebb_protocol::lifecycle::{FAILED, GONE, READY, STUCK};
use ebb_protocol::record::AttemptOutcome;
use ebb_store::RunHead;

use super::ledger::NotificationEntry;
use super::platform::KIND;
use super::registry::SimUnit;
use super::simulation::Simulation;

/// Messages of the queue that a simulation may take, beside those for its units and attempts: per instance and hour.
const MESSAGES_PER_INSTANCE: u64 = 60;
const MESSAGES_PER_ATTEMPT: u64 = 20;
const MESSAGES_PER_INSTANCE_HOUR: u64 = 90;

/// Checks everything; what is wrong goes into the ledger. `end` is when the simulation had come to rest.
pub(super) fn all(simulation: &Simulation, end: u64) {
    let mut wrong = simulation.functions.broken();
    wrong.extend(leaks(simulation));
    wrong.extend(runs(simulation));
    wrong.extend(outcomes(simulation));
    wrong.extend(inputs(simulation));
    wrong.extend(messages(simulation, end));
    for what in wrong {
        simulation.ledger.report_violation(what);
    }
}

/// Nothing exists any more but what an operator has overridden; and that is listed as long as the target is stored.
fn leaks(simulation: &Simulation) -> Vec<String> {
    let left: Vec<(String, Arc<SimUnit>)> = {
        let state = simulation.ledger.state();
        let known = state.objects.iter().filter(|(_, thing)| !thing.unreported);
        known.map(|(id, thing)| (id.clone(), Arc::clone(&thing.unit))).collect()
    };
    let mut wrong = Vec::new();
    for (id, part) in left {
        if !is_let_go(simulation, &part) {
            wrong.push(format!("{} has left {id}", part.name));
            continue;
        }
        let remembered = {
            let table = simulation.table.state();
            table.targets.values().any(|target| target.uid == part.uid)
        };
        if remembered && !listed(simulation, &part.target).contains(&part.unit_key) {
            wrong.push(format!("{} has left {id}, which is not listed", part.name));
        }
    }
    wrong
}

/// Returns true if the undo of a part was overridden.
fn is_let_go(simulation: &Simulation, part: &SimUnit) -> bool {
    let state = simulation.ledger.state();
    let table = simulation.table.state();
    let mut undos = state.units.values().filter(|undo| undo.undoes.contains(&part.key));
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

/// What an operator is told that may exist of a target.
fn listed(simulation: &Simulation, name: &str) -> Vec<String> {
    let (functions, name) = (Arc::clone(&simulation.functions), name.to_owned());
    let listed = simulation.runtime.run(async move {
        // Who answers may die, too.
        for _ in 0..1000 {
            if let Ok(listed) = functions.existing(KIND, &name).await {
                return listed;
            }
        }
        Vec::new()
    });
    listed.unwrap_or_default()
}

/// Every run is closed.
fn runs(simulation: &Simulation) -> Vec<String> {
    let table = simulation.table.state();
    let roots = table.heads.iter().filter_map(|(run, heads)| Some((run, heads.get(&Shard::ROOT)?)));
    let open = roots.filter(|(_, root)| root.head.phase != RunPhase::Closed || root.head.due.is_some());
    open.map(|(run, root)| format!("{run} is {:?}, due {:?}", root.head.phase, root.head.due)).collect()
}

/// The run of a hook of an instance, whichever generation of it began.
fn run_of(simulation: &Simulation, uid: &str, hook: Hook) -> Option<RunId> {
    let table = simulation.table.state();
    let of = |heads: &BTreeMap<Shard, RunHead>| {
        heads.get(&Shard::ROOT).and_then(|root| root.facts.as_ref()).is_some_and(|facts| facts.uid == uid)
    };
    let found = table.heads.iter().find(|(run, heads)| run.hook() == hook && of(heads));
    found.map(|(run, _)| run.clone())
}

/// The platform knows the end of every instance that has begun, and nothing of what did not happen.
fn outcomes(simulation: &Simulation) -> Vec<String> {
    let mut by_instance: BTreeMap<String, Vec<NotificationEntry>> = BTreeMap::new();
    for told in &simulation.ledger.state().notifications {
        by_instance.entry(told.uid.clone()).or_default().push(told.clone());
    }
    let mut wrong = Vec::new();
    for instance in &simulation.instances {
        let mut told = by_instance.remove(&instance.uid).unwrap_or_default();
        // They may overtake each other; each says when it happened.
        told.sort_by(|a, b| (&a.time, a.at).cmp(&(&b.time, b.at)));
        let pre = run_of(simulation, &instance.uid, Hook::PreStart);
        let began = pre.is_some();
        let kinds: Vec<&str> = told.iter().map(|told| told.kind.as_str()).collect();
        match (began, kinds.last()) {
            (true, Some(&GONE)) | (false, None) => {}
            _ => wrong.push(format!("of {} (began: {began}) the platform was told {kinds:?}", instance.uid)),
        }
        let known: BTreeSet<&str> = [READY, FAILED, STUCK, GONE].into();
        if kinds.iter().any(|kind| !known.contains(kind)) {
            wrong.push(format!("of {} the platform was told {kinds:?}", instance.uid));
        }
        let ended = kinds.iter().position(|kind| matches!(*kind, STUCK | GONE));
        let lives_again = ended.is_some_and(|at| kinds[at..].iter().any(|kind| matches!(*kind, READY | FAILED)));
        if lives_again {
            wrong.push(format!("of {} the platform was told {kinds:?}", instance.uid));
        }
        if kinds.contains(&READY) && !pre.is_some_and(|pre| is_done(simulation, &pre, &instance.uid)) {
            wrong.push(format!("{} was told to be ready, and not all of its units are done", instance.uid));
        }
    }
    wrong.extend(by_instance.into_keys().map(|uid| format!("the platform was told of {uid}, whoever that is")));
    wrong
}

/// Returns true if every unit of a run is done.
fn is_done(simulation: &Simulation, run: &RunId, uid: &str) -> bool {
    let table = simulation.table.state();
    let Some(heads) = table.heads.get(run) else { return false };
    let state = simulation.ledger.state();
    let units = state.units.values().filter(|part| part.uid == uid && part.hook == run.hook());
    let done = |unit: u32| {
        let (shard, slot) = Shard::of(Unit(unit));
        heads.get(&shard).is_some_and(|head| head.head.done.contains(&slot))
    };
    units.map(|part| part.unit).all(done)
}

/// What a unit of the setup read is what the attempt of its producer made that counts.
fn inputs(simulation: &Simulation) -> Vec<String> {
    let mut wrong = Vec::new();
    let table = simulation.table.state();
    let state = simulation.ledger.state();
    for this in state.attempts.iter().filter(|this| this.unit.sets_up()) {
        for id in &this.reads {
            let Some(maker) = id.split('.').next().and_then(|key| state.units.get(key)) else { continue };
            let run = this.run.sibling(maker.hook);
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

/// Hints do not multiply.
fn messages(simulation: &Simulation, end: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let (sent, last) = (simulation.counted.sent(), simulation.counted.last());
    let attempts = simulation.ledger.state().attempts.len() as u64;
    let hours = end.div_ceil(3_600_000);
    let instances = simulation.instances.len() as u64;
    let bound =
        instances * (MESSAGES_PER_INSTANCE + MESSAGES_PER_INSTANCE_HOUR * hours) + MESSAGES_PER_ATTEMPT * attempts;
    if sent > bound {
        wrong.push(format!("{sent} messages for {instances} instances with {attempts} attempts in {hours} hours"));
    }
    let quiet = simulation.runtime.elapsed().saturating_sub(super::simulation::LINGER_MS / 3);
    if last > quiet {
        wrong.push("messages are sent although nothing happens any more".to_owned());
    }
    wrong
}
