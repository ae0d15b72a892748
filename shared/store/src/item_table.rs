//! The requests that the store sends to a table, and the conditions of its writes.
//!
//! [`SdkTable`](crate::SdkTable) sends them to DynamoDB. One machine has a table of its own. Every table has the keys and
//! indexes of [`TableSpec`], and the limits of DynamoDB that are stated here.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::{StoreResult, TableSpec};

pub type Item = HashMap<String, AttributeValue>;

/// The largest item, in bytes of [`item_size`](crate::item_size).
pub const MAX_ITEM_BYTES: usize = 400 << 10;
/// The attributes that a read returns. `None` means all.
pub type Projection = Option<&'static [&'static str]>;
/// The keys of one [`ItemTable::get_batch`].
pub const MAX_GET_BATCH: usize = 100;
/// A page of a query ends after the item that passes this number of bytes.
pub const PAGE_BYTES: usize = 1 << 20;
/// A batch of reads ends after the item that passes this number of bytes.
pub const BATCH_BYTES: usize = 16 << 20;
/// The keys of one [`ItemTable::delete_batch`].
pub const MAX_DELETE_BATCH: usize = 25;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey {
    /// 1 to 2,048 bytes.
    pub partition: String,
    /// 1 to 1,024 bytes.
    pub sort: String,
}

impl ItemKey {
    pub fn new(partition: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { partition: partition.into(), sort: sort.into() }
    }

    pub fn of(item: &Item) -> Option<Self> {
        let part = |name| item.get(name)?.as_s().ok().cloned();
        Some(Self { partition: part(TableSpec::PARTITION)?, sort: part(TableSpec::SORT)? })
    }

    /// Returns the attributes of the key.
    pub fn into_item(self) -> Item {
        let parts = [(TableSpec::PARTITION, self.partition), (TableSpec::SORT, self.sort)];
        parts.into_iter().map(|(name, part)| (name.to_owned(), AttributeValue::S(part))).collect()
    }
}

/// A condition on the present item. A comparison with an attribute that does not exist is false.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteCondition {
    Present(String),
    Absent(String),
    Equal(String, AttributeValue),
    /// The attribute is a number above this one.
    Above(String, u64),
    /// The attribute is a number up to this one.
    AtMost(String, u64),
    /// The set contains the string or number.
    Contains(String, AttributeValue),
    /// The set does not contain the string or number, or does not exist.
    Lacks(String, AttributeValue),
    /// The set has fewer members.
    SizeBelow(String, u64),
    All(Vec<Self>),
    Any(Vec<Self>),
}

impl WriteCondition {
    pub(crate) fn present(attribute: &str) -> Self {
        Self::Present(attribute.to_owned())
    }

    pub(crate) fn absent(attribute: &str) -> Self {
        Self::Absent(attribute.to_owned())
    }

    pub(crate) fn equal(attribute: &str, value: AttributeValue) -> Self {
        Self::Equal(attribute.to_owned(), value)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttributeChange {
    Set(AttributeValue),
    SetIfAbsent(AttributeValue),
    Remove,
    /// Adds a number, or the members of a set. A missing attribute is 0 or empty.
    Add(AttributeValue),
    /// Deletes members of a set. An empty set does not exist.
    Delete(AttributeValue),
}

/// The conditions of a write, and the changes of an update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteExpression {
    /// All must hold.
    pub conditions: Vec<WriteCondition>,
    pub changes: BTreeMap<String, AttributeChange>,
}

impl WriteExpression {
    pub(crate) fn when(condition: WriteCondition) -> Self {
        Self { conditions: vec![condition], changes: BTreeMap::new() }
    }

    /// Adds changes of attributes. The last change of an attribute counts.
    #[must_use]
    pub(crate) fn with<Name: Into<String>>(
        mut self,
        changes: impl IntoIterator<Item = (Name, AttributeChange)>,
    ) -> Self {
        self.changes.extend(changes.into_iter().map(|(name, change)| (name.into(), change)));
        self
    }
}

/// The effect of a write if its conditions hold.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteAction {
    Put(Item),
    /// Applies the changes of the expression, and returns the item as it was before or is after.
    Update(UpdateImage),
    /// Deletes the item and returns it.
    Delete,
}

