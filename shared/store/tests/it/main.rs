//! Every operation over an in-process DynamoDB and S3, through the AWS SDKs.

// What the tests share is not inside a test function, where these are allowed anyway.
#![allow(clippy::unwrap_used, clippy::panic)]

mod document;
mod figures;
mod list;
mod model;
mod record;
mod run;
mod target;
mod world;
