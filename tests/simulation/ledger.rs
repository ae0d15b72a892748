//! The events outside of the table, and the checks that run when they happen.

use std::ops::RangeInclusive;

use ebb_engine::retry;
use ebb_protocol::rfc3339;

use super::*;

/// The longest time for which a reader waits for the reports of relays, whose ages count until then.
const REPORT_MS: u64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptReceiver {
    Server,
    /// A relay with a free slot.
    Relay,
    /// A relay that kept the request until a slot was free.
    Queue,
}

impl AttemptReceiver {
    pub(super) fn kills(self) -> bool {
        self != Self::Server
    }
}

#[derive(Clone, Debug)]
pub struct AttemptEntry {
    pub unit: Arc<SimUnit>,
    pub(super) run: RunId,
    pub attempt: u32,
    pub(super) receiver: AttemptReceiver,
    pub began: u64,
    pub by: SimTaskId,
    /// The requests that its server got.
    pub requests: u32,
    /// The ids of the objects that it reads.
    pub reads: Vec<String>,
    /// True if a relay or a callback reports its end, possibly late.
    pub(super) reports: bool,
    /// The time at which its sender gave the request up. The sender treats the attempt as failed.
    pub given_up: Option<u64>,
    /// The time of its end, and true if it succeeded.
    pub result: Option<(u64, bool)>,
    /// The time at which it has ended or was killed.
    pub(super) over: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct SimObject {
    pub(super) unit: Arc<SimUnit>,
    /// True if a server made it after its sender had given the attempt up, and cannot report it.
    pub(super) unreported: bool,
}

#[derive(Clone, Debug)]
pub struct NotificationEntry {
    pub(super) id: String,
    pub at: u64,
    pub(super) time: Timestamp,
    pub kind: String,
    pub(super) uid: String,
}

#[derive(Clone, Default)]
pub struct LedgerState {
    pub(super) units: BTreeMap<String, Arc<SimUnit>>,
    pub(super) github: GithubStandIn,
    pub(super) objects: BTreeMap<String, SimObject>,
    /// The objects of `bind`, by name.
    pub(super) bound: BTreeMap<String, SimBound>,
    /// The units of `bind` whose records their relay has lost, as in the names of tasks.
    pub(super) forgotten: BTreeSet<String>,
    /// The tasks that a relay has refused once. A duplicate of the request may begin later.
    pub(super) refused_tasks: BTreeSet<TaskId>,
    /// The updates that were refused when they should have begun: the UID, the number of documents that were accepted before,
    /// the generation that the instance kept, and that of the update.
    pub(super) refused: BTreeSet<(String, usize, u64, u64)>,
    /// Relays have reported policies that refuse every object.
    pub(super) strict_policies: usize,
    pub(super) things: BTreeMap<String, SimThing>,
    /// The ids of the things that the provider has shown as ready.
    pub(super) ready: BTreeSet<String>,
    /// The number of questions for the state of a thing.
    pub(super) polls: u64,
    /// The slots of the connection to the provider, if it has few.
    pub(super) connection_slots: Option<usize>,
    /// The numbers of requests with an answer to a challenge, and with a signature of AWS.
    pub authenticated: [u64; 2],
    /// The UIDs of the gone instances that have unconfirmed removals.
    pub(super) unconfirmed: BTreeSet<String>,
    pub attempts: Vec<AttemptEntry>,
    /// The number of attempts that run, and of callbacks and webhooks that have no response yet.
    pub(super) active: usize,
    pub notifications: Vec<NotificationEntry>,
    /// The notifications that receivers of subscriptions accepted.
    pub received: Vec<ReceivedNotice>,
    /// The subscriptions whose receiver refuses everything, with its status.
    pub refusing: BTreeMap<String, u16>,
    /// The subscriptions whose receiver never responds.
    pub hanging: BTreeSet<String>,
    /// The begins and ends of the requests to receivers that never respond.
    pub hung: Vec<(u64, u64)>,
    /// The instances that have begun or wait, by UID.
    pub(super) instances: BTreeMap<String, InstanceEntry>,
    pub(super) deletions: BTreeSet<RequestedDeletion>,
    /// The documents that the platform or the API has sent and that were accepted, by UID.
    pub(super) accepted: BTreeMap<String, Vec<AcceptedDocument>>,
    /// The revisions of requests that were sent again. An instance may have such a document, and another one the response.
    pub(super) repeated: BTreeSet<String>,
    /// The revisions of requests that may end no complete resource.
    pub(super) keeping: BTreeSet<String>,
    /// The numbers of updates and deletions that a protected resource has prevented, of permitted ends of targets with a
    /// protected resource, and of complete resources that updates have ended.
    pub(super) kept: [u64; 4],
    /// The attempts of wrong undos before an operator corrected them, by key.
    pub(super) corrected: BTreeMap<String, u32>,
    /// True if the documents of sources have ranges of versions.
    pub(super) is_ranged: bool,
    /// The upgrades that were requested and have not begun, and the last ones that were accepted: UIDs and plugins.
    pub(super) upgrades: BTreeSet<(String, String)>,
    pub(super) upgraded: BTreeMap<String, String>,
    /// The numbers of repairs by a document, of successes of the undos that they have corrected, of upgrades of targets of
    /// sources, and of later documents that have kept the version.
    pub(super) repaired: [u64; 4],
    /// The numbers of requests for a generation that were accepted, and that came too late, and of operations on selected
    /// instances whose name another one had.
    pub(super) conditional: [u64; 3],
    /// The times at which the last deletions by people had their responses, by name.
    pub(super) deleted: BTreeMap<String, u64>,
    pub(super) sent: Vec<SentEvent>,
    pub(super) origins: SimOrigins,
    /// The most living targets of sources with a limit, and what the next event does.
    pub(super) limits: BTreeMap<String, (usize, &'static str)>,
    /// The owners of the instances that begin with a document of a revision.
    pub(super) owners: BTreeMap<String, String>,
    pub(super) revisions: u64,
    /// The events that were accepted: uid and id.
    pub(super) events: BTreeSet<(String, String)>,
    /// The time of the last update or event that an instance accepted, by UID.
    pub(super) last_activity: BTreeMap<String, u64>,
    pub messages: Vec<(u64, QueueMessage)>,
    pub(super) violations: Vec<String>,
    /// Requests to servers that wait for their responses.
    posted: BTreeSet<String>,
    /// Attempts that an invocation passed on to another one.
    pub(super) passed_on: BTreeSet<String>,
    /// Units that fail until they are repaired, and repaired ones.
    broken: BTreeMap<String, bool>,
    pub(super) trace: Vec<(u64, String)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TimeBounds {
    pub(super) max_in_flight: u64,
    /// The longest wait for the response to a request after a cancel.
    pub(super) response: u64,
    /// The largest difference between two clocks of functions.
    pub(super) skew: u64,
}

pub struct Ledger {
    pub(super) runtime: SimRuntime,
    pub(super) table: Arc<SimTable>,
    pub(super) bounds: TimeBounds,
    is_traced: bool,
    state: Mutex<LedgerState>,
}

impl Ledger {
    pub(super) fn new(runtime: SimRuntime, table: Arc<SimTable>, bounds: TimeBounds, is_traced: bool) -> Self {
        Self { runtime, table, bounds, is_traced, state: Mutex::default() }
    }

    pub fn state(&self) -> MutexGuard<'_, LedgerState> {
        lock(&self.state)
    }

    pub(super) fn now(&self) -> u64 {
        self.runtime.now().0
    }

    /// Records that an instance ends, or waits no more.
    pub(super) fn note_end(&self, uid: &str) {
        let now = self.now();
        if let Some(entry) = self.state().instances.get_mut(uid) {
            entry.until.get_or_insert(now);
        }
    }

    pub(super) fn unit(&self, key: &str) -> Option<Arc<SimUnit>> {
        let state = self.state();
        // A repeated request has a number after its key.
        let first = || key.rsplit_once('-').map(|(first, _)| first);
        state.units.get(key).or_else(|| state.units.get(first()?)).cloned()
    }

    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            let line = (self.runtime.elapsed(), what());
            self.state().trace.push(line);
        }
    }

