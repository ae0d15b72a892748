//! Removal times of the data of ended instances, `retention#` / `TIME#INSTANCE`, and of events, `retention#` /
//! `TIME#RUN`. What is removed is JSON in `b`. `retention#` / `TIME#OBJECT` is that of a plan without an instance.
//!
//! The item is written before an instance begins to end, so every gone instance has one. The partition is ordered by
//! time and needs no index. [`Store::query_due`] does not read it, so removals do not compete with due items.

use ebb_protocol::{RunId, Timestamp};

use super::plan::{instance_of, plan_objects};
use super::{BodyStorage, Item, ItemReader, Store, item_at, json, key, number, text};
use crate::ops::{DamagedExpiry, DueExpiries, InstanceExpiry, LOGS, OUTPUTS, StoreResult};
use crate::{ItemKey, ItemQuery, StoreError, WriteCondition, WriteExpression};

const PAGE: usize = 2_000;
/// The number of consecutive failed removals.
const FAILURES: &str = "fl";

fn expiry_item(expiry: &InstanceExpiry) -> StoreResult<Item> {
    let attributes = [("b", json(expiry)?), (FAILURES, number(expiry.failures))];
    Ok(item_at((key::EXPIRIES, &key::expiry(expiry.due, &expiry.subject())), attributes))
}

pub(super) fn read_expiry(reader: ItemReader<'_>) -> StoreResult<InstanceExpiry> {
    let key = key::expiry_of(reader.text("sk")?);
    let (due, named) = key.ok_or_else(|| reader.broken("its sort key has no time"))?;
    let expiry = InstanceExpiry { due, failures: reader.number(FAILURES)?, ..reader.json("b")? };
    // Deletion uses the key that these attributes produce, so it must be the actual key.
    if expiry.subject() == named { Ok(expiry) } else { Err(reader.broken("its sort key is that of another instance")) }
}

/// Returns the object of a removal time, with its instance.
pub(super) fn unnamed_object(key: &str) -> Option<(&str, &str)> {
    let (_, object) = key::expiry_of(key)?;
    Some((instance_of(object)?, object))
}

fn read_damaged(key: &str, reader: ItemReader<'_>, error: &StoreError) -> DamagedExpiry {
    let failures = reader.number_if_any(FAILURES);
    DamagedExpiry {
        instance: key::expiry_of(key).map_or(key, |(_, instance)| instance).to_owned(),
        key: key.to_owned(),
        failures: failures.ok().flatten().unwrap_or(0),
        reason: error.to_string(),
    }
}

