//! The instances of a simulation, by the writes of their targets: to whom each belongs, its document, who may end it.
//!
//! Documents name their sender and their revision in labels. So a check knows from the stored plan alone whose document
//! an instance has, and whether it is the newest.

use ebb_documents::model::HookOwner;
use ebb_engine::EventName;
use ebb_protocol::{TargetAccess, TargetLimit, TargetStopCause};

use super::*;

/// The sender of the instances of the platform and of the API.
pub(super) const DIRECT: &str = "direct";
/// The sender of deletions by people, who may end every instance.
pub(super) const PERSON: &str = "person";
/// The same, also of those with a protected resource.
pub(super) const OPERATOR: &str = "operator";

/// The caller of the API whose scope covers every target, and the one that may change its own targets only.
pub(super) const CALLERS: [&str; 2] = ["token a", OWN];
const OWN: &str = "token b";
pub(super) const PLATFORM: &str = "platform";

/// What an event of a source does at its limit, if it ends another target.
pub(super) const REPLACE: &str = "replaceOldest";

pub(super) fn access(caller: &str) -> TargetAccess {
    let limit = if caller == OWN { TargetLimit::Own } else { TargetLimit::All };
    TargetAccess { caller: caller.to_owned(), limits: vec![limit] }
}

/// A document of the platform or of the API that was accepted.
#[derive(Clone, Debug)]
pub(super) struct AcceptedDocument {
    pub(super) generation: u64,
    pub(super) revision: String,
    pub(super) routing_key: Option<String>,
}

/// An instance that has begun or waits for its name.
#[derive(Clone, Debug, Default)]
pub(super) struct InstanceEntry {
    pub(super) name: String,
    /// The sender of its first document.
    pub(super) sender: String,
    /// The owner that its target shows.
    owner: Option<String>,
    /// The revision of its present document.
    pub(super) revision: String,
    pub(super) has_begun: bool,
    was_ready: bool,
    pub(super) was_refused: bool,
    /// The protected resources of its present document.
    protected: BTreeSet<String>,
    /// True if it was deleted while it waited.
    pub(super) has_ended_waiting: bool,
    /// The times at which it began or began to wait, and at which it ended.
    pub(super) since: u64,
    pub(super) until: Option<u64>,
    /// True if one of its documents has no event, so that events may be dropped.
    loses_events: bool,
    plan: String,
    /// The plugin of its first resource.
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestedDeletion {
    pub(super) by: String,
    pub(super) name: String,
    /// `None` means every instance of the name that the sender has created.
    pub(super) uid: Option<String>,
}

pub(super) fn document(text: &str, by: &str, revision: &str) -> String {
    text.replacen("resources:", &format!("labels: {{by: {by}, rev: \"{revision}\"}}\nresources:"), 1)
}

impl LedgerState {
    /// Returns the newest generation of the last living instance of a name that the platform or the API has changed.
    pub(super) fn newest_generation(&self, name: &str) -> Option<u64> {
        let living = self.instances.iter().filter(|(_, entry)| entry.name == name && entry.until.is_none());
        let accepted = living.filter_map(|(uid, entry)| Some((entry.since, self.accepted.get(uid)?)));
        let (_, documents) = accepted.max_by_key(|(since, _)| *since)?;
        documents.iter().map(|one| one.generation).max()
    }

    /// Returns true if as many targets of a source live as its limit permits, or more.
    pub(super) fn is_full(&self, state: &TableState, source: &str) -> bool {
        self.limits.get(source).is_some_and(|(most, _)| state.living_of(source) >= *most)
    }
}

impl Ledger {
    /// Returns true if a deletion of an instance was requested by its sender or by a person, but as [`OPERATOR`] only by it.
    pub(super) fn is_deleted_by(&self, sender: &str, name: &str, uid: &str) -> bool {
        self.state().deletions.iter().any(|deletion| {
            let is_of = deletion.name == name && deletion.uid.as_deref().is_none_or(|of| of == uid);
            is_of
                && (deletion.by == sender || (sender != OPERATOR && [PERSON, OPERATOR].contains(&deletion.by.as_str())))
        })
    }

