//! Implements the operations of the store on [`SimTable`]. Head items change by [`ebb_engine::Patch::apply`].

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ebb_engine::{Attempt, Epoch, HeadState, Patch, RunPhase, Shard, Timestamp, Unit};
use ebb_protocol::id::{RunId, TargetKey};
use ebb_protocol::record::{AttemptRecord, AttemptResult, OutputStorage};
use ebb_store::suite::model::epoch_of;
use ebb_store::suite::record_model;
use ebb_store::{
    AttemptUpdate, ChangeFeed, DamagedExpiry, DenialRecord, DesiredKey, DesiredTarget, DesiredTargets, DueExpiries,
    DueItem, HealthMark, HealthMarks, HistoryItem, InstanceExpiry, LOGS, ListDocuments, MoveTarget, NamedDocument,
    NamedKind, NewRun, NoteChanges, NoteHistory, NoteRejections, OUTPUTS, ObjectStore, OpenObject, OutageRecord,
    PatchResult, PatchRun, PlanStore, PluginItem, PutAttemptResult, PutExpiry, PutOutcome, PutUndelivered, QueryDue,
    ReadDocuments, ReadOutages, ReadPlugins, ReadRecords, ReadRun, ReadTarget, RemoveExpired, RunHead,
    SourceRejections, StoreError, StoreResult, TargetHead, TargetTransition, Tombstone, UpdateAttemptRecord,
    WatchChanges,
};

use super::runtime::lock;
use super::table::{TableState, named};
use super::{SimTable, receivers};

#[async_trait]
impl ReadRun for SimTable {
    async fn read_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>> {
        self.read(|state| state.heads.get(run).into_iter().flat_map(BTreeMap::values).cloned().collect()).await
    }

    async fn read_root(&self, run: &RunId) -> StoreResult<Option<RunHead>> {
        self.read(|state| state.root(run).cloned()).await
    }
}

#[async_trait]
impl PatchRun for SimTable {
    async fn patch_run(&self, run: &RunId, patch: &Patch) -> StoreResult<PatchResult> {
        self.write("UpdateItem", |state| {
            let seen = state.heads.get(run).and_then(|heads| heads.get(&patch.shard)).cloned();
            // As in the table, no patch creates a root.
            let after = match (&seen, patch.shard) {
                (None, Shard::ROOT) => None,
                (seen, _) => patch.apply(seen.as_ref().map(|head| &head.head), epoch_of(patch)),
            };
            let refused = if after.is_some() { "" } else { "REFUSED" };
            let what = move || format!("{run} {patch:?} {refused}");
            let patched = match after {
                None => PatchResult::ConditionFailed(seen),
                Some(head) => {
                    let facts = seen.and_then(|seen| seen.facts);
                    let written = RunHead { shard: patch.shard, head, facts };
                    state.heads.entry(run.clone()).or_default().insert(patch.shard, written.clone());
                    PatchResult::Written(written)
                }
            };
            (patched, what)
        })
        .await
    }

    async fn set_run_plan(&self, run: &RunId, plan: &str) -> StoreResult<bool> {
        self.write("UpdateItem", |state| {
            let root = state.heads.get_mut(run).and_then(|heads| heads.get_mut(&Shard::ROOT));
            let facts = root.and_then(|root| root.facts.as_mut());
            let is_written = facts.map(|facts| plan.clone_into(&mut facts.plan)).is_some();
            (is_written, move || format!("{run} has the plan {plan}"))
        })
        .await
    }
}

/// Returns the entries of a run, of all units or of these.
fn entries_of<T: Clone>(
    entries: &BTreeMap<(RunId, Unit, Attempt), T>,
    run: &RunId,
    units: Option<&[Unit]>,
) -> Vec<(Unit, Attempt, T)> {
    let from = (run.clone(), Unit(0), Attempt(0));
    let of_run = entries.range(from..).take_while(|((of, _, _), _)| of == run);
    let of_units = of_run.filter(|((_, unit, _), _)| units.is_none_or(|units| units.contains(unit)));
    of_units.map(|((_, unit, attempt), entry)| (*unit, *attempt, entry.clone())).collect()
}

