//! The head of a run: `r#RUN` / `h`, with the facts of the run.
//!
//! Attributes: `ep` epoch, `ph` phase, `tv` version, the string sets `done`, `failed` and `sealed` of units, and `late` of
//! `UNIT#ATTEMPT#MARK`, later attempts as `a17 = 2`, `due` and `g` of the index, `rm` if its removal is announced, `pn` if
//! the platform was notified. The numbers in sets have base 36: a write costs one unit for each KiB of the item.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Attempt, Epoch, HeadState, LateMark, Patch, PatchChange, PatchCondition, RunPhase, Unit};
use ebb_protocol::id::RunId;

use super::{Item, ItemReader, Store, digest, item_at, key, number, text};
use crate::items::{NewRun, PatchResult, RunFacts, RunHead};
use crate::{AttributeChange, StoreError, StoreResult, UpdateImage, WriteCondition, WriteExpression, WriteOutcome};

/// The time at which the removal of the instance was announced.
const REMOVAL: &str = "rm";
/// The time at which the platform accepted the notification.
const NOTIFIED: &str = "pn";
const PHASES: [(RunPhase, &str); 3] =
    [(RunPhase::Running, "running"), (RunPhase::Cancelling, "cancelling"), (RunPhase::Closed, "closed")];

fn phase_word(phase: RunPhase) -> &'static str {
    PHASES.iter().find(|row| row.0 == phase).map_or("", |row| row.1)
}

const BASE: u32 = 36;

fn short(mut number: u32) -> String {
    let mut text = String::new();
    loop {
        text.insert(0, char::from_digit(number % BASE, BASE).unwrap_or_default());
        number /= BASE;
        if number == 0 {
            return text;
        }
    }
}

fn from_short(text: &str) -> Option<u32> {
    u32::from_str_radix(text, BASE).ok()
}

pub(crate) fn new_run(run: &NewRun) -> Item {
    let partition = key::run(&run.id);
    let facts = &run.facts;
    let attributes = [
        ("g", number(key::due_shard(&partition))),
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
    ];
    let others = [("rk", facts.routing_key.as_ref().map(text)), ("cb", facts.by.as_ref().map(text))];
    item_at((partition, key::HEAD), attributes.map(|(name, value)| (name, Some(value))).into_iter().chain(others))
}

pub(super) fn read_head(reader: ItemReader<'_>) -> StoreResult<RunHead> {
    let word = reader.text("ph")?;
    let row = PHASES.iter().find(|row| row.1 == word);
    let mut head = HeadState {
        phase: row.ok_or_else(|| reader.broken(format!("unknown phase {word:?}")))?.0,
        done: read_units(reader, "done")?,
        failed: read_units(reader, "failed")?,
        sealed: read_units(reader, "sealed")?,
        due: reader.time_if_any("due")?,
        stopped: reader.time_if_any("sp")?,
        removal_announced: reader.time_if_any(REMOVAL)?,
        notified: reader.time_if_any(NOTIFIED)?,
        version: reader.number("tv")?,
        ..HeadState::new(Epoch(reader.number("ep")?))
    };
    for late in reader.texts("late")? {
        let mut parts = late.split('#');
        let mut part = || from_short(parts.next()?);
        let (Some(unit), Some(attempt), Some(mark)) = (part(), part(), part()) else {
            return Err(reader.broken(format!("{late:?} in late")));
        };
        head.late.insert(LateMark { unit: Unit(unit), attempt: Attempt(attempt), mark });
    }
    for name in reader.item.keys() {
        if let Some(unit) = name.strip_prefix('a').and_then(|unit| unit.parse().ok()) {
            head.attempts.insert(Unit(unit), Attempt(reader.number(name)?));
        }
    }
    let facts = RunFacts {
        kind: reader.text("k")?.to_owned(),
        name: reader.text("n")?.to_owned(),
        uid: reader.text("uid")?.to_owned(),
        generation: reader.number("gen")?,
        plan: reader.digest("plan")?,
        routing_key: reader.text_if_any("rk")?.map(str::to_owned),
        started: reader.time("st")?,
        by: reader.text_if_any("cb")?.map(str::to_owned),
    };
    Ok(RunHead { head, facts })
}

fn read_units(reader: ItemReader<'_>, name: &str) -> StoreResult<BTreeSet<Unit>> {
    let unit = |text: &String| {
        let unit = from_short(text).map(Unit);
        unit.ok_or_else(|| reader.broken(format!("{text:?} in {name}")))
    };
    reader.texts(name)?.iter().map(unit).collect()
}

fn write_condition(condition: PatchCondition) -> WriteCondition {
    match condition {
        PatchCondition::EpochIs(epoch) => WriteCondition::equal("ep", number(epoch.0)),
        PatchCondition::AttemptIs(unit, Attempt::FIRST) => {
            let name = attempt_name(unit);
            let is_equal = WriteCondition::equal(&name, number(Attempt::FIRST.0));
            WriteCondition::Any(vec![WriteCondition::absent(&name), is_equal])
        }
        PatchCondition::AttemptIs(unit, attempt) => WriteCondition::equal(&attempt_name(unit), number(attempt.0)),
        PatchCondition::NotDone(unit) => WriteCondition::Lacks("done".to_owned(), text(short(unit.0))),
        PatchCondition::NotFailed(unit) => WriteCondition::Lacks("failed".to_owned(), text(short(unit.0))),
        PatchCondition::DueIs(due) => WriteCondition::equal("due", number(due.0)),
        PatchCondition::DueAfter(due) => WriteCondition::Above("due".to_owned(), due.0),
        PatchCondition::VersionIs(version) => WriteCondition::equal("tv", number(version)),
    }
}

