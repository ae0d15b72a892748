//! The table and the bucket in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use ebb_engine::{Attempt, HeadState, Hook, RunPhase, Shard, TargetPhase, Timestamp, Unit};
use ebb_protocol::id::{RunId, TargetKey, instance_key};
use ebb_protocol::record::AttemptRecord;
use ebb_store::{
    ChangeFeed, DesiredKey, DesiredTarget, DueItem, HistoryItem, InstanceExpiry, NamedDocument, NamedKind, PluginItem,
    RunHead, SourceRejections, StoreError, StoreResult, TargetHead,
};

use super::receivers::AppendedNotice;
use super::runtime::lock;
use super::{FaultInjector, FaultKind, SimRandom, SimRuntime, SimTaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableAccess {
    Read,
    Write,
}

/// The effect of a [`TableGate`] on the task that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteFate {
    Proceed,
    /// The task dies after the write.
    Die,
    /// The response is lost.
    LoseResponse,
}

/// Decides when operations on the table happen.
#[async_trait]
pub trait TableGate: Send + Sync {
    /// Returns when the operation may happen. A fate has no effect on reads.
    async fn pass(&self, access: TableAccess, operation: &'static str) -> WriteFate;
    /// Returns when a write, which was made, may return.
    async fn wrote(&self) {}
    /// Receives the result of an operation.
    fn saw(&self, _: &dyn Debug) {}
}

#[async_trait]
impl<F, Passed> TableGate for F
where
    F: Fn(TableAccess) -> Passed + Send + Sync,
    Passed: Future<Output = WriteFate> + Send + 'static,
{
    async fn pass(&self, access: TableAccess, _: &'static str) -> WriteFate {
        self(access).await
    }
}

/// The content of the table and the bucket.
#[derive(Clone, Default)]
pub struct TableState {
    pub heads: BTreeMap<RunId, BTreeMap<Shard, RunHead>>,
    pub records: BTreeMap<(RunId, Unit, Attempt), AttemptRecord>,
    /// The times of acceptances that one write has recorded together.
    pub accepted: BTreeMap<(RunId, Unit, Attempt), BTreeSet<Timestamp>>,
    pub targets: BTreeMap<(String, String), TargetHead>,
    pub desired: BTreeMap<DesiredKey, DesiredTarget>,
    /// The rejected events of sources, by source.
    pub rejections: BTreeMap<String, SourceRejections>,
    pub tombstones: BTreeMap<String, Timestamp>,
    /// The entries of the history of each target, by kind, name and id.
    pub history: BTreeMap<(String, String, String), HistoryItem>,
    pub plans: BTreeMap<String, Vec<u8>>,
    pub plugins: BTreeMap<(String, String), PluginItem>,
    pub objects: BTreeMap<String, Vec<u8>>,
    /// Connections, subscriptions and undelivered notifications, by kind and name.
    pub documents: BTreeMap<(String, String), NamedDocument>,
    /// The notifications of subscriptions that writes of targets have appended.
    pub appended: Vec<AppendedNotice>,
    /// The violations of writes.
    pub wrong: Vec<String>,
    /// The time and a description of each write.
    pub writes: Vec<(u64, String)>,
    /// The removal times of data, by time and subject.
    pub expiries: BTreeMap<(Timestamp, String), InstanceExpiry>,
    /// The runs that may have outputs in the bucket.
    pub marks: BTreeSet<RunId>,
    /// The feed of changed targets. `None` until a reader watches it: without one, no operation of the feed is simulated.
    pub feed: Option<ChangeFeed>,
    /// The heads, records, acceptances and plans that retention has removed.
    pub removed: Option<Box<Self>>,
}

impl TableState {
    /// Finds something in the table or in what retention has removed. Functions see only the table.
    pub fn find<'a, T>(&'a self, find: impl Fn(&'a Self) -> Option<T>) -> Option<T> {
        find(self).or_else(|| find(self.removed.as_deref()?))
    }