#[async_trait]
impl ReadRecords for SimTable {
    async fn read_records(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        self.read(|state| entries_of(&state.records, run, Some(units))).await
    }

    async fn read_outlines(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        self.read(|state| {
            let mut records = entries_of(&state.records, run, None);
            for (_, _, record) in &mut records {
                for result in record.result.iter_mut().chain(&mut record.further_results) {
                    result.outputs = OutputStorage::Nothing;
                    result.evidence = None;
                }
            }
            records
        })
        .await
    }

    async fn read_accepted(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
        let each =
            |(unit, attempt, times): (_, _, BTreeSet<Timestamp>)| times.into_iter().map(move |at| (unit, attempt, at));
        self.read(|state| entries_of(&state.accepted, run, Some(units)).into_iter().flat_map(each).collect()).await
    }

    async fn read_all_records(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        self.read(|state| entries_of(&state.records, run, None)).await
    }
}

#[async_trait]
impl UpdateAttemptRecord for SimTable {
    async fn update_attempt(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        note: &AttemptUpdate,
    ) -> StoreResult<AttemptRecord> {
        self.write("UpdateItem", |state| {
            let record = state.records.entry((run.clone(), unit, attempt)).or_default();
            // Further results are in other items.
            let before = AttemptRecord { further_results: Vec::new(), ..record.clone() };
            record_model::update(record, note);
            (before, move || format!("{run} u{}.{} {note:?}", unit.0, attempt.0))
        })
        .await
    }

    async fn record_accepted(
        &self,
        run: &RunId,
        shard: Shard,
        tries: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> StoreResult<()> {
        self.write("UpdateItem", |state| {
            for &(unit, attempt) in tries {
                assert_eq!(Shard::of(unit).0, shard, "one write changes one item");
                state.accepted.entry((run.clone(), unit, attempt)).or_default().insert(at);
            }
            ((), move || format!("{run} accepted {tries:?}"))
        })
        .await
    }
}

#[async_trait]
impl PutAttemptResult for SimTable {
    async fn put_result(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        result: &AttemptResult,
    ) -> StoreResult<PutOutcome> {
        self.write("UpdateItem", |state| {
            let record = state.records.entry((run.clone(), unit, attempt)).or_default();
            let put = record_model::put(record, result);
            let what = move || format!("{run} u{}.{} result {:?}", unit.0, attempt.0, result.outcome);
            (put, what)
        })
        .await
    }

    async fn mark_outputs(&self, run: &RunId) -> StoreResult<()> {
        self.write("PutItem", |state| {
            state.marks.insert(run.clone());
            ((), || format!("{run} may have outputs in the bucket"))
        })
        .await
    }
}

#[async_trait]
impl ReadTarget for SimTable {
    async fn read_target(&self, target: TargetKey<'_>) -> StoreResult<Option<TargetHead>> {
        let key = (target.kind.to_owned(), target.name.to_owned());
        self.read(|state| state.targets.get(&key).cloned()).await
    }

