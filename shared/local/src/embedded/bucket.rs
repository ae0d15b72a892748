//! The bucket of one machine: a folder with one file per object.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ebb_store::{Bucket, OpenObject, StoreError, StoreResult};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::io::AsyncReadExt as _;

use super::StateDurability;
use crate::files::{self, StateFileError, UNFINISHED};

/// Characters that are encoded in file names. The dot is one of them, so no object has a file that starts with
/// [`UNFINISHED`].
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A bucket in a folder. A percent-encoded key has at most 255 bytes.
#[derive(Clone, Debug)]
pub struct FolderBucket {
    folder: PathBuf,
    durability: StateDurability,
}

impl FolderBucket {
    /// Opens the bucket in `folder`. Creates the folder, and removes files that a crash left unfinished. An object
    /// whose write has ended survives the failures that `durability` names.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written.
    pub fn open(folder: &Path, durability: StateDurability) -> Result<Self, StateFileError> {
        files::private_folder(folder)?;
        let bucket = Self { folder: folder.to_owned(), durability };
        for name in files::names(folder)?.into_iter().filter(|name| name.starts_with(UNFINISHED)) {
            let path = folder.join(name);
            std::fs::remove_file(&path).map_err(|error| StateFileError::io(&path, error))?;
        }
        Ok(bucket)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(encoded(key))
    }
}

fn encoded(key: &str) -> String {
    utf8_percent_encode(key, ENCODED).to_string()
}

/// Disk errors can pass, so the operation may be retried.
fn failed(operation: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Retryable { operation, reason: error.to_string() }
}

async fn on_disk<T: Send + 'static>(
    operation: &'static str,
    action: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> StoreResult<T> {
    let done = tokio::task::spawn_blocking(action).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed(operation))
}

#[async_trait]
impl Bucket for FolderBucket {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        let (path, durability) = (self.path(key), self.durability);
        on_disk("PutObject", move || files::replace(&path, &bytes, durability)).await
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        let failed = failed("GetObject");
        let opened = files::existing(tokio::fs::File::open(self.path(key)).await);
        let Some(mut file) = opened.map_err(&failed)? else { return Ok(None) };
        let size = file.metadata().await.map_err(&failed)?.len();
        let body = async move {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).await.map_err(failed)?;
            Ok(bytes)
        };
        Ok(Some(OpenObject::new(usize::try_from(size).ok(), body)))
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        let removed = files::existing(tokio::fs::remove_file(self.path(key)).await);
        removed.map(drop).map_err(failed("DeleteObject"))
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        let (folder, prefix) = (self.folder.clone(), encoded(prefix));
        let names = on_disk("ListObjectsV2", move || files::names(&folder).map_err(io::Error::other)).await?;
        let objects = names.iter().filter(|name| name.starts_with(&prefix) && !name.starts_with(UNFINISHED));
        Ok(objects.map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned()).collect())
    }
}
