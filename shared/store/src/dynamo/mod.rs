//! The operations over DynamoDB.
//!
//! One table holds everything. Its items are described where they are made: heads of runs in `run`, records in
//! `record` and `accepted`, targets and tombstones in `target`, plans in `plan`, plugins in `document`, the removal times of the data of instances in `expiry`, queued batches in `batch_queue`, the state of clusters in `clusters`,
//! and marks of what works in `marks`. Reads of the table itself are strongly consistent.
//!
//! Invariant: a write that is sent twice, because its answer was lost, changes the item once or is refused with an
//! image that shows the first one.

mod accepted;
mod attribute;
mod batch_queue;
mod clusters;
mod document;
mod due;
mod expiry;
mod expression;
mod failure;
mod health;
mod key;
mod packed;
mod plan;
mod record;
mod run;
mod target;

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ConsumedCapacity, ReturnConsumedCapacity, ReturnValue};

use crate::meter::{CapacityKind, Meter};
use crate::ops::StoreResult;
use crate::table::TableSpec;

pub(crate) use attribute::Item;
pub use attribute::item_size;
use attribute::text;
pub(crate) use batch_queue::BatchItem;
pub(crate) use document::BodyStorage;
pub(crate) use failure::failure;
pub(crate) use packed::pack;

/// Queries that one operation has under way at most.
const PARALLEL: usize = 16;
/// How long a tombstone, and a target that is gone, is kept: longer than any platform repeats a webhook.
const TOMBSTONE_RETENTION_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The table.
#[derive(Clone, Debug)]
pub struct DynamoTable {
    client: Client,
    table: String,
    meter: Option<Arc<Meter>>,
}

impl DynamoTable {
    /// The table `table`, by `client`. Asks for nothing yet.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into(), meter: None }
    }

    /// The same, counted by `meter`; the table is then asked to report consumed capacity.
    #[must_use]
    pub fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = Some(meter);
        self
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The client that it is asked by.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn report(&self) -> Option<ReturnConsumedCapacity> {
        self.meter.as_ref().map(|_| ReturnConsumedCapacity::Indexes)
    }

    fn answered(&self, operation: &'static str, direction: CapacityKind, consumed: &[ConsumedCapacity]) {
        if let Some(meter) = &self.meter {
            meter.request(operation);
            meter.capacity(direction, consumed);
        }
    }

    /// Counts a write that was refused because of its condition. The item has `bytes`; there may be none.
    fn refused(&self, bytes: usize) {
        if let Some(meter) = &self.meter {
            meter.refused(bytes);
        }
    }

    fn written(&self, bytes: usize, index_entries: u64) {
        if let Some(meter) = &self.meter {
            meter.written(bytes, index_entries);
        }
    }

    /// One item, strongly consistent.
    async fn get(&self, partition: &str, sort: &str) -> StoreResult<Option<Item>> {
        if !key::can_be(partition, sort) {
            return Ok(None);
        }
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, AttributeValue::S(partition.to_owned()))
            .key(TableSpec::SORT, AttributeValue::S(sort.to_owned()))
            .consistent_read(true)
            .set_return_consumed_capacity(self.report());
        let answer = request.send().await.map_err(|error| failure("GetItem", &error))?;
        self.answered("GetItem", CapacityKind::Read, answer.consumed_capacity.as_slice());
        Ok(answer.item)
    }

    /// Writes an item whole, whatever was there.
    async fn put(&self, item: Item) -> StoreResult<()> {
        let bytes = item_size(&item);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_return_consumed_capacity(self.report());
        let answer = request.send().await.map_err(|error| failure("PutItem", &error))?;
        self.answered("PutItem", CapacityKind::Write, answer.consumed_capacity.as_slice());
        self.written(bytes, 0);
        Ok(())
    }

    /// Deletes an item. A missing item is not an error.
    async fn delete(&self, partition: String, sort: &str) -> StoreResult<()> {
        self.take(partition, sort).await.map(drop)
    }

    /// Deletes an item, and returns it.
    async fn take(&self, partition: String, sort: &str) -> StoreResult<Option<Item>> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, text(partition))
            .key(TableSpec::SORT, text(sort))
            .return_values(ReturnValue::AllOld)
            .set_return_consumed_capacity(self.report());
        let answer = request.send().await.map_err(|error| failure("DeleteItem", &error))?;
        self.answered("DeleteItem", CapacityKind::Write, answer.consumed_capacity.as_slice());
        let item = answer.attributes.filter(|item| !item.is_empty());
        let entries = item.as_ref().is_some_and(|item| item.contains_key(TableSpec::DUE_SHARD));
        self.written(item.as_ref().map_or(0, item_size), u64::from(entries));
        Ok(item)
    }

    /// Changes the item of a key on a condition; false: it does not hold.
    async fn update_if(&self, (pk, sk): (&str, &str), request: UpdateItemFluentBuilder) -> StoreResult<bool> {
        let request = request.table_name(&self.table).return_values(ReturnValue::AllNew);
        let request = request.key(TableSpec::PARTITION, text(pk)).key(TableSpec::SORT, text(sk));
        match request.set_return_consumed_capacity(self.report()).send().await {
            Ok(answer) => {
                self.answered("UpdateItem", CapacityKind::Write, answer.consumed_capacity.as_slice());
                self.written(answer.attributes.as_ref().map_or(0, item_size), 0);
                Ok(true)
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.answered("UpdateItem", CapacityKind::Write, &[]);
                self.refused(0);
                Ok(false)
            }
            Err(error) => Err(failure("UpdateItem", &error)),
        }
    }

    /// Items of one partition from `least` to `greatest`, all pages, strongly consistent.
    async fn range(&self, partition: &str, least: &str, greatest: &str) -> StoreResult<Vec<Item>> {
        self.pages(self.range_query(partition, least, greatest), usize::MAX).await
    }

    /// Asks for the items of one partition from `least` to `greatest`, strongly consistent.
    fn range_query(&self, partition: &str, least: &str, greatest: &str) -> QueryFluentBuilder {
        self.client
            .query()
            .key_condition_expression("pk = :p AND sk BETWEEN :a AND :b")
            .expression_attribute_values(":p", AttributeValue::S(partition.to_owned()))
            .expression_attribute_values(":a", AttributeValue::S(least.to_owned()))
            .expression_attribute_values(":b", AttributeValue::S(greatest.to_owned()))
            .consistent_read(true)
    }

    /// What `query` finds, following its pages until there are `enough`.
    async fn pages(&self, query: QueryFluentBuilder, enough: usize) -> StoreResult<Vec<Item>> {
        let mut items = Vec::new();
        let mut from = None;
        loop {
            let (found, next) = self.page(query.clone().set_exclusive_start_key(from)).await?;
            items.extend(found);
            from = next;
            if from.is_none() || items.len() >= enough {
                return Ok(items);
            }
        }
    }

    /// One page of what `query` finds, and where the next one begins.
    async fn page(&self, query: QueryFluentBuilder) -> StoreResult<(Vec<Item>, Option<Item>)> {
        let query = query.table_name(&self.table).set_return_consumed_capacity(self.report());
        let page = query.send().await.map_err(|error| failure("Query", &error))?;
        self.answered("Query", CapacityKind::Read, page.consumed_capacity.as_slice());
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }
}