    async fn read_tombstone(&self, instance: &str) -> StoreResult<Option<Timestamp>> {
        self.read(|state| state.tombstones.get(instance).copied()).await
    }
}

impl SimTable {
    /// Moves a target, and stores the plan of an instance with it.
    async fn transact(&self, transition: &TargetTransition, plan: Option<(&str, &[u8])>) -> StoreResult<bool> {
        self.write("TransactWriteItems", |state| {
            let target = &transition.target;
            let key = (target.kind.clone(), target.name.clone());
            let seen = state.targets.get(&key).cloned();
            let fits = seen.as_ref().map(|target| target.version) == transition.expected_version;
            let begun = transition.run.as_ref().filter(|run| fits && state.root(&run.id).is_some());
            let written = fits && begun.is_none();
            if written {
                let refused = target.refused_update.as_ref().map_or(0, |refused| refused.generation);
                let known = target.newest_generation().max(refused);
                let is_older = |seen: &&TargetHead| seen.uid == target.uid && seen.newest_generation() > known;
                let is_lost = target.phase.is_alive() && seen.as_ref().filter(is_older).is_some();
                assert!(!is_lost, "an accepted update is lost: {target:?}");
                receivers::appended(state, seen.as_ref(), target);
                state.targets.insert(key, target.clone());
                if let Some((instance, json)) = plan {
                    state.plans.insert(instance.to_owned(), json.to_vec());
                }
                if let Some(observe) = lock(&self.observer).as_ref() {
                    observe(state, seen.as_ref(), target);
                }
                let removed = state.removed.as_ref().map(|removed| &removed.plans);
                if target.phase.is_alive() && removed.is_some_and(|plans| plans.contains_key(&target.instance_key())) {
                    state.wrong.push(format!("{} lives after its data was removed", target.uid));
                }
                if let Some(tombstone) = &transition.tombstone {
                    state.tombstones.insert(tombstone.instance.clone(), tombstone.ended);
                }
                if let Some(entry) = &transition.entry {
                    if seen.as_ref().is_some_and(|seen| entry.at <= seen.since.0) {
                        state.wrong.push(format!("{entry:?} is not after the last change of its target"));
                    }
                    state.note(target.target_key(), entry);
                }
                if let Some(new) = &transition.run {
                    let mut head = HeadState::new(Epoch::FIRST);
                    head.due = Some(new.due);
                    let root = RunHead { shard: Shard::ROOT, head, facts: Some(new.facts.clone()) };
                    state.heads.entry(new.id.clone()).or_default().insert(Shard::ROOT, root);
                }
            }
            let what = move || {
                let run = transition.run.as_ref().map(|run| run.id.to_string());
                let refused = if written { "" } else { "REFUSED" };
                format!("{}/{} {:?} starts {run:?} {refused}", target.kind, target.name, target.phase)
            };
            let exists = |run: &NewRun| {
                let reason = format!("run {} exists without its target's transition", run.id);
                Err(StoreError::Broken { operation: "TransactWriteItems", reason })
            };
            (begun.map_or(Ok(written), exists), what)
        })
        .await?
    }
}

#[async_trait]
impl MoveTarget for SimTable {
    async fn move_target(&self, transition: &TargetTransition) -> StoreResult<bool> {
        self.transact(transition, None).await
    }

    async fn begin_instance(&self, transition: &TargetTransition, instance: &str, plan: &[u8]) -> StoreResult<bool> {
        self.transact(transition, Some((instance, plan))).await
    }

    async fn put_tombstone(&self, tombstone: &Tombstone) -> StoreResult<()> {
        self.write("PutItem", |state| {
            state.tombstones.insert(tombstone.instance.clone(), tombstone.ended);
            ((), move || format!("tombstone {}", tombstone.instance))
        })
        .await
    }
}

#[async_trait]
impl NoteHistory for SimTable {
    async fn note_history(&self, target: TargetKey<'_>, entry: &HistoryItem) -> StoreResult<bool> {
        // The model explores each operation, and only the time of a run depends on the history.
        if self.gate().is_some() {
            self.state().note(target, entry);
            return Ok(true);
        }
        self.write("PutItem", |state| {
            let is_noted = state.note(target, entry);
            let refused = if is_noted { "" } else { "REFUSED" };
            (is_noted, move || format!("{target} {:?} {:?} {refused}", entry.change, entry.run))
        })
        .await
    }
}

/// Returns true if `after` can replace `present`: it has the next version, or it is the same in a repeated write.
fn fits<T: PartialEq>(present: Option<&T>, after: &T, version: impl Fn(&T) -> u64) -> bool {
    present.map_or(0, &version) + 1 == version(after) || present == Some(after)
}

#[async_trait]
impl DesiredTargets for SimTable {
    async fn read_desired(&self, key: &DesiredKey) -> StoreResult<Option<DesiredTarget>> {
        self.read(|state| state.desired.get(key).cloned()).await
    }

    async fn put_desired(&self, desired: &DesiredTarget) -> StoreResult<bool> {
        let key = desired.key.clone();
        self.write("PutItem", |state| {
            let fits = fits(state.desired.get(&key), desired, |state| state.version);
            if fits {
                state.desired.insert(key.clone(), desired.clone());
            }
            let name = key.name.clone();
            (fits, move || format!("desired state of {name}"))
        })
        .await
    }
}

/// No simulation records an outage.
#[async_trait]
impl ReadOutages for SimTable {
    async fn read_outages(&self) -> StoreResult<BTreeMap<String, OutageRecord>> {
        self.read(|_| BTreeMap::new()).await
    }

