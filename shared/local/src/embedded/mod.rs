//! Emulators of DynamoDB and S3, and a bucket, in this process. Their data is in a folder.
//!
//! The AWS SDK calls the emulated DynamoDB through an HTTP client without a network. S3 serves scripts. Acknowledged
//! writes survive a killed process, but not necessarily a power failure.

mod access;
mod bucket;
mod server;
mod table;
#[cfg(test)]
mod tests;

use crate::files::StateFileError;

pub use bucket::FolderBucket;
pub use server::S3Server;
pub use table::EmbeddedTable;

/// The error of an emulator's start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(transparent)]
    File(#[from] StateFileError),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The file of the tables is damaged.
    #[error(
        "{} is damaged ({reason}). Restore a copy, or replace the file with what SQLite can recover: \
         sqlite3 {} .recover | sqlite3 recovered.sqlite",
        file.display(), file.display()
    )]
    Damaged { file: std::path::PathBuf, reason: String },
    #[error("{what}: {reason}")]
    Refused { what: String, reason: String },
}

/// The access key of signed requests to the emulators.
pub const ACCESS_KEY: &str = "local";
/// Secret of [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "local";
/// The region of the emulators' clients.
pub const REGION: &str = "us-east-1";