    pub(super) fn report_violation(&self, what: String) {
        self.trace(|| format!("WRONG {what}"));
        let at = self.runtime.elapsed();
        self.state().violations.push(format!("at {at}: {what}"));
    }

    pub(super) fn begin(&self, this: AttemptEntry) -> usize {
        self.trace(|| format!("begins {} #{} reads {:?}", this.unit.name, this.attempt, this.reads));
        if let Some(why) = self.forbids(&this) {
            self.report_violation(format!("{} #{} begins {why}", this.unit.name, this.attempt));
        }
        let own = (&this.unit.key, this.attempt, &this.run);
        if self.state().attempts.iter().any(|other| (&other.unit.key, other.attempt, &other.run) == own) {
            self.report_violation(format!("{} #{} begins twice", this.unit.name, this.attempt));
        }
        let unit = Arc::clone(&this.unit);
        self.state().attempts.push(this);
        self.check_slots(&unit);
        self.state().attempts.len() - 1
    }

    fn forbids(&self, this: &AttemptEntry) -> Option<String> {
        if let Some(other) = self.active_beside(this) {
            return Some(format!("while {} #{} of another run is active", other.unit.name, other.attempt));
        }
        let now = self.runtime.now().0;
        let table = self.table.state();
        let head = table.head(&this.run)?;
        // A queued task may begin until the relay gets a request to remove it.
        if this.unit.sets_up()
            && this.receiver != AttemptReceiver::Queue
            && let Some(stopped) = head.stopped
            && now > stopped.0 + self.bounds.max_in_flight
        {
            return Some(format!("{} ms after its run was stopped", now - stopped.0));
        }
        // A relay that has refused an attempt does not begin it later, unless the record has a start.
        let counts_as_unstarted = |record: &AttemptRecord| {
            let reason = record.result.as_ref().and_then(|result| result.reason.as_ref());
            record.started.is_none() && reason.is_some_and(|reason| reason.code == ReasonCode::NotStartable)
        };
        let own = table.records.get(&(this.run.clone(), Unit(this.unit.unit), Attempt(this.attempt)));
        if this.unit.sets_up() && this.receiver.kills() && own.is_some_and(counts_as_unstarted) {
            return Some("although its record says that it could not start".to_owned());
        }
        let is_done = |unit: u32| table.is_done(&this.run, unit);
        let is_tolerated = |other: u32| {
            let of = |one: &SimUnit| (one.hook, one.planned, one.uid.clone(), one.unit);
            let wanted = (this.unit.hook, this.unit.planned, this.unit.uid.clone(), other);
            self.state().units.values().any(|one| one.plan.tolerated && of(one) == wanted)
        };
        let lets_pass = |other: u32| table.lets_pass(&this.run, other, is_tolerated(other));
        // A late success reopens an undo; a setup unit stays done.
        if this.unit.sets_up()
            && let Some(other) = this.unit.plan.dependencies.iter().find(|&&other| !lets_pass(other))
        {
            return Some(format!("before unit {other} of its hook is done"));
        }
        // A relay rejects lower attempts. An earlier request to a server may still arrive.
        let is_earlier = head.attempt(Unit(this.unit.unit)) > Attempt(this.attempt);
        // It does not know of an attempt that an operator has overridden.
        let newest = (this.run.clone(), Unit(this.unit.unit), head.attempt(Unit(this.unit.unit)));
        let newest = table.records.get(&newest).and_then(|record| record.result.as_ref());
        let has_succeeded = newest.is_some_and(|result| result.outcome == AttemptOutcome::Succeeded);
        let later = this.receiver.kills() && is_earlier && is_done(this.unit.unit) && has_succeeded;
        later.then(|| "although a later attempt has succeeded".to_owned())
    }

