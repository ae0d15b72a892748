//! Run heads: `r#RUN` / `h`, and `h#0001`, … for units beyond the first [`SHARD`](ebb_protocol::engine::SHARD).
//!
//! Attributes: `ep` epoch, `ph` phase, `tv` version, the number sets `done`, `failed` and `sealed` and the string set
//! `late`, relative to the shard, later attempts as `a17 = 2`, `due` and `g` of the index, `rm` if its removal is
//! announced, `pn` if the platform was notified. The root also has the facts of the run. Other items are created by their
//! first write, so they cannot contain maps.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Attempt, Epoch, HeadState, LateMark, Patch, PatchChange, PatchCondition, RunPhase, Shard};
use ebb_protocol::id::RunId;

use super::attribute::{Item, ItemReader, digest, item, item_size, number, optional, text};
use super::key;
use super::store::Store;
use crate::error::StoreError;
use crate::item_table::{UpdateImage, WriteCondition, WriteExpression, WriteOutcome};
use crate::items::{NewRun, PatchResult, RunFacts, RunHead};
use crate::ops::StoreResult;

/// The time at which the removal of the instance was announced.
const REMOVAL: &str = "rm";
/// The time at which the platform accepted the notification.
const NOTIFIED: &str = "pn";
const PHASES: [(RunPhase, &str); 3] =
    [(RunPhase::Running, "running"), (RunPhase::Cancelling, "cancelling"), (RunPhase::Closed, "closed")];

fn phase_word(phase: RunPhase) -> &'static str {
    PHASES.iter().find(|row| row.0 == phase).map_or("", |row| row.1)
}

/// Returns the root item of a new run.
pub(crate) fn new_run(run: &NewRun) -> Item {
    let partition = key::run(&run.id);
    let facts = &run.facts;
    let mut root = item([
        ("g", number(key::due_shard(&partition))),
        ("pk", text(partition)),
        ("sk", text(key::HEAD)),
        ("ep", number(Epoch::FIRST.0)),
        ("ph", text(phase_word(RunPhase::Running))),
        ("tv", number(0)),
        ("due", number(run.due.0)),
        ("k", text(&facts.kind)),
        ("n", text(&facts.name)),
        ("uid", text(&facts.uid)),
        ("gen", number(facts.generation)),
        ("plan", digest(&facts.plan)),
        ("st", number(facts.started.0)),
    ]);
    root.extend(optional([("rk", facts.routing_key.as_ref().map(text)), ("cb", facts.by.as_ref().map(text))]));
    root
}

pub(super) fn read_head(operation: &'static str, item: &Item) -> StoreResult<RunHead> {
    let reader = ItemReader::new(operation, item);
    let shard =
        key::shard_of(reader.text("sk")?).ok_or_else(|| reader.broken("the sort key is not that of a run head"))?;
    let epoch = Epoch(reader.number_if_any("ep")?.unwrap_or(Epoch::FIRST.0));
    let phase = match reader.text_if_any("ph")? {
        None => RunPhase::Running,
        Some(word) => {
            let row = PHASES.iter().find(|row| row.1 == word);
            row.ok_or_else(|| reader.broken(format!("unknown phase {word:?}")))?.0
        }
    };
    let mut head = HeadState {
        phase,
        done: reader.numbers("done")?.into_iter().collect(),
        failed: reader.numbers("failed")?.into_iter().collect(),
        sealed: reader.numbers("sealed")?.into_iter().collect(),
        due: reader.time_if_any("due")?,
        stopped: reader.time_if_any("sp")?,
        removal_announced: reader.time_if_any(REMOVAL)?,
        notified: reader.time_if_any(NOTIFIED)?,
        version: reader.number_if_any("tv")?.unwrap_or(0),
        ..HeadState::new(epoch)
    };
    for late in reader.texts("late")? {
        let mut parts = late.split('#');
        let mut part = || parts.next()?.parse().ok();
        let (Some(slot), Some(attempt), Some(mark)) = (part(), part(), part()) else {
            return Err(reader.broken(format!("{late:?} in late")));
        };
        head.late.insert(LateMark { slot, attempt: Attempt(attempt), mark });
    }
    for name in item.keys() {
        if let Some(slot) = name.strip_prefix('a').and_then(|slot| slot.parse().ok()) {
            head.attempts.insert(slot, Attempt(reader.number(name)?));
        }
    }
    let facts = match shard {
        Shard::ROOT => Some(RunFacts {
            kind: reader.text("k")?.to_owned(),
            name: reader.text("n")?.to_owned(),
            uid: reader.text("uid")?.to_owned(),
            generation: reader.number("gen")?,
            plan: reader.digest("plan")?,
            routing_key: reader.text_if_any("rk")?.map(str::to_owned),
            started: reader.time("st")?,
            by: reader.text_if_any("cb")?.map(str::to_owned),
        }),
        _ => None,
    };
    Ok(RunHead { shard, head, facts })
}

