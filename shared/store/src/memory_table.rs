//! A table and a bucket in memory, for simulations and tests. Their operations do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::evaluate::ItemChange;
use crate::{
    Bucket, Item, ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemTable, ItemWrite, OpenObject, Projection,
    QueryRange, Store, StoreResult, TableResponse, TableSpec, TransactionOutcome, WriteOutcome, evaluate, item_size,
};

/// A table and a bucket in memory.
#[derive(Debug, Default)]
pub struct MemoryTable {
    content: Mutex<TableContent>,
}

/// The items by key, the entries of the indexes, and the objects.
#[derive(Clone, Debug, Default)]
struct TableContent {
    items: BTreeMap<ItemKey, Item>,
    entries: BTreeSet<IndexEntry>,
    objects: BTreeMap<String, Vec<u8>>,
}

/// A list or a shard of the due index, the due time or 0, and the key of the item.
type IndexEntry = (String, u64, ItemKey);

fn number(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

/// Returns the name of a shard. No list has such a name.
fn due_part(shard: impl Display) -> String {
    format!("due {shard}")
}

fn entries(key: &ItemKey, item: &Item) -> Vec<IndexEntry> {
    let due = number(item, TableSpec::DUE_SHARD).zip(number(item, TableSpec::DUE));
    let list = item.get(TableSpec::LIST).and_then(|list| list.as_s().ok());
    let parts = due.map(|(shard, due)| (due_part(shard), due)).into_iter().chain(list.map(|list| (list.clone(), 0)));
    parts.map(|(part, due)| (part, due, key.clone())).collect()
}

impl TableContent {
    /// Replaces or removes an item, and its entries of the indexes.
    fn replace(&mut self, key: &ItemKey, item: Option<Item>) {
        let new = item.as_ref().map(|item| entries(key, item)).unwrap_or_default();
        let before = match item {
            Some(item) => self.items.insert(key.clone(), item),
            None => self.items.remove(key),
        };
        for entry in before.iter().flat_map(|before| entries(key, before)) {
            self.entries.remove(&entry);
        }
        self.entries.extend(new);
    }

    /// Returns the items of a range after `from`, in the order of their sort key. Those of an index have its key only.
    fn range<'a>(&'a self, range: &QueryRange, from: Option<Item>) -> Box<dyn Iterator<Item = Item> + 'a> {
        let after = from.as_ref().and_then(ItemKey::of);
        let (attributes, part, until, first, last) = match range {
            QueryRange::Partition { partition, sort } => {
                let (first, last) = sort.as_ref().map_or(("", LAST), |(first, last)| (first, last));
                let [first, last] = [first, last].map(|sort| ItemKey::new(partition.as_str(), sort));
                let items = self.items.range(first..).take_while(move |(key, _)| **key <= last);
                let items = items.filter(move |(key, _)| after.as_ref() < Some(*key));
                return Box::new(items.map(|(_, item)| item.clone()));
            }
            QueryRange::Due { shard, until } => (DUE, due_part(shard), *until, "", LAST),
            QueryRange::List { list, partitions } => {
                let (first, last) = partitions.as_ref().map_or(("", LAST), |(first, last)| (first, last));
                (LIST, list.clone(), 0, first, last)
            }
        };
        let due = from.as_ref().and_then(|item| number(item, TableSpec::DUE)).unwrap_or(0);
        let after = after.map(|key| (part.clone(), due, key));
        let first: IndexEntry = (part.clone(), 0, ItemKey::new(first, ""));
        let last = (part, until, ItemKey::new(last, LAST));
        let entries = self.entries.range(first..).take_while(move |entry| **entry <= last);
        Box::new(entries.filter(move |entry| after.as_ref() < Some(*entry)).map(move |(.., key)| {
            let item = &self.items[key];
            attributes.iter().filter_map(|&name| Some((name.to_owned(), item.get(name)?.clone()))).collect::<Item>()
        }))
    }
}

/// The attributes of an entry of the due index.
const DUE: &[&str] = &[TableSpec::PARTITION, TableSpec::SORT, TableSpec::DUE_SHARD, TableSpec::DUE];
const LIST: &[&str] = &[TableSpec::PARTITION, TableSpec::SORT, TableSpec::LIST];
/// The largest part of a key, for a range without an end. Keys have no such character.
const LAST: &str = "\u{10ffff}";

impl MemoryTable {
    fn content(&self) -> MutexGuard<'_, TableContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a store on a new table.
    pub fn store() -> Store {
        let table = Arc::new(Self::default());
        Store::new(Arc::clone(&table) as Arc<dyn ItemTable>, table)
    }

    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.content().objects.get(key).cloned()
    }

    /// Returns the keys of all objects that begin with `prefix`.
    pub fn objects(&self, prefix: &str) -> Vec<String> {
        self.content().objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    pub fn item(&self, key: &ItemKey) -> Option<Item> {
        self.content().items.get(key).cloned()
    }
}

#[async_trait]
impl ItemTable for MemoryTable {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        let value = self.item(&key);
        Ok(TableResponse { units: evaluate::read_units(value.as_ref().map_or(0, item_size), true), value })
    }

    async fn get_batch(&self, keys: Vec<ItemKey>, attributes: Projection) -> StoreResult<TableResponse<ItemBatch>> {
        let content = self.content();
        evaluate::batch(keys, attributes, |key| Ok(content.items.get(key).cloned()))
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        let content = self.content();
        evaluate::page(query, content.range(&query.range, from).map(Ok))
    }

    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        let mut content = self.content();
        let (change, response) = evaluate::write(content.items.get(&write.key), write.clone())?;
        match change {
            ItemChange::Nothing => {}
            ItemChange::Removed => content.replace(&write.key, None),
            ItemChange::Replaced(item) => content.replace(&write.key, Some(item)),
        }
        Ok(response)
    }

    async fn transact(&self, puts: &[ItemPut], _: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let keys = evaluate::transaction_keys(puts)?;
        let mut content = self.content();
        let before: Vec<Option<&Item>> = keys.iter().map(|key| content.items.get(key)).collect();
        let response = evaluate::transaction(puts, &before);
        if response.value == TransactionOutcome::Written {
            keys.iter().zip(puts).for_each(|(key, put)| content.replace(key, Some(put.item.clone())));
        }
        Ok(response)
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        let mut content = self.content();
        let mut units = 0.0;
        for key in &keys {
            let (own, entries) = evaluate::write_units(content.items.get(key), None);
            units += own + entries;
            content.replace(key, None);
        }
        Ok(TableResponse { units, value: Vec::new() })
    }
}

impl Clone for MemoryTable {
    fn clone(&self) -> Self {
        Self { content: Mutex::new(self.content().clone()) }
    }
}

#[async_trait]
impl Bucket for MemoryTable {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        self.content().objects.insert(key.to_owned(), bytes);
        Ok(())
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        let found = self.object(key);
        Ok(found.map(|bytes| OpenObject::new(Some(bytes.len()), async move { Ok(bytes) })))
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        self.content().objects.remove(key);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        Ok(self.objects(prefix))
    }
}