fn attempt_name(unit: Unit) -> String {
    format!("a{}", unit.0)
}

/// Members of the sets of a head, by attribute.
type SetMembers = BTreeMap<&'static str, BTreeSet<String>>;

fn express(run: &RunId, patch: &Patch) -> StoreResult<WriteExpression> {
    use AttributeChange::{Add, Delete, Remove, Set};
    // Only the transaction that begins a run creates its head.
    let mut expression = WriteExpression::when(WriteCondition::present("pk"));
    expression.conditions.extend(patch.conditions.iter().copied().map(write_condition));
    let mut change = |name: &str, value| drop(expression.changes.insert(name.to_owned(), value));
    let (mut added, mut deleted, mut versions) = (SetMembers::new(), SetMembers::new(), 0_u64);
    let insert = |sets: &mut SetMembers, name, member| {
        sets.entry(name).or_default().insert(member);
    };
    for &patched in &patch.changes {
        match patched {
            PatchChange::AddDone(unit) => insert(&mut added, "done", short(unit.0)),
            PatchChange::AddFailed(unit) => insert(&mut added, "failed", short(unit.0)),
            PatchChange::Reopen(unit) => {
                insert(&mut deleted, "done", short(unit.0));
                insert(&mut deleted, "failed", short(unit.0));
            }
            PatchChange::AddSealed(unit) => insert(&mut added, "sealed", short(unit.0)),
            PatchChange::AddLate(LateMark { unit, attempt, mark }) => {
                insert(&mut added, "late", [unit.0, attempt.0, mark].map(short).join("#"));
            }
            PatchChange::SetAttempt(unit, attempt) => change(&attempt_name(unit), Set(number(attempt.0))),
            PatchChange::SetEpoch(epoch) => change("ep", Set(number(epoch.0))),
            PatchChange::SetPhase(phase) => change("ph", Set(text(phase_word(phase)))),
            PatchChange::SetStopped(at) => change("sp", Set(number(at.0))),
            PatchChange::SetDue(due) => {
                change("due", Set(number(due.0)));
                change("g", Set(number(key::due_shard(&key::run(run)))));
            }
            PatchChange::ClearDue => {
                change("due", Remove);
                change("g", Remove);
            }
            PatchChange::AnnounceRemoval(at) => change(REMOVAL, Set(number(at.0))),
            PatchChange::WithdrawRemoval => change(REMOVAL, Remove),
            PatchChange::SetNotified(Some(at)) => change(NOTIFIED, Set(number(at.0))),
            PatchChange::SetNotified(None) => change(NOTIFIED, Remove),
            PatchChange::BumpVersion => versions += 1,
        }
    }
    if let Some(name) = added.keys().find(|name| deleted.contains_key(*name)) {
        let reason = format!("a patch cannot both add to {name} and delete from it");
        return Err(StoreError::Broken { operation: "UpdateItem", reason });
    }
    let texts = |members: BTreeSet<String>| AttributeValue::Ss(members.into_iter().collect());
    added.into_iter().for_each(|(name, members)| change(name, Add(texts(members))));
    deleted.into_iter().for_each(|(name, members)| change(name, Delete(texts(members))));
    if versions > 0 {
        change("tv", Add(number(versions)));
    }
    Ok(expression)
}

/// Reads and updates the head of a run (`GetItem`, `UpdateItem`).
impl Store {
    /// Returns the head, or `None` if the run does not exist.
    pub async fn read_run(&self, run: &RunId) -> StoreResult<Option<RunHead>> {
        self.table.read(&key::run(run), key::HEAD, read_head).await
    }

    /// Applies a patch if all its conditions hold.
    pub async fn patch_run(&self, run: &RunId, patch: &Patch) -> StoreResult<PatchResult> {
        let expression = express(run, patch)?;
        let partition = key::run(run);
        let key = (partition.as_str(), key::HEAD);
        match self.table.update(key, expression, UpdateImage::After).await? {
            WriteOutcome::Written(item) => Ok(PatchResult::Written(read_head(ItemReader::new("UpdateItem", &item))?)),
            WriteOutcome::Refused(item) if item.is_empty() => Ok(PatchResult::ConditionFailed(None)),
            WriteOutcome::Refused(item) => {
                Ok(PatchResult::ConditionFailed(Some(read_head(ItemReader::new("UpdateItem", &item))?)))
            }
        }
    }

    /// Gives a run the digest of another plan. Returns false if the run does not exist.
    pub async fn set_run_plan(&self, run: &RunId, plan: &str) -> StoreResult<bool> {
        let expression = WriteExpression::when(WriteCondition::present("pk"));
        let expression = expression.with([("plan", AttributeChange::Set(digest(plan)))]);
        self.table.update_if((&key::run(run), key::HEAD), expression).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_sets_are_parsed() {
        for (number, digits) in [(0, "0"), (35, "z"), (36, "10"), (999, "rr"), (u32::MAX, "1z141z3")] {
            assert_eq!(short(number), digits);
            assert_eq!(from_short(digits), Some(number));
        }
        assert_eq!(["", "-1", "a#", "1z141z4"].map(from_short), [None; 4]);
    }
}
