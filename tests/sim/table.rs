//! The table and the bucket in memory, with every write numbered.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_engine::{Attempt, Shard, Timestamp, Unit};
use ebb_protocol::id::RunId;
use ebb_protocol::record::AttemptRecord;
use ebb_store::{DueItem, HealthMark, InstanceExpiry, PluginItem, RunHead, StoreError, TargetHead};

use super::gate::{TableAccess, TableGate};
use super::{FaultInjector, FaultKind, SimRandom, SimRuntime};

/// On which side of a write a hook is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteSide {
    Before,
    /// It is written; the writer does not know it yet.
    After,
}

/// What a hook does to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteFate {
    Proceed,
    Die,
    /// The answer is lost: the writer is told that it may be written or not.
    LoseResponse,
}

/// Called on both sides of every write, with the write's number, counted from 1 over all writers.
pub type WriteHook = Arc<dyn Fn(u64, WriteSide) -> Pin<Box<dyn Future<Output = WriteFate> + Send>> + Send + Sync>;

/// What the table and the bucket hold.
#[derive(Clone, Default)]
pub struct TableState {
    pub heads: BTreeMap<RunId, BTreeMap<Shard, RunHead>>,
    pub records: BTreeMap<(RunId, Unit, Attempt), AttemptRecord>,
    /// When attempts were accepted whose acceptances one write has noted together.
    pub accepted: BTreeMap<(RunId, Unit, Attempt), Timestamp>,
    pub targets: BTreeMap<(String, String), TargetHead>,
    pub tombstones: BTreeMap<String, Timestamp>,
    pub marks: BTreeMap<HealthMark, Timestamp>,
    pub plans: BTreeMap<String, Vec<u8>>,
    pub plugins: BTreeMap<(String, String), PluginItem>,
    /// The removal times of the stored data of instances.
    pub expiries: BTreeMap<String, InstanceExpiry>,
    pub objects: BTreeMap<String, Vec<u8>>,
    /// What was written, in order: when and what.
    pub writes: Vec<(u64, String)>,
}

/// Table and bucket.
pub struct SimTable {
    runtime: SimRuntime,
    state: Mutex<TableState>,
    begun: AtomicU64,
    hook: Mutex<Option<WriteHook>>,
    latency: Mutex<Option<(SimRandom, u64)>>,
    gate: Mutex<Option<Arc<dyn TableGate>>>,
    faults: Mutex<Option<Arc<FaultInjector>>>,
    is_unrecorded: AtomicBool,
    pub(super) indexed: Mutex<Vec<(Timestamp, DueItem)>>,
}

/// Longest time of a slow operation, in milliseconds.
const SLOW_MS: u64 = 10_000;

impl SimTable {
    /// An empty table that answers at once.
    pub fn new(runtime: SimRuntime) -> Self {
        Self {
            runtime,
            state: Mutex::default(),
            begun: AtomicU64::new(0),
            hook: Mutex::default(),
            latency: Mutex::default(),
            gate: Mutex::default(),
            faults: Mutex::default(),
            is_unrecorded: AtomicBool::new(false),
            indexed: Mutex::default(),
        }
    }

    /// Has `hook` called on both sides of every write from now on.
    pub fn on_write(&self, hook: WriteHook) {
        *self.hook.lock().expect("no panic while it is held") = Some(hook);
    }

    /// Every operation takes up to `millis` from now on, so that invocations overtake each other.
    pub fn set_latency(&self, seed: u64, millis: u64) {
        *self.latency.lock().expect("no panic while it is held") = Some((SimRandom::new(seed), millis));
    }

    /// Has every operation go through `gate` from now on.
    pub fn set_gate(&self, gate: Arc<dyn TableGate>) {
        *self.gate.lock().expect("no panic while it is held") = Some(gate);
    }

    fn gate(&self) -> Option<Arc<dyn TableGate>> {
        self.gate.lock().expect("no panic while it is held").clone()
    }

    /// Has things go wrong from now on.
    pub fn inject_faults(&self, faults: Arc<FaultInjector>) {
        *self.faults.lock().expect("no panic while it is held") = Some(faults);
    }

