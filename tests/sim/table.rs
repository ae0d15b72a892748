//! The table and the bucket in memory, with every write numbered.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_engine::{Attempt, Shard, Timestamp, Unit};
use ebb_store::{Due, Expiry, Mark, PluginItem, RunHead, StoreError, TargetHead};
use ebb_wire::id::RunId;
use ebb_wire::record::Record;

use super::gate::{Access, Gate};
use super::{Mishap, Mishaps, Random, Runtime};

/// On which side of a write a hook is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Before,
    /// It is written; the writer does not know it yet.
    After,
}

/// What a hook does to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blow {
    Go,
    Die,
    /// The answer is lost: the writer is told that it may be written or not.
    Lose,
}

/// Called on both sides of every write, with the write's number, counted from 1 over all writers.
pub type Hook = Arc<dyn Fn(u64, Side) -> Pin<Box<dyn Future<Output = Blow> + Send>> + Send + Sync>;

/// What the table and the bucket hold.
#[derive(Clone, Default)]
pub struct State {
    pub heads: BTreeMap<RunId, BTreeMap<Shard, RunHead>>,
    pub records: BTreeMap<(RunId, Unit, Attempt), Record>,
    /// When tries were accepted whose acceptances one write has noted together.
    pub accepted: BTreeMap<(RunId, Unit, Attempt), Timestamp>,
    pub targets: BTreeMap<(String, String), TargetHead>,
    pub tombstones: BTreeMap<String, Timestamp>,
    pub marks: BTreeMap<Mark, Timestamp>,
    pub plans: BTreeMap<String, Vec<u8>>,
    pub plugins: BTreeMap<(String, String), PluginItem>,
    /// The removal times of the stored data of lives.
    pub expiries: BTreeMap<String, Expiry>,
    pub objects: BTreeMap<String, Vec<u8>>,
    /// What was written, in order: when and what.
    pub writes: Vec<(u64, String)>,
}

/// Table and bucket.
pub struct Table {
    runtime: Runtime,
    state: Mutex<State>,
    begun: AtomicU64,
    hook: Mutex<Option<Hook>>,
    latency: Mutex<Option<(Random, u64)>>,
    gate: Mutex<Option<Arc<dyn Gate>>>,
    mishaps: Mutex<Option<Arc<Mishaps>>>,
    silent: AtomicBool,
    pub(super) indexed: Mutex<Vec<(Timestamp, Due)>>,
}

/// Longest time of a slow operation, in milliseconds.
const SLOW_MS: u64 = 10_000;