    /// Checks a write of a target. Returns the plan of its instance if the write gives it one.
    pub(super) fn observe(&self, state: &TableState, seen: Option<&TargetHead>, target: &TargetHead) -> Option<Plan> {
        if let Some(seen) = seen {
            self.check_end(seen, target);
            self.check_listed(state, seen, target);
            if (&seen.uid, seen.phase) != (&target.uid, target.phase) && target.since <= seen.since {
                let (now, before) = ((target.phase, target.since), (seen.phase, seen.since));
                self.report_violation(format!("{} is {now:?} after {} was {before:?}", target.uid, seen.uid));
            }
        }
        let stays = seen.filter(|seen| (&seen.uid, seen.phase) == (&target.uid, target.phase));
        if stays.is_none() {
            self.check_bound(state, target);
        }
        let source = target.source.as_ref().filter(|_| target.phase.is_alive());
        let limit = source.and_then(|source| self.state().limits.get(source).copied());
        if limit.zip(source).is_some_and(|((most, _), source)| state.living_of(source) > most) {
            self.report_violation(format!("{} lives, and its source has reached {limit:?}", target.uid));
        }
        let entered = match stays.filter(|seen| seen.phase == TargetPhase::Ready) {
            Some(seen) => seen.phase_since(),
            None => target.since,
        };
        if target.phase_since() != entered {
            let (phase, since) = (target.phase, target.phase_since());
            self.report_violation(format!("{} is {phase:?} since {entered:?}, and says {since:?}", target.uid));
        }
        if target.first_cause.is_some() && !matches!(target.phase, TargetPhase::Failed | TargetPhase::Stuck) {
            self.report_violation(format!("{} is {:?} and has a cause", target.uid, target.phase));
        }
        if let Some(seen) = seen {
            self.check_refused(seen, target);
        }
        if let Some(waiting) = &target.waiting {
            self.enter(state, target, (&waiting.uid, &waiting.owner), &waiting.plan, false);
        }
        let has_plan = target.phase.is_alive() && !target.plan.is_empty();
        has_plan.then(|| self.enter(state, target, (&target.uid, &target.owner), &target.plan, true)).flatten()
    }

    /// Records an update that is refused when it should begin. It changes nothing.
    fn check_refused(&self, seen: &TargetHead, target: &TargetHead) {
        let Some(pending) = seen.pending_update.as_ref().filter(|_| target.pending_update.is_none()) else { return };
        let is_of = target.refused_update.as_ref().is_some_and(|refused| refused.generation == pending.generation);
        if !is_of || !target.phase.is_alive() {
            return;
        }
        let state_of = |target: &TargetHead| (target.phase, target.hook, target.generation, target.plan.clone());
        if state_of(target) != state_of(seen) {
            self.report_violation(format!("a refused update changes {}: {target:?}", target.uid));
        }
        let mut ledger = self.state();
        let accepted = ledger.accepted.get(&seen.uid).map_or(0, Vec::len);
        ledger.refused.insert((seen.uid.clone(), accepted, seen.generation, pending.generation));
    }

