//! Plans: `p#INSTANCE` / `h`. The text is in `b`, compressed in `z`, or in an object with its key in `o`.
//!
//! The item is written together with the target and removed with the data of the instance. Its object is written first. The
//! writer may stop in between, and its request may never be repeated. So the removal time of the object is written before the
//! object. A plan item that names the object then keeps it.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Millis, Timestamp};

use super::{BodyStorage, Item, PACKED, PLAN_INLINE, Store, item_at, key, pack};
use crate::{ItemKey, StoreResult};

/// An invocation of a function, which writes an object and then its item, is shorter.
const MAX_WRITE: Millis = Millis(60 * 60 * 1000);

/// Returns the item of a plan. A text is compressed if it would cost more than one write unit.
pub(super) fn plan_item(instance: &str, body: &BodyStorage) -> Item {
    let body = match body {
        BodyStorage::Inline(text) if text.len() > PLAN_INLINE => (PACKED, AttributeValue::B(Blob::new(pack(text)))),
        BodyStorage::Inline(_) | BodyStorage::Object(_) => body.attribute(),
    };
    item_at((key::plan(instance), key::HEAD), [body])
}

pub(super) fn plan_objects(instance: &str) -> String {
    format!("plans/{instance}/")
}

pub(super) fn instance_of(object: &str) -> Option<&str> {
    object.strip_prefix("plans/")?.split_once('/').map(|(instance, _)| instance)
}

/// Reads and restores plans (`GetItem`, `PutItem`; large ones in the bucket). [`Store::begin_instance`] writes
/// them.
impl Store {
    /// Stores a lost plan again.
    pub async fn restore_plan(&self, instance: &str, json: &[u8]) -> StoreResult<()> {
        let body = self.store_plan(instance, json, None).await?;
        self.table.put(plan_item(instance, &body)).await
    }

    pub async fn get_plan(&self, instance: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.get_plan_item(instance).await? {
            None => Ok(None),
            Some(body) => self.read_body(body).await.map(Some),
        }
    }

    /// Stores a large plan in the bucket, at `now` if its item may never be written. Each object has a unique key, so a
    /// refused writer does not remove the object of another one.
    pub(super) async fn store_plan(
        &self,
        instance: &str,
        json: &[u8],
        now: Option<Timestamp>,
    ) -> StoreResult<BodyStorage> {
        let fits = json.len() <= PLAN_INLINE || pack(json).len() <= PLAN_INLINE;
        let inline = if fits { usize::MAX } else { 0 };
        let key = format!("{}{:016x}", plan_objects(instance), rand::random::<u64>());
        if let Some(now) = now.filter(|_| !fits) {
            let sort = key::expiry(now.plus(MAX_WRITE), &key);
            self.table.put(ItemKey::new(key::EXPIRIES, sort).into_item()).await?;
        }
        self.store_body(key, json, inline).await
    }

    /// Removes an object, unless the plan item names it.
    pub(super) async fn remove_unnamed(&self, instance: &str, key: &str) -> StoreResult<()> {
        match self.get_plan_item(instance).await? {
            Some(BodyStorage::Object(named)) if named == key => Ok(()),
            _ => self.bucket.remove(key).await,
        }
    }

    pub(super) async fn get_plan_item(&self, instance: &str) -> StoreResult<Option<BodyStorage>> {
        self.table.read(&key::plan(instance), key::HEAD, BodyStorage::read).await
    }
}
