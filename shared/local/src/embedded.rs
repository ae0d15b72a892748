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
pub use server::S3Server;
pub use table::EmbeddedTable;

/// The error of a start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(transparent)]
    File(#[from] StateFileError),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The file of the table is damaged.
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
pub const ACCESS_KEY: &str = "local";
/// Secret of [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "local";
/// The region of its clients.
pub const REGION: &str = "us-east-1";