    /// Records the document of an instance. Checks that the instance keeps its owner, who has sent its first document.
    fn enter(
        &self,
        state: &TableState,
        target: &TargetHead,
        (uid, owner): (&str, &Option<String>),
        digest: &str,
        has_begun: bool,
    ) -> Option<Plan> {
        let mut entry = self.state().instances.get(uid).cloned().unwrap_or_default();
        if !entry.sender.is_empty() && entry.owner != *owner {
            self.report_violation(format!("{uid} of {:?} belongs to {owner:?}", entry.owner));
        }
        if entry.plan == digest && entry.has_begun == has_begun {
            return None;
        }
        let json = state.plans.get(&instance_key(KIND, &target.name, uid))?;
        let plan = Plan::from_json(std::str::from_utf8(json).ok()?).expect("the functions store plans");
        let label = |key: &str| plan.target.labels.get(key).cloned();
        let by = label("by").unwrap_or_else(|| DIRECT.to_owned());
        entry.revision = label("rev").unwrap_or_default();
        let creator = self.state().owners.get(&entry.revision).cloned();
        if entry.sender.is_empty() {
            entry.sender.clone_from(&by);
            entry.owner.clone_from(owner);
            entry.since = self.now();
            if creator.is_some() && creator != *owner {
                self.report_violation(format!("{uid} was created by {creator:?} and belongs to {owner:?}"));
            }
        } else if entry.sender != by {
            self.report_violation(format!("{uid} of {} gets a document of {by}", entry.sender));
        }
        if creator.as_deref() == Some(OWN) && entry.owner != creator {
            self.report_violation(format!("{uid} of {:?} gets a document of {OWN}", entry.owner));
        }
        entry.name.clone_from(&target.name);
        entry.has_begun = has_begun;
        self.check_lost(state, target, &plan, &entry);
        self.check_version(&plan, uid, &mut entry);
        entry.protected = plan.protected().cloned().collect();
        let event = EventName::new(EVENT).map(Hook::Event).expect("it is a name");
        entry.loses_events |= plan.hook_plan(event).is_none();
        entry.plan = digest.to_owned();
        self.state().instances.insert(uid.to_owned(), entry);
        Some(plan)
    }

    /// An update to the revision of `entry` ends no complete resource that was protected, or none at all as requested.
    fn check_lost(&self, state: &TableState, target: &TargetHead, plan: &Plan, entry: &InstanceEntry) {
        let Some(update) = plan.update.as_ref() else { return };
        let mut complete: BTreeMap<&str, bool> = BTreeMap::new();
        for (at, unit) in plan.hooks.iter().flat_map(HookPlan::places) {
            let Some((name, number)) = unit.resource().split_once('~') else { continue };
            if number == update.number.to_string() && unit.stage.unwrap_or(at.hook) == Hook::PreStart {
                *complete.entry(name).or_insert(true) &= state.lets_pass(&target.run(at.hook), at.unit, unit.tolerated);
            }
        }
        for (name, _) in complete.into_iter().filter(|(name, is_complete)| *is_complete && *name != HookOwner::BIND) {
            self.state().kept[3] += 1;
            if entry.protected.contains(name) || self.state().keeping.contains(&entry.revision) {
                self.report_violation(format!("revision {} of {} ends `{name}`", entry.revision, target.uid));
            }
        }
    }

    /// The documents of a source keep the version of a plugin until an upgrade changes it.
    fn check_version(&self, plan: &Plan, uid: &str, entry: &mut InstanceEntry) {
        let version = plan.resources.get("a").map(|resource| resource.plugin.clone()).unwrap_or_default();
        let before = std::mem::replace(&mut entry.version, version.clone());
        let is_of_source = entry.owner.as_ref().is_some_and(|owner| owner.starts_with("source "));
        let mut state = self.state();
        state.repaired[3] += u64::from(before == version && state.upgraded.get(uid) == Some(&version));
        let is_free = before.is_empty() || before == version || !is_of_source || !state.is_ranged;
        if !is_free && !state.upgrades.remove(&(uid.to_owned(), version.clone())) {
            drop(state);
            self.report_violation(format!("{uid} goes from {before} to {version} without an upgrade"));
        }
    }

    /// A target that was ready ends with a protected resource by an operator only.
    fn check_protected(&self, seen: &TargetHead, end: Option<TargetStopCause>) {
        let is_deleted = self.is_deleted_by(OPERATOR, &seen.name, &seen.uid);
        let mut state = self.state();
        let Some(entry) = state.instances.get_mut(&seen.uid) else { return };
        entry.was_ready |= seen.phase == TargetPhase::Ready;
        entry.was_refused |= seen.refused_deletion.is_some();
        let Some(cause) = end.filter(|_| entry.was_ready && !entry.protected.is_empty()) else { return };
        let is_permitted = is_deleted && cause == TargetStopCause::Deleted;
        state.kept[2] += u64::from(is_permitted);
        drop(state);
        if !is_permitted {
            self.report_violation(format!("{} has a protected resource, and is {cause:?}", seen.uid));
        }
    }

