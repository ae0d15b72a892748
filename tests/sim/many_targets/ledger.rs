//! What really happened outside, whatever the table says, and what of it must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_engine::{Attempt, Shard, Unit};
use ebb_protocol::id::RunId;

use super::super::{SimRuntime, SimTable};
use super::registry::SimUnit;

/// The receiver of the request for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptReceiver {
    Server,
    /// A relay with a free slot.
    Relay,
    /// A relay that kept the request until a slot was free.
    Queue,
}

impl AttemptReceiver {
    /// Returns whether it can kill the attempt.
    pub(super) fn kills(self) -> bool {
        self != Self::Server
    }
}

/// An attempt that was begun outside.
#[derive(Clone, Debug)]
pub(super) struct AttemptEntry {
    pub(super) unit: Arc<SimUnit>,
    pub(super) run: RunId,
    pub(super) attempt: u32,
    pub(super) receiver: AttemptReceiver,
    pub(super) began: u64,
    pub(super) over: bool,
    pub(super) reads: Vec<String>,
    /// True if its end is told however late: by a relay, by a callback.
    pub(super) reports: bool,
    /// When its sender was left without the answer, or got one of a gateway: it believes that the attempt failed.
    pub(super) given_up: Option<u64>,
}

/// A thing that exists.
#[derive(Clone, Debug)]
pub(super) struct SimObject {
    pub(super) unit: Arc<SimUnit>,
    /// Made by a server after whoever asked had given the attempt up: it has no way to say so, and nobody can know.
    pub(super) unreported: bool,
}

/// Something that the platform was told.
#[derive(Clone, Debug)]
pub(super) struct NotificationEntry {
    pub(super) at: u64,
    /// When it happened, as it says.
    pub(super) time: String,
    pub(super) kind: String,
    pub(super) uid: String,
}

/// All of it.
#[derive(Default)]
pub(super) struct SimLedgerState {
    pub(super) units: BTreeMap<String, Arc<SimUnit>>,
    pub(super) objects: BTreeMap<String, SimObject>,
    pub(super) attempts: Vec<AttemptEntry>,
    /// Work that runs and callbacks that are not taken yet.
    pub(super) active: usize,
    pub(super) notifications: Vec<NotificationEntry>,
    pub(super) violations: Vec<String>,
    /// Requests to servers that wait for their answers.
    posted: BTreeSet<String>,
    /// Tries that an invocation has left to another one.
    pub(super) passed_on: BTreeSet<String>,
    /// Undos that fail until they are mended, and those that were mended.
    pub(super) broken: BTreeMap<String, bool>,
    pub(super) trace: Vec<(u64, String)>,
}

/// The bounds that the simulation promises, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeBounds {
    /// `L` of the protocol.
    pub(super) max_in_flight: u64,
    /// How long a request may be waited for after a stop.
    pub(super) sending: u64,
}

/// Keeps it.
pub(super) struct SimLedger {
    runtime: SimRuntime,
    table: Arc<SimTable>,
    bounds: TimeBounds,
    traced: bool,
    state: Mutex<SimLedgerState>,
}

impl SimLedger {
    pub(super) fn new(runtime: SimRuntime, table: Arc<SimTable>, bounds: TimeBounds, traced: bool) -> Self {
        Self { runtime, table, bounds, traced, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SimLedgerState> {
        self.state.lock().expect("no panic while it is held")
    }

    pub(super) fn unit(&self, key: &str) -> Option<Arc<SimUnit>> {
        self.state().units.get(key).cloned()
    }

    /// Tells something for people, if anybody listens.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            let line = (self.runtime.elapsed(), what());
            self.state().trace.push(line);
        }
    }

    pub(super) fn report_violation(&self, what: String) {
        self.trace(|| format!("WRONG {what}"));
        let at = self.runtime.elapsed();
        self.state().violations.push(format!("at {at}: {what}"));
    }

    /// An attempt begins. Gives its number.
    pub(super) fn begin(&self, this: AttemptEntry) -> usize {
        self.trace(|| format!("begins {} #{} reads {:?}", this.unit.name, this.attempt, this.reads));
        if let Some(why) = self.forbids(&this) {
            self.report_violation(format!("{} #{} begins {why}", this.unit.name, this.attempt));
        }
        let twice = self
            .state()
            .attempts
            .iter()
            .any(|other| other.unit.key == this.unit.key && other.attempt == this.attempt && other.run == this.run);
        if twice {
            self.report_violation(format!("{} #{} begins twice", this.unit.name, this.attempt));
        }
        let mut state = self.state();
        state.attempts.push(this);
        state.attempts.len() - 1
    }

    /// Why an attempt must not begin now.
    fn forbids(&self, this: &AttemptEntry) -> Option<String> {
        let now = self.runtime.now().0;
        let table = self.table.state();
        let heads = table.heads.get(&this.run)?;
        let root = heads.get(&Shard::ROOT)?;
        // What waits for a slot begins until the relay is asked to remove it.
        if this.unit.sets_up()
            && this.receiver != AttemptReceiver::Queue
            && let Some(stopped) = root.head.stopped
            && now > stopped.0 + self.bounds.max_in_flight
        {
            return Some(format!("{} ms after its run was stopped", now - stopped.0));
        }
        let is_done = |unit: u32| {
            let (shard, slot) = Shard::of(Unit(unit));
            heads.get(&shard).is_some_and(|head| head.head.done.contains(&slot))
        };
        // What was undone may be undone once more, after a late success; what was set up stays done.
        if this.unit.sets_up()
            && let Some(other) = this.unit.waits_for.iter().find(|&&other| !is_done(other))
        {
            return Some(format!("before unit {other} of its hook is done"));
        }
        let (shard, slot) = Shard::of(Unit(this.unit.unit));
        let head = heads.get(&shard)?;
        // A relay fences lower attempts off; a request to a server that was sent before may still arrive.
        let is_earlier = head.head.attempt(slot) > Attempt(this.attempt);
        let later = this.receiver.kills() && is_earlier && is_done(this.unit.unit);
        later.then(|| "although a later try has succeeded".to_owned())
    }

