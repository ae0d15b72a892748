//! A table, a bucket and an emulator of S3 in this process. Their data is in a folder.
//!
//! S3 serves scripts.

mod access;
mod bucket;
mod server;
mod table;
#[cfg(test)]
mod tests;

use crate::files::StateFileError;

pub use crate::files::StateDurability;
pub use bucket::FolderBucket;
pub(crate) use server::{names_loopback, s3_router};
pub use table::EmbeddedTable;

#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(transparent)]
    File(#[from] StateFileError),
    #[error(
        "{} is damaged ({reason}). Put back a copy of the whole state folder, or replace the file with what SQLite \
         can recover (sqlite3 {} .recover | sqlite3 recovered.sqlite) and accept the loss (echo any >last-change, in \
         that folder)",
        file.display(), file.display()
    )]
    Damaged { file: std::path::PathBuf, reason: String },
    #[error("{what}: {reason}")]
    Refused { what: String, reason: String },
}

/// The access key of signed requests to the emulator.
pub(crate) const ACCESS_KEY: &str = "local";
pub(crate) const SECRET_KEY: &str = "local";
/// The region of its clients.
pub(crate) const REGION: &str = "us-east-1";
