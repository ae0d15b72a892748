//! The checks at the end of a simulation.

use ebb_engine::Epoch;
use ebb_protocol::OutputStorage;
use ebb_protocol::lifecycle::{FAILED, GONE, READY, STUCK};

use super::*;

/// The shortest time to live.
const SHORTEST_TTL_MS: u64 = 120_000;
/// The messages that a simulation may send: per instance, attempt, hour of an instance, and question.
const MESSAGES_PER_INSTANCE: u64 = 60;
const MESSAGES_PER_ATTEMPT: u64 = 20;
const MESSAGES_PER_INSTANCE_HOUR: u64 = 90;
/// The messages for a question for the state of a thing, and for a wait for a slot.
const MESSAGES_PER_POLL: u64 = 3;

/// Reports all violations to the ledger. `end` is the time at which nothing was in progress any more.
pub(super) fn all(simulation: &Simulation, end: u64) {
    let checks: [fn(&Simulation) -> Vec<String>; 10] =
        [leaks, starts, runs, history, sliding, outcomes, inputs, states, receivers::check, watcher::check];
    let mut wrong = simulation.functions.broken();
    wrong.extend(bound::left(simulation));
    wrong.extend(checks.iter().flat_map(|check| check(simulation)));
    wrong.extend(messages(simulation, end));
    wrong.append(&mut simulation.table.state().wrong);
    for what in wrong {
        simulation.ledger.report_violation(what);
    }
}

/// No object exists, except those whose undo an operator has overridden, and those whose removal is unconfirmed. These are
/// listed as long as the data of the target is stored.
fn leaks(simulation: &Simulation) -> Vec<String> {
    simulation.ledger.settle_things();
    let left: Vec<(String, Arc<SimUnit>)> = {
        let state = simulation.ledger.state();
        let known = state.objects.iter().filter(|(_, thing)| !thing.unreported);
        known.map(|(id, thing)| (id.clone(), Arc::clone(&thing.unit))).collect()
    };
    let mut wrong = Vec::new();
    for (id, unit) in left {
        let is_unconfirmed = simulation.ledger.state().unconfirmed.contains(&unit.uid);
        if !is_unconfirmed && !is_overridden(simulation, &unit) {
            wrong.push(format!("{} leaves {id}", unit.name));
            continue;
        }
        let stored = simulation.table.state().targets.values().find(|target| target.uid == unit.uid).cloned();
        // Retention may have removed the data.
        let stored = stored.filter(|target| !target.plan.is_empty() || target.unconfirmed == 0);
        let lists = |target: &TargetHead, which| listed(simulation, target, which).contains(&unit.unit_key);
        let is_listed = |target: &TargetHead| {
            lists(target, ListedUnits::Possible) || (is_unconfirmed && lists(target, ListedUnits::Unconfirmed))
        };
        if stored.is_some_and(|target| !is_listed(&target)) {
            wrong.push(format!("{} leaves {id}, which is not listed", unit.name));
        }
    }
    wrong
}

pub(super) fn is_overridden(simulation: &Simulation, unit: &SimUnit) -> bool {
    let state = simulation.ledger.state();
    let table = simulation.table.state();
    let mut undos = state.units.values().filter(|undo| undo.undoes.contains(&unit.key));
    undos.any(|undo| {
        let instance = id::instance_key(KIND, &undo.target, &undo.uid);
        let of = |(run, unit, _): &(RunId, Unit, Attempt)| {
            *unit == Unit(undo.unit) && run.hook() == undo.hook && run.as_str().starts_with(&instance)
        };
        let reason = |record: &AttemptRecord| Some(record.result.as_ref()?.reason.as_ref()?.code);
        let is_override = |record: &AttemptRecord| reason(record) == Some(ReasonCode::Overridden);
        table.find(|table| table.records.iter().find(|(key, record)| of(key) && is_override(record))).is_some()
    })
}