fn write_condition(shard: Shard, condition: PatchCondition) -> WriteCondition {
    match condition {
        PatchCondition::EpochIs(epoch) if shard == Shard::ROOT => WriteCondition::equal("ep", number(epoch.0)),
        PatchCondition::EpochIs(epoch) => absent_or_equal("ep", epoch.0),
        PatchCondition::AttemptIs(slot, Attempt::FIRST) => absent_or_equal(&attempt_name(slot), Attempt::FIRST.0),
        PatchCondition::AttemptIs(slot, attempt) => WriteCondition::equal(&attempt_name(slot), number(attempt.0)),
        PatchCondition::NotDone(slot) => WriteCondition::Lacks("done".to_owned(), number(slot)),
        PatchCondition::NotFailed(slot) => WriteCondition::Lacks("failed".to_owned(), number(slot)),
        PatchCondition::DueIs(due) => WriteCondition::equal("due", number(due.0)),
        PatchCondition::DueAfter(due) => WriteCondition::Above("due".to_owned(), due.0),
        PatchCondition::VersionIs(0) => absent_or_equal("tv", 0),
        PatchCondition::VersionIs(version) => WriteCondition::equal("tv", number(version)),
    }
}

fn absent_or_equal(attribute: &str, value: impl ToString) -> WriteCondition {
    let is_equal = WriteCondition::equal(attribute, number(value));
    WriteCondition::Any(vec![WriteCondition::absent(attribute), is_equal])
}

fn attempt_name(slot: u32) -> String {
    format!("a{slot}")
}

#[derive(Default)]
struct SetChange {
    add: BTreeSet<u32>,
    delete: BTreeSet<u32>,
}

impl SetChange {
    fn add(&mut self, slot: u32) {
        self.delete.remove(&slot);
        self.add.insert(slot);
    }

    fn delete(&mut self, slot: u32) {
        self.add.remove(&slot);
        self.delete.insert(slot);
    }

    fn express(self, expression: &mut WriteExpression, name: &str) -> StoreResult<()> {
        let numbers = |slots: BTreeSet<u32>| AttributeValue::Ns(slots.iter().map(u32::to_string).collect());
        match (self.add.is_empty(), self.delete.is_empty()) {
            (true, true) => {}
            (false, true) => expression.add(name, numbers(self.add)),
            (true, false) => expression.delete(name, numbers(self.delete)),
            (false, false) => {
                let reason = format!("a patch cannot both add to {name} and delete from it");
                return Err(StoreError::Broken { operation: "UpdateItem", reason });
            }
        }
        Ok(())
    }
}