    async fn read_denials(&self) -> StoreResult<BTreeMap<String, DenialRecord>> {
        self.read(|_| BTreeMap::new()).await
    }
}

#[async_trait]
impl NoteRejections for SimTable {
    async fn read_rejections(&self, source: &str) -> StoreResult<Option<SourceRejections>> {
        self.read(|state| state.rejections.get(source).cloned()).await
    }

    async fn put_rejections(&self, rejections: &SourceRejections) -> StoreResult<bool> {
        let source = &rejections.source;
        self.write("PutItem", |state| {
            let fits = fits(state.rejections.get(source), rejections, |rejections| rejections.version);
            if fits {
                state.rejections.insert(source.clone(), rejections.clone());
            }
            (fits, move || format!("rejected events of {source}"))
        })
        .await
    }
}

#[async_trait]
impl NoteChanges for SimTable {
    async fn peek_changes(&self) -> StoreResult<ChangeFeed> {
        // The model explores each operation, and has no reader.
        if self.state().feed.is_none() {
            return Ok(ChangeFeed::default());
        }
        self.read(|state| state.feed.clone().unwrap_or_default()).await
    }

    async fn note_changes(&self, _: &ChangeFeed, targets: &[&str]) -> StoreResult<ChangeFeed> {
        self.write("UpdateItem", |state| {
            let feed = state.feed.get_or_insert_default();
            *feed = feed.with(targets);
            (feed.clone(), move || format!("feed {}", targets.join(" ")))
        })
        .await
    }
}

#[async_trait]
impl WatchChanges for SimTable {
    async fn watch_changes(&self, until: Timestamp, begun: Option<Timestamp>) -> StoreResult<ChangeFeed> {
        self.write("UpdateItem", |state| {
            let feed = state.feed.get_or_insert_default();
            feed.watched = until;
            if let Some(begun) = begun {
                (feed.begun, feed.last) = (begun, feed.last + 1);
            }
            (feed.clone(), move || format!("feed watched until {until:?}"))
        })
        .await
    }

    async fn peek_target(&self, target: TargetKey<'_>) -> StoreResult<Option<TargetHead>> {
        self.read_target(target).await
    }

    async fn peek_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>> {
        self.read_run(run).await
    }
}

#[async_trait]
impl HealthMarks for SimTable {
    async fn put_mark(&self, what: HealthMark, _: Timestamp) -> StoreResult<()> {
        // Only the health check reads marks.
        self.write("PutItem", |_| ((), move || format!("mark {what:?}"))).await
    }

    async fn read_mark(&self, _: HealthMark) -> StoreResult<Option<Timestamp>> {
        self.read(|_| None).await
    }
}

#[async_trait]
impl QueryDue for SimTable {
    async fn query_due(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(Timestamp, DueItem)>> {
        let fresh = self.read(due).await?;
        *lock(&self.queried) = now;
        let indexed = {
            let mut indexed = lock(&self.indexed);
            if !self.should_inject(super::FaultKind::IndexLags) {
                *indexed = fresh;
            }
            indexed.clone()
        };
        let mut found: Vec<_> = indexed.into_iter().filter(|(due, _)| *due <= now).collect();
        found.truncate(limit);
        Ok(found)
    }
}

/// Returns all items that are due some time, in order.
fn due(state: &TableState) -> Vec<(Timestamp, DueItem)> {
    let mut found: Vec<_> = state.due().collect();
    found.sort();
    found
}

#[async_trait]
impl PlanStore for SimTable {
    async fn restore_plan(&self, instance: &str, json: &[u8]) -> StoreResult<()> {
        self.write("PutItem", |state| {
            state.plans.insert(instance.to_owned(), json.to_vec());
            ((), || "plan".to_owned())
        })
        .await
    }