    /// Records a violation if something is removed that a target needs: the plan of the instance `subject`, or a run.
    pub(super) fn check_removal(&mut self, subject: &str, run: Option<&RunId>) {
        let is_event = run.is_some_and(|run| matches!(run.hook(), Hook::Event(_)));
        let needs = |target: &TargetHead| {
            let own = target.instance_key();
            let id = |event| RunId::of_event(&own, target.first_generation, event).to_string();
            let is_gone = target.phase == TargetPhase::Gone;
            let needed = [
                (!(is_event || is_gone && target.plan.is_empty())).then(|| own.clone()),
                target.hook.filter(|_| !is_gone).map(|hook| target.run(hook).to_string()),
                target.waiting.as_ref().map(|next| instance_key(&target.kind, &target.name, &next.uid)),
                target.pending_update.as_ref().map(|pending| target.update_key(pending)),
            ];
            let waiting = target.events.waiting.iter().map(|waiting| id(&waiting.event));
            let mut keys = waiting.chain(needed.into_iter().flatten());
            keys.any(|key| subject.starts_with(&key))
        };
        let is_open = run.and_then(|run| self.root(run)).is_some_and(|root| root.head.phase != RunPhase::Closed);
        if is_open || self.targets.values().any(needs) {
            self.wrong.push(format!("{subject} is removed and still needed"));
        }
    }

    /// Adds an entry of the history. Returns false if another one has its id.
    pub(super) fn note(&mut self, TargetKey { kind, name }: TargetKey<'_>, entry: &HistoryItem) -> bool {
        let present = self.history.entry((kind.to_owned(), name.to_owned(), entry.id()));
        present.or_insert_with(|| entry.clone()) == entry
    }

    /// Returns the roots of all runs.
    pub fn roots(&self) -> impl Iterator<Item = (&RunId, &RunHead)> {
        self.heads.iter().filter_map(|(run, heads)| Some((run, heads.get(&Shard::ROOT)?)))
    }

    /// Returns the root of a run.
    pub fn root(&self, run: &RunId) -> Option<&RunHead> {
        self.heads.get(run)?.get(&Shard::ROOT)
    }

    /// Returns the head item that has a unit, and the slot of the unit, also of a run that retention has removed.
    pub fn head(&self, run: &RunId, unit: Unit) -> Option<(&HeadState, u32)> {
        let (shard, slot) = Shard::of(unit);
        Some((&self.find(|table| table.heads.get(run)?.get(&shard))?.head, slot))
    }

    /// Returns true if a unit is done.
    pub fn is_done(&self, run: &RunId, unit: u32) -> bool {
        self.head(run, Unit(unit)).is_some_and(|(head, slot)| head.done.contains(&slot))
    }

    /// Returns all items with a due time.
    pub fn due(&self) -> impl Iterator<Item = (Timestamp, DueItem)> {
        let roots = self.roots().filter_map(|(run, root)| Some((root.head.due?, DueItem::Run(run.clone()))));
        let targets = self.targets.values();
        let targets =
            targets.filter_map(|target| Some((target.due?, DueItem::Target(target.kind.clone(), target.name.clone()))));
        let desired = self.desired.values();
        let desired = desired.filter_map(|one| Some((one.due?, DueItem::Desired(one.key.clone()))));
        roots.chain(targets).chain(desired)
    }
}

/// Returns the key of a document in the state.
pub(super) fn named(kind: NamedKind, name: &str) -> (String, String) {
    (format!("{kind:?}"), name.to_owned())
}

/// Table and bucket.
pub struct SimTable {
    runtime: SimRuntime,
    state: Mutex<TableState>,
    begun: AtomicU64,
    gate: Mutex<Option<Arc<dyn TableGate>>>,
    /// Every operation takes up to this time, so that invocations overtake each other.
    pub(super) latency: Option<(SimRandom, u64)>,
    pub(super) faults: Option<Arc<FaultInjector>>,
    /// True if writes are described.
    pub(super) is_traced: bool,
    pub(super) indexed: Mutex<Vec<(Timestamp, DueItem)>>,
    /// The time of the last query of the index, by the clock of its caller.
    pub(super) queried: Mutex<Timestamp>,
    /// How often a task may still write. Other tasks have no limit.
    write_limits: Mutex<BTreeMap<SimTaskId, u64>>,
    /// Receives each target that was written, and the one before.
    pub(super) observer: Mutex<Option<TargetObserver>>,
}

type TargetObserver = Box<dyn Fn(&TableState, Option<&TargetHead>, &TargetHead) + Send>;

/// The longest time of a slow operation.
const SLOW_MS: u64 = 10_000;

impl SimTable {
    /// Returns an empty table without faults.
    pub fn new(runtime: SimRuntime) -> Self {
        Self {
            runtime,
            state: Mutex::default(),
            begun: AtomicU64::new(0),
            gate: Mutex::default(),
            latency: None,
            faults: None,
            is_traced: true,
            indexed: Mutex::default(),
            queried: Mutex::default(),
            write_limits: Mutex::default(),
            observer: Mutex::default(),
        }
    }