fn express(run: &RunId, patch: &Patch) -> StoreResult<WriteExpression> {
    let mut expression = WriteExpression::default();
    if patch.shard == Shard::ROOT {
        expression.require(WriteCondition::present("pk"));
    }
    let mut epoch = Some(Epoch::FIRST);
    for &condition in &patch.conditions {
        match condition {
            PatchCondition::EpochIs(now) => epoch = Some(now),
            // An item has no version before its first change, and a missing item has none either.
            PatchCondition::VersionIs(0) => expression.require(WriteCondition::present("pk")),
            _ => {}
        }
        expression.require(write_condition(patch.shard, condition));
    }
    let (mut done, mut failed) = (SetChange::default(), SetChange::default());
    let (mut sealed, mut late, mut versions) = (SetChange::default(), BTreeSet::new(), 0_u64);
    for &change in &patch.changes {
        match change {
            PatchChange::AddDone(slot) => done.add(slot),
            PatchChange::AddFailed(slot) => failed.add(slot),
            PatchChange::Reopen(slot) => {
                done.delete(slot);
                failed.delete(slot);
            }
            PatchChange::AddSealed(slot) => sealed.add(slot),
            PatchChange::AddLate(LateMark { slot, attempt, mark }) => {
                late.insert(format!("{slot}#{}#{mark}", attempt.0));
            }
            PatchChange::SetAttempt(slot, attempt) => expression.set(&attempt_name(slot), number(attempt.0)),
            PatchChange::SetEpoch(next) => {
                epoch = None;
                expression.set("ep", number(next.0));
            }
            PatchChange::SetPhase(phase) => expression.set("ph", text(phase_word(phase))),
            PatchChange::SetStopped(at) => expression.set("sp", number(at.0)),
            PatchChange::SetDue(due) => {
                expression.set("due", number(due.0));
                expression.set("g", number(key::due_shard(&key::run(run))));
            }
            PatchChange::ClearDue => {
                expression.remove("due");
                expression.remove("g");
            }
            PatchChange::AnnounceRemoval(at) => expression.set(REMOVAL, number(at.0)),
            PatchChange::WithdrawRemoval => expression.remove(REMOVAL),
            PatchChange::SetNotified(Some(at)) => expression.set(NOTIFIED, number(at.0)),
            PatchChange::SetNotified(None) => expression.remove(NOTIFIED),
            PatchChange::BumpVersion => versions += 1,
        }
    }
    done.express(&mut expression, "done")?;
    failed.express(&mut expression, "failed")?;
    sealed.express(&mut expression, "sealed")?;
    if !late.is_empty() {
        expression.add("late", AttributeValue::Ss(late.into_iter().collect()));
    }
    if versions > 0 {
        expression.add("tv", number(versions));
    }
    // A write without an epoch can only create an item of the first epoch, because a cancel writes all items.
    if let (true, Some(epoch)) = (patch.shard != Shard::ROOT, epoch) {
        expression.set_if_absent("ep", number(epoch.0));
    }
    Ok(expression)
}

/// Returns the upper bound of index entries that a patch creates or removes.
fn index_entries(patch: &Patch) -> u64 {
    let entries = patch.changes.iter().map(|change| match change {
        PatchChange::SetDue(_) => 2,
        PatchChange::ClearDue => 1,
        _ => 0,
    });
    entries.max().unwrap_or(0)
}

/// Reads head items of a run (`Query`).
impl Store {
    /// Returns all head items, the root first. Empty if the run does not exist.
    pub async fn read_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>> {
        let items = self.table.range(&key::run(run), key::HEAD, "h$").await?;
        items.iter().map(|item| read_head("Query", item)).collect()
    }

    /// Returns the root (`GetItem`).
    pub async fn read_root(&self, run: &RunId) -> StoreResult<Option<RunHead>> {
        self.table.read(&key::run(run), key::HEAD, read_head).await
    }
}

/// Updates a head item of a run (`UpdateItem`).
impl Store {
    /// Applies a patch if all its conditions hold.
    pub async fn patch_run(&self, run: &RunId, patch: &Patch) -> StoreResult<PatchResult> {
        let expression = express(run, patch)?;
        let (partition, sort) = (key::run(run), key::shard(patch.shard));
        let key = (partition.as_str(), sort.as_str());
        match self.table.update(key, expression, UpdateImage::After, index_entries(patch)).await? {
            WriteOutcome::Written(item) => {
                if let Some(meter) = &self.table.meter {
                    meter.head(item_size(&item));
                }
                Ok(PatchResult::Written(read_head("UpdateItem", &item)?))
            }
            WriteOutcome::Refused(item) if item.is_empty() => Ok(PatchResult::ConditionFailed(None)),
            WriteOutcome::Refused(item) => Ok(PatchResult::ConditionFailed(Some(read_head("UpdateItem", &item)?))),
        }
    }

    /// Gives a run the digest of another plan. Returns false if the run does not exist.
    pub async fn set_run_plan(&self, run: &RunId, plan: &str) -> StoreResult<bool> {
        let mut expression = WriteExpression::when(WriteCondition::present("pk"));
        expression.set("plan", digest(plan));
        self.table.update_if((&key::run(run), key::HEAD), expression).await
    }
}