    async fn get_plan(&self, instance: &str) -> StoreResult<Option<Vec<u8>>> {
        self.read(|state| state.plans.get(instance).cloned()).await
    }
}

#[async_trait]
impl ReadDocuments for SimTable {
    async fn get_document(&self, kind: NamedKind, name: &str) -> StoreResult<Option<NamedDocument>> {
        self.read(|state| state.documents.get(&named(kind, name)).cloned()).await
    }
}

#[async_trait]
impl ListDocuments for SimTable {
    async fn list_documents(&self, kind: NamedKind) -> StoreResult<Vec<NamedDocument>> {
        // The model explores each operation. Most simulations have no documents.
        if self.state().documents.is_empty() {
            return Ok(Vec::new());
        }
        let of_kind = |((of, _), document): (&(String, String), &NamedDocument)| {
            (*of == named(kind, "").0).then(|| document.clone())
        };
        self.read(|state| state.documents.iter().filter_map(of_kind).collect()).await
    }

    async fn list_undelivered(&self, prefix: &str, limit: usize) -> StoreResult<Vec<NamedDocument>> {
        let mut found = self.list_documents(NamedKind::Undelivered).await?;
        found.retain(|item| item.name.starts_with(prefix));
        found.truncate(limit);
        Ok(found)
    }

    async fn count_undelivered(&self, subscription: &str, limit: usize) -> StoreResult<usize> {
        Ok(self.list_undelivered(&format!("{subscription}/"), limit).await?.len())
    }
}

#[async_trait]
impl PutUndelivered for SimTable {
    async fn put_undelivered(&self, notification: &NamedDocument) -> StoreResult<()> {
        self.write("PutItem", |state| {
            state.documents.insert(named(NamedKind::Undelivered, &notification.name), notification.clone());
            ((), || format!("Undelivered {}", notification.name))
        })
        .await
    }
}

#[async_trait]
impl ReadPlugins for SimTable {
    async fn get_plugin(&self, name: &str, version: &str) -> StoreResult<Option<PluginItem>> {
        let key = (name.to_owned(), version.to_owned());
        self.read(|state| state.plugins.get(&key).cloned()).await
    }

    async fn list_versions(&self, name: &str) -> StoreResult<Vec<PluginItem>> {
        let named = |plugin: &&PluginItem| plugin.name == name;
        self.read(|state| state.plugins.values().filter(named).cloned().collect()).await
    }

    async fn list_plugins(&self) -> StoreResult<Vec<PluginItem>> {
        let listed = |plugin: &&PluginItem| plugin.withdrawn.is_none();
        self.read(|state| state.plugins.values().filter(listed).cloned().collect()).await
    }
}

#[async_trait]
impl PutExpiry for SimTable {
    async fn put_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.write("PutItem", |state| {
            state.expiries.insert((expiry.due, expiry.subject()), expiry.clone());
            ((), || format!("{} expires {:?}", expiry.subject(), expiry.due))
        })
        .await
    }
}

#[async_trait]
impl RemoveExpired for SimTable {
    async fn list_expired(&self, now: Timestamp, limit: usize) -> StoreResult<DueExpiries> {
        self.read(|state| {
            let due = state.expiries.values().take_while(|expiry| expiry.due <= now);
            DueExpiries { readable: due.take(limit).cloned().collect(), damaged: Vec::new() }
        })
        .await
    }

    async fn postpone_expiry(&self, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> StoreResult<()> {
        self.put_expiry(&InstanceExpiry { due, failures, ..expiry.clone() }).await?;
        if due == expiry.due { Ok(()) } else { self.delete_expiry(expiry).await }
    }

    async fn postpone_damaged(&self, damaged: &DamagedExpiry, _: Timestamp) -> StoreResult<()> {
        Err(StoreError::Broken { operation: "GetItem", reason: format!("no expiry is damaged: {damaged:?}") })
    }

    async fn delete_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        let key = (expiry.due, expiry.subject());
        self.remove(&format!("{key:?}"), |state| drop(state.expiries.remove(&key))).await
    }