    /// Whether whoever asked for an attempt may have given it up: then what it does is late, and nobody waits for it.
    pub(super) fn is_given_up(&self, this: &AttemptEntry) -> bool {
        if this.receiver.kills() {
            return false;
        }
        let now = self.runtime.elapsed();
        if this.given_up.is_some() || now >= this.began + this.unit.timeout_ms {
            return true;
        }
        let table = self.table.state();
        let heads = table.heads.get(&this.run);
        let stopped = heads.and_then(|heads| heads.get(&Shard::ROOT)?.head.stopped);
        let key = (this.run.clone(), Unit(this.unit.unit), Attempt(this.attempt));
        let record = table.records.get(&key);
        let concluded = record.is_some_and(|record| record.result.is_some());
        // What was accepted is waited for as long as it may land, a request as long as it may be answered.
        let accepted = record.is_some_and(|record| record.accepted.is_some());
        let accepted = accepted || table.accepted.contains_key(&key);
        let wait = if accepted { self.bounds.max_in_flight } else { self.bounds.sending };
        concluded || stopped.is_some_and(|at| self.runtime.now().0 >= at.0 + wait)
    }

    /// Returns whether no teardown waits for an attempt. It waits until a request without an answer has landed.
    pub(super) fn is_past_in_flight(&self, this: &AttemptEntry) -> bool {
        match this.given_up {
            Some(at) => self.runtime.elapsed() >= at + self.bounds.max_in_flight,
            None => self.is_given_up(this),
        }
    }

    /// Returns whether the run of an attempt was stopped.
    pub(super) fn is_stopped(&self, run: &RunId) -> bool {
        let table = self.table.state();
        let root = table.heads.get(run).and_then(|heads| heads.get(&Shard::ROOT));
        root.is_some_and(|root| root.head.stopped.is_some())
    }

    /// Checks that what an attempt reads is there.
    pub(super) fn check_reads(&self, number: usize, when: &str) {
        let this = self.state().attempts[number].clone();
        if !this.unit.sets_up() || self.is_given_up(&this) {
            return;
        }
        for id in &this.reads {
            let missing = {
                let state = self.state();
                let maker = id.split('.').next().and_then(|key| state.units.get(key));
                maker.is_some_and(|maker| maker.effect != super::registry::UnitEffect::Nothing)
                    && !state.objects.contains_key(id)
            };
            if missing {
                self.report_violation(format!("{} #{} {when} without {id}", this.unit.name, this.attempt));
            }
        }
    }

    /// Checks that nobody is at work with what an undo is about to take away.
    pub(super) fn check_undone(&self, undo: &SimUnit, when: &str) {
        let running: Vec<AttemptEntry> = self.state().attempts.iter().filter(|one| !one.over).cloned().collect();
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

    /// Returns true if `key` fails until it is mended. The first one to ask decides by `breaks`.
    pub(super) fn is_broken(&self, key: &str, breaks: impl FnOnce() -> bool) -> bool {
        let known = self.state().broken.get(key).copied();
        known.unwrap_or_else(|| {
            let broken = breaks();
            self.state().broken.insert(key.to_owned(), broken);
            broken
        })
    }

    /// Mends everything that fails.
    pub(super) fn repair(&self) {
        for broken in self.state().broken.values_mut() {
            *broken = false;
        }
    }
}

/// A request to a server that waits for its answer.
pub(super) struct PendingPost(Arc<SimLedger>, String);

impl PendingPost {
    /// Notes the request `id`, which no other invocation may have under way. A message that passes an attempt on and is taken twice
    /// at the same time posts it twice.
    pub(super) fn new(ledger: &Arc<SimLedger>, id: String) -> Self {
        let is_passed_on = ledger.state().passed_on.contains(&id);
        if !ledger.state().posted.insert(id.clone()) && !is_passed_on {
            ledger.report_violation(format!("{id} is posted while another invocation waits for its answer"));
        }
        Self(Arc::clone(ledger), id)
    }
}

impl Drop for PendingPost {
    fn drop(&mut self) {
        self.0.state().posted.remove(&self.1);
    }
}

/// Counts something as active for as long as it exists.
pub(super) struct SimActivity(Arc<SimLedger>);

impl SimActivity {
    pub(super) fn new(ledger: &Arc<SimLedger>) -> Self {
        ledger.state().active += 1;
        Self(Arc::clone(ledger))
    }
}

impl Drop for SimActivity {
    fn drop(&mut self) {
        self.0.state().active -= 1;
    }
}

/// Marks an attempt as over when its work ends or is killed, even before its first step.
pub(super) struct AttemptGuard(SimActivity, usize);

impl AttemptGuard {
    pub(super) fn new(ledger: &Arc<SimLedger>, number: usize) -> Self {
        Self(SimActivity::new(ledger), number)
    }

    /// The number of the attempt.
    pub(super) fn number(&self) -> usize {
        self.1
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        self.0.0.state().attempts[self.1].over = true;
    }
}
