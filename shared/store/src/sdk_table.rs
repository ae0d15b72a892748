//! A table of DynamoDB, by the AWS SDK.

mod create;
mod failure;
mod rendering;

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    CancellationReason, ConsumedCapacity, DeleteRequest, KeysAndAttributes, Put, ReturnConsumedCapacity, ReturnValue,
    ReturnValuesOnConditionCheckFailure, TransactWriteItem, WriteRequest,
};
use backon::Retryable as _;

use crate::dynamo::pauses;
use crate::{
    Item, ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemTable, ItemWrite, Projection, QueryRange, StoreError,
    StoreResult, TableResponse, TableSpec, TransactionOutcome, UpdateImage, WriteAction, WriteOutcome,
};
pub use create::{create_table, table_creation};
pub(crate) use failure::failure;
use failure::is_conflict;
use rendering::Placeholders;

const TRANSACT: &str = "TransactWriteItems";
const IMAGE: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;
const CAPACITY: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;

/// Sends a write of one item under the conditions of this write, and returns its outcome.
macro_rules! outcome {
    ($request:expr, $names:expr, $write:ident, $operation:literal, $error:ident) => {{
        let (mut names, request) = ($names, $request);
        let request = request.set_condition_expression(names.condition(&$write.expression));
        let request = request.set_expression_attribute_names(names.names());
        let request = request.set_expression_attribute_values(names.values());
        match request.return_consumed_capacity(CAPACITY).send().await {
            Ok(response) => {
                let value = WriteOutcome::Written(response.attributes.unwrap_or_default());
                Ok(TableResponse { units: units(response.consumed_capacity.as_slice()), value })
            }
            Err(error) => match error.as_service_error() {
                Some($error::ConditionalCheckFailedException(found)) => {
                    let value = WriteOutcome::Refused(found.item().cloned().unwrap_or_default());
                    Ok(TableResponse { units: 0.0, value })
                }
                _ => Err(WriteFailure::of($operation, &error)),
            },
        }
    }};
}

/// A table of DynamoDB.
#[derive(Clone, Debug)]
pub struct SdkTable {
    client: Client,
    table: String,
}

impl SdkTable {
    /// Returns the table without a request.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    async fn put(&self, write: &ItemWrite, item: &Item) -> Result<TableResponse<WriteOutcome>, WriteFailure> {
        let request = self.client.put_item().table_name(&self.table).set_item(Some(item.clone()));
        let request = request.return_values_on_condition_check_failure(IMAGE);
        outcome!(request, Placeholders::default(), write, "PutItem", PutItemError)
    }

    async fn update(&self, write: &ItemWrite, image: UpdateImage) -> Result<TableResponse<WriteOutcome>, WriteFailure> {
        let mut names = Placeholders::default();
        let image = match image {
            UpdateImage::Before => ReturnValue::AllOld,
            UpdateImage::After => ReturnValue::AllNew,
        };
        let request = self.client.update_item().table_name(&self.table).set_key(Some(write.key.clone().into_item()));
        let request = request.set_update_expression(names.update(&write.expression)).return_values(image);
        let request = request.return_values_on_condition_check_failure(IMAGE);
        outcome!(request, names, write, "UpdateItem", UpdateItemError)
    }

    async fn delete(&self, write: &ItemWrite) -> Result<TableResponse<WriteOutcome>, WriteFailure> {
        let request = self.client.delete_item().table_name(&self.table).set_key(Some(write.key.clone().into_item()));
        let request = request.return_values(ReturnValue::AllOld);
        outcome!(request, Placeholders::default(), write, "DeleteItem", DeleteItemError)
    }

    async fn write_once(&self, write: &ItemWrite) -> Result<TableResponse<WriteOutcome>, WriteFailure> {
        match &write.action {
            WriteAction::Put(item) => self.put(write, item).await,
            WriteAction::Update(image) => self.update(write, *image).await,
            WriteAction::Delete => self.delete(write).await,
        }
    }

    async fn transact_once(
        &self,
        writes: &[TransactWriteItem],
        token: &str,
    ) -> Result<TableResponse<TransactionOutcome>, WriteFailure> {
        let request = self.client.transact_write_items().set_transact_items(Some(writes.to_vec()));
        match request.client_request_token(token).return_consumed_capacity(CAPACITY).send().await {
            Ok(response) => {
                let units = units(response.consumed_capacity());
                Ok(TableResponse { units, value: TransactionOutcome::Written })
            }
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    let value = refused_puts(cancelled.cancellation_reasons())?;
                    Ok(TableResponse { units: 0.0, value })
                }
                _ => Err(WriteFailure::of(TRANSACT, &error)),
            },
        }
    }

    fn transact_put(&self, put: &ItemPut) -> StoreResult<TransactWriteItem> {
        let mut names = Placeholders::default();
        let builder = Put::builder().table_name(&self.table).set_item(Some(put.item.clone()));
        let builder = builder.set_condition_expression(names.condition(&put.expression));
        let builder =
            builder.set_expression_attribute_names(names.names()).set_expression_attribute_values(names.values());
        let put = builder.return_values_on_condition_check_failure(IMAGE).build();
        Ok(TransactWriteItem::builder().put(put.map_err(invalid(TRANSACT))?).build())
    }
}