/// Schedules the removal of the data of instances (`PutItem`), and removes it (`Query`, `BatchWriteItem`, `PutItem`,
/// `DeleteItem`; S3 `ListObjectsV2`, `DeleteObject`). All operations can be repeated.
impl Store {
    /// Schedules a removal. An instance may have several removal times.
    pub async fn put_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.table.put(expiry_item(expiry)?).await
    }

    /// Returns at most `limit` removals that are due at `now`, the oldest first.
    pub async fn list_expired(&self, now: Timestamp, limit: usize) -> StoreResult<DueExpiries> {
        // `$` is the character after `#`.
        let query = ItemQuery::range(key::EXPIRIES.to_owned(), "0", format!("{}$", key::expires(now)));
        let query = ItemQuery { is_consistent: false, keeps_damaged: true, limit: Some(limit), ..query };
        let mut found = DueExpiries::default();
        for item in self.table.pages(&query, limit).await? {
            let reader = ItemReader::new("Query", &item);
            let key = reader.text("sk")?;
            if unnamed_object(key).is_some() {
                found.objects.push(key.to_owned());
                continue;
            }
            match read_expiry(reader) {
                Ok(expiry) => found.readable.push(expiry),
                Err(error) => found.damaged.push(read_damaged(key, reader, &error)),
            }
        }
        Ok(found)
    }

    /// Removes the object of a listed removal time, unless the plan item of its instance names it. Then removes the removal
    /// time.
    pub async fn remove_unnamed_object(&self, expiry: &str) -> StoreResult<()> {
        if let Some((instance, object)) = unnamed_object(expiry) {
            self.remove_unnamed(instance, object).await?;
        }
        self.table.delete(key::EXPIRIES, expiry).await
    }

    /// Moves a removal to the time `due` and sets its count of failures.
    pub async fn postpone_expiry(&self, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> StoreResult<()> {
        let next = InstanceExpiry { due, failures, ..expiry.clone() };
        self.table.put(expiry_item(&next)?).await?;
        if next.due == expiry.due { Ok(()) } else { self.delete_expiry(expiry).await }
    }

    /// Moves an unreadable removal to the time `due`, with its count of failures. Does not create a missing one.
    pub async fn postpone_damaged(&self, damaged: &DamagedExpiry, due: Timestamp) -> StoreResult<()> {
        let next = key::expiry(due, &damaged.instance);
        let Some(mut item) = self.table.get(key::EXPIRIES, &damaged.key).await? else { return Ok(()) };
        item.insert("sk".to_owned(), text(&next));
        // Overwrites the count, because it may be the damaged attribute.
        item.insert(FAILURES.to_owned(), number(damaged.failures));
        self.table.put(item).await?;
        if next == damaged.key { Ok(()) } else { self.table.delete(key::EXPIRIES, &damaged.key).await }
    }

    pub async fn delete_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.table.delete(key::EXPIRIES, &key::expiry(expiry.due, &expiry.subject())).await
    }

    /// Removes the head of a run, so that the run does not exist. [`Self::delete_run`] removes the rest. Returns false if
    /// the head exists and its removal is not announced.
    pub async fn delete_head(&self, run: &RunId) -> StoreResult<bool> {
        let may_go = WriteCondition::Any(vec![WriteCondition::absent("pk"), WriteCondition::present("rm")]);
        Ok(self.table.take_if((&key::run(run), key::HEAD), WriteExpression::when(may_go)).await?.is_written())
    }

    /// Removes the objects of a run if a mark says that there are any, then its head and records.
    pub async fn delete_run(&self, run: &RunId) -> StoreResult<()> {
        let attributes: &[&str] = &["pk", "sk", "ob", "lg"];
        let all = ItemQuery::partition(key::run(run));
        let query = ItemQuery { attributes: Some(attributes), limit: Some(PAGE), ..all };
        loop {
            // The first items of the run, the head before the records.
            let page = self.table.page(&query, None).await?;
            let (mut keys, mut has_objects) = (Vec::new(), false);
            for item in &page.items {
                let reader = ItemReader::new("Query", item);
                let key = ItemKey::new(reader.text("pk")?, reader.text("sk")?);
                has_objects |= key.sort == key::OUTPUTS || item.contains_key("ob") || item.contains_key("lg");
                keys.push(key);
            }
            // Objects are removed before items, so that an interrupted removal is found and repeated.
            if has_objects {
                self.delete_objects(run).await?;
            }
            self.table.delete_batches(keys).await?;
            if page.next.is_none() {
                return Ok(());
            }
        }
    }

    pub async fn delete_objects(&self, run: &RunId) -> StoreResult<()> {
        for folder in [OUTPUTS, LOGS] {
            self.bucket.remove_all(&format!("{folder}/{run}/")).await?;
        }
        Ok(())
    }

    pub async fn delete_plan(&self, instance: &str) -> StoreResult<()> {
        let item = self.table.take(&key::plan(instance), key::HEAD).await?;
        match item.map(|item| BodyStorage::read(ItemReader::new("DeleteItem", &item))).transpose()? {
            Some(BodyStorage::Inline(_)) => Ok(()),
            // An earlier removal may have been interrupted after it removed the item.
            Some(BodyStorage::Object(_)) | None => self.bucket.remove_all(&plan_objects(instance)).await,
        }
    }
}
