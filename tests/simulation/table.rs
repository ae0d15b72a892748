//! The table and the bucket in memory, with faults and gates around each request.

use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

use ebb_store::item_table::{
    ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemTable, ItemWrite, Projection, QueryRange, TableResponse,
    TransactionOutcome, WriteAction, WriteOutcome,
};
use ebb_store::{Bucket, LOGS, OUTPUTS, OpenObject, StoreError, TableSpec, TargetTransition};
use futures::FutureExt as _;

use super::*;

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
    LoseResponse,
}

/// Decides when requests to the table happen.
#[async_trait]
pub trait TableGate: Send + Sync {
    /// Returns when the request may happen. A fate has no effect on reads.
    async fn pass(&self, access: TableAccess, operation: &'static str) -> WriteFate;
    /// Returns when a write, which was made, may return.
    async fn wrote(&self) {}
    /// Receives the result of a request.
    fn saw(&self, _: &dyn Debug) {}
    /// Returns true if requests to the history and the feed, on which no run depends, pass no gate.
    fn is_narrow(&self) -> bool {
        false
    }
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

    fn is_narrow(&self) -> bool {
        true
    }
}

#[derive(Default)]
pub struct SimTable {
    runtime: SimRuntime,
    items: MemoryTable,
    state: Mutex<TableState>,
    begun: AtomicU64,
    /// True while requests have no faults and pass no gate.
    is_direct: AtomicBool,
    gate: Mutex<Option<Arc<dyn TableGate>>>,
    /// Every request takes up to this time, so that invocations overtake each other.
    pub(super) latency: Option<(SimRandom, u64)>,
    pub(super) faults: Option<Arc<FaultInjector>>,
    pub(super) is_traced: bool,
    /// The entries of each shard of the due index, as the last query has read them.
    indexed: Mutex<BTreeMap<u8, Vec<Item>>>,
    /// The time of the last query of the index, by the clock of its caller.
    queried: Mutex<Timestamp>,
    /// How often a task may still write. Other tasks have no limit.
    write_limits: Mutex<BTreeMap<SimTaskId, u64>>,
    /// Receives each target that was written, and the one before.
    pub(super) observer: Mutex<Option<TargetObserver>>,
}

type TargetObserver = Box<dyn Fn(&TableState, Option<&TargetHead>, &TargetHead) + Send>;

const SLOW_MS: u64 = 10_000;

impl Debug for SimTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimTable").finish_non_exhaustive()
    }
}

/// Returns the value of a future that does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a table in memory responds at once")
}

impl SimTable {
    pub fn new(runtime: SimRuntime) -> Self {
        Self { runtime, is_traced: true, ..Self::default() }
    }

    pub fn store(self: &Arc<Self>) -> Arc<Store> {
        Arc::new(Store::new(Arc::clone(self) as Arc<dyn ItemTable>, Arc::clone(self) as Arc<dyn Bucket>))
    }

    /// Returns a copy of the content, without faults, for a reader outside of the simulation.
    pub(super) fn copy(&self) -> Self {
        let mut state = self.state();
        // Readers need no descriptions of writes, which can be many.
        let writes = std::mem::take(&mut state.writes);
        let (items, copied) = (self.items.clone(), Mutex::new(state.clone()));
        state.writes = writes;
        Self { items, state: copied, is_traced: false, ..Self::new(self.runtime.clone()) }
    }

    /// Changes the table without faults and gates.
    pub fn edit<T, F: Future<Output = StoreResult<T>>>(self: &Arc<Self>, edit: impl FnOnce(Arc<Store>) -> F) -> T {
        self.is_direct.store(true, Ordering::Relaxed);
        let edited = now(edit(self.store()));
        self.is_direct.store(false, Ordering::Relaxed);
        edited.expect("a request without faults")
    }

    pub fn edit_target(self: &Arc<Self>, name: &str, change: impl FnOnce(&mut TargetTransition)) {
        let target = self.state().targets[name].clone();
        let version = target.version;
        let mut transition = TargetTransition::new(target, Some(version));
        change(&mut transition);
        assert!(self.edit(|store| async move { store.move_target(&transition).await }), "no other task writes");
    }

    pub(crate) fn publish(self: &Arc<Self>, plugins: impl Iterator<Item = PluginItem>) {
        for plugin in plugins {
            self.edit(|store| async move { store.put_plugin(&plugin).await });
        }
    }

