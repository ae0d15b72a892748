//! DynamoDB and S3, behind one trait per operation.
//!
//! A function's signature says by the traits it takes which rights it needs. [`dynamo`] is the one implementation of
//! the table; tests and the local stack give it another endpoint, never other code. The bucket is a [`Bucket`]: of S3
//! with the feature `s3`, a folder on one machine.
//! With the feature `suite` it brings the tests that every table has to pass.

pub mod batch_queue;
pub mod dynamo;
pub mod error;
pub mod items;
pub mod meter;
pub mod ops;
#[cfg(feature = "s3")]
pub mod s3;
pub mod store;
// A test says what it expects by unwrapping it.
#[cfg(feature = "suite")]
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod suite;
pub mod table;

pub use dynamo::{DynamoTable, item_size};
pub use error::StoreError;
pub use items::{
    NewRun, NotificationState, PatchResult, PendingCreation, RunFacts, RunHead, SecretRelease, TargetHead,
};
pub use meter::{Meter, TableUsage};
pub use ops::*;
#[cfg(feature = "s3")]
pub use s3::S3Bucket;
pub use store::Store;
pub use table::TableSpec;
