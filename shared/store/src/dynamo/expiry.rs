//! Removal times of the data of ended instances, `retention#` / `TIME#INSTANCE`, and of events, `retention#` /
//! `TIME#RUN`.
//!
//! The item is written before an instance begins to end, so every gone instance has one. The partition is ordered by
//! time and needs no index. [`QueryDue`](crate::QueryDue) does not read it, so removals do not compete with due items.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use backon::BackoffBuilder as _;
use ebb_protocol::engine::Timestamp;
use ebb_protocol::id::{EventRef, RunId};
use futures::{StreamExt as _, TryStreamExt as _};

use super::attribute::{Item, ItemReader, digest, item, number, optional, text};
use super::expression::WriteExpression;
use super::failure::{failure, pauses};
use super::plan::plan_objects;
use super::{BodyStorage, DynamoTable, key};
use crate::error::StoreError;
use crate::meter::CapacityKind;
use crate::ops::{DamagedExpiry, DueExpiries, InstanceExpiry, LOGS, OUTPUTS, PutExpiry, RemoveExpired, StoreResult};
use crate::store::Store;

/// The `BatchWriteItem` limit of items.
const BATCH: usize = 25;
/// `BatchWriteItem` requests in progress at the same time.
const BATCHES: usize = 8;
const PAGE: i32 = 2_000;
const WRITE: &str = "BatchWriteItem";
/// The event whose run is removed.
const EVENT: &str = "ev";
/// The number of consecutive failed removals.
const FAILURES: &str = "fl";
/// The number of the last update.
const UPDATES: &str = "up";
/// The time at which the removal was announced.
const ANNOUNCED: &str = "an";

fn expiry_item(expiry: &InstanceExpiry) -> Item {
    let mut attributes = item([
        ("pk", text(key::EXPIRIES)),
        ("sk", text(key::expiry(expiry.due, &expiry.subject()))),
        ("k", text(&expiry.kind)),
        ("n", text(&expiry.name)),
        ("uid", text(&expiry.uid)),
        ("gen", number(expiry.generation)),
        ("plan", digest(&expiry.plan)),
    ]);
    attributes.extend(optional([
        (EVENT, expiry.event.as_ref().map(|event| text(event.to_string()))),
        (FAILURES, (expiry.failures > 0).then(|| number(expiry.failures))),
        (UPDATES, (expiry.updates > 0).then(|| number(expiry.updates))),
        (ANNOUNCED, expiry.announced.map(|at| number(at.0))),
    ]));
    attributes
}

fn read_expiry(key: &str, item: &Item) -> StoreResult<InstanceExpiry> {
    let reader = ItemReader::new("Query", item);
    let broken = |reason: &str| StoreError::Broken { operation: "Query", reason: reason.to_owned() };
    let (due, named) = key::expiry_of(key).ok_or_else(|| broken("its sort key has no time"))?;
    let expiry = InstanceExpiry {
        kind: reader.text("k")?.to_owned(),
        name: reader.text("n")?.to_owned(),
        uid: reader.text("uid")?.to_owned(),
        generation: reader.number("gen")?,
        updates: reader.number_if_any(UPDATES)?.unwrap_or(0),
        plan: reader.digest("plan")?,
        event: reader
            .text_if_any(EVENT)?
            .map(|event| EventRef::try_from(event.to_owned()))
            .transpose()
            .map_err(|error| broken(&error.to_string()))?,
        due,
        failures: reader.number_if_any(FAILURES)?.unwrap_or(0),
        announced: reader.time_if_any(ANNOUNCED)?,
    };
    // Deletion uses the key that these attributes produce, so it must be the actual key.
    if expiry.subject() == named { Ok(expiry) } else { Err(broken("its sort key is that of another instance")) }
}

fn read_damaged(key: &str, item: &Item, error: &StoreError) -> DamagedExpiry {
    let failures = ItemReader::new("Query", item).number_if_any(FAILURES);
    DamagedExpiry {
        instance: key::expiry_of(key).map_or(key, |(_, instance)| instance).to_owned(),
        key: key.to_owned(),
        failures: failures.ok().flatten().unwrap_or(0),
        reason: error.to_string(),
    }
}

struct RunPage {
    keys: Vec<Item>,
    /// True if the bucket may contain objects of the run.
    has_objects: bool,
    /// True if the run has no further items.
    is_last: bool,
}

#[async_trait]
impl PutExpiry for Store {
    async fn put_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.dynamo.put(expiry_item(expiry)).await
    }
}

#[async_trait]
impl RemoveExpired for Store {
    async fn list_expired(&self, now: Timestamp, limit: usize) -> StoreResult<DueExpiries> {
        let query = self
            .dynamo
            .client
            .query()
            .key_condition_expression("pk = :p AND sk < :end")
            .expression_attribute_values(":p", text(key::EXPIRIES))
            .expression_attribute_values(":end", text(key::expires(Timestamp(now.0.saturating_add(1)))))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let mut found = DueExpiries::default();
        for item in self.dynamo.pages(query, limit).await? {
            let key = ItemReader::new("Query", &item).text("sk")?;
            match read_expiry(key, &item) {
                Ok(expiry) => found.readable.push(expiry),
                Err(error) => found.damaged.push(read_damaged(key, &item, &error)),
            }
        }
        Ok(found)
    }

