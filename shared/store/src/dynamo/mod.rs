//! The store's operations on DynamoDB.
//!
//! One table holds everything. The modules describe their items: heads of runs in `run`, records in `record` and
//! `accepted`, targets and tombstones in `target`, plans in `plan`, plugins in `document`, removal times in `expiry`,
//! queued batches in `batch_queue`, clusters in `clusters`, and marks of the health check in `health`. Reads of the
//! table are strongly consistent.
//!
//! Invariant: a write that is sent twice because its response was lost changes the item once. Otherwise it is refused
//! with an image that shows the first write.

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

/// Queries in progress at the same time in one operation.
const PARALLEL: usize = 16;
/// The retention of tombstones and of gone targets. Platforms repeat webhooks for a shorter time.
const TOMBSTONE_RETENTION_MS: u64 = 30 * 24 * 60 * 60 * 1000;

#[derive(Clone, Debug)]
pub struct DynamoTable {
    client: Client,
    table: String,
    meter: Option<Arc<Meter>>,
}

impl DynamoTable {
    /// Returns the table without a request.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into(), meter: None }
    }

    /// Counts requests with `meter`. The table then reports consumed capacity.
    #[must_use]
    pub fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = Some(meter);
        self
    }

    pub fn table(&self) -> &str {
        &self.table
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    fn report(&self) -> Option<ReturnConsumedCapacity> {
        self.meter.as_ref().map(|_| ReturnConsumedCapacity::Indexes)
    }

    fn count_response(&self, operation: &'static str, direction: CapacityKind, consumed: &[ConsumedCapacity]) {
        if let Some(meter) = &self.meter {
            meter.request(operation);
            meter.capacity(direction, consumed);
        }
    }

    /// Counts a write with a failed condition. `bytes` is the size of the item, or 0.
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

    /// Reads an item, strongly consistent.
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
        let response = request.send().await.map_err(|error| failure("GetItem", &error))?;
        self.count_response("GetItem", CapacityKind::Read, response.consumed_capacity.as_slice());
        Ok(response.item)
    }

    /// Replaces an item.
    async fn put(&self, item: Item) -> StoreResult<()> {
        let bytes = item_size(&item);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_return_consumed_capacity(self.report());
        let response = request.send().await.map_err(|error| failure("PutItem", &error))?;
        self.count_response("PutItem", CapacityKind::Write, response.consumed_capacity.as_slice());
        self.written(bytes, 0);
        Ok(())
    }

    /// Deletes an item. A missing item is not an error.
    async fn delete(&self, partition: String, sort: &str) -> StoreResult<()> {
        self.take(partition, sort).await.map(drop)
    }

    /// Deletes an item and returns it.
    async fn take(&self, partition: String, sort: &str) -> StoreResult<Option<Item>> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, text(partition))
            .key(TableSpec::SORT, text(sort))
            .return_values(ReturnValue::AllOld)
            .set_return_consumed_capacity(self.report());
        let response = request.send().await.map_err(|error| failure("DeleteItem", &error))?;
        self.count_response("DeleteItem", CapacityKind::Write, response.consumed_capacity.as_slice());
        let item = response.attributes.filter(|item| !item.is_empty());
        let entries = item.as_ref().is_some_and(|item| item.contains_key(TableSpec::DUE_SHARD));
        self.written(item.as_ref().map_or(0, item_size), u64::from(entries));
        Ok(item)
    }

    /// Updates an item. Returns false if the condition does not hold.
    async fn update_if(&self, (pk, sk): (&str, &str), request: UpdateItemFluentBuilder) -> StoreResult<bool> {
        let request = request.table_name(&self.table).return_values(ReturnValue::AllNew);
        let request = request.key(TableSpec::PARTITION, text(pk)).key(TableSpec::SORT, text(sk));
        match request.set_return_consumed_capacity(self.report()).send().await {
            Ok(response) => {
                self.count_response("UpdateItem", CapacityKind::Write, response.consumed_capacity.as_slice());
                self.written(response.attributes.as_ref().map_or(0, item_size), 0);
                Ok(true)
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.count_response("UpdateItem", CapacityKind::Write, &[]);
                self.refused(0);
                Ok(false)
            }
            Err(error) => Err(failure("UpdateItem", &error)),
        }
    }

    /// Reads all items of a range, strongly consistent.
    async fn range(&self, partition: &str, least: &str, greatest: &str) -> StoreResult<Vec<Item>> {
        self.pages(self.range_query(partition, least, greatest), usize::MAX).await
    }

    /// Returns a query of a range of one partition, strongly consistent.
    fn range_query(&self, partition: &str, least: &str, greatest: &str) -> QueryFluentBuilder {
        self.client
            .query()
            .key_condition_expression("pk = :p AND sk BETWEEN :a AND :b")
            .expression_attribute_values(":p", AttributeValue::S(partition.to_owned()))
            .expression_attribute_values(":a", AttributeValue::S(least.to_owned()))
            .expression_attribute_values(":b", AttributeValue::S(greatest.to_owned()))
            .consistent_read(true)
    }

    /// Reads pages of a query until there are `enough` items.
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

    /// Reads a page of a query and returns the start of the next one.
    async fn page(&self, query: QueryFluentBuilder) -> StoreResult<(Vec<Item>, Option<Item>)> {
        let query = query.table_name(&self.table).set_return_consumed_capacity(self.report());
        let page = query.send().await.map_err(|error| failure("Query", &error))?;
        self.count_response("Query", CapacityKind::Read, page.consumed_capacity.as_slice());
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }
}