    /// Returns an attempt of another run of the instance that may still act, if one of the two belongs to an event.
    ///
    /// A run does not wait for an attempt that the sender of another run has given up. `docs/src/platforms.md` says so. A
    /// deletion waits for the requests of the run that it cancels.
    fn active_beside(&self, this: &AttemptEntry) -> Option<AttemptEntry> {
        let is_event = |entry: &AttemptEntry| matches!(entry.unit.hook, Hook::Event(_));
        let is_beside = |other: &&AttemptEntry| {
            let acts = other.over.is_none() && other.result.is_none();
            acts && other.unit.uid == this.unit.uid && other.run != this.run && (is_event(this) || is_event(other))
        };
        let may_act = |other: &AttemptEntry| match self.is_stopped(&other.run) {
            true => !self.is_past_in_flight(other),
            false => !self.is_given_up(other),
        };
        let beside: Vec<AttemptEntry> = self.state().attempts.iter().filter(is_beside).cloned().collect();
        beside.into_iter().find(may_act)
    }

    /// Returns true if the sender may have given the attempt up, so that its effects are late.
    pub(super) fn is_given_up(&self, this: &AttemptEntry) -> bool {
        if this.receiver.kills() {
            return false;
        }
        let now = self.runtime.elapsed() + self.bounds.skew;
        if this.given_up.is_some() || now >= this.began + this.unit.plan.timeout_ms {
            return true;
        }
        let table = self.table.state();
        let stopped = table.head(&this.run).and_then(|head| head.stopped);
        let key = (this.run.clone(), Unit(this.unit.unit), Attempt(this.attempt));
        let record = table.find(|table| table.records.get(&key));
        let concluded = record.is_some_and(|record| record.result.is_some());
        // The wait after a stop is the in-flight limit for an accepted request, and the response window for others.
        let accepted = record.is_some_and(|record| record.accepted.is_some());
        let accepted = accepted || table.find(|table| table.accepted.get(&key)).is_some();
        let wait = if accepted { self.bounds.max_in_flight } else { self.bounds.response };
        concluded || stopped.is_some_and(|at| self.runtime.now().0 + self.bounds.skew >= at.0 + wait)
    }