    /// Keeps no account of what is written from now on.
    pub fn stop_recording(&self) {
        self.is_unrecorded.store(true, Ordering::Relaxed);
    }

    /// Returns true if a fault happens now.
    pub(super) fn should_inject(&self, kind: FaultKind) -> bool {
        let faults = self.faults.lock().expect("no panic while it is held");
        faults.as_ref().is_some_and(|faults| faults.should_inject(kind))
    }

    /// What is in it.
    pub fn state(&self) -> MutexGuard<'_, TableState> {
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
        let slow = self.should_inject(FaultKind::SlowOperation).then(|| {
            let faults = self.faults.lock().expect("no panic while it is held");
            faults.as_ref().map_or(0, |faults| faults.random_below(FaultKind::SlowOperation, SLOW_MS))
        });
        if let Some(millis) = millis.max(slow) {
            self.runtime.sleep(millis).await;
        }
    }

    /// Reads.
    pub(super) async fn read<T: Debug + Send>(
        &self,
        read: impl FnOnce(&TableState) -> T + Send,
    ) -> Result<T, StoreError> {
        self.wait().await;
        if self.should_inject(FaultKind::DeathBeforeRead) {
            self.runtime.die().await;
        }
        if self.should_inject(FaultKind::ReadFails) {
            return Err(StoreError::Retryable { operation: "GetItem", reason: "as planned".to_owned() });
        }
        let Some(gate) = self.gate() else { return Ok(read(&self.state())) };
        // What is read cannot get lost: whoever asks, asks again.
        gate.pass(TableAccess::Read, "read").await;
        let value = read(&self.state());
        gate.saw(&value);
        Ok(value)
    }

    /// Writes, with the hooks around it. `write` gives what the writer is told, and what is told of it.
    pub(super) async fn write<T, W>(
        &self,
        operation: &'static str,
        mut write: impl FnMut(&mut TableState) -> (T, W) + Send,
    ) -> Result<T, StoreError>
    where
        T: Debug + Send,
        W: FnOnce() -> String,
    {
        self.wait().await;
        let gate = self.gate();
        let mut fate = WriteFate::Proceed;
        if let Some(gate) = &gate {
            fate = gate.pass(TableAccess::Write, operation).await;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.run_hook(operation, number, WriteSide::Before).await?;
        if self.should_inject(FaultKind::DeathBeforeWrite) {
            self.runtime.die().await;
        }
        if self.should_inject(FaultKind::WriteFails) {
            return Err(StoreError::Retryable { operation, reason: "as planned".to_owned() });
        }
        let mut value = self.write_once(number, operation, &mut write);
        if self.should_inject(FaultKind::WrittenTwice) {
            value = self.write_once(number, operation, &mut write);
        }
        self.apply_fate(operation, fate).await?;
        self.run_hook(operation, number, WriteSide::After).await?;
        if self.should_inject(FaultKind::DeathAfterWrite) {
            self.runtime.die().await;
        }
        if self.should_inject(FaultKind::WriteAnswerLost) {
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
        write: &mut impl FnMut(&mut TableState) -> (T, W),
    ) -> T {
        let mut state = self.state();
        let (value, what) = write(&mut state);
        if !self.is_unrecorded.load(Ordering::Relaxed) {
            let line = format!("{number} {operation} {}", what());
            state.writes.push((self.runtime.elapsed(), line));
        }
        value
    }

    async fn run_hook(&self, operation: &'static str, number: u64, side: WriteSide) -> Result<(), StoreError> {
        let hook = self.hook.lock().expect("no panic while it is held").clone();
        let Some(hook) = hook else { return Ok(()) };
        let blow = hook(number, side).await;
        self.apply_fate(operation, blow).await
    }

    async fn apply_fate(&self, operation: &'static str, blow: WriteFate) -> Result<(), StoreError> {
        match blow {
            WriteFate::Proceed => Ok(()),
            WriteFate::Die => self.runtime.die().await,
            WriteFate::LoseResponse => {
                Err(StoreError::Retryable { operation, reason: "the answer was lost".to_owned() })
            }
        }
    }

    /// The present as the table's caller sees it, for what is due.
    pub fn now(&self) -> Timestamp {
        self.runtime.now()
    }
}
