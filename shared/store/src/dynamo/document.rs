//! Published plugins: `v#NAME` / `VERSION`. A withdrawn version has `wd` and is not listed.
//!
//! Small documents are in the attribute `b`. Large ones are in the bucket, with their key in `o`. The object is
//! written before the item. Plans may be compressed, in `z`.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use ebb_protocol::engine::Timestamp;

use super::attribute::{Item, ItemReader, digest, item_size, number, text};
use super::failure::{failure, past_conflicts};
use super::packed::unpack;
use super::{DynamoTable, key};
use crate::meter::CapacityKind;
use crate::ops::{PluginItem, StoreResult};
use crate::table::TableSpec;

pub(super) const PACKED: &str = "z";

/// The place of a stored body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyStorage {
    Inline(Vec<u8>),
    /// The key of an object in the bucket.
    Object(String),
}

impl BodyStorage {
    pub(super) fn attribute(&self) -> (String, AttributeValue) {
        match self {
            Self::Inline(bytes) => ("b".to_owned(), AttributeValue::B(Blob::new(bytes.clone()))),
            Self::Object(key) => ("o".to_owned(), text(key)),
        }
    }

    pub(super) fn read(reader: &ItemReader<'_>) -> StoreResult<Self> {
        if let Some(bytes) = reader.bytes_if_any("b")? {
            return Ok(Self::Inline(bytes.to_vec()));
        }
        if let Some(key) = reader.text_if_any("o")? {
            return Ok(Self::Object(key.to_owned()));
        }
        match reader.bytes_if_any(PACKED)? {
            Some(packed) => {
                let text = unpack(packed).ok_or_else(|| reader.broken(format!("{PACKED} is damaged")))?;
                Ok(Self::Inline(text))
            }
            None => Err(reader.broken(format!("neither b nor o nor {PACKED}"))),
        }
    }
}

const WITHDRAWN: &str = "wd";
/// Attributes of a plugin version without its document.
const FACTS: &[&str] = &["pk", "sk", "dia", "dg", "cr", WITHDRAWN];

fn read_plugin(operation: &'static str, item: &Item) -> StoreResult<PluginItem> {
    let reader = ItemReader::new(operation, item);
    let name = key::plugin_of(reader.text("pk")?);
    Ok(PluginItem {
        name: name.ok_or_else(|| reader.broken("the partition key is not that of a plugin"))?,
        version: reader.text("sk")?.to_owned(),
        dialect: reader.text("dia")?.to_owned(),
        digest: reader.digest("dg")?,
        document: String::new(),
        created: reader.time("cr")?,
        withdrawn: reader.time_if_any(WITHDRAWN)?,
    })
}

impl DynamoTable {
    /// Returns a plugin version without its document, and the place of the document.
    pub(crate) async fn get_plugin_item(
        &self,
        name: &str,
        version: &str,
    ) -> StoreResult<Option<(PluginItem, BodyStorage)>> {
        let Some(item) = self.get(&key::plugin(name), version).await? else { return Ok(None) };
        Ok(Some((read_plugin("GetItem", &item)?, BodyStorage::read(&ItemReader::new("GetItem", &item))?)))
    }

    pub(crate) async fn list_version_items(&self, name: &str) -> StoreResult<Vec<PluginItem>> {
        if !key::can_be(&key::plugin(name), "") {
            return Ok(Vec::new());
        }
        let mut query = self
            .client
            .query()
            .key_condition_expression("#pk = :p")
            .projection_expression(format!("#{}", FACTS.join(", #")))
            .expression_attribute_values(":p", text(key::plugin(name)))
            .consistent_read(true);
        for fact in FACTS {
            query = query.expression_attribute_names(format!("#{fact}"), *fact);
        }
        let items = self.pages(query, usize::MAX).await?;
        items.iter().map(|item| read_plugin("Query", item)).collect()
    }

    pub(crate) async fn list_plugin_items(&self) -> StoreResult<Vec<PluginItem>> {
        let query = self.list_query(TableSpec::LIST_PLUGINS).key_condition_expression("#l = :l");
        let keys = self.pages(query, usize::MAX).await?;
        let items = self.batch_get(&keys, Some(FACTS)).await?;
        let mut plugins =
            items.iter().map(|item| read_plugin("BatchGetItem", item)).collect::<StoreResult<Vec<_>>>()?;
        // The index may be stale.
        plugins.retain(|plugin| plugin.withdrawn.is_none());
        plugins.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(plugins)
    }

    pub(crate) async fn put_plugin_item(&self, plugin: &PluginItem, body: &BodyStorage) -> StoreResult<bool> {
        let item = Item::from([
            ("pk".to_owned(), text(key::plugin(&plugin.name))),
            ("sk".to_owned(), text(&plugin.version)),
            (TableSpec::LIST.to_owned(), text(TableSpec::LIST_PLUGINS)),
            ("dia".to_owned(), text(&plugin.dialect)),
            ("dg".to_owned(), digest(&plugin.digest)),
            ("cr".to_owned(), number(plugin.created.0)),
            body.attribute(),
        ]);
        let bytes = item_size(&item);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item.clone()))
            .condition_expression("attribute_not_exists(pk) OR (dg = :dg AND attribute_exists(#w))")
            .expression_attribute_names("#w", WITHDRAWN)
            .expression_attribute_values(":dg", digest(&plugin.digest))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match past_conflicts(|| request.clone().send()).await {
            Ok(response) => {
                self.count_response("PutItem", CapacityKind::Write, response.consumed_capacity.as_slice());
                self.written(bytes, 1);
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
                Ok(image.as_ref() == Some(&item))
            }
            Err(error) => Err(failure("PutItem", &error)),
        }
    }

    pub(crate) async fn withdraw_plugin_item(&self, name: &str, version: &str, at: Timestamp) -> StoreResult<bool> {
        if !key::can_be(&key::plugin(name), version) {
            return Ok(false);
        }
        let request = self
            .client
            .update_item()
            .update_expression("SET #w = if_not_exists(#w, :at) REMOVE #l")
            .condition_expression("attribute_exists(pk)")
            .expression_attribute_names("#w", WITHDRAWN)
            .expression_attribute_names("#l", TableSpec::LIST)
            .expression_attribute_values(":at", number(at.0));
        self.update_if((&key::plugin(name), version), request).await
    }
}