    /// An instance ends by its sender, by a person or by its time to live. So does one that waits.
    fn check_end(&self, seen: &TargetHead, target: &TargetHead) {
        let sender = |uid: &str| self.state().instances.get(uid).map(|entry| entry.sender.clone()).unwrap_or_default();
        let ends = seen.uid == target.uid && seen.phase.is_alive() && !target.phase.is_alive();
        if seen.uid != target.uid || target.phase == TargetPhase::Gone {
            self.note_end(&seen.uid);
        }
        if seen.uid == target.uid && seen.phase != target.phase && target.phase == TargetPhase::Gone {
            self.check_left(target);
        }
        self.check_protected(seen, ends.then_some(target.stop_cause));
        if ends && target.stop_cause == TargetStopCause::Deleted {
            let sender = sender(&seen.uid);
            if self.state().limits.get(&sender).is_some_and(|(_, then)| *then == REPLACE) {
                let now = self.runtime.elapsed();
                self.state().deleted.insert(seen.name.clone(), now);
            } else if !self.is_deleted_by(&sender, &seen.name, &seen.uid) {
                self.report_violation(format!("{} of {sender} ends, and {sender} has not deleted it", seen.uid));
            }
        }
        let Some(waiting) = seen.waiting.as_ref().map(|waiting| &waiting.uid) else { return };
        let stays = target.uid == *waiting || target.waiting.as_ref().is_some_and(|after| after.uid == *waiting);
        if !stays {
            self.note_end(waiting);
            if let Some(entry) = self.state().instances.get_mut(waiting) {
                entry.has_ended_waiting = true;
            }
        }
        // The request of the second instance is applied again, and changes the first one or is rejected.
        let is_second =
            waiting.starts_with("api-") || (waiting.starts_with("event-") && sender(waiting) == sender(&seen.uid));
        let sender = sender(waiting);
        if !stays && !is_second && !self.is_deleted_by(&sender, &seen.name, waiting) {
            self.report_violation(format!("{waiting} of {sender} waits no more, and {sender} has not deleted it"));
        }
    }
}

impl InstanceEntry {
    /// Returns true if the instance had or wanted its name at about this time.
    pub(super) fn is_of(&self, time: u64) -> bool {
        self.since <= time + 2 * MAX_SKEW_MS && self.until.is_none_or(|until| until + 2 * MAX_SKEW_MS >= time)
    }
}

/// Returns the key of a setup unit of a ready target that is not done, and whose failure is not tolerated.
pub fn incomplete(state: &TableState, target: &TargetHead, plan: &Plan) -> Option<String> {
    let is_tolerated = |at: &UnitRef| plan.unit(*at).is_some_and(|unit| unit.tolerated);
    let is_done = |at: &UnitRef| state.lets_pass(&target.run(at.hook), at.unit, is_tolerated(at));
    let setup: Vec<UnitRef> = match &plan.update {
        Some(update) => update.resources.values().flat_map(|origin| origin.units.values().copied()).collect(),
        None => {
            let units = plan.hook_plan(Hook::PreStart).map_or(0, |hook| hook.units.len());
            (0..).take(units).map(|unit| UnitRef { hook: Hook::PreStart, unit }).collect()
        }
    };
    let open = setup.into_iter().find(|at| !is_done(at))?;
    Some(plan.unit(open).map_or_else(|| format!("{open:?}"), |unit| unit.key.clone()))
}

/// Checks a simulation in which nothing is in progress and all senders have their responses.
pub(super) fn settled(simulation: &Simulation) {
    let state = simulation.table.state().clone();
    let ledger = simulation.ledger.state().clone();
    let LedgerState { instances, accepted, events, repeated, refused, upgraded, .. } = &ledger;
    let mut wrong = Vec::new();
    for target in state.targets.values().filter(|target| target.phase.is_alive()) {
        let uid = &target.uid;
        let Some(plan) = state.plan(&target.instance_key()) else { continue };
        if target.phase == TargetPhase::Ready
            && let Some(unit) = incomplete(&state, target, &plan)
        {
            wrong.push(format!("{uid} is ready, and {unit} is not done"));
        }
        if target.refused_deletion.is_some() && plan.protected().next().is_none() {
            wrong.push(format!("{uid} lives without a protected resource, and its deletion was refused"));
        }
        let Some(entry) = instances.get(uid) else { continue };
        for id in events.iter().filter(|(of, _)| of == uid && !entry.loses_events).map(|(_, id)| id) {
            let event = EventRef::new(EventName::new(EVENT).expect("it is a name"), id);
            let is_of = |run: &&RunId| run.as_str().ends_with(&format!("-on-{event}"));
            let ran = state.find(|table| table.heads.keys().find(is_of));
            if target.phase == TargetPhase::Ready && ran.is_none() {
                wrong.push(format!("the event {id} of {uid} was accepted and never ran"));
            }
        }
    }
    for (uid, entry) in instances {
        let of_name = state.targets.get(&entry.name);
        let lives = of_name.is_some_and(|target| is_present(target, uid));
        if lives && ledger.deletions.iter().any(|one| one.by == OPERATOR && one.uid.as_ref() == Some(uid)) {
            wrong.push(format!("{uid} was deleted by an operator and lives"));
        }
        let Some(target) = of_name.filter(|_| lives && !repeated.contains(&entry.revision)) else { continue };
        let upgraded = upgraded.get(uid).filter(|_| !refused.iter().any(|(of, ..)| of == uid));
        if let Some(plugin) = upgraded.filter(|plugin| **plugin != entry.version) {
            wrong.push(format!("{uid} has {}, and was upgraded to {plugin}", entry.version));
        }
        // An update that is refused when it would begin has replaced those that waited before it.
        let is_kept = |&(number, document): &(usize, &AcceptedDocument)| {
            let generation = document.generation;
            let replaces = |accepted, kept, update| number < accepted && kept < generation && generation <= update;
            !refused.iter().any(|(of, accepted, kept, update)| of == uid && replaces(*accepted, *kept, *update))
        };
        let accepted = accepted.get(uid).into_iter().flatten().enumerate().filter(is_kept);
        let accepted: Vec<&AcceptedDocument> = accepted.map(|(_, document)| document).collect();
        let generation = accepted.iter().map(|one| one.generation).max();
        let newest: BTreeSet<&str> =
            accepted.iter().filter(|one| Some(one.generation) == generation).map(|one| one.revision.as_str()).collect();
        if !newest.is_empty() && newest != BTreeSet::from([entry.revision.as_str()]) {
            wrong.push(format!("{uid} has revision {}, and {newest:?} was accepted", entry.revision));
        }
        // A document without a routing key keeps the one before. One that arrives late changes nothing.
        let newest_before = |number: usize| accepted[..number].iter().map(|one| one.generation).max();
        let in_order = (0..accepted.len()).filter(|&number| Some(accepted[number].generation) >= newest_before(number));
        // The response to the creation may arrive before that to an update which overtook it.
        let is_late = |one: &AcceptedDocument| one.generation == 1 && generation > Some(1);
        let mut keyed = in_order.rev().map(|number| accepted[number]);
        let keyed = keyed.find(|one| one.routing_key.is_some() && !is_late(one));
        let waiting = target.waiting.as_ref().filter(|waiting| waiting.uid == *uid);
        let present = waiting.map_or(&target.routing_key, |waiting| &waiting.routing_key);
        if let Some(keyed) = keyed.filter(|keyed| keyed.routing_key != *present) {
            wrong.push(format!("{uid} has the routing key {present:?}, and {keyed:?} was accepted"));
        }
    }
    wrong.extend(state.desired.values().filter_map(|record| senders::check(record, &state, &ledger)));
    wrong.extend(origins::orphans(simulation));
    wrong.into_iter().for_each(|what| simulation.ledger.report_violation(what));
}

/// Returns true if an instance lives or waits for the name of a target.
pub(super) fn is_present(target: &TargetHead, uid: &str) -> bool {
    target.has_waiting(uid) || (target.uid == uid && target.phase.is_alive())
}
