//! A store that reports its requests to an observer.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Bucket, Item, ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemTable, ItemWrite, OpenObject, Projection,
    QueryRange, Store, StoreResult, TableResponse, TableSpec, TransactionOutcome, WriteOutcome,
};

/// The part of a table that a request concerns.
#[derive(Clone, Debug)]
pub enum RequestPlace {
    /// Items by their keys. The sort key is empty for a query of a partition.
    Items(Vec<ItemKey>),
    Index(&'static str),
}

#[derive(Clone, Debug)]
pub struct TableRequest<'a> {
    pub operation: &'static str,
    pub place: RequestPlace,
    /// Read or write units as reported by the table.
    pub units: f64,
    pub outcome: Option<&'a WriteOutcome>,
}

/// Receives the requests of a store.
pub trait StoreObserver: Debug + Send + Sync {
    fn table(&self, request: &TableRequest<'_>);
    /// Receives a request to the bucket: the operation of S3, and a key or the beginning of keys.
    fn bucket(&self, operation: &'static str, key: &str);
}

impl Store {
    /// Returns the store on the same table and bucket whose requests `observer` receives.
    #[must_use]
    pub fn observed(&self, observer: Arc<dyn StoreObserver>) -> Self {
        let observed = Arc::new(ObservedStore { store: self.clone(), observer });
        Self::new(observed.clone(), observed)
    }
}

/// The table and the bucket of a store, whose requests are reported.
#[derive(Debug)]
struct ObservedStore {
    store: Store,
    observer: Arc<dyn StoreObserver>,
}

impl ObservedStore {
    fn noted<T>(&self, operation: &'static str, place: RequestPlace, response: TableResponse<T>) -> TableResponse<T> {
        self.observer.table(&TableRequest { operation, place, units: response.units, outcome: None });
        response
    }
}

#[async_trait]
impl ItemTable for ObservedStore {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        let place = RequestPlace::Items(vec![key.clone()]);
        Ok(self.noted("GetItem", place, self.store.table().get(key).await?))
    }

    async fn get_batch(&self, keys: Vec<ItemKey>, attributes: Projection) -> StoreResult<TableResponse<ItemBatch>> {
        let place = RequestPlace::Items(keys.clone());
        Ok(self.noted("BatchGetItem", place, self.store.table().get_batch(keys, attributes).await?))
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        let place = match &query.range {
            QueryRange::Partition { partition, .. } => RequestPlace::Items(vec![ItemKey::new(partition.as_str(), "")]),
            QueryRange::Due { .. } => RequestPlace::Index(TableSpec::DUE_INDEX),
            QueryRange::List { .. } => RequestPlace::Index(TableSpec::LIST_INDEX),
        };
        Ok(self.noted("Query", place, self.store.table().query(query, from).await?))
    }

    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        let response = self.store.table().write(write).await?;
        let (operation, place) = (write.action.operation(), RequestPlace::Items(vec![write.key.clone()]));
        let outcome = Some(&response.value);
        self.observer.table(&TableRequest { operation, place, units: response.units, outcome });
        Ok(response)
    }

    async fn transact(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let place = RequestPlace::Items(puts.iter().filter_map(|put| ItemKey::of(&put.item)).collect());
        Ok(self.noted("TransactWriteItems", place, self.store.table().transact(puts, token).await?))
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        let place = RequestPlace::Items(keys.clone());
        Ok(self.noted("BatchWriteItem", place, self.store.table().delete_batch(keys).await?))
    }
}

#[async_trait]
impl Bucket for ObservedStore {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        self.observer.bucket("PutObject", key);
        self.store.bucket.put_object(key, bytes).await
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        self.observer.bucket("GetObject", key);
        self.store.bucket.open_object(key).await
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        self.observer.bucket("DeleteObject", key);
        self.store.bucket.remove(key).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        self.observer.bucket("ListObjectsV2", prefix);
        self.store.bucket.list(prefix).await
    }
}
