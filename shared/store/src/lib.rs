//! Storage in DynamoDB and S3.
//!
//! [`Store`] has the operations. It sends requests to an [`ItemTable`]: DynamoDB, the table of one machine, or a table in
//! memory. A [`Bucket`] is S3, with the feature `s3`, a folder, or in memory. The feature `suite` contains the tests that
//! every table must pass.

pub mod dynamo;
pub mod error;
pub mod evaluate;
pub mod item_table;
pub mod items;
pub mod memory_table;
pub mod ops;
#[cfg(feature = "s3")]
pub mod s3;
pub mod sdk_table;
// Tests state expectations by unwrapping.
#[cfg(feature = "suite")]
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod suite;
pub mod table;

#[cfg(feature = "suite")]
pub use dynamo::StoredItem;
pub use dynamo::{Store, item_size};
pub use error::StoreError;
pub use item_table::{Item, ItemTable};
pub use items::*;
pub use memory_table::MemoryTable;
pub use ops::*;
#[cfg(feature = "s3")]
pub use s3::S3Bucket;
pub use sdk_table::{SdkTable, create_table, table_creation};
pub use table::TableSpec;