    pub fn put_documents(self: &Arc<Self>, kind: NamedKind, documents: impl Iterator<Item = NamedDocument>) {
        for document in documents {
            self.edit(|store| async move { store.put_document(kind, &document).await });
        }
    }

    /// Sends every request from now on through `gate`.
    pub fn set_gate(&self, gate: Arc<dyn TableGate>) {
        *lock(&self.gate) = Some(gate);
    }

    fn should_inject(&self, kind: FaultKind) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.should_inject(kind))
    }

    pub fn state(&self) -> MutexGuard<'_, TableState> {
        lock(&self.state)
    }

    /// Returns the slots of a plugin or connection, by kind and name: the end of each, by its holder.
    pub(super) fn slots(&self, kind: &str, name: &str) -> BTreeMap<String, u64> {
        let item = self.items.item(&ItemKey::new(format!("slots#{kind}#{name}"), "h")).unwrap_or_default();
        let holders = item.get("hs").and_then(|holders| holders.as_ss().ok()).into_iter().flatten();
        let end = |holder: &String| item.get(holder)?.as_n().ok()?.parse().ok();
        holders.filter_map(|holder| Some((holder.clone(), end(holder)?))).collect()
    }

    pub fn objects(&self) -> Vec<String> {
        self.items.objects("")
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

    /// Returns true if the present request has no faults and passes no gate.
    fn is_direct(&self, is_aside: bool, gate: Option<&Arc<dyn TableGate>>) -> bool {
        self.is_direct.load(Ordering::Relaxed) || is_aside && gate.is_some_and(|gate| gate.is_narrow())
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

    /// Reads, with the faults around it. `seen` returns what the reader learns.
    async fn read<T: Send>(
        &self,
        is_aside: bool,
        read: impl FnOnce() -> T + Send,
        seen: impl FnOnce(&T) -> Vec<StoredItem> + Send,
    ) -> StoreResult<T> {
        let gate = lock(&self.gate).clone();
        if self.is_direct(is_aside, gate.as_ref()) {
            return Ok(read());
        }
        self.wait().await;
        if self.should_inject(FaultKind::DeathBeforeRead) {
            self.runtime.die().await;
        }
        if self.should_inject(FaultKind::ReadFails) {
            return Err(StoreError::Retryable { operation: "GetItem", reason: "as planned".to_owned() });
        }
        let Some(gate) = gate else { return Ok(read()) };
        gate.pass(TableAccess::Read, "read").await;
        let value = read();
        gate.saw(&seen(&value));
        Ok(value)
    }

    /// Writes, with the faults around it. `write` returns the response. `what` describes the write.
    async fn write<T: Send>(
        &self,
        (operation, is_aside): (&'static str, bool),
        write: impl Fn() -> T + Send + Sync,
        what: impl Fn(&T) -> String + Send + Sync,
        seen: impl FnOnce(&T) -> Vec<StoredItem> + Send,
    ) -> StoreResult<T> {
        let gate = lock(&self.gate).clone();
        if self.is_direct(is_aside, gate.as_ref()) {
            return Ok(write());
        }
        self.check_limit(operation);
        self.wait().await;
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
        let once = || {
            let value = write();
            if self.is_traced {
                let line = format!("{number} {operation} {}", what(&value));
                self.state().writes.push((self.runtime.elapsed(), line));
            }
            value
        };
        let mut value = once();
        if self.should_inject(FaultKind::WrittenTwice) {
            value = once();
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
            gate.saw(&seen(&value));
        }
        Ok(value)
    }

    fn apply(&self, key: &ItemKey, before: Option<&Item>) {
        let after = self.items.item(key);
        let mut state = self.state();
        if let Some((seen, target)) = state.apply((before, after.as_ref()), &self.items)
            && let Some(observe) = lock(&self.observer).as_ref()
        {
            observe(&state, seen.as_ref(), &target);
        }
    }

    fn write_now(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        let is_delete = write.action == WriteAction::Delete;
        let before = is_delete.then(|| self.items.item(&write.key)).flatten();
        let response = now(self.items.write(write))?;
        if matches!(response.value, WriteOutcome::Written(_)) {
            self.apply(&write.key, before.as_ref());
        }
        Ok(response)
    }

    fn transact_now(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let mut keys: Vec<ItemKey> = puts.iter().filter_map(|put| ItemKey::of(&put.item)).collect();
        let response = now(self.items.transact(puts, token))?;
        if response.value == TransactionOutcome::Written {
            // Who observes a target reads its plan.
            keys.sort_by_key(|key| !key.partition.starts_with("p#"));
            self.check_entry(puts);
            keys.iter().for_each(|key| self.apply(key, None));
        }
        Ok(response)
    }

    /// Checks that an entry of the history is after the last change of its target.
    fn check_entry(&self, puts: &[ItemPut]) {
        let stored = || puts.iter().filter_map(|put| StoredItem::read(&put.item).ok());
        let entry =
            stored().find_map(|item| if let StoredItem::History(.., entry) = item { Some(entry) } else { None });
        let target = stored().find_map(|item| if let StoredItem::Target(target) = item { Some(target) } else { None });
        let Some((entry, target)) = entry.zip(target) else { return };
        let mut state = self.state();
        if state.targets.get(&target.name).map(|seen| seen.since).is_some_and(|since| entry.at <= since) {
            state.wrong.push(format!("{entry:?} is not after the last change of its target"));
        }
    }

    fn delete_now(&self, keys: &[ItemKey]) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        let before: Vec<Option<Item>> = keys.iter().map(|key| self.items.item(key)).collect();
        let response = now(self.items.delete_batch(keys.to_vec()))?;
        keys.iter().zip(before).for_each(|(key, before)| self.apply(key, before.as_ref()));
        Ok(response)
    }

    fn remove_now(&self, key: &str) -> StoreResult<()> {
        let run = [OUTPUTS, LOGS].iter().find_map(|folder| key.strip_prefix(*folder)?.strip_prefix('/'));
        if let Some(run) = run.and_then(|rest| rest.split('/').next()?.parse().ok()) {
            self.state().check_removal(key, Some(&run));
        }
        now(self.items.remove(key))
    }

    /// Returns a page of the due index, which may be the one of an earlier query.
    fn due_page(&self, shard: u8, until: u64, query: &ItemQuery) -> StoreResult<TableResponse<ItemPage>> {
        *lock(&self.queried) = Timestamp(until);
        let mut indexed = lock(&self.indexed);
        if !indexed.contains_key(&shard) || !self.should_inject(FaultKind::IndexLags) {
            let all = ItemQuery { range: QueryRange::Due { shard, until: u64::MAX }, limit: None, ..query.clone() };
            indexed.insert(shard, now(self.items.query(&all, None))?.value.items);
        }
        let is_due = |entry: &&Item| due_time(entry).is_some_and(|due| due.0 <= until);
        let entries = indexed.get(&shard).into_iter().flatten().filter(is_due);
        let items = entries.take(query.limit.unwrap_or(usize::MAX)).cloned().collect();
        Ok(TableResponse { units: 0.5, value: ItemPage { items, next: None } })
    }
}

fn due_time(entry: &Item) -> Option<Timestamp> {
    entry.get(TableSpec::DUE)?.as_n().ok()?.parse().ok().map(Timestamp)
}

/// Returns what a reader of items learns. Marks of writers differ in each run.
fn stored<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<StoredItem> {
    items.into_iter().filter_map(|item| StoredItem::read(item).ok()).collect()
}

/// Returns true if no run depends on the items of a partition.
fn is_aside(partition: &str) -> bool {
    partition.starts_with("y#") || partition == "changes"
}

/// Returns the folder of an object. The names of plans are random.
fn folder(key: &str) -> String {
    key.rsplit_once('/').map_or(key, |(folder, _)| folder).to_owned()
}

fn described(item: &Item) -> String {
    match StoredItem::read(item) {
        Ok(StoredItem::Target(target)) => {
            format!("{}/{} {:?} version {}", target.kind, target.name, target.phase, target.version)
        }
        Ok(StoredItem::Head(run, _)) => format!("starts {run}"),
        Ok(StoredItem::History(kind, name, entry)) => format!("{kind}/{name} {:?} {:?}", entry.change, entry.run),
        Ok(StoredItem::Plan(instance, _)) => format!("plan of {instance}"),
        Ok(StoredItem::ObjectExpiry(key)) => format!("removal of {}", folder(&key.sort)),
        Ok(stored) => format!("{stored:?}"),
        Err(error) => error.to_string(),
    }
}

fn described_write(write: &ItemWrite) -> String {
    let ItemKey { partition, sort } = &write.key;
    match &write.action {
        WriteAction::Put(item) => described(item),
        WriteAction::Update(_) => format!("{partition} {sort} {:?}", write.expression.changes),
        WriteAction::Delete => format!("{partition} {}", folder(sort)),
    }
}

#[async_trait]
impl ItemTable for SimTable {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        let value = self.read(is_aside(&key.partition), || self.items.item(&key), |item| stored(item)).await?;
        Ok(TableResponse { units: 1.0, value })
    }

    async fn get_batch(&self, keys: Vec<ItemKey>, attributes: Projection) -> StoreResult<TableResponse<ItemBatch>> {
        let read = || now(self.items.get_batch(keys, attributes));
        self.read(false, read, |batch| batch.as_ref().map(|batch| stored(&batch.value.items)).unwrap_or_default())
            .await?
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        let is_aside = match &query.range {
            QueryRange::Partition { partition, .. } => is_aside(partition),
            QueryRange::List { .. } | QueryRange::Due { .. } => false,
        };
        // The queries of all shards of the due index happen at once. Most simulations have no documents, and no reader of
        // the feed.
        let is_free = match &query.range {
            QueryRange::Due { shard, .. } => *shard > 0,
            QueryRange::Partition { partition, .. } => partition == "changes" && self.state().feed.is_none(),
            QueryRange::List { .. } => now(self.items.query(query, None))?.value.items.is_empty(),
        };
        let read = || match query.range {
            QueryRange::Due { shard, until } => self.due_page(shard, until, query),
            QueryRange::Partition { .. } | QueryRange::List { .. } => now(self.items.query(query, from)),
        };
        if is_free {
            return read();
        }
        self.read(is_aside, read, |page| page.as_ref().map(|page| stored(&page.value.items)).unwrap_or_default())
            .await?
    }

    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        let what = |response: &StoreResult<TableResponse<WriteOutcome>>| {
            let is_refused = matches!(response, Ok(TableResponse { value: WriteOutcome::Refused(_), .. }));
            format!("{} {}", described_write(write), if is_refused { "REFUSED" } else { "" })
        };
        let seen = |response: &StoreResult<TableResponse<WriteOutcome>>| match response {
            Ok(TableResponse { value: WriteOutcome::Written(item) | WriteOutcome::Refused(item), .. }) => {
                stored([item])
            }
            Err(_) => Vec::new(),
        };
        self.write((write.action.operation(), is_aside(&write.key.partition)), || self.write_now(write), what, seen)
            .await?
    }

    async fn transact(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let what = |response: &StoreResult<TableResponse<TransactionOutcome>>| {
            let items: Vec<String> = puts.iter().map(|put| described(&put.item)).collect();
            let is_refused = matches!(response, Ok(TableResponse { value: TransactionOutcome::Refused(_), .. }));
            format!("{} {}", items.join(", "), if is_refused { "REFUSED" } else { "" })
        };
        let seen = |response: &StoreResult<TableResponse<TransactionOutcome>>| match response {
            Ok(TableResponse { value: TransactionOutcome::Refused(images), .. }) => stored(images.iter().flatten()),
            _ => Vec::new(),
        };
        self.write(("TransactWriteItems", false), || self.transact_now(puts, token), what, seen).await?
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        let what = |_: &_| format!("{} items of {}", keys.len(), keys.first().map_or("", |key| &key.partition));
        self.write(("BatchWriteItem", false), || self.delete_now(&keys), what, |_| Vec::new()).await?
    }
}

