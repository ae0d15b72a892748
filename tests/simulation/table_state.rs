//! The content of the table and the bucket, as the checks read it. Each write of an item changes it too.

use ebb_protocol::record::AttemptResult;
use ebb_store::{ChangeFeed, SourceRejections, SourceWatch};

use super::*;

#[derive(Clone, Default)]
pub struct TableState {
    pub heads: BTreeMap<RunId, RunHead>,
    pub records: BTreeMap<(RunId, Unit, Attempt), AttemptRecord>,
    /// The times of acceptances that one write has recorded together.
    pub accepted: BTreeMap<(RunId, Unit, Attempt), BTreeSet<Timestamp>>,
    /// The targets by name. All have the same kind.
    pub targets: BTreeMap<String, TargetHead>,
    pub desired: BTreeMap<DesiredKey, DesiredTarget>,
    pub rejections: BTreeMap<String, SourceRejections>,
    /// What the lists of sources have shown, by source.
    pub watches: BTreeMap<String, SourceWatch>,
    pub tombstones: BTreeMap<String, Timestamp>,
    /// The entries of the history of each target, by kind, name and id.
    pub history: BTreeMap<(String, String, String), HistoryItem>,
    pub plans: BTreeMap<String, Vec<u8>>,
    /// Sources, connections, subscriptions and undelivered notifications, by kind and name.
    pub documents: BTreeMap<(String, String), NamedDocument>,
    /// The numbers and phases of the notifications that writes of targets have appended, by subscription and `KIND/NAME` of the target.
    pub appended: BTreeMap<(String, String), BTreeMap<u64, TargetChange>>,
    /// The number of times at which an attempt got no slot.
    pub slot_waits: u64,
    pub wrong: Vec<String>,
    /// The time and a description of each write.
    pub writes: Vec<(u64, String)>,
    /// The removal times of data, by time and subject.
    pub expiries: BTreeMap<(Timestamp, String), InstanceExpiry>,
    /// The sort keys of the removal times of objects.
    pub object_expiries: BTreeSet<String>,
    /// The runs that may have outputs in the bucket.
    pub marks: BTreeSet<RunId>,
    /// The feed of changed targets. `None` until a reader watches it: without one, no operation of the feed is simulated.
    pub feed: Option<ChangeFeed>,
    /// The heads, records, acceptances and plans that retention has removed.
    pub removed: Option<Box<Self>>,
}

impl TableState {
    pub(super) fn expires_nothing(&self) -> bool {
        self.expiries.is_empty() && self.object_expiries.is_empty()
    }

    /// Returns the table and what retention has removed. Functions see only the table.
    pub(super) fn all(&self) -> impl Iterator<Item = &Self> {
        [Some(self), self.removed.as_deref()].into_iter().flatten()
    }

    /// Finds something in the table or in what retention has removed.
    pub fn find<'a, T>(&'a self, find: impl Fn(&'a Self) -> Option<T>) -> Option<T> {
        self.all().find_map(find)
    }

    pub(super) fn plan(&self, key: &str) -> Option<Plan> {
        Plan::from_json(std::str::from_utf8(self.plans.get(key)?).ok()?).ok()
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
        let is_open = run.and_then(|run| self.heads.get(run)).is_some_and(|run| run.head.phase != RunPhase::Closed);
        if is_open || self.targets.values().any(needs) {
            self.wrong.push(format!("{subject} is removed and still needed"));
        }
    }

    /// Returns the head of a run, also of one that retention has removed.
    pub fn head(&self, run: &RunId) -> Option<&HeadState> {
        self.find(|table| table.heads.get(run)).map(|present| &present.head)
    }

    pub fn is_done(&self, run: &RunId, unit: u32) -> bool {
        self.head(run).is_some_and(|head| head.done.contains(&Unit(unit)))
    }

    /// Returns true if a unit is done, or if it is `tolerated` and one of its attempts has failed as the last one.
    pub(super) fn lets_pass(&self, run: &RunId, unit: u32, tolerated: bool) -> bool {
        let of = |attempt| (run.clone(), Unit(unit), Attempt(attempt));
        let is_last = |result: &AttemptResult| result.outcome == AttemptOutcome::Failed && result.next.is_none();
        let mut records = self.all().flat_map(|table| table.records.range(of(0)..=of(u32::MAX)));
        let mut has_failed = || records.any(|(_, record)| record.result.as_ref().is_some_and(is_last));
        self.is_done(run, unit) || (tolerated && has_failed())
    }

    pub(super) fn living_of(&self, source: &str) -> usize {
        let is_of = |target: &&TargetHead| target.phase.is_alive() && target.source.as_deref() == Some(source);
        self.targets.values().filter(is_of).count()
    }

    pub fn due(&self) -> impl Iterator<Item = (Timestamp, DueItem)> {
        let runs = self.heads.iter().filter_map(|(run, present)| Some((present.head.due?, DueItem::Run(run.clone()))));
        let targets = self.targets.values();
        let targets =
            targets.filter_map(|target| Some((target.due?, DueItem::Target(target.kind.clone(), target.name.clone()))));
        let desired = self.desired.values().filter_map(|one| Some((one.due?, DueItem::Desired(one.key.clone()))));
        let sources = self.watches.values().map(|watch| (watch.due, DueItem::Source(watch.source.clone())));
        runs.chain(targets).chain(desired).chain(sources)
    }