#[async_trait]
impl ItemTable for SdkTable {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(key.into_item()));
        let request = request.consistent_read(true).return_consumed_capacity(CAPACITY);
        let response = request.send().await.map_err(|error| failure("GetItem", &error))?;
        Ok(TableResponse { units: units(response.consumed_capacity.as_slice()), value: response.item })
    }

    async fn get_batch(&self, keys: Vec<ItemKey>, attributes: Projection) -> StoreResult<TableResponse<ItemBatch>> {
        let mut names = Placeholders::default();
        let keys = keys.into_iter().map(ItemKey::into_item).collect();
        let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
        let wanted = wanted.set_projection_expression(attributes.map(|attributes| names.projection(attributes)));
        let wanted = wanted.set_expression_attribute_names(names.names()).build().map_err(invalid("BatchGetItem"))?;
        let request =
            self.client.batch_get_item().request_items(&self.table, wanted).return_consumed_capacity(CAPACITY);
        let response = request.send().await.map_err(|error| failure("BatchGetItem", &error))?;
        let units = units(response.consumed_capacity());
        let items = response.responses.and_then(|mut tables| tables.remove(&self.table)).unwrap_or_default();
        let unprocessed = response.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
        let unprocessed = unprocessed.into_iter().flat_map(|left| left.keys).map(|key| key_of("BatchGetItem", &key));
        let unprocessed = unprocessed.collect::<StoreResult<Vec<_>>>()?;
        Ok(TableResponse { units, value: ItemBatch { items, unprocessed } })
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        let mut names = Placeholders::default();
        let (index, condition) = match &query.range {
            QueryRange::Partition { partition, sort } => {
                let condition = names.key_range(TableSpec::PARTITION, partition, TableSpec::SORT, sort.as_ref());
                (None, condition)
            }
            QueryRange::Due { shard, until } => (Some(TableSpec::DUE_INDEX), names.due(*shard, *until)),
            QueryRange::List { list, partitions } => {
                let condition = names.key_range(TableSpec::LIST, list, TableSpec::PARTITION, partitions.as_ref());
                (Some(TableSpec::LIST_INDEX), condition)
            }
        };
        let projection = query.attributes.map(|attributes| names.projection(attributes));
        let request = self.client.query().table_name(&self.table).set_index_name(index.map(str::to_owned));
        let request = request.key_condition_expression(condition).set_projection_expression(projection);
        let request = request.set_expression_attribute_names(names.names());
        let request = request.set_expression_attribute_values(names.values()).set_exclusive_start_key(from);
        let request = request.set_consistent_read(query.is_consistent.then_some(true));
        let request = request.set_limit(query.limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX)));
        let request = request.return_consumed_capacity(CAPACITY);
        let page = request.send().await.map_err(|error| failure("Query", &error))?;
        let units = units(page.consumed_capacity.as_slice());
        let next = page.last_evaluated_key.filter(|key| !key.is_empty());
        Ok(TableResponse { units, value: ItemPage { items: page.items.unwrap_or_default(), next } })
    }

    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        let is_conflict = |failure: &WriteFailure| failure.is_conflict;
        let response = (|| Box::pin(self.write_once(write))).retry(pauses()).when(is_conflict).await;
        response.map_err(|failure| failure.error)
    }

    async fn transact(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let writes = puts.iter().map(|put| self.transact_put(put)).collect::<StoreResult<Vec<_>>>()?;
        let is_conflict = |failure: &WriteFailure| failure.is_conflict;
        let response = (|| Box::pin(self.transact_once(&writes, token))).retry(pauses()).when(is_conflict).await;
        response.map_err(|failure| failure.error)
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        const WRITE: &str = "BatchWriteItem";
        let mut writes = Vec::new();
        for key in keys {
            let delete = DeleteRequest::builder().set_key(Some(key.into_item())).build().map_err(invalid(WRITE))?;
            writes.push(WriteRequest::builder().delete_request(delete).build());
        }
        let writes = HashMap::from([(self.table.clone(), writes)]);
        let request = self.client.batch_write_item().set_request_items(Some(writes)).return_consumed_capacity(CAPACITY);
        let response = request.send().await.map_err(|error| failure(WRITE, &error))?;
        let units = units(response.consumed_capacity());
        let unprocessed = response.unprocessed_items.and_then(|mut tables| tables.remove(&self.table));
        let deletions = unprocessed.into_iter().flatten().filter_map(|write| write.delete_request);
        let left = deletions.map(|deletion| key_of(WRITE, &deletion.key)).collect::<StoreResult<_>>()?;
        Ok(TableResponse { units, value: left })
    }
}

