//! What really happened outside, whatever the table says, and what of it must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_engine::{Attempt, Shard, Unit};
use ebb_wire::id::RunId;

use super::super::{Runtime, Table};
use super::cast::Part;

/// The receiver of the request for a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    Server,
    /// A relay with a free slot.
    Relay,
    /// A relay that kept the request until a slot was free.
    Queue,
}

impl Receiver {
    /// Returns whether it can kill the try.
    pub(super) fn kills(self) -> bool {
        self != Self::Server
    }
}

/// A try that was begun outside.
#[derive(Clone, Debug)]
pub(super) struct Try {
    pub(super) part: Arc<Part>,
    pub(super) run: RunId,
    pub(super) attempt: u32,
    pub(super) receiver: Receiver,
    pub(super) began: u64,
    pub(super) over: bool,
    pub(super) reads: Vec<String>,
    /// Whether its end is told however late: by a relay, by a callback.
    pub(super) tells: bool,
    /// When its sender was left without the answer, or got one of a gateway: it believes that the try failed.
    pub(super) given_up: Option<u64>,
}

/// A thing that exists.
#[derive(Clone, Debug)]
pub(super) struct Thing {
    pub(super) part: Arc<Part>,
    /// Made by a server after whoever asked had given the try up: it has no way to say so, and nobody can know.
    pub(super) untold: bool,
}

/// Something that the platform was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) at: u64,
    /// When it happened, as it says.
    pub(super) time: String,
    pub(super) kind: String,
    pub(super) uid: String,
}

/// All of it.
#[derive(Default)]
pub(super) struct State {
    pub(super) parts: BTreeMap<String, Arc<Part>>,
    pub(super) things: BTreeMap<String, Thing>,
    pub(super) tries: Vec<Try>,
    /// Work that runs and callbacks that are not taken yet.
    pub(super) active: usize,
    pub(super) told: Vec<Told>,
    pub(super) wrong: Vec<String>,
    /// Requests to servers that wait for their answers.
    posted: BTreeSet<String>,
    /// Tries that an invocation has left to another one.
    pub(super) passed_on: BTreeSet<String>,
    /// Undos that fail until they are mended, and those that were mended.
    pub(super) broken: BTreeMap<String, bool>,
    pub(super) story: Vec<(u64, String)>,
}

/// The bounds that the world promises, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// `L` of the protocol.
    pub(super) landing: u64,
    /// How long a request may be waited for after a stop.
    pub(super) sending: u64,
}

/// Keeps it.
pub(super) struct Books {
    runtime: Runtime,
    table: Arc<Table>,
    bounds: Bounds,
    traced: bool,
    state: Mutex<State>,
}

