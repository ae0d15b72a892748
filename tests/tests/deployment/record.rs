//! Records the requests to AWS: the operation, and the part of the table or the bucket.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_store::item_table::{
    ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemWrite, QueryRange, TableResponse, TransactionOutcome,
    WriteOutcome,
};
use ebb_store::{Bucket, Item, ItemTable, MemoryTable, OpenObject, StoreResult, TableSpec};

/// An action of a policy and its place.
pub(crate) type PolicyRight = (String, String);
pub(crate) type PolicyRights = BTreeSet<PolicyRight>;

/// The table and the bucket of one function. Records the rights that its requests need.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    content: Arc<MemoryTable>,
    rights: Arc<Mutex<PolicyRights>>,
}

impl Recorder {
    pub(crate) fn new(content: Arc<MemoryTable>) -> Self {
        Self { content, rights: Arc::default() }
    }

    pub(crate) fn rights(&self) -> PolicyRights {
        self.rights.lock().unwrap().clone()
    }

    pub(crate) fn needs(&self, action: &str, place: &str) {
        self.rights.lock().unwrap().insert((action.to_owned(), place.to_owned()));
    }

    /// Records an operation of `SdkTable` on a partition. The place of `r#a` is `Table r#*`.
    fn needs_items(&self, operation: &str, partition: &str) {
        let place = match partition.split_once('#') {
            Some((kind, _)) => format!("Table {kind}#*"),
            None => format!("Table {partition}"),
        };
        self.needs(&format!("dynamodb:{operation}"), &place);
    }

    /// Records an operation of `S3Bucket` on a key, which begins with a folder.
    fn needs_object(&self, operation: &str, key: &str) {
        let folder = key.split('/').next().unwrap_or_default();
        self.needs(&format!("s3:{operation}"), &format!("Bucket {folder}/*"));
    }
}

#[async_trait]
impl ItemTable for Recorder {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        self.needs_items("GetItem", &key.partition);
        self.content.get(key).await
    }

    async fn get_batch(
        &self,
        keys: Vec<ItemKey>,
        attributes: Option<&'static [&'static str]>,
    ) -> StoreResult<TableResponse<ItemBatch>> {
        keys.iter().for_each(|key| self.needs_items("BatchGetItem", &key.partition));
        self.content.get_batch(keys, attributes).await
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        match &query.range {
            QueryRange::Partition { partition, .. } => self.needs_items("Query", partition),
            QueryRange::Due { .. } => self.needs("dynamodb:Query", &format!("Table index/{}", TableSpec::DUE_INDEX)),
            QueryRange::List { .. } => self.needs("dynamodb:Query", &format!("Table index/{}", TableSpec::LIST_INDEX)),
        }
        self.content.query(query, from).await
    }

    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        self.needs_items(write.action.operation(), &write.key.partition);
        self.content.write(write).await
    }

    async fn transact(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        // Each put needs its own right.
        for put in puts {
            self.needs_items("PutItem", &ItemKey::of(&put.item).unwrap().partition);
        }
        self.content.transact(puts, token).await
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        keys.iter().for_each(|key| self.needs_items("BatchWriteItem", &key.partition));
        self.content.delete_batch(keys).await
    }
}

#[async_trait]
impl Bucket for Recorder {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        self.needs_object("PutObject", key);
        self.content.put_object(key, bytes).await
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        self.needs_object("GetObject", key);
        self.content.open_object(key).await
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        self.needs_object("DeleteObject", key);
        self.content.remove(key).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        self.needs("s3:ListBucket", "Bucket");
        self.content.list(prefix).await
    }
}
