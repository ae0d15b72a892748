//! Every operation over an in-process DynamoDB and S3, through the AWS SDKs.

mod document;
mod figures;
mod list;
mod model;
mod record;
mod run;
mod target;
mod world;
