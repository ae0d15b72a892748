//! Targets: `t#KIND#NAME` / `h`, and tombstones: `x#UID` / `h`.
//!
//! Every write replaces the whole target on condition of its version `tv`. Two invocations may write equal items in
//! the same millisecond. The mark `by` is unique per write, so that a writer recognizes its own write after a lost
//! response.

use async_trait::async_trait;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use backon::BackoffBuilder as _;
use ebb_protocol::engine::{Hook, TargetPhase, Timestamp};
use ebb_protocol::id::{hook_name, hook_named};
use ebb_protocol::lifecycle::TargetStopCause;

use super::attribute::{Item, ItemReader, digest, item_size, json, number, text};
use super::document::BodyStorage;
use super::failure::{failure, past_conflicts, pauses};
use super::plan::plan_item;
use super::run::new_run;
use super::{DynamoTable, TOMBSTONE_RETENTION_MS, key};
use crate::error::StoreError;
use crate::items::TargetHead;
use crate::meter::CapacityKind;
use crate::ops::{ReadTarget, StoreResult, TargetList, TargetTransition, Tombstone};
use crate::table::TableSpec;

const PHASES: [(TargetPhase, &str); 6] = [
    (TargetPhase::Starting, "starting"),
    (TargetPhase::Ready, "ready"),
    (TargetPhase::Failed, "failed"),
    (TargetPhase::Stopping, "stopping"),
    (TargetPhase::Stuck, "stuck"),
    (TargetPhase::Gone, "gone"),
];
const TRANSACT: &str = "TransactWriteItems";
const ENDED: &str = "end";
const BY: &str = "by";

/// The stop cause of a target whose TTL ended.
const EXPIRED: &str = "expired";