    /// Returns true if no teardown waits for an attempt. A teardown waits for a request without a response.
    pub(super) fn is_past_in_flight(&self, this: &AttemptEntry) -> bool {
        match this.given_up {
            Some(at) => self.runtime.elapsed() + self.bounds.skew >= at + self.bounds.max_in_flight,
            None => self.is_given_up(this),
        }
    }

    pub(super) fn is_stopped(&self, run: &RunId) -> bool {
        self.table.state().head(run).is_some_and(|head| head.stopped.is_some())
    }

    /// Returns true if a run that undoes a unit has begun.
    pub(super) fn is_torn_down(&self, unit: &SimUnit) -> bool {
        let runs: Vec<RunId> =
            self.state().units.values().filter(|undo| undo.undoes.contains(&unit.key)).map(|undo| undo.run()).collect();
        let table = self.table.state();
        runs.iter().any(|run| table.heads.contains_key(run))
    }

    /// Returns true if the removal of a run has begun. It clears the plan of the target, and removes the head of the first run.
    pub(super) fn is_removed(&self, run: &RunId) -> bool {
        let table = self.table.state();
        let is_of = |target: &TargetHead| run.as_str().starts_with(&target.instance_key());
        let is_beside = |of: &RunId| {
            !matches!(of.hook(), Hook::Event(_)) && of.sibling(Hook::PreStart) == run.sibling(Hook::PreStart)
        };
        let mut removed = table.removed.iter().flat_map(|removed| removed.heads.keys());
        !table.heads.contains_key(run)
            || removed.any(is_beside)
            || table.targets.values().any(|target| target.plan.is_empty() && is_of(target))
    }

    /// Checks that the objects that an attempt reads exist.
    pub(super) fn check_reads(&self, number: usize, when: &str) {
        let this = self.state().attempts[number].clone();
        if !this.unit.sets_up() || self.is_given_up(&this) {
            return;
        }
        for id in this.reads.iter().filter(|id| self.is_missing(id)) {
            self.report_violation(format!("{} #{} {when} without {id}", this.unit.name, this.attempt));
        }
    }