impl Table {
    /// An empty table that answers at once.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            state: Mutex::default(),
            begun: AtomicU64::new(0),
            hook: Mutex::default(),
            latency: Mutex::default(),
            gate: Mutex::default(),
            mishaps: Mutex::default(),
            silent: AtomicBool::new(false),
            indexed: Mutex::default(),
        }
    }

    /// Has `hook` called on both sides of every write from now on.
    pub fn on_write(&self, hook: Hook) {
        *self.hook.lock().expect("no panic while it is held") = Some(hook);
    }

    /// Every operation takes up to `millis` from now on, so that invocations overtake each other.
    pub fn slow_down(&self, seed: u64, millis: u64) {
        *self.latency.lock().expect("no panic while it is held") = Some((Random::new(seed), millis));
    }

    /// Has every operation go through `gate` from now on.
    pub fn guard(&self, gate: Arc<dyn Gate>) {
        *self.gate.lock().expect("no panic while it is held") = Some(gate);
    }

    fn gate(&self) -> Option<Arc<dyn Gate>> {
        self.gate.lock().expect("no panic while it is held").clone()
    }

    /// Has things go wrong from now on.
    pub fn suffer(&self, mishaps: Arc<Mishaps>) {
        *self.mishaps.lock().expect("no panic while it is held") = Some(mishaps);
    }

    /// Keeps no account of what is written from now on.
    pub fn be_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Whether a mishap happens now.
    pub(super) fn strikes(&self, kind: Mishap) -> bool {
        let mishaps = self.mishaps.lock().expect("no panic while it is held");
        mishaps.as_ref().is_some_and(|mishaps| mishaps.strikes(kind))
    }

    /// What is in it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// How many writes have begun.
    pub fn writes(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    async fn wait(&self) {
        let millis = {
            let latency = self.latency.lock().expect("no panic while it is held");
            latency.as_ref().map(|(random, most)| random.below(*most + 1))
        };
        let slow = self.strikes(Mishap::SlowOperation).then(|| {
            let mishaps = self.mishaps.lock().expect("no panic while it is held");
            mishaps.as_ref().map_or(0, |mishaps| mishaps.below(Mishap::SlowOperation, SLOW_MS))
        });
        if let Some(millis) = millis.max(slow) {
            self.runtime.sleep(millis).await;
        }
    }

    /// Reads.
    pub(super) async fn read<T: Debug + Send>(
        &self,
        read: impl FnOnce(&State) -> T + Send,
    ) -> Result<T, StoreError> {
        self.wait().await;
        if self.strikes(Mishap::DeathBeforeRead) {
            self.runtime.die().await;
        }
        if self.strikes(Mishap::ReadFails) {
            return Err(StoreError::Retryable { operation: "GetItem", reason: "as planned".to_owned() });
        }
        let Some(gate) = self.gate() else { return Ok(read(&self.state())) };
        // What is read cannot get lost: whoever asks, asks again.
        gate.pass(Access::Read, "read").await;
        let value = read(&self.state());
        gate.saw(&value);
        Ok(value)
    }

    /// Writes, with the hooks around it. `write` gives what the writer is told, and what is told of it.
    pub(super) async fn write<T, W>(
        &self,
        operation: &'static str,
        mut write: impl FnMut(&mut State) -> (T, W) + Send,
    ) -> Result<T, StoreError>
    where
        T: Debug + Send,
        W: FnOnce() -> String,
    {
        self.wait().await;
        let gate = self.gate();
        let mut fate = Blow::Go;
        if let Some(gate) = &gate {
            fate = gate.pass(Access::Write, operation).await;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.blow(operation, number, Side::Before).await?;
        if self.strikes(Mishap::DeathBeforeWrite) {
            self.runtime.die().await;
        }
        if self.strikes(Mishap::WriteFails) {
            return Err(StoreError::Retryable { operation, reason: "as planned".to_owned() });
        }
        let mut value = self.write_once(number, operation, &mut write);
        if self.strikes(Mishap::WrittenTwice) {
            value = self.write_once(number, operation, &mut write);
        }
        self.fall(operation, fate).await?;
        self.blow(operation, number, Side::After).await?;
        if self.strikes(Mishap::DeathAfterWrite) {
            self.runtime.die().await;
        }
        if self.strikes(Mishap::WriteAnswerLost) {
            return Err(StoreError::Retryable { operation, reason: "the answer was lost".to_owned() });
        }
        if let Some(gate) = gate {
            gate.saw(&value);
        }
        Ok(value)
    }

    fn write_once<T, W: FnOnce() -> String>(
        &self,
        number: u64,
        operation: &'static str,
        write: &mut impl FnMut(&mut State) -> (T, W),
    ) -> T {
        let mut state = self.state();
        let (value, what) = write(&mut state);
        if !self.silent.load(Ordering::Relaxed) {
            let line = format!("{number} {operation} {}", what());
            state.writes.push((self.runtime.elapsed(), line));
        }
        value
    }

    async fn blow(&self, operation: &'static str, number: u64, side: Side) -> Result<(), StoreError> {
        let hook = self.hook.lock().expect("no panic while it is held").clone();
        let Some(hook) = hook else { return Ok(()) };
        let blow = hook(number, side).await;
        self.fall(operation, blow).await
    }

    async fn fall(&self, operation: &'static str, blow: Blow) -> Result<(), StoreError> {
        match blow {
            Blow::Go => Ok(()),
            Blow::Die => self.runtime.die().await,
            Blow::Lose => Err(StoreError::Retryable { operation, reason: "the answer was lost".to_owned() }),
        }
    }

    /// The present as the table's caller sees it, for what is due.
    pub fn now(&self) -> Timestamp {
        self.runtime.now()
    }
}
