//! The operations of the store on DynamoDB.
//!
//! [`DynamoTable`] sends and counts requests. The other modules implement the operations of [`Store`](crate::Store) and
//! describe their items: heads of runs in `run`, records in `record` and `accepted`, targets and tombstones in
//! `target`, plans in `plan`, plugins in `document`, sources and connections in `source`, desired states in `desired`,
//! rejected events of sources in `rejected_events`, removal times in `expiry`, queued batches in `batch_queue`, clusters
//! in `clusters`, and marks of the health check in `health`. Reads of
//! the table are strongly consistent.
//!
//! Invariant: a write that is sent twice because its response was lost changes the item once. Otherwise it is refused
//! with an image that shows the first write.

mod accepted;
mod attribute;
mod batch_queue;
mod clusters;
mod desired;
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
mod rejected_events;
mod run;
mod source;
mod target;
mod token;

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConsumedCapacity, ReturnConsumedCapacity, ReturnValue, ReturnValuesOnConditionCheckFailure,
};

use crate::meter::{CapacityKind, Meter};
use crate::ops::StoreResult;
use crate::table::TableSpec;

pub(crate) use attribute::Item;
pub use attribute::item_size;
use attribute::text;
use document::BodyStorage;
use expression::WriteExpression;
pub(crate) use failure::failure;
use failure::past_conflicts;

/// Queries in progress at the same time in one operation.
const PARALLEL: usize = 16;
/// The retention of tombstones and of gone targets. Platforms repeat webhooks for a shorter time.
const TOMBSTONE_RETENTION_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The outcome of a conditional write.
enum WriteOutcome {
    /// The item that the write returned.
    Written(Item),
    /// The present item. Empty if there is none.
    Refused(Item),
}

impl WriteOutcome {
    fn is_written(&self) -> bool {
        matches!(self, Self::Written(_))
    }
}

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

    fn count_write(&self, operation: &'static str, consumed: Option<&ConsumedCapacity>, bytes: usize, entries: u64) {
        self.count_response(operation, CapacityKind::Write, consumed.map_or(&[], std::slice::from_ref));
        if let Some(meter) = &self.meter {
            meter.written(bytes, entries);
        }
    }

    fn refused(&self, operation: &'static str, item: Option<&Item>) -> WriteOutcome {
        let item = item.cloned().unwrap_or_default();
        self.count_response(operation, CapacityKind::Write, &[]);
        if let Some(meter) = &self.meter {
            meter.refused(item_size(&item));
        }
        WriteOutcome::Refused(item)
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
        self.put_if(item, WriteExpression::default(), 0).await.map(drop)
    }

    /// Replaces an item under the conditions of `expression`. The write changes `entries` index entries.
    async fn put_if(&self, item: Item, expression: WriteExpression, entries: u64) -> StoreResult<WriteOutcome> {
        let bytes = item_size(&item);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_condition_expression(expression.condition())
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match past_conflicts(|| request.clone().send()).await {
            Ok(response) => {
                self.count_write("PutItem", response.consumed_capacity.as_ref(), bytes, entries);
                Ok(WriteOutcome::Written(Item::new()))
            }
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(self.refused("PutItem", refused.item()))
                }
                _ => Err(failure("PutItem", &error)),
            },
        }
    }

    /// Updates an item and returns it as it was before or after. The write changes `entries` index entries.
    async fn update(
        &self,
        (pk, sk): (&str, &str),
        expression: WriteExpression,
        image: ReturnValue,
        entries: u64,
    ) -> StoreResult<WriteOutcome> {
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, text(pk))
            .key(TableSpec::SORT, text(sk))
            .set_condition_expression(expression.condition())
            .set_update_expression(expression.update())
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values(image)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match past_conflicts(|| request.clone().send()).await {
            Ok(response) => {
                let item = response.attributes.unwrap_or_default();
                self.count_write("UpdateItem", response.consumed_capacity.as_ref(), item_size(&item), entries);
                Ok(WriteOutcome::Written(item))
            }
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(self.refused("UpdateItem", refused.item()))
                }
                _ => Err(failure("UpdateItem", &error)),
            },
        }
    }

    /// Updates an item. Returns false if a condition does not hold.
    async fn update_if(&self, key: (&str, &str), expression: WriteExpression) -> StoreResult<bool> {
        Ok(self.update(key, expression, ReturnValue::AllNew, 0).await?.is_written())
    }

    /// Deletes an item. A missing item is not an error.
    async fn delete(&self, partition: String, sort: &str) -> StoreResult<()> {
        self.take(partition, sort).await.map(drop)
    }

    /// Deletes an item and returns it.
    async fn take(&self, partition: String, sort: &str) -> StoreResult<Option<Item>> {
        match self.take_if((&partition, sort), &WriteExpression::default()).await? {
            WriteOutcome::Written(item) => Ok(Some(item).filter(|item| !item.is_empty())),
            WriteOutcome::Refused(_) => Ok(None),
        }
    }

    /// Deletes an item if all conditions hold, and returns it.
    async fn take_if(&self, (pk, sk): (&str, &str), expression: &WriteExpression) -> StoreResult<WriteOutcome> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, text(pk))
            .key(TableSpec::SORT, text(sk))
            .set_condition_expression(expression.condition())
            .set_expression_attribute_names(expression.names())
            .return_values(ReturnValue::AllOld)
            .set_return_consumed_capacity(self.report());
        match request.send().await {
            Ok(response) => {
                let item = response.attributes.unwrap_or_default();
                let entries = u64::from(item.contains_key(TableSpec::DUE_SHARD));
                self.count_write("DeleteItem", response.consumed_capacity.as_ref(), item_size(&item), entries);
                Ok(WriteOutcome::Written(item))
            }
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(self.refused("DeleteItem", None)),
                _ => Err(failure("DeleteItem", &error)),
            },
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
