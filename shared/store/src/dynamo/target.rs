//! Targets: `t#KIND#NAME` / `h`, and tombstones: `x#INSTANCE` / `h`.
//!
//! The target is JSON in `b`. Every write replaces it on condition of its version `tv`. Two invocations may write equal
//! items in the same millisecond. The mark `by` is unique per write, so that a writer recognizes its own write after a lost
//! response.

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::{TargetKey, TargetPhase, Timestamp};

use super::attribute::{Item, ItemReader, item_at, number, sparse_json, text};
use super::history_items::history_item;
use super::plan::plan_item;
use super::run::new_run;
use super::{BodyStorage, Store, TOMBSTONE_RETENTION_MS, TableClient, key};
use crate::item_table::{ItemPut, TransactionOutcome, WriteCondition, WriteExpression};
use crate::{StoreError, StoreResult, TableSpec, TargetHead, TargetTransition, Tombstone};

const TRANSACT: &str = "TransactWriteItems";
const ENDED: &str = "end";
const BY: &str = "by";

/// Returns a unique mark. A transaction also uses it as its idempotency token, which DynamoDB keeps for ten minutes.
fn mark() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn target_item(target: &TargetHead, mark: &str) -> StoreResult<Item> {
    let partition = key::target(target.target_key());
    let is_final = target.phase == TargetPhase::Gone && target.due.is_none();
    let attributes = [
        (TableSpec::DUE, target.due.map(|due| number(due.0))),
        (TableSpec::DUE_SHARD, target.due.map(|_| number(key::due_shard(&partition)))),
        (TableSpec::TTL, target.removed.filter(|_| is_final).map(ttl_attribute)),
        (TableSpec::LIST, Some(text(target.list().partition()))),
        ("b", Some(sparse_json(target)?)),
        ("tv", Some(number(target.version))),
        (BY, Some(text(mark))),
    ];
    Ok(item_at((partition, key::HEAD), attributes))
}

pub(crate) fn read_target(reader: ItemReader<'_>) -> StoreResult<TargetHead> {
    let target: TargetHead = reader.json("b")?;
    Ok(TargetHead { due: reader.time_if_any(TableSpec::DUE)?, version: reader.number("tv")?, ..target })
}

/// Returns the TTL, in seconds, of an item that ended at `at`.
pub(crate) fn ttl_attribute(at: Timestamp) -> AttributeValue {
    number(at.0.saturating_add(TOMBSTONE_RETENTION_MS).div_ceil(1000))
}

pub(super) fn read_end(reader: ItemReader<'_>) -> StoreResult<Timestamp> {
    reader.time(ENDED)
}

fn tombstone_item(tombstone: &Tombstone) -> Item {
    let attributes = [(ENDED, Some(number(tombstone.ended.0))), (TableSpec::TTL, tombstone.needed.map(ttl_attribute))];
    item_at((key::tombstone(&tombstone.instance), key::HEAD), attributes)
}

pub(crate) fn has_version(version: Option<u64>) -> WriteExpression {
    WriteExpression::when(match version {
        None => WriteCondition::absent("pk"),
        Some(version) => WriteCondition::equal("tv", number(version)),
    })
}

/// Reads a target (`GetItem`), and writes it (`PutItem`; `TransactWriteItems` with a run, a plan, a tombstone or an entry of the
/// history).
impl Store {
    pub async fn read_target(&self, target: TargetKey<'_>) -> StoreResult<Option<TargetHead>> {
        self.table.read(&key::target(target), key::HEAD, read_target).await
    }

    /// Returns the end of an instance that no target names (a tombstone).
    pub async fn read_tombstone(&self, instance: &str) -> StoreResult<Option<Timestamp>> {
        self.table.read(&key::tombstone(instance), key::HEAD, read_end).await
    }

    /// Writes a transition. Returns false, and writes nothing, if the target has another version.
    pub async fn move_target(&self, transition: &TargetTransition) -> StoreResult<bool> {
        match (&transition.run, &transition.tombstone, &transition.entry) {
            (None, None, None) => {
                let item = target_item(&transition.target, &mark())?;
                self.table.put_once(item, has_version(transition.expected_version)).await
            }
            _ => Box::pin(self.table.transact(transition, None)).await,
        }
    }

    /// Writes a transition together with the plan of its instance (`TransactWriteItems`; a large plan goes to the
    /// bucket first, at `now`). Returns false as [`Self::move_target`]. The object of a refused plan is removed, unless the
    /// item names it because of a lost response.
    pub async fn begin_instance(
        &self,
        transition: &TargetTransition,
        instance: &str,
        plan: &[u8],
        now: Timestamp,
    ) -> StoreResult<bool> {
        let body = self.store_plan(instance, plan, Some(now)).await?;
        let is_moved = Box::pin(self.table.transact(transition, Some(plan_item(instance, &body)))).await?;
        if let (false, BodyStorage::Object(key)) = (is_moved, body)
            && let Err(error) = self.remove_unnamed(instance, &key).await
        {
            tracing::warn!(%error, key, "cannot delete the plan of a refused instance; trying again later");
        }
        Ok(is_moved)
    }

    /// Records the end of an instance without a target (`PutItem`). The caller then writes the target of the name. A
    /// concurrent creation reads that target before it reads the tombstone, so its write fails.
    pub async fn put_tombstone(&self, tombstone: &Tombstone) -> StoreResult<()> {
        self.table.put(tombstone_item(tombstone)).await
    }
}

impl TableClient {
    async fn transact(&self, transition: &TargetTransition, plan: Option<Item>) -> StoreResult<bool> {
        let mark = mark();
        let images = match self.table.transact(&puts(transition, &mark, plan)?, &mark).await?.value {
            TransactionOutcome::Written => return Ok(true),
            TransactionOutcome::Refused(images) => images,
        };
        if let Some(Some(target)) = images.first() {
            // A repeated write whose first response was lost and whose token has expired.
            return Ok(target.get(BY).and_then(|by| by.as_s().ok()) == Some(&mark));
        }
        let run = transition.run.as_ref().map_or_else(String::new, |run| run.id.to_string());
        let reason = format!("run {run} exists without its target's transition");
        Err(StoreError::Broken { operation: TRANSACT, reason })
    }
}

/// Returns the items of a transaction with their conditions. The target is the first one, and a run the last one.
fn puts(transition: &TargetTransition, mark: &str, plan: Option<Item>) -> StoreResult<Vec<ItemPut>> {
    let target = target_item(&transition.target, mark)?;
    let mut puts = vec![ItemPut { item: target, expression: has_version(transition.expected_version) }];
    let tombstone = transition.tombstone.as_ref().map(tombstone_item);
    let key = transition.target.target_key();
    let entry = transition.entry.as_ref().map(|entry| history_item(key, entry)).transpose()?;
    let others = plan.into_iter().chain(tombstone).chain(entry);
    puts.extend(others.map(|item| ItemPut { item, expression: WriteExpression::default() }));
    puts.extend(transition.run.as_ref().map(|run| ItemPut { item: new_run(run), expression: has_version(None) }));
    Ok(puts)
}
