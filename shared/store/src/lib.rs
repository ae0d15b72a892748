//! DynamoDB and S3, behind one trait per operation.
//!
//! A function's signature says by the traits it takes which rights it needs. [`dynamo`] and [`bucket`] hold the one
//! implementation, over the AWS SDKs; tests and the local stack give it other endpoints, never other code.

pub mod error;
pub mod items;
pub mod ops;

pub use error::StoreError;
pub use items::{NewRun, Patched, RunFacts, RunHead, TargetHead, TellState, Waiting};
pub use ops::*;