    /// Returns a copy of the content, without faults, for a reader outside of the simulation.
    pub(super) fn copy(&self) -> Self {
        let mut state = self.state();
        // Readers need no descriptions of writes, which can be many.
        let writes = std::mem::take(&mut state.writes);
        let copy = Self { state: Mutex::new(state.clone()), ..Self::new(self.runtime.clone()) };
        state.writes = writes;
        copy
    }

    /// Stores plugins.
    pub(crate) fn publish(&self, plugins: impl Iterator<Item = PluginItem>) {
        let plugins = plugins.map(|plugin| ((plugin.name.clone(), plugin.version.clone()), plugin));
        self.state().plugins.extend(plugins);
    }

    /// Stores documents of a kind.
    pub(super) fn put_documents(&self, kind: NamedKind, documents: impl Iterator<Item = NamedDocument>) {
        let documents = documents.map(|document| (named(kind, &document.name), document));
        self.state().documents.extend(documents);
    }

    /// Sends every operation from now on through `gate`.
    pub fn set_gate(&self, gate: Arc<dyn TableGate>) {
        *lock(&self.gate) = Some(gate);
    }

    pub(super) fn gate(&self) -> Option<Arc<dyn TableGate>> {
        lock(&self.gate).clone()
    }

    /// Returns true if a fault of `kind` happens now.
    pub(super) fn should_inject(&self, kind: FaultKind) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.should_inject(kind))
    }

    /// Returns the content.
    pub fn state(&self) -> MutexGuard<'_, TableState> {
        lock(&self.state)
    }

    /// Returns the number of writes that have begun.
    pub fn writes(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Lets the present task write at most `most` times.
    pub(super) fn limit_writes(&self, most: u64) {
        lock(&self.write_limits).insert(self.runtime.current(), most);
    }

    /// Records a violation if the present task must not write any more.
    fn check_limit(&self, operation: &str) {
        let mut limits = lock(&self.write_limits);
        let Some(left) = limits.get_mut(&self.runtime.current()) else { return };
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => self.state().wrong.push(format!("{operation} by a reader, or a second one by a heartbeat")),
        }
    }

    async fn wait(&self) {
        let millis = self.latency.as_ref().map(|(random, most)| random.below(*most + 1));
        let is_slow = |faults: &&Arc<FaultInjector>| faults.should_inject(FaultKind::SlowOperation);
        let slow = self.faults.as_ref().filter(is_slow);
        let slow = slow.map(|faults| faults.random_below(FaultKind::SlowOperation, SLOW_MS));
        if let Some(millis) = millis.max(slow) {
            self.runtime.sleep(millis).await;
        }
    }

    pub(super) async fn read<T: Debug + Send>(&self, read: impl FnOnce(&TableState) -> T + Send) -> StoreResult<T> {
        self.wait().await;
        if self.should_inject(FaultKind::DeathBeforeRead) {
            self.runtime.die().await;
        }
        if self.should_inject(FaultKind::ReadFails) {
            return Err(StoreError::Retryable { operation: "GetItem", reason: "as planned".to_owned() });
        }
        let Some(gate) = self.gate() else { return Ok(read(&self.state())) };
        gate.pass(TableAccess::Read, "read").await;
        let value = read(&self.state());
        gate.saw(&value);
        Ok(value)
    }

    /// Writes, with the faults around it. `write` returns the response and a description of the write.
    pub(super) async fn write<T, W>(
        &self,
        operation: &'static str,
        mut write: impl FnMut(&mut TableState) -> (T, W) + Send,
    ) -> StoreResult<T>
    where
        T: Debug + Send,
        W: FnOnce() -> String,
    {
        self.check_limit(operation);
        self.wait().await;
        let gate = self.gate();
        let mut fate = WriteFate::Proceed;
        if let Some(gate) = &gate {
            fate = gate.pass(TableAccess::Write, operation).await;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
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
        if let Some(gate) = &gate {
            gate.wrote().await;
        }
        if fate == WriteFate::Die || self.should_inject(FaultKind::DeathAfterWrite) {
            self.runtime.die().await;
        }
        if fate == WriteFate::LoseResponse || self.should_inject(FaultKind::WriteAnswerLost) {
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
        if self.is_traced {
            let line = format!("{number} {operation} {}", what());
            state.writes.push((self.runtime.elapsed(), line));
        }
        value
    }

    pub fn now(&self) -> Timestamp {
        self.runtime.now()
    }
}