    async fn delete_root(&self, run: &RunId) -> StoreResult<bool> {
        self.write("DeleteItem", |state| {
            let is_permitted = state.root(run).is_none_or(|root| root.head.removal_announced.is_some());
            if is_permitted {
                state.check_removal(run.as_str(), Some(run));
                let root = state.heads.get_mut(run).and_then(|heads| heads.remove_entry(&Shard::ROOT));
                state.removed.get_or_insert_default().heads.entry(run.clone()).or_default().extend(root);
            }
            (is_permitted, move || format!("removed root of {run}"))
        })
        .await
    }

    async fn delete_run(&self, run: &RunId) -> StoreResult<()> {
        if self.read(|state| state.marks.contains(run)).await? {
            self.delete_objects(run).await?;
        }
        let heads = |state: &mut TableState| {
            state.check_removal(run.as_str(), Some(run));
            state.marks.remove(run);
            let heads = state.heads.remove(run).unwrap_or_default();
            state.removed.get_or_insert_default().heads.entry(run.clone()).or_default().extend(heads);
        };
        self.remove(&format!("heads of {run}"), heads).await?;
        // Other invocations may see records without heads.
        let records = |TableState { records, accepted, removed, .. }: &mut TableState| {
            let removed = removed.get_or_insert_default();
            removed.records.extend(records.extract_if(.., |(of, ..), _| of == run));
            removed.accepted.extend(accepted.extract_if(.., |(of, ..), _| of == run));
        };
        self.remove(&format!("records of {run}"), records).await
    }

    async fn delete_objects(&self, run: &RunId) -> StoreResult<()> {
        let folders = [OUTPUTS, LOGS].map(|folder| format!("{folder}/{run}/"));
        let objects = |state: &mut TableState| {
            state.check_removal(run.as_str(), Some(run));
            state.objects.retain(|key, _| !folders.iter().any(|folder| key.starts_with(folder)));
        };
        self.remove(&format!("objects of {run}"), objects).await
    }

    async fn delete_plan(&self, instance: &str) -> StoreResult<()> {
        let plan = |state: &mut TableState| {
            state.check_removal(instance, None);
            let plan = state.plans.remove_entry(instance);
            state.removed.get_or_insert_default().plans.extend(plan);
        };
        self.remove(&format!("plan of {instance}"), plan).await
    }
}

impl SimTable {
    async fn remove(&self, what: &str, mut remove: impl FnMut(&mut TableState) + Send) -> StoreResult<()> {
        self.write("DeleteItem", |state| {
            remove(state);
            ((), || format!("removed {what}"))
        })
        .await
    }
}

#[async_trait]
impl ObjectStore for SimTable {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        self.write("PutObject", |state| {
            state.objects.insert(key.to_owned(), bytes.clone());
            ((), move || key.to_owned())
        })
        .await
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        let found = self.read(|state| state.objects.get(key).cloned()).await?;
        Ok(found.map(|bytes| OpenObject::new(Some(bytes.len()), async move { Ok(bytes) })))
    }
}

impl SimTable {
    /// Returns for how many milliseconds the most urgent item is due.
    pub fn overdue(&self) -> u64 {
        let first = due(&self.state()).first().map(|(at, _)| *at);
        first.map_or(0, |at| self.now().since(at).0)
    }

    /// Returns the items that are due at `at`, and whether the last query of the index named them.
    pub fn due_since(&self, at: Timestamp) -> BTreeMap<(Timestamp, DueItem), bool> {
        // The clock of a sweep may be slow.
        let (indexed, queried) = (lock(&self.indexed).clone(), *lock(&self.queried));
        let due = due(&self.state()).into_iter().filter(|(due, _)| *due <= at);
        due.map(|one| (one.clone(), one.0 <= queried && indexed.contains(&one))).collect()
    }

    /// Returns true if every run is closed, except those of targets whose names begin with `target`.
    pub fn is_at_rest_without(&self, target: Option<&str>) -> bool {
        let state = self.state();
        let mut roots = state.roots();
        let is_of = |root: &RunHead| {
            root.facts.as_ref().zip(target).is_some_and(|(facts, target)| facts.name.starts_with(target))
        };
        roots.all(|(_, root)| root.head.phase == RunPhase::Closed || is_of(root))
    }
}