    /// Returns true if the object that a unit has reported with this id does not exist.
    pub(super) fn is_missing(&self, id: &str) -> bool {
        let state = self.state();
        let maker = id.split('.').next().and_then(|key| state.units.get(key));
        // An update in place can add an undo to a unit that has made nothing, which reported its key.
        let made_nothing = || {
            let of = |one: &AttemptEntry| one.unit.key == id && one.unit.effect == UnitEffect::Nothing;
            state.attempts.iter().any(|one| of(one) && matches!(one.result, Some((_, true))))
        };
        maker.is_some_and(|maker| maker.effect != UnitEffect::Nothing)
            && !state.objects.contains_key(id)
            && !made_nothing()
    }

    /// Checks that no running attempt creates or uses the objects that an undo deletes.
    pub(super) fn check_undone(&self, undo: &SimUnit, when: &str) {
        let running: Vec<AttemptEntry> =
            self.state().attempts.iter().filter(|one| one.over.is_none()).cloned().collect();
        for one in running {
            let makes = undo.undoes.contains(&one.unit.key);
            let of = |id: &String| undo.undoes.iter().any(|key| id.split('.').next() == Some(key));
            let uses = one.unit.sets_up() && one.reads.iter().any(of);
            if (makes && !self.is_past_in_flight(&one)) || (uses && !self.is_given_up(&one)) {
                let verb = if makes { "makes" } else { "uses" };
                self.report_violation(format!(
                    "{} {when} while {} #{} still {verb} what it undoes",
                    undo.name, one.unit.name, one.attempt
                ));
            }
        }
    }

    /// Returns true if the unit of `key` fails until it is repaired. The first call decides by `breaks`.
    pub(super) fn is_broken(&self, key: &str, breaks: impl FnOnce() -> bool) -> bool {
        let known = self.state().broken.get(key).copied();
        known.unwrap_or_else(|| {
            let broken = breaks();
            self.state().broken.insert(key.to_owned(), broken);
            broken
        })
    }

    /// Removes the things whose deletion has ended.
    pub(super) fn settle_things(&self) {
        let now = self.runtime.elapsed();
        let due: Vec<String> = {
            let state = self.state();
            let due = state.things.iter().filter(|(_, thing)| thing.gone_at.is_some_and(|at| at <= now));
            due.map(|(id, _)| id.clone()).collect()
        };
        for id in due.into_iter().filter(|id| !self.is_broken(&SimThing::stays(id), || false)) {
            self.trace(|| format!("{id} is gone"));
            let mut state = self.state();
            state.things.remove(&id);
            state.objects.remove(&id);
        }
    }

    /// Checks a target that becomes gone: it has nothing at the provider or at a plugin of InfraKit, unless its head counts
    /// unconfirmed removals.
    pub(super) fn check_left(&self, target: &TargetHead) {
        self.settle_things();
        let mut state = self.state();
        match target.unconfirmed {
            0 => state.unconfirmed.remove(&target.uid),
            _ => state.unconfirmed.insert(target.uid.clone()),
        };
        let is_left = |(_, object): &(&String, &SimObject)| {
            object.unit.uid == target.uid && matches!(object.unit.action, UnitAction::Provider | UnitAction::Plugin)
        };
        let left = state.objects.iter().find(is_left).map(|(id, _)| id.clone());
        drop(state);
        if let Some(id) = left.filter(|_| target.unconfirmed == 0 && !target.is_overridden) {
            self.report_violation(format!("{} is gone and has no unconfirmed removal, and {id} exists", target.uid));
        }
    }

    /// Returns an earlier attempt of the same block whose request was answered, so that it waited for a state, or one that has
    /// made a thing if each request makes another one. With `describe` of such a thing, all earlier attempts count.
    pub(super) fn made_before(&self, unit: &SimUnit, attempt: u32) -> Option<Attempt> {
        let of = |attempt| (unit.run(), Unit(unit.unit), Attempt(attempt));
        let block = |attempt| retry::attempt_block(attempt, unit.plan.retry.attempts);
        let is_once = unit.plan.action.is_non_idempotent();
        let asks = matches!(&unit.plan.action, Action::Webhook(webhook) if is_once && webhook.describe.is_some());
        let is_same = |other: &Attempt| *other < Attempt(attempt) && (asks || block(*other) == block(Attempt(attempt)));
        let waited = self.table.state().find(|table| {
            let earlier = table.records.range(of(0)..of(attempt));
            earlier.filter(|(_, record)| record.wait.is_some()).map(|((_, _, other), _)| *other).find(is_same)
        });
        let is_own = |thing: &&SimThing| is_once && thing.unit.key == unit.key;
        let made = || {
            let state = self.state();
            state.things.values().filter(is_own).map(|thing| Attempt(thing.attempt)).find(is_same)
        };
        waited.or_else(made)
    }