/// Returns the outcome of a transaction that was cancelled for these reasons, one of each put.
fn refused_puts(reasons: &[CancellationReason]) -> Result<TransactionOutcome, WriteFailure> {
    const REFUSED: &str = "ConditionalCheckFailed";
    const PASSING: [&str; 4] = ["None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
    let codes: Vec<&str> = reasons.iter().map(|reason| reason.code().unwrap_or("None")).collect();
    if codes.contains(&REFUSED) {
        let image = |(code, reason): (&&str, &CancellationReason)| {
            (*code == REFUSED).then(|| reason.item().cloned().unwrap_or_default())
        };
        return Ok(TransactionOutcome::Refused(codes.iter().zip(reasons).map(image).collect()));
    }
    let is_conflict = codes.iter().all(|code| PASSING.contains(code));
    let (operation, reason) = (TRANSACT, format!("cancelled: {}", codes.join(", ")));
    let error = if is_conflict {
        StoreError::Retryable { operation, reason }
    } else {
        StoreError::Broken { operation, reason }
    };
    Err(WriteFailure { is_conflict, error })
}

fn units(consumed: &[ConsumedCapacity]) -> f64 {
    consumed.iter().filter_map(|one| one.capacity_units).sum()
}

fn key_of(operation: &'static str, key: &Item) -> StoreResult<ItemKey> {
    let reason = || "an unprocessed key is not one of this table".to_owned();
    ItemKey::of(key).ok_or_else(|| StoreError::Broken { operation, reason: reason() })
}

fn invalid(operation: &'static str) -> impl Fn(BuildError) -> StoreError {
    move |error| StoreError::Broken { operation, reason: error.to_string() }
}

/// A write without a response.
struct WriteFailure {
    /// True if the write conflicted with another one, or was throttled as a part of a transaction. It can be repeated.
    is_conflict: bool,
    error: StoreError,
}

impl WriteFailure {
    fn of<E>(operation: &'static str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        Self { is_conflict: is_conflict(error), error: failure(operation, error) }
    }
}
