//! DynamoDB, a bucket and S3 in this process, kept in a folder.
//!
//! The AWS SDK talks to DynamoDB as it is; only its HTTP client is another one, which calls the emulator instead of
//! a network. S3 is for scripts. What was answered survives a killed process, but not necessarily a power failure.

mod access;
mod bucket;
mod server;
mod table;
#[cfg(test)]
mod tests;

pub use bucket::FolderBucket;
pub use server::S3Server;
pub use table::EmbeddedTable;

/// Why an emulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The folder or the port cannot be used.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The file of the tables cannot be read.
    #[error(
        "{} is damaged ({reason}). Put back a copy of it, or recover what can be read: \
         sqlite3 {} .recover | sqlite3 recovered.sqlite, and put that in its place",
        file.display(), file.display()
    )]
    Damaged { file: std::path::PathBuf, reason: String },
    #[error("{what}: {reason}")]
    Refused { what: String, reason: String },
}

/// Access key that signed requests to the emulators may use.
pub const ACCESS_KEY: &str = "local";
/// Secret of [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "local";
/// Region that clients of the emulators name.
pub const REGION: &str = "us-east-1";

/// The key pair as the SDKs take it.
fn credentials() -> aws_sdk_dynamodb::config::Credentials {
    aws_sdk_dynamodb::config::Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "local")
}

/// Makes `folder`, with all above it, for its owner alone.
fn make_folder(folder: &std::path::Path) -> Result<(), EmbeddedError> {
    crate::private::folder(folder)
        .map_err(|source| EmbeddedError::Io { what: format!("folder {}", folder.display()), source })
}