/// Returns units of a target, as an operator sees them, with the names that their setup had.
fn listed(simulation: &Simulation, target: &TargetHead, which: ListedUnits) -> Vec<String> {
    let (functions, target) = (Arc::clone(&simulation.functions), target.clone());
    let listed = simulation.runtime.run(async move {
        // An invocation may die here, too.
        for _ in 0..1000 {
            if let Ok(listed) = functions.listed(target.clone(), which).await {
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

pub(super) fn runs(simulation: &Simulation) -> Vec<String> {
    let table = simulation.table.state();
    let heads = table.heads.iter().map(|(run, present)| (run, &present.head));
    let open = heads.filter(|(_, head)| head.phase != RunPhase::Closed || head.due.is_some());
    open.map(|(run, head)| format!("{run} is {:?}, due {:?}", head.phase, head.due)).collect()
}

/// An instance whose time to live counts from its last activity does not end earlier.
fn sliding(simulation: &Simulation) -> Vec<String> {
    let (table, ledger) = (simulation.table.state(), simulation.ledger.state());
    let slides =
        |uid: &String| simulation.instances.iter().any(|one| one.uid == *uid && one.document.contains(SLIDING));
    let early = |entry: &&HistoryItem| {
        let active = ledger.last_activity.get(&entry.uid).filter(|_| entry.change == HistoryChange::Expired);
        active.is_some_and(|sent| slides(&entry.uid) && entry.at.0 + MAX_SKEW_MS < sent + SHORTEST_TTL_MS)
    };
    table.history.values().filter(early).map(|entry| format!("{} ends too early: {entry:?}", entry.uid)).collect()
}

/// Every run has one entry in the history, with its time, its sender and its generation. The entries of attempts to begin it have other times.
fn history(simulation: &Simulation) -> Vec<String> {
    let table = simulation.table.state();
    let mut wrong = Vec::new();
    let mut times = BTreeSet::new();
    for (run, RunHead { facts, .. }) in table.all().flat_map(|table| &table.heads) {
        let own = table.history.values().filter(|entry| entry.run.as_ref() == Some(run));
        let own: Vec<_> = own.filter(|entry| entry.at == facts.started).collect();
        let change = match run.hook() {
            Hook::PreStart | Hook::PostStart => vec![HistoryChange::Created],
            Hook::Update(_) => vec![HistoryChange::Updated],
            Hook::Event(_) => vec![HistoryChange::Event],
            Hook::PreStop | Hook::PostStop => vec![HistoryChange::Deleted, HistoryChange::Expired],
        };
        let by = facts.by.as_deref().unwrap_or_default();
        let is_known = by == "platform" || by.starts_with("token ") || by.starts_with("source ") || by == "ttl";
        let is_own = |entry: &HistoryItem| entry.uid == facts.uid && entry.generation == facts.generation;
        let fits = |entry: &&HistoryItem| is_own(entry) && change.contains(&entry.change);
        if own.len() != 1 || !own.iter().all(fits) || !is_known {
            wrong.push(format!("{run}, begun by {by:?} at {:?}, has the entries {own:?}", facts.started));
        }
        // An event leaves the time of the phase, which orders the other runs.
        let is_event = matches!(run.hook(), Hook::Event(_));
        if !is_event && !times.insert((&facts.kind, &facts.name, facts.started)) {
            wrong.push(format!("{run} begins at the time of another run of its target"));
        }
    }
    wrong
}

/// Returns the run of a hook of an instance, in any generation.
pub(super) fn run_of(simulation: &Simulation, uid: &str, hook: Hook) -> Option<RunId> {
    let table = simulation.table.state();
    let is_of = |(run, present): &(&RunId, &RunHead)| run.hook() == hook && present.facts.uid == uid;
    table.find(|table| table.heads.iter().find(is_of)).map(|(run, _)| run.clone())
}

/// The platform got the last notification of every instance that has begun, and none of an event that did not happen.
fn outcomes(simulation: &Simulation) -> Vec<String> {
    let notified = simulation.ledger.state().notifications.clone();
    let mut by_instance = ebb_flow::group(notified.into_iter().map(|one| (one.uid.clone(), one)));
    let mut wrong = Vec::new();
    let instances = simulation.ledger.state().instances.clone();
    for (uid, instance) in &instances {
        let own = by_instance.remove(uid).unwrap_or_default().into_iter();
        let is_end = |one: &NotificationEntry| one.kind.contains(".event-") || one.kind.contains(".pre-stop-");
        let (ends, mut own): (Vec<_>, Vec<_>) = own.partition(is_end);
        // A clock that is behind gives several the same time.
        let ended: BTreeSet<&str> = ends.iter().map(|one| one.id.as_str()).collect();
        // A notification may overtake another one. Each has the time of its event.
        own.sort_by_key(|one| (one.time, one.at));
        let (ended_events, accepted) = {
            let table = simulation.table.state();
            let runs: Vec<_> = table.all().flat_map(|table| &table.heads).collect();
            let own = || runs.iter().filter(|(_, run)| run.facts.uid == *uid);
            // A cancelled event can have ended before.
            let has_ended = |head: &HeadState| head.epoch == Epoch::FIRST && head.phase == RunPhase::Closed;
            let events = own().filter(|(run, _)| matches!(run.hook(), Hook::Event(_)));
            let accepted = own().filter(|(_, run)| run.head.notified.is_some()).count();
            (events.filter(|(_, run)| has_ended(&run.head)).count(), accepted)
        };
        if ended_events > ended.len() {
            wrong.push(format!("{uid}: of the ends of runs, only these were reported: {ended:?}"));
        }
        let pre = run_of(simulation, uid, Hook::PreStart);
        let began = instance.has_begun;
        let kinds: Vec<&str> = own.iter().map(|one| one.kind.as_str()).collect();
        let end = kinds.iter().position(|kind| matches!(*kind, STUCK | GONE)).unwrap_or(kinds.len());
        // One that is deleted while it waits has its `gone`, too.
        let is_announced = began || instance.has_ended_waiting;
        let is_good = matches!((is_announced, kinds.last()), (true, Some(&GONE)) | (false, None))
            && (began || kinds.iter().all(|kind| *kind == GONE))
            && kinds.iter().all(|kind| [READY, FAILED, STUCK, GONE].contains(kind))
            && !kinds[end..].iter().any(|kind| matches!(*kind, READY | FAILED));
        if !is_good {
            wrong.push(format!("{uid} (began: {began}) has the notifications {kinds:?}"));
        }
        // A run names the acceptance of its own notification.
        let sent: BTreeSet<(Timestamp, &str)> = own.iter().map(|one| (one.time, one.kind.as_str())).collect();
        if accepted > sent.len() {
            wrong.push(format!("{uid}: {accepted} runs name the acceptance of {} notifications", sent.len()));
        }
        // An update can remove what has failed, without a run.
        let key = id::instance_key(KIND, &instance.name, uid);
        let plan = simulation.table.state().find(|table| table.plan(&key));
        let is_updated = plan.is_some_and(|plan| plan.update.is_some());
        if kinds.contains(&READY) && !is_updated && pre.is_some_and(|pre| !is_done(simulation, &pre, uid)) {
            wrong.push(format!("{uid} was reported ready, and not all of its units are done"));
        }
    }
    wrong.extend(by_instance.into_keys().map(|uid| format!("{uid} has notifications and is unknown")));
    wrong
}

fn is_done(simulation: &Simulation, run: &RunId, uid: &str) -> bool {
    let (table, state) = (simulation.table.state(), simulation.ledger.state());
    let mut units = state.units.values().filter(|unit| unit.uid == uid && unit.hook == run.hook());
    units.all(|unit| table.lets_pass(run, unit.unit, unit.plan.tolerated))
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
            let unit = Unit(maker.unit);
            let counts = table.head(&run).filter(|head| head.done.contains(&unit)).map(|head| head.attempt(unit));
            let record = counts.and_then(|attempt| {
                let key = (run, unit, attempt);
                table.find(|table| table.records.get(&key))
            });
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

/// The recorded start of an attempt is that at its relay. A request that finds an attempt that has ended or was killed
/// records its own time.
fn starts(simulation: &Simulation) -> Vec<String> {
    // Only if slots are free from the begin on, each response names the start of a task that runs.
    if simulation.relay.options.free_from > 0 {
        return Vec::new();
    }
    let (table, state) = (simulation.table.state(), simulation.ledger.state());
    let ledger = &simulation.ledger;
    let wrong = state.attempts.iter().filter(|one| one.receiver.kills()).filter_map(|one| {
        let key = (one.run.clone(), Unit(one.unit.unit), Attempt(one.attempt));
        let started = table.find(|table| table.records.get(&key))?.started?;
        let possible = ledger.start_times(one);
        // By the clock of any function.
        let ran = one.over.is_none_or(|over| started.0 + ledger.bounds.skew < ledger.at(over).0);
        let is_late = started > *possible.end() && ran;
        let what =
            format!("{} #{} has the start {started:?}, and began within {possible:?}", one.unit.name, one.attempt);
        let task = TaskId { unit: TaskId::unit_of(&one.run, Unit(one.unit.unit)), attempt: one.attempt };
        let is_early = started < *possible.start() && !state.refused_tasks.contains(&task);
        (is_late || is_early).then_some(what)
    });
    wrong.collect()
}

/// A unit that waits for a state is done only after its provider has shown the state.
fn states(simulation: &Simulation) -> Vec<String> {
    let (table, state) = (simulation.table.state(), simulation.ledger.state());
    let units = state.units.values().filter(|unit| unit.action == UnitAction::Provider && unit.sets_up());
    let mut wrong = Vec::new();
    for unit in units {
        let of = |attempt| (unit.run(), Unit(unit.unit), Attempt(attempt));
        let records = table.all().flat_map(|table| table.records.range(of(0)..=of(u32::MAX)));
        let results = records.filter_map(|(_, record)| record.result.as_ref());
        for result in results.filter(|result| result.outcome == AttemptOutcome::Succeeded) {
            let endpoint = match &result.outputs {
                OutputStorage::Inline(outputs) => outputs.get("endpoint"),
                _ => None,
            };
            let id = if let Some(UnitValue::Json(id)) = endpoint { id.as_str().unwrap_or_default() } else { "" };
            if !state.ready.contains(id) {
                wrong.push(format!("{} is done with {endpoint:?}, which was never shown as ready", unit.name));
            }
        }
    }
    wrong
}

/// After all retentions, the table has only the data of instances whose resources may exist.
pub(super) fn removed(simulation: &Simulation) {
    let mut wrong = std::mem::take(&mut simulation.table.state().wrong);
    let mut kept = BTreeSet::new();
    let expiries = simulation.table.state().expiries.clone();
    for InstanceExpiry { kind, name, uid, generation, plan, .. } in expiries.into_values() {
        let named = TargetHead::new(&kind, &name, &uid, Timestamp::default());
        let target = TargetHead { first_generation: generation, plan, ..named };
        match listed(simulation, &target, ListedUnits::Possible).is_empty() {
            true => wrong.push(format!("the removal of {uid} does not end")),
            false => drop(kept.insert(target.instance_key())),
        }
    }
    let state = simulation.table.state();
    let records = state.records.keys().chain(state.accepted.keys()).map(|(run, ..)| run);
    let runs = state.heads.keys().chain(records).chain(&state.marks).map(RunId::as_str);
    wrong.extend(state.object_expiries.iter().map(|key| format!("the removal time {key} is left")));
    let objects = simulation.table.objects();
    // A source keeps what its lists have shown as long as it has a document.
    let objects = objects.iter().filter(|key| !key.starts_with("lists/")).filter_map(|key| key.split('/').nth(1));
    for key in runs.chain(objects).chain(state.plans.keys().map(String::as_str)).collect::<BTreeSet<_>>() {
        if !kept.iter().any(|instance: &String| key.starts_with(instance)) {
            wrong.push(format!("{key} is left after its retention"));
        }
    }
    wrong.into_iter().for_each(|what| simulation.ledger.report_violation(what));
}

fn messages(simulation: &Simulation, end: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let (sent, last, attempts, polls) = {
        let state = simulation.ledger.state();
        let last = state.messages.last().map_or(0, |(at, _)| *at);
        let waits = simulation.table.state().slot_waits;
        (state.messages.len() as u64, last, state.attempts.len() as u64, state.polls + waits)
    };
    let hours = end.div_ceil(3_600_000);
    let instances = simulation.ledger.state().instances.len() as u64;
    let bound = instances * (MESSAGES_PER_INSTANCE + MESSAGES_PER_INSTANCE_HOUR * hours)
        + MESSAGES_PER_ATTEMPT * attempts
        + MESSAGES_PER_POLL * polls;
    if sent > bound {
        wrong.push(format!("{sent} messages for {instances} instances with {attempts} attempts in {hours} hours"));
    }
    let quiet = simulation.runtime.elapsed().saturating_sub(LINGER_MS / 3);
    if last > quiet {
        wrong.push("messages are sent although nothing is in progress".to_owned());
    }
    wrong
}