    async fn postpone_expiry(&self, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> StoreResult<()> {
        let next = InstanceExpiry { due, failures, ..expiry.clone() };
        self.dynamo.put(expiry_item(&next)).await?;
        if next.due == expiry.due { Ok(()) } else { self.delete_expiry(expiry).await }
    }

    async fn postpone_damaged(&self, damaged: &DamagedExpiry, due: Timestamp) -> StoreResult<()> {
        let next = key::expiry(due, &damaged.instance);
        let Some(mut item) = self.dynamo.get(key::EXPIRIES, &damaged.key).await? else { return Ok(()) };
        item.insert("sk".to_owned(), text(&next));
        // Overwrites the count, because it may be the damaged attribute.
        item.insert(FAILURES.to_owned(), number(damaged.failures));
        self.dynamo.put(item).await?;
        if next == damaged.key { Ok(()) } else { self.dynamo.delete(key::EXPIRIES.to_owned(), &damaged.key).await }
    }

    async fn delete_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.dynamo.delete(key::EXPIRIES.to_owned(), &key::expiry(expiry.due, &expiry.subject())).await
    }

    async fn delete_root(&self, run: &RunId) -> StoreResult<bool> {
        let mut expression = WriteExpression::default();
        let (partition, announced) = (expression.name("pk"), expression.name("rm"));
        expression.require(format!("(attribute_not_exists({partition}) OR attribute_exists({announced}))"));
        Ok(self.dynamo.take_if((&key::run(run), key::HEAD), &expression).await?.is_written())
    }

    async fn delete_run(&self, run: &RunId) -> StoreResult<()> {
        loop {
            let page = self.dynamo.page_of_run(run).await?;
            // Objects are removed before items, so that an interrupted removal is found and repeated.
            if page.has_objects {
                self.delete_objects(run).await?;
            }
            self.dynamo.delete_items(page.keys).await?;
            if page.is_last {
                return Ok(());
            }
        }
    }

    async fn delete_objects(&self, run: &RunId) -> StoreResult<()> {
        for folder in [OUTPUTS, LOGS] {
            self.bucket.remove_all(&format!("{folder}/{run}/")).await?;
        }
        Ok(())
    }

    async fn delete_plan(&self, instance: &str) -> StoreResult<()> {
        match self.take_plan_item(instance).await? {
            Some(BodyStorage::Inline(_)) => Ok(()),
            // An earlier removal may have been interrupted after it removed the item.
            Some(BodyStorage::Object(_)) | None => self.bucket.remove_all(&plan_objects(instance)).await,
        }
    }
}

impl DynamoTable {
    /// Returns the first items of a run, heads before records.
    async fn page_of_run(&self, run: &RunId) -> StoreResult<RunPage> {
        let query = self
            .client
            .query()
            .key_condition_expression("pk = :p")
            .projection_expression("pk, sk, ob, lg")
            .expression_attribute_values(":p", text(key::run(run)))
            .consistent_read(true)
            .limit(PAGE);
        let (mut keys, next) = self.page(query).await?;
        let mut has_objects = false;
        for key in &mut keys {
            has_objects |= ItemReader::new("Query", key).text("sk")? == key::OUTPUTS;
            has_objects |= key.remove("ob").is_some() | key.remove("lg").is_some();
        }
        Ok(RunPage { keys, has_objects, is_last: next.is_none() })
    }

    async fn delete_items(&self, keys: Vec<Item>) -> StoreResult<()> {
        let batches: Vec<Vec<Item>> = keys.chunks(BATCH).map(<[Item]>::to_vec).collect();
        let writes = futures::stream::iter(batches).map(|batch| self.delete_batch(batch));
        writes.buffer_unordered(BATCHES).try_collect().await
    }

    async fn delete_batch(&self, keys: Vec<Item>) -> StoreResult<()> {
        let invalid = |error: aws_sdk_dynamodb::error::BuildError| StoreError::Broken {
            operation: WRITE,
            reason: error.to_string(),
        };
        let mut writes = Vec::new();
        for key in keys {
            let delete = DeleteRequest::builder().set_key(Some(key)).build().map_err(invalid)?;
            writes.push(WriteRequest::builder().delete_request(delete).build());
        }
        let mut unprocessed = Some(HashMap::from([(self.table.clone(), writes)]));
        let mut pauses = pauses().build();
        while let Some(request) = unprocessed.filter(|request| !request.is_empty()) {
            let sent = self.client.batch_write_item().set_request_items(Some(request));
            let response = sent.set_return_consumed_capacity(self.report()).send().await;
            let response = response.map_err(|error| failure(WRITE, &error))?;
            self.count_response(WRITE, CapacityKind::Write, response.consumed_capacity());
            unprocessed = response.unprocessed_items;
            if unprocessed.as_ref().is_some_and(|left| !left.is_empty()) {
                let Some(pause) = pauses.next() else {
                    let reason = "items stay unprocessed".to_owned();
                    return Err(StoreError::Retryable { operation: WRITE, reason });
                };
                tokio::time::sleep(pause).await;
            }
        }
        Ok(())
    }
}