impl WriteAction {
    /// Returns the operation of DynamoDB.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Put(_) => "PutItem",
            Self::Update(_) => "UpdateItem",
            Self::Delete => "DeleteItem",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateImage {
    Before,
    After,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ItemWrite {
    pub key: ItemKey,
    pub expression: WriteExpression,
    pub action: WriteAction,
}

#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// The item that the write returned. Empty if it returned none.
    Written(Item),
    /// The present item. Empty if there is none. A refused deletion returns none.
    Refused(Item),
}

impl WriteOutcome {
    pub(crate) fn is_written(&self) -> bool {
        matches!(self, Self::Written(_))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ItemPut {
    pub item: Item,
    /// It has no changes.
    pub expression: WriteExpression,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TransactionOutcome {
    Written,
    /// The present items of the puts whose conditions do not hold, in the order of all puts. An item is empty if there is
    /// none. `None` for a put whose conditions hold.
    Refused(Vec<Option<Item>>),
}

/// Items or keys that a query returns, in the order of their sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryRange {
    /// Items of a partition, between two sort keys or all.
    Partition { partition: String, sort: Option<(String, String)> },
    /// Keys of an index shard that are due at `until`, in milliseconds since 1970.
    Due { shard: u8, until: u64 },
    /// Keys of a list, between two partition keys or all.
    List { list: String, partitions: Option<(String, String)> },
}

/// A query. Bounds are inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemQuery {
    pub range: QueryRange,
    /// True for a strongly consistent read. Indexes have none.
    pub is_consistent: bool,
    /// The number of items of a page. A page has at most 1 MB.
    pub limit: Option<usize>,
    pub attributes: Projection,
    /// True if an item that cannot be decoded is returned with its key only. Otherwise it fails the query: a record
    /// without further attributes is one that has not begun. DynamoDB decodes every item.
    pub keeps_damaged: bool,
}

impl ItemQuery {
    pub(crate) fn new(range: QueryRange) -> Self {
        let is_consistent = matches!(range, QueryRange::Partition { .. });
        Self { range, is_consistent, limit: None, attributes: None, keeps_damaged: false }
    }

    pub(crate) fn range(partition: String, least: impl Into<String>, greatest: impl Into<String>) -> Self {
        Self::new(QueryRange::Partition { partition, sort: Some((least.into(), greatest.into())) })
    }

    pub(crate) fn partition(partition: String) -> Self {
        Self::new(QueryRange::Partition { partition, sort: None })
    }

    pub(crate) fn list(list: &str) -> Self {
        Self::new(QueryRange::List { list: list.to_owned(), partitions: None })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemPage {
    pub items: Vec<Item>,
    /// The key after which the next page begins. `None` on the last page.
    pub next: Option<Item>,
}

/// Items of a batch, in no order. An item that cannot be decoded has its key only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemBatch {
    pub items: Vec<Item>,
    pub unprocessed: Vec<ItemKey>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TableResponse<T> {
    pub value: T,
    /// Consumed read or write units. 0 if the table does not report them.
    pub units: f64,
}

/// A table. Each operation is one request.
///
/// A write that is sent twice because its response was lost changes the item once, or is refused with an image that
/// shows the first write.
#[async_trait]
pub trait ItemTable: Debug + Send + Sync {
    /// Reads an item, strongly consistent.
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>>;
    /// Reads at most [`MAX_GET_BATCH`] items, strongly consistent.
    async fn get_batch(&self, keys: Vec<ItemKey>, attributes: Projection) -> StoreResult<TableResponse<ItemBatch>>;
    /// Reads the page of a query after `from`.
    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>>;
    /// Writes an item if the conditions hold.
    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>>;
    /// Writes all items or none. A repetition with the same token within ten minutes is the same transaction.
    async fn transact(&self, puts: &[ItemPut], token: &str) -> StoreResult<TableResponse<TransactionOutcome>>;
    /// Deletes at most [`MAX_DELETE_BATCH`] items, and returns the keys that were not processed.
    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>>;
}
