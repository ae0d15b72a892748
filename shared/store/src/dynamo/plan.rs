//! Plans: `p#INSTANCE` / `h`. The text is in `b`, compressed in `z`, or in an object with its key in `o`.
//!
//! The item is written together with the target and removed with the data of the instance.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use super::attribute::{Item, ItemReader, item, text};
use super::document::{BodyStorage, PACKED};
use super::key;
use super::packed::pack;
use super::store::{PLAN_INLINE, Store};
use crate::ops::StoreResult;

/// Returns the item of a plan. A text is compressed if it would cost more than one write unit.
pub(super) fn plan_item(instance: &str, body: &BodyStorage) -> Item {
    let body = match body {
        BodyStorage::Inline(text) if text.len() > PLAN_INLINE => (PACKED, AttributeValue::B(Blob::new(pack(text)))),
        BodyStorage::Inline(_) | BodyStorage::Object(_) => body.attribute(),
    };
    item([("pk", text(key::plan(instance))), ("sk", text(key::HEAD)), body])
}

pub(super) fn plan_objects(instance: &str) -> String {
    format!("plans/{instance}/")
}

/// Reads and restores plans (`GetItem`, `PutItem`; large ones in the bucket). [`Store::begin_instance`] writes
/// them.
impl Store {
    /// Stores a lost plan again.
    pub async fn restore_plan(&self, instance: &str, json: &[u8]) -> StoreResult<()> {
        let body = self.store_plan(instance, json).await?;
        self.table.put(plan_item(instance, &body)).await
    }

    pub async fn get_plan(&self, instance: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.get_plan_item(instance).await? {
            None => Ok(None),
            Some(body) => self.read_body(body).await.map(Some),
        }
    }
}

impl Store {
    /// Stores a large plan in the bucket. Each object has a unique key, so a refused writer does not remove the object
    /// of another one.
    pub(super) async fn store_plan(&self, instance: &str, json: &[u8]) -> StoreResult<BodyStorage> {
        let fits = json.len() <= PLAN_INLINE || pack(json).len() <= PLAN_INLINE;
        let inline = if fits { usize::MAX } else { 0 };
        let key = format!("{}{:016x}", plan_objects(instance), rand::random::<u64>());
        self.store_body(key, json, inline).await
    }

    /// Removes the object of a refused plan, unless the item names it because of a lost response. A failure is only
    /// logged.
    pub(super) async fn remove_unnamed(&self, instance: &str, key: &str) {
        let removal = async {
            match self.get_plan_item(instance).await? {
                Some(BodyStorage::Object(named)) if named == key => Ok(()),
                _ => self.bucket.remove(key).await,
            }
        };
        if let Err(error) = removal.await {
            tracing::warn!(%error, key, "cannot delete the plan of a refused instance");
        }
    }

    pub(super) async fn get_plan_item(&self, instance: &str) -> StoreResult<Option<BodyStorage>> {
        let read = |operation, item: &Item| BodyStorage::read(&ItemReader::new(operation, item));
        self.table.read(&key::plan(instance), key::HEAD, read).await
    }
}
