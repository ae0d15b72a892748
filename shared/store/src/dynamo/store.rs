//! The store: a table and a bucket.

use std::sync::Arc;

use super::TableClient;
use crate::{Bucket, ItemTable};

/// Bytes of a plan that fit into the table. A larger plan is compressed, and stored in the bucket if it is still
/// larger.
pub const PLAN_INLINE: usize = 1 << 10;
/// Bytes of a plugin document that fit into the table. An item may have 400 KB.
pub const DOCUMENT_INLINE: usize = 100 << 10;
/// Bytes up to which a batch or a response is stored in the table. Larger ones go to the bucket. An item is written
/// three times, and each write costs by its full size.
pub const BATCH_INLINE: usize = 1 << 10;

/// The operations are in the modules beside this one. Reads of heads, targets and records are strongly consistent.
/// The due index, and operations whose names begin with `peek`, are eventually consistent.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) table: TableClient,
    pub bucket: Arc<dyn Bucket>,
}

impl Store {
    pub fn new(table: Arc<dyn ItemTable>, bucket: Arc<dyn Bucket>) -> Self {
        Self { table: TableClient { table }, bucket }
    }

    /// Returns the table, for requests that are not operations of the store.
    pub fn table(&self) -> &Arc<dyn ItemTable> {
        &self.table.table
    }
}
