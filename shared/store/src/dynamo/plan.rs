//! Plans: `p#LIFE` / `h`, their text in `b`, compressed in `z`, or in an object whose key is in `o`.
//!
//! The item is written in the transaction by which a target names the plan, and removed with what else is stored of the
//! life.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use super::attribute::{Item, ItemReader, text};
use super::document::{BodyStorage, PACKED};
use super::packed::pack;
use super::{DynamoTable, key};
use crate::ops::StoreResult;
use crate::store::PLAN_INLINE;

/// Returns the item of the plan of a life. A text is compressed where the item would need more than one write unit.
pub(super) fn plan_item(life: &str, body: &BodyStorage) -> Item {
    let body = match body {
        BodyStorage::Inline(text) if text.len() > PLAN_INLINE => {
            (PACKED.to_owned(), AttributeValue::B(Blob::new(pack(text))))
        }
        BodyStorage::Inline(_) | BodyStorage::Object(_) => body.attribute(),
    };
    Item::from([("pk".to_owned(), text(key::plan(life))), ("sk".to_owned(), text(key::HEAD)), body])
}

impl DynamoTable {
    pub(crate) async fn put_plan_item(&self, life: &str, body: &BodyStorage) -> StoreResult<()> {
        self.put(plan_item(life, body)).await
    }

    pub(crate) async fn get_plan_item(&self, life: &str) -> StoreResult<Option<BodyStorage>> {
        let item = self.get(&key::plan(life), key::HEAD).await?;
        item.map(|item| BodyStorage::read(&ItemReader::new("GetItem", &item))).transpose()
    }

    /// Removes the plan of a life, and returns where it was.
    pub(crate) async fn delete_plan_item(&self, life: &str) -> StoreResult<Option<BodyStorage>> {
        let item = self.take(key::plan(life), key::HEAD).await?;
        item.map(|item| BodyStorage::read(&ItemReader::new("DeleteItem", &item))).transpose()
    }
}