    /// Applies the write of an item. Returns the target that was written, and the one before.
    pub(super) fn apply(
        &mut self,
        (before, after): (Option<&Item>, Option<&Item>),
        objects: &MemoryTable,
    ) -> Option<(Option<TargetHead>, TargetHead)> {
        let read = |item: &Item| StoredItem::read(item).expect("the store reads what it writes");
        let Some(after) = after else {
            if let Some(before) = before {
                self.remove(read(before));
            }
            return None;
        };
        match read(after) {
            StoredItem::Head(run, head) => drop(self.heads.insert(run, *head)),
            StoredItem::OutputMark(run) => drop(self.marks.insert(run)),
            StoredItem::Record(run, unit, attempt, record) => {
                self.slot_waits += u64::from(record.awaited_slot().is_some());
                let present = self.records.entry((run, unit, attempt)).or_default();
                let further_results = std::mem::take(&mut present.further_results);
                *present = AttemptRecord { further_results, ..*record };
            }
            StoredItem::FurtherResult(run, unit, attempt, result) => {
                let results = &mut self.records.entry((run, unit, attempt)).or_default().further_results;
                if !results.contains(&result) {
                    results.push(*result);
                }
            }
            StoredItem::Acceptances(run, attempts) => {
                for (unit, attempt, at) in attempts {
                    self.accepted.entry((run.clone(), unit, attempt)).or_default().insert(at);
                }
            }
            StoredItem::Target(target) => return Some(self.put_target(*target)),
            StoredItem::Tombstone(instance, ended) => drop(self.tombstones.insert(instance, ended)),
            StoredItem::History(kind, name, entry) => drop(self.history.insert((kind, name, entry.id()), *entry)),
            StoredItem::Plan(instance, text) => {
                let text = text.unwrap_or_else(|key| objects.object(&key).unwrap_or_default());
                self.plans.insert(instance, text);
            }
            StoredItem::Desired(desired) => drop(self.desired.insert(desired.key.clone(), *desired)),
            StoredItem::Rejections(rejections) => {
                self.rejections.insert(rejections.source.clone(), rejections);
            }
            StoredItem::Watch(watch) => drop(self.watches.insert(watch.source.clone(), *watch)),
            StoredItem::Document(kind, document) => {
                self.documents.insert(named(kind, &document.name), document);
            }
            StoredItem::Expiry(expiry) => drop(self.expiries.insert((expiry.due, expiry.subject()), expiry)),
            StoredItem::Feed(feed) => self.feed = Some(feed),
            StoredItem::ObjectExpiry(key) => drop(self.object_expiries.insert(key.sort)),
            StoredItem::Other(_) => {}
        }
        None
    }

    /// Keeps what an item had for the checks.
    fn remove(&mut self, item: StoredItem) {
        match &item {
            StoredItem::Head(run, _) => self.check_removal(run.as_str(), Some(run)),
            StoredItem::Plan(instance, _) => self.check_removal(instance, None),
            _ => {}
        }
        let removed = self.removed.get_or_insert_default();
        match item {
            StoredItem::Head(run, head) => {
                self.heads.remove(&run);
                removed.heads.insert(run, *head);
            }
            StoredItem::OutputMark(run) => drop(self.marks.remove(&run)),
            StoredItem::Record(run, unit, attempt, _) | StoredItem::FurtherResult(run, unit, attempt, _) => {
                removed.records.extend(self.records.remove_entry(&(run, unit, attempt)));
            }
            StoredItem::Acceptances(run, attempts) => {
                for (unit, attempt, _) in attempts {
                    removed.accepted.extend(self.accepted.remove_entry(&(run.clone(), unit, attempt)));
                }
            }
            StoredItem::Plan(instance, _) => removed.plans.extend(self.plans.remove_entry(&instance)),
            StoredItem::Expiry(expiry) => drop(self.expiries.remove(&(expiry.due, expiry.subject()))),
            StoredItem::ObjectExpiry(key) => drop(self.object_expiries.remove(&key.sort)),
            StoredItem::Document(kind, document) => drop(self.documents.remove(&named(kind, &document.name))),
            item => self.wrong.push(format!("{item:?} is removed")),
        }
    }

    fn put_target(&mut self, target: TargetHead) -> (Option<TargetHead>, TargetHead) {
        let seen = self.targets.get(&target.name).cloned();
        let refused = target.refused_update.as_ref().map_or(0, |refused| refused.generation);
        let known = target.newest_generation().max(refused);
        let is_older = |seen: &&TargetHead| seen.uid == target.uid && seen.newest_generation() > known;
        let is_lost = target.phase.is_alive() && seen.as_ref().filter(is_older).is_some();
        assert!(!is_lost, "an accepted update is lost: {target:?}");
        receivers::appended(self, seen.as_ref(), &target);
        let removed = self.removed.as_ref().map(|removed| &removed.plans);
        if target.phase.is_alive() && removed.is_some_and(|plans| plans.contains_key(&target.instance_key())) {
            self.wrong.push(format!("{} lives after its data was removed", target.uid));
        }
        self.targets.insert(target.name.clone(), target.clone());
        (seen, target)
    }
}

/// Returns the key of a document in the state.
pub(super) fn named(kind: NamedKind, name: &str) -> (String, String) {
    (format!("{kind:?}"), name.to_owned())
}