/// Returns a unique mark. A transaction also uses it as its idempotency token, which DynamoDB keeps for ten minutes.
fn mark() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn target_item(target: &TargetHead, mark: &str) -> StoreResult<Item> {
    let partition = key::target(&target.kind, &target.name);
    let phase = PHASES.iter().find(|row| row.0 == target.phase).map_or("", |row| row.1);
    let list = match target.list() {
        TargetList::Gone => TableSpec::LIST_GONE,
        TargetList::Active => TableSpec::LIST_TARGETS,
    };
    let mut attributes = vec![
        ("sk", text(key::HEAD)),
        (TableSpec::LIST, text(list)),
        ("k", text(&target.kind)),
        ("n", text(&target.name)),
        ("uid", text(&target.uid)),
        ("gen", number(target.generation)),
        ("ph", text(phase)),
        ("plan", digest(&target.plan)),
        ("cr", number(target.created.0)),
        ("si", number(target.since.0)),
        ("tv", number(target.version)),
        (BY, text(mark)),
    ];
    if let Some(hook) = target.hook {
        attributes.push(("hk", text(hook_name(hook))));
    }
    if let Some(routing_key) = &target.routing_key {
        attributes.push(("rk", text(routing_key)));
    }
    if !target.plugins.is_empty() {
        attributes.push(("pv", AttributeValue::L(target.plugins.iter().map(text).collect())));
    }
    if let Some(expires) = target.expires {
        attributes.push(("ex", number(expires.0)));
    }
    if target.stop_cause == TargetStopCause::Expired {
        attributes.push(("sc", text(EXPIRED)));
    }
    if target.is_overridden {
        attributes.push(("ov", AttributeValue::Bool(true)));
    }
    if let Some(pending) = &target.notification {
        attributes.push(("ntf", json(pending)?));
    }
    if let Some(waiting) = &target.waiting {
        attributes.push(("next", json(waiting)?));
    }
    if !target.release.is_empty() {
        attributes.push(("rel", json(&target.release)?));
    }
    if let Some(due) = target.due {
        attributes.push((TableSpec::DUE, number(due.0)));
        attributes.push((TableSpec::DUE_SHARD, number(key::due_shard(&partition))));
    }
    if target.phase == TargetPhase::Gone && target.due.is_none() {
        attributes.push((TableSpec::TTL, ttl_attribute(target.since)));
    }
    attributes.push(("pk", text(partition)));
    Ok(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(super) fn read_target(operation: &'static str, item: &Item) -> StoreResult<TargetHead> {
    let reader = ItemReader::new(operation, item);
    let word = reader.text("ph")?;
    let phase = PHASES.iter().find(|row| row.1 == word);
    let hook = |word: &str| hook_named(word).ok_or_else(|| reader.broken(format!("unknown hook {word:?}")));
    Ok(TargetHead {
        kind: reader.text("k")?.to_owned(),
        name: reader.text("n")?.to_owned(),
        uid: reader.text("uid")?.to_owned(),
        generation: reader.number("gen")?,
        phase: phase.ok_or_else(|| reader.broken(format!("unknown phase {word:?}")))?.0,
        hook: reader.text_if_any("hk")?.map(hook).transpose()?,
        plan: reader.digest("plan")?,
        routing_key: reader.text_if_any("rk")?.map(str::to_owned),
        plugins: reader.text_list("pv")?,
        created: reader.time("cr")?,
        since: reader.time("si")?,
        expires: reader.time_if_any("ex")?,
        stop_cause: match reader.text_if_any("sc")? {
            None => TargetStopCause::Deleted,
            Some(EXPIRED) => TargetStopCause::Expired,
            Some(word) => return Err(reader.broken(format!("unknown cause {word:?}"))),
        },
        is_overridden: item.contains_key("ov"),
        notification: reader.json_if_any("ntf")?,
        waiting: reader.json_if_any("next")?,
        release: reader.json_if_any("rel")?.unwrap_or_default(),
        due: reader.time_if_any("due")?,
        version: reader.number("tv")?,
    })
}

/// Returns the TTL, in seconds, of an item that ended at `at`.
pub(super) fn ttl_attribute(at: Timestamp) -> AttributeValue {
    number(at.0.saturating_add(TOMBSTONE_RETENTION_MS).div_ceil(1000))
}

fn tombstone_item(tombstone: &Tombstone) -> Item {
    Item::from([
        ("pk".to_owned(), text(key::tombstone(&tombstone.uid))),
        ("sk".to_owned(), text(key::HEAD)),
        (ENDED.to_owned(), number(tombstone.ended.0)),
        (TableSpec::TTL.to_owned(), ttl_attribute(tombstone.needed)),
    ])
}

/// The condition that a target has the expected version.
struct VersionCondition {
    condition: &'static str,
    values: Option<Item>,
}

impl VersionCondition {
    fn new(version: Option<u64>) -> Self {
        match version {
            None => Self { condition: "attribute_not_exists(pk)", values: None },
            Some(version) => {
                Self { condition: "tv = :v", values: Some(Item::from([(":v".to_owned(), number(version))])) }
            }
        }
    }
}

/// Returns the upper bound of entries of both indexes that a write creates or removes.
fn index_entries(target: &TargetHead, seen: Option<u64>) -> u64 {
    // A target changes lists when it is gone, when its final notification is rejected, and when the next instance
    // begins.
    let listed = match (seen, target.phase, target.hook) {
        (None, _, _) => 1,
        (Some(_), TargetPhase::Gone, _) => 2,
        (Some(_), TargetPhase::Starting, Some(Hook::PreStart) | None) => 2,
        (Some(_), _, _) => 0,
    };
    let due = match (target.due, seen) {
        (Some(_), None) => 1,
        (Some(_), Some(_)) => 2,
        (None, Some(_)) => 1,
        (None, None) => 0,
    };
    listed + due
}

#[async_trait]
impl ReadTarget for DynamoTable {
    async fn read_target(&self, kind: &str, name: &str) -> StoreResult<Option<TargetHead>> {
        let item = self.get(&key::target(kind, name), key::HEAD).await?;
        item.map(|item| read_target("GetItem", &item)).transpose()
    }

    async fn read_tombstone(&self, uid: &str) -> StoreResult<Option<Timestamp>> {
        let item = self.get(&key::tombstone(uid), key::HEAD).await?;
        item.map(|item| ItemReader::new("GetItem", &item).time(ENDED)).transpose()
    }
}

impl DynamoTable {
    /// Writes a transition of a target, with the plan of an instance.
    pub(crate) async fn move_target(
        &self,
        transition: &TargetTransition,
        plan: Option<(&str, &BodyStorage)>,
    ) -> StoreResult<bool> {
        match (&transition.run, &transition.tombstone, plan) {
            (None, None, None) => self.put_target(transition).await,
            _ => {
                let plan = plan.map(|(instance, body)| plan_item(instance, body));
                Box::pin(self.transact(transition, plan)).await
            }
        }
    }

    pub(crate) async fn put_tombstone(&self, tombstone: &Tombstone) -> StoreResult<()> {
        let item = tombstone_item(tombstone);
        let bytes = item_size(&item);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_return_consumed_capacity(self.report());
        let response = past_conflicts(|| request.clone().send()).await;
        let response = response.map_err(|error| failure("PutItem", &error))?;
        self.count_response("PutItem", CapacityKind::Write, response.consumed_capacity.as_slice());
        self.written(bytes, 0);
        Ok(())
    }

    async fn put_target(&self, transition: &TargetTransition) -> StoreResult<bool> {
        let mark = mark();
        let item = target_item(&transition.target, &mark)?;
        let bytes = item_size(&item);
        let seen = VersionCondition::new(transition.expected_version);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(seen.condition)
            .set_expression_attribute_values(seen.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match past_conflicts(|| request.clone().send()).await {
            Ok(response) => {
                self.count_response("PutItem", CapacityKind::Write, response.consumed_capacity.as_slice());
                self.written(bytes, index_entries(&transition.target, transition.expected_version));
                Ok(true)
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.count_response("PutItem", CapacityKind::Write, &[]);
                self.refused(0);
                let image = match error.into_err() {
                    PutItemError::ConditionalCheckFailedException(refused) => refused.item,
                    _ => None,
                };
                // A repeated write whose first response was lost.
                Ok(is_by(image.as_ref(), &mark))
            }
            Err(error) => Err(failure("PutItem", &error)),
        }
    }

    async fn transact(&self, transition: &TargetTransition, plan: Option<Item>) -> StoreResult<bool> {
        let mark = mark();
        let item = target_item(&transition.target, &mark)?;
        let writes = self.writes(transition, &item, plan.as_ref())?;
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(writes))
            .client_request_token(&mark)
            .set_return_consumed_capacity(self.report());
        let mut pauses = pauses().build();
        loop {
            let error = match request.clone().send().await {
                Ok(response) => {
                    let consumed = response.consumed_capacity.unwrap_or_default();
                    self.count_response(TRANSACT, CapacityKind::Write, &consumed);
                    self.transacted(transition, &item, plan.as_ref());
                    return Ok(true);
                }
                Err(error) => error,
            };
            let reasons = match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    self.count_response(TRANSACT, CapacityKind::Write, &[]);
                    cancelled.cancellation_reasons()
                }
                _ => return Err(failure(TRANSACT, &error)),
            };
            if let Some(response) = transaction_outcome(transition, &mark, reasons) {
                return response;
            }
            let Some(pause) = pauses.next() else {
                let codes: Vec<&str> = reasons.iter().filter_map(CancellationReason::code).collect();
                let reason = format!("cancelled: {}", codes.join(", "));
                return Err(StoreError::Retryable { operation: TRANSACT, reason });
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn writes(
        &self,
        transition: &TargetTransition,
        item: &Item,
        plan: Option<&Item>,
    ) -> StoreResult<Vec<TransactWriteItem>> {
        let invalid = |error: aws_sdk_dynamodb::error::BuildError| StoreError::Broken {
            operation: TRANSACT,
            reason: error.to_string(),
        };
        let put = |item: Item| {
            Put::builder()
                .table_name(&self.table)
                .set_item(Some(item))
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        };
        let seen = VersionCondition::new(transition.expected_version);
        let target = put(item.clone())
            .condition_expression(seen.condition)
            .set_expression_attribute_values(seen.values)
            .build()
            .map_err(invalid)?;
        let mut writes = vec![TransactWriteItem::builder().put(target).build()];
        if let Some(plan) = plan {
            let plan = put(plan.clone()).build().map_err(invalid)?;
            writes.push(TransactWriteItem::builder().put(plan).build());
        }
        if let Some(tombstone) = &transition.tombstone {
            let tombstone = put(tombstone_item(tombstone)).build().map_err(invalid)?;
            writes.push(TransactWriteItem::builder().put(tombstone).build());
        }
        if let Some(run) = &transition.run {
            let head = put(new_run(run)).condition_expression("attribute_not_exists(pk)");
            writes.push(TransactWriteItem::builder().put(head.build().map_err(invalid)?).build());
        }
        Ok(writes)
    }

    fn transacted(&self, transition: &TargetTransition, item: &Item, plan: Option<&Item>) {
        let Some(meter) = &self.meter else { return };
        meter.transacted(item_size(item), index_entries(&transition.target, transition.expected_version));
        if let Some(plan) = plan {
            meter.transacted(item_size(plan), 0);
        }
        if let Some(tombstone) = &transition.tombstone {
            meter.transacted(item_size(&tombstone_item(tombstone)), 0);
        }
        if let Some(run) = &transition.run {
            let bytes = item_size(&new_run(run));
            meter.transacted(bytes, 1);
            meter.head(bytes);
        }
    }
}

/// Returns true if the write with this mark created the item.
fn is_by(image: Option<&Item>, mark: &str) -> bool {
    let by = image.and_then(|item| item.get(BY));
    by.and_then(|by| by.as_s().ok()).is_some_and(|by| by == mark)
}

/// Evaluates a cancelled transaction. `None` means repeat. The first reason belongs to the target, the last one to the
/// run.
fn transaction_outcome(
    transition: &TargetTransition,
    mark: &str,
    reasons: &[CancellationReason],
) -> Option<StoreResult<bool>> {
    let failed = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
    let target = reasons.first()?;
    if failed(target) {
        // A repeated write whose first response was lost and whose token has expired.
        return Some(Ok(is_by(target.item(), mark)));
    }
    let run = transition.run.as_ref().zip(reasons.last()).filter(|(_, reason)| failed(reason));
    if let Some((run, _)) = run {
        let reason = format!("run {} exists without its target's transition", run.id);
        return Some(Err(StoreError::Broken { operation: TRANSACT, reason }));
    }
    let passing = |code: &str| {
        matches!(code, "None" | "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded")
    };
    let codes = || reasons.iter().filter_map(CancellationReason::code);
    if codes().all(passing) {
        return None;
    }
    let reason = format!("cancelled: {}", codes().collect::<Vec<_>>().join(", "));
    Some(Err(StoreError::Broken { operation: TRANSACT, reason }))
}
