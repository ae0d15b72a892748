//! Plans: `p#INSTANCE` / `h`. The text is in `b`, compressed in `z`, or in an object with its key in `o`.
//!
//! The item is written together with the target and removed with the data of the instance.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use super::attribute::{Item, ItemReader, text};
use super::document::{BodyStorage, PACKED};
use super::packed::pack;
use super::{DynamoTable, key};
use crate::ops::StoreResult;
use crate::store::PLAN_INLINE;

/// Returns the item of a plan. A text is compressed if it would cost more than one write unit.
pub(super) fn plan_item(instance: &str, body: &BodyStorage) -> Item {
    let body = match body {
        BodyStorage::Inline(text) if text.len() > PLAN_INLINE => {
            (PACKED.to_owned(), AttributeValue::B(Blob::new(pack(text))))
        }
        BodyStorage::Inline(_) | BodyStorage::Object(_) => body.attribute(),
    };
    Item::from([("pk".to_owned(), text(key::plan(instance))), ("sk".to_owned(), text(key::HEAD)), body])
}

impl DynamoTable {
    pub(crate) async fn put_plan_item(&self, instance: &str, body: &BodyStorage) -> StoreResult<()> {
        self.put(plan_item(instance, body)).await
    }

    pub(crate) async fn get_plan_item(&self, instance: &str) -> StoreResult<Option<BodyStorage>> {
        let item = self.get(&key::plan(instance), key::HEAD).await?;
        item.map(|item| BodyStorage::read(&ItemReader::new("GetItem", &item))).transpose()
    }

    /// Deletes a plan and returns the place of its text.
    pub(crate) async fn delete_plan_item(&self, instance: &str) -> StoreResult<Option<BodyStorage>> {
        let item = self.take(key::plan(instance), key::HEAD).await?;
        item.map(|item| BodyStorage::read(&ItemReader::new("DeleteItem", &item))).transpose()
    }
}