impl Books {
    pub(super) fn new(runtime: Runtime, table: Arc<Table>, bounds: Bounds, traced: bool) -> Self {
        Self { runtime, table, bounds, traced, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    pub(super) fn part(&self, key: &str) -> Option<Arc<Part>> {
        self.state().parts.get(key).cloned()
    }

    /// Tells something for people, if anybody listens.
    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if self.traced {
            let line = (self.runtime.elapsed(), what());
            self.state().story.push(line);
        }
    }

    pub(super) fn blame(&self, what: String) {
        self.tell(|| format!("WRONG {what}"));
        let at = self.runtime.elapsed();
        self.state().wrong.push(format!("at {at}: {what}"));
    }

    /// A try begins. Gives its number.
    pub(super) fn begin(&self, this: Try) -> usize {
        self.tell(|| format!("begins {} #{} reads {:?}", this.part.name, this.attempt, this.reads));
        if let Some(why) = self.forbids(&this) {
            self.blame(format!("{} #{} begins {why}", this.part.name, this.attempt));
        }
        let twice = self.state().tries.iter().any(|other| {
            other.part.key == this.part.key && other.attempt == this.attempt && other.run == this.run
        });
        if twice {
            self.blame(format!("{} #{} begins twice", this.part.name, this.attempt));
        }
        let mut state = self.state();
        state.tries.push(this);
        state.tries.len() - 1
    }

    /// Why a try must not begin now.
    fn forbids(&self, this: &Try) -> Option<String> {
        let now = self.runtime.now().0;
        let table = self.table.state();
        let heads = table.heads.get(&this.run)?;
        let root = heads.get(&Shard::ROOT)?;
        // What waits for a slot begins until the relay is asked to remove it.
        if this.part.sets_up()
            && this.receiver != Receiver::Queue
            && let Some(stopped) = root.head.stopped
            && now > stopped.0 + self.bounds.landing
        {
            return Some(format!("{} ms after its run was stopped", now - stopped.0));
        }
        let is_done = |unit: u32| {
            let (shard, slot) = Shard::of(Unit(unit));
            heads.get(&shard).is_some_and(|head| head.head.done.contains(&slot))
        };
        // What was undone may be undone once more, after a late success; what was set up stays done.
        if this.part.sets_up()
            && let Some(other) = this.part.waits_for.iter().find(|&&other| !is_done(other))
        {
            return Some(format!("before unit {other} of its event is done"));
        }
        let (shard, slot) = Shard::of(Unit(this.part.unit));
        let head = heads.get(&shard)?;
        // A relay fences lower tries off; a request to a server that was sent before may still arrive.
        let is_earlier = head.head.attempt(slot) > Attempt(this.attempt);
        let later = this.receiver.kills() && is_earlier && is_done(this.part.unit);
        later.then(|| "although a later try has succeeded".to_owned())
    }

    /// Whether whoever asked for a try may have given it up: then what it does is late, and nobody waits for it.
    pub(super) fn is_given_up(&self, this: &Try) -> bool {
        if this.receiver.kills() {
            return false;
        }
        let now = self.runtime.elapsed();
        if this.given_up.is_some() || now >= this.began + this.part.timeout_ms {
            return true;
        }
        let table = self.table.state();
        let heads = table.heads.get(&this.run);
        let stopped = heads.and_then(|heads| heads.get(&Shard::ROOT)?.head.stopped);
        let key = (this.run.clone(), Unit(this.part.unit), Attempt(this.attempt));
        let record = table.records.get(&key);
        let concluded = record.is_some_and(|record| record.result.is_some());
        // What was accepted is waited for as long as it may land, a request as long as it may be answered.
        let accepted = record.is_some_and(|record| record.accepted.is_some());
        let accepted = accepted || table.accepted.contains_key(&key);
        let wait = if accepted { self.bounds.landing } else { self.bounds.sending };
        concluded || stopped.is_some_and(|at| self.runtime.now().0 >= at.0 + wait)
    }

    /// Returns whether no teardown waits for a try. It waits until a request without an answer has landed.
    pub(super) fn has_landed(&self, this: &Try) -> bool {
        match this.given_up {
            Some(at) => self.runtime.elapsed() >= at + self.bounds.landing,
            None => self.is_given_up(this),
        }
    }

    /// Returns whether the run of a try was stopped.
    pub(super) fn is_stopped(&self, run: &RunId) -> bool {
        let table = self.table.state();
        let root = table.heads.get(run).and_then(|heads| heads.get(&Shard::ROOT));
        root.is_some_and(|root| root.head.stopped.is_some())
    }

    /// Checks that what a try reads is there.
    pub(super) fn check_reads(&self, number: usize, when: &str) {
        let this = self.state().tries[number].clone();
        if !this.part.sets_up() || self.is_given_up(&this) {
            return;
        }
        for id in &this.reads {
            let missing = {
                let state = self.state();
                let maker = id.split('.').next().and_then(|key| state.parts.get(key));
                maker.is_some_and(|maker| maker.makes != super::cast::Makes::Nothing)
                    && !state.things.contains_key(id)
            };
            if missing {
                self.blame(format!("{} #{} {when} without {id}", this.part.name, this.attempt));
            }
        }
    }

    /// Checks that nobody is at work with what an undo is about to take away.
    pub(super) fn check_undone(&self, undo: &Part, when: &str) {
        let running: Vec<Try> = self.state().tries.iter().filter(|one| !one.over).cloned().collect();
        for one in running {
            let makes = undo.undoes.contains(&one.part.key);
            let of = |id: &String| undo.undoes.iter().any(|key| id.split('.').next() == Some(key));
            let uses = one.part.sets_up() && one.reads.iter().any(of);
            if (makes && !self.has_landed(&one)) || (uses && !self.is_given_up(&one)) {
                let verb = if makes { "makes" } else { "uses" };
                self.blame(format!(
                    "{} {when} while {} #{} still {verb} what it undoes",
                    undo.name, one.part.name, one.attempt
                ));
            }
        }
    }

    /// Whether `key` fails until it is mended. The first one to ask decides by `breaks`.
    pub(super) fn is_broken(&self, key: &str, breaks: impl FnOnce() -> bool) -> bool {
        let known = self.state().broken.get(key).copied();
        known.unwrap_or_else(|| {
            let broken = breaks();
            self.state().broken.insert(key.to_owned(), broken);
            broken
        })
    }

    /// Mends everything that fails.
    pub(super) fn mend(&self) {
        for broken in self.state().broken.values_mut() {
            *broken = false;
        }
    }
}

/// A request to a server that waits for its answer.
pub(super) struct Posted(Arc<Books>, String);

impl Posted {
    /// Notes the request `id`, which no other invocation may have under way. A message that passes a try on and is taken twice
    /// at the same time posts it twice.
    pub(super) fn new(books: &Arc<Books>, id: String) -> Self {
        let is_passed_on = books.state().passed_on.contains(&id);
        if !books.state().posted.insert(id.clone()) && !is_passed_on {
            books.blame(format!("{id} is posted while another invocation waits for its answer"));
        }
        Self(Arc::clone(books), id)
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.0.state().posted.remove(&self.1);
    }
}

/// Counts something as active for as long as it lives.
pub(super) struct Active(Arc<Books>);

impl Active {
    pub(super) fn new(books: &Arc<Books>) -> Self {
        books.state().active += 1;
        Self(Arc::clone(books))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.state().active -= 1;
    }
}

/// Marks a try as over when its work ends or is killed, even before its first step.
pub(super) struct Running(Active, usize);

impl Running {
    pub(super) fn new(books: &Arc<Books>, number: usize) -> Self {
        Self(Active::new(books), number)
    }

    /// The number of the try.
    pub(super) fn number(&self) -> usize {
        self.1
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.state().tries[self.1].over = true;
    }
}
