//! Atomic writes and locks for the files of the state.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::PodsError;

/// Creates a folder of mode 0700 and its parents. Removes the access of other users from a folder that exists.
pub(super) fn make_private(path: &Path) -> Result<(), PodsError> {
    crate::private::folder(path).map_err(|error| PodsError::io(path, error))
}

/// Writes a file of mode 0600. A reader sees the old file or the new one, after a crash too.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), PodsError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| PodsError::io(path, error))
}

/// Writes a value as JSON, as [`write_whole`].
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), PodsError> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| PodsError::Damaged { path: path.to_owned(), message: error.to_string() })?;
    write_whole(path, &bytes)
}

/// Reads a value from a JSON file; `None` if there is no file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, PodsError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PodsError::io(path, error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| PodsError::Damaged { path: path.to_owned(), message: error.to_string() })
}

/// Returns the names in a folder that are UTF-8, unsorted. There are none if there is no folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, PodsError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(PodsError::io(folder, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| PodsError::io(folder, error))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Opens a lock file, which is created if it is missing. A lock is released when the last copy of the file is closed, so a
/// process that has inherited it holds the lock as long as it lives.
pub(super) fn lock_file(path: &Path) -> Result<File, PodsError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| PodsError::io(path, error))
}
