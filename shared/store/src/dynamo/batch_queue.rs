//! Queued batches: `batch#CLUSTER` / `ID`.
//!
//! `at` is the time of queuing, `end` the expiry. The body is in `b`, or its bucket key in `o`; the response is in
//! `rb` or `ro`. The table expires batches that were not deleted.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use ebb_protocol::engine::Timestamp;

use super::attribute::{Item, ItemReader, item_size, number, text};
use super::failure::failure;
use super::{BodyStorage, DynamoTable, key};
use crate::meter::CapacityKind;
use crate::ops::StoreResult;
use crate::table::TableSpec;

/// The retention of a batch that was not deleted. It exceeds the longest transit time.
const BATCH_RETENTION_MS: u64 = 60 * 60 * 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchItem {
    pub(crate) id: String,
    pub(crate) posted: Timestamp,
    pub(crate) ends: Timestamp,
    pub(crate) body: BodyStorage,
    pub(crate) response: Option<BodyStorage>,
}

fn attribute(inline: &str, object: &str, body: &BodyStorage) -> (String, AttributeValue) {
    match body {
        BodyStorage::Inline(bytes) => (inline.to_owned(), AttributeValue::B(Blob::new(bytes.clone()))),
        BodyStorage::Object(key) => (object.to_owned(), text(key)),
    }
}

fn body(reader: &ItemReader<'_>, inline: &str, object: &str) -> StoreResult<Option<BodyStorage>> {
    Ok(match (reader.bytes_if_any(inline)?, reader.text_if_any(object)?) {
        (Some(bytes), _) => Some(BodyStorage::Inline(bytes.to_vec())),
        (None, Some(key)) => Some(BodyStorage::Object(key.to_owned())),
        (None, None) => None,
    })
}

fn read(operation: &'static str, item: &Item) -> StoreResult<BatchItem> {
    let reader = ItemReader::new(operation, item);
    Ok(BatchItem {
        id: reader.text("sk")?.to_owned(),
        posted: reader.time("at")?,
        ends: reader.time("end")?,
        body: body(&reader, "b", "o")?.ok_or_else(|| reader.broken("neither b nor o"))?,
        response: body(&reader, "rb", "ro")?,
    })
}

impl DynamoTable {
    pub(crate) async fn put_batch_item(&self, cluster: &str, batch: &BatchItem) -> StoreResult<()> {
        self.put(Item::from([
            ("pk".to_owned(), text(key::batch_queue(cluster))),
            ("sk".to_owned(), text(&batch.id)),
            ("at".to_owned(), number(batch.posted.0)),
            ("end".to_owned(), number(batch.ends.0)),
            (TableSpec::TTL.to_owned(), number(batch.ends.0.saturating_add(BATCH_RETENTION_MS) / 1000)),
            attribute("b", "o", &batch.body),
        ]))
        .await
    }

    /// Lists at most `limit` batches of a cluster, the oldest first, and returns the start of the next page.
    pub(crate) async fn list_batch_items(
        &self,
        cluster: &str,
        limit: i32,
        from: Option<Item>,
    ) -> StoreResult<(Vec<BatchItem>, Option<Item>)> {
        let query = self
            .client
            .query()
            .key_condition_expression("pk = :p")
            .expression_attribute_values(":p", text(key::batch_queue(cluster)))
            .consistent_read(true)
            .limit(limit)
            .set_exclusive_start_key(from);
        let (items, next) = self.page(query).await?;
        let batches = items.iter().map(|item| read("Query", item)).collect::<StoreResult<_>>()?;
        Ok((batches, next))
    }

    pub(crate) async fn get_batch_item(&self, cluster: &str, id: &str) -> StoreResult<Option<BatchItem>> {
        let item = self.get(&key::batch_queue(cluster), id).await?;
        item.map(|item| read("GetItem", &item)).transpose()
    }

    pub(crate) async fn put_reply_item(&self, cluster: &str, id: &str, response: &BodyStorage) -> StoreResult<bool> {
        let (name, value) = attribute("rb", "ro", response);
        let request = self
            .client
            .update_item()
            .update_expression("SET #a = :a")
            .condition_expression("attribute_exists(pk) AND attribute_not_exists(rb) AND attribute_not_exists(ro)")
            .expression_attribute_names("#a", name)
            .expression_attribute_values(":a", value);
        self.update_if((&key::batch_queue(cluster), id), request).await
    }

    /// Deletes a batch and returns it.
    pub(crate) async fn delete_batch_item(&self, cluster: &str, id: &str) -> StoreResult<Option<BatchItem>> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key("pk", text(key::batch_queue(cluster)))
            .key("sk", text(id))
            .return_values(ReturnValue::AllOld)
            .set_return_consumed_capacity(self.report());
        let output = request.send().await.map_err(|error| failure("DeleteItem", &error))?;
        self.count_response("DeleteItem", CapacityKind::Write, output.consumed_capacity.as_slice());
        let item = output.attributes.filter(|item| !item.is_empty());
        self.written(item.as_ref().map_or(0, item_size), 0);
        item.map(|item| read("DeleteItem", &item)).transpose()
    }
}
