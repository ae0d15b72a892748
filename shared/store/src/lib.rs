//! DynamoDB and S3, behind one trait per operation.
//!
//! A function's signature says by the traits it takes which rights it needs. [`dynamo`] and [`bucket`] hold the one
//! implementation, over the AWS SDKs; tests and the local stack give it other endpoints, never other code.
//! With the feature `suite` it brings the tests that every table has to pass.

pub mod bucket;
pub mod dynamo;
pub mod error;
pub mod items;
pub mod mailbox;
pub mod meter;
pub mod ops;
pub mod store;
// A test says what it expects by unwrapping it.
#[cfg(feature = "suite")]
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod suite;
pub mod table;

pub use bucket::Bucket;
pub use dynamo::{Dynamo, item_size};
pub use error::StoreError;
pub use items::{NewRun, Patched, Release, RunFacts, RunHead, TargetHead, TellState, Waiting};
pub use meter::{Figures, Meter};
pub use ops::*;
pub use store::Store;
pub use table::TableSpec;