#[async_trait]
impl Bucket for SimTable {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        let put = || now(self.items.put_object(key, bytes.clone()));
        self.write(("PutObject", false), put, |_| folder(key), |_| Vec::new()).await?
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        self.read(false, || now(self.items.open_object(key)), |_| Vec::new()).await?
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        self.write(("DeleteObject", false), || self.remove_now(key), |_| folder(key), |_| Vec::new()).await?
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        self.read(false, || self.items.objects(prefix), |_| Vec::new()).await
    }
}

impl SimTable {
    /// Returns the items that are due at `at`, and whether the last query of the index named them.
    pub fn due_since(&self, at: Timestamp) -> BTreeMap<(Timestamp, DueItem), bool> {
        // The clock of a sweep may be slow.
        let queried = *lock(&self.queried);
        let indexed = lock(&self.indexed);
        let is_indexed = |(due, item): &(Timestamp, DueItem)| {
            let mut entries = indexed.values().flatten();
            *due <= queried
                && entries.any(|entry| due_time(entry) == Some(*due) && DueItem::of(entry).as_ref() == Some(item))
        };
        let due: Vec<_> = self.state().due().filter(|(due, _)| *due <= at).collect();
        due.into_iter().map(|entry| (entry.clone(), is_indexed(&entry))).collect()
    }
}