    /// Returns the possible times of the start of an attempt, by the clock of a function that asked its relay.
    pub(super) fn start_times(&self, this: &AttemptEntry) -> RangeInclusive<Timestamp> {
        let began = self.at(this.began);
        let (skew, latest) = (self.bounds.skew, Timestamp(began.0 + self.bounds.skew + REPORT_MS));
        Timestamp(began.0 - skew)..=latest
    }

    /// Returns a time since the begin of the simulation as the time of a correct clock.
    pub(super) fn at(&self, elapsed: u64) -> Timestamp {
        Timestamp(self.now() - self.runtime.elapsed() + elapsed)
    }

    /// Checks the start that a person was shown of an attempt that still runs at a relay. So two reads show the same
    /// one, as far as clocks and requests permit.
    pub(super) fn check_shown_start(&self, number: usize, detail: &RunDetail) {
        let this = self.state().attempts[number].clone();
        let shown = detail.units.get(this.unit.unit as usize).filter(|shown| shown.attempt == this.attempt);
        let Some(started) = shown.and_then(|shown| shown.started.as_ref()) else { return };
        let (earliest, latest) = self.start_times(&this).into_inner();
        let possible = rfc3339(earliest)..=rfc3339(latest);
        if this.receiver.kills() && this.over.is_none() && !possible.contains(started) {
            let what = format!("{} #{} is shown with the start {started}", this.unit.name, this.attempt);
            self.report_violation(format!("{what}, and began within {possible:?}"));
        }
    }

    /// Repairs every unit that fails, and deletes the bound objects without a record, as an operator does by hand.
    pub(super) fn repair(&self) {
        let mut state = self.state();
        let LedgerState { bound, forgotten, broken, .. } = &mut *state;
        bound.retain(|_, one| !forgotten.contains(&one.owner));
        broken.values_mut().for_each(|broken| *broken = false);
    }
}

/// Changes the state when it is dropped: at the end of what it stands for, even if a task is killed before its first step.
pub(super) struct SimGuard(Arc<Ledger>, Box<GuardEnd>);

/// Gets the state and the elapsed milliseconds.
type GuardEnd = dyn Fn(&mut LedgerState, u64) + Send + Sync;

impl Drop for SimGuard {
    fn drop(&mut self) {
        let now = self.0.runtime.elapsed();
        (self.1)(&mut self.0.state(), now);
    }
}

/// An attempt that is over when this is dropped.
pub(super) struct AttemptGuard {
    pub(super) number: usize,
    _end: SimGuard,
}

impl Ledger {
    /// Records the request `id` to a server, which waits for its response and which no other invocation may have in progress. A
    /// message that passes an attempt on and is delivered twice at the same time posts it twice.
    pub(super) fn post(self: &Arc<Self>, id: String) -> SimGuard {
        let is_passed_on = self.state().passed_on.contains(&id);
        if !self.state().posted.insert(id.clone()) && !is_passed_on {
            self.report_violation(format!("{id} is posted while another invocation waits for its response"));
        }
        SimGuard(Arc::clone(self), Box::new(move |state, _| _ = state.posted.remove(&id)))
    }

    pub(super) fn activity(self: &Arc<Self>) -> SimGuard {
        self.state().active += 1;
        SimGuard(Arc::clone(self), Box::new(|state, _| state.active -= 1))
    }

    pub(super) fn attempt(self: &Arc<Self>, number: usize) -> AttemptGuard {
        self.state().active += 1;
        let end = move |state: &mut LedgerState, now| {
            state.attempts[number].over = Some(now);
            state.active -= 1;
        };
        AttemptGuard { number, _end: SimGuard(Arc::clone(self), Box::new(end)) }
    }
}
