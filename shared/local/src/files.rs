//! Files and folders of the state: private to their owner, replaced atomically, locked.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file or folder of the state that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file does not have the format that this program writes.
    #[error("cannot read {}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
}

impl StateFileError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// Creates the folder and its parents for its owner only. Restricts an existing folder of this user.
pub(crate) fn private_folder(path: &Path) -> Result<(), StateFileError> {
    let make = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let found = fs::metadata(path)?;
        let is_ours = found.uid() == nix::unistd::geteuid().as_raw();
        if is_ours && found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    make().map_err(|error| StateFileError::io(path, error))
}

/// Writes a file of mode 0600. A reader sees the old or the new file, even after a crash.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StateFileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| StateFileError::io(path, error))
}

/// Writes a value as JSON, in the same way as [`write_whole`].
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), StateFileError> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| StateFileError::Damaged { path: path.to_owned(), reason: error.to_string() })?;
    write_whole(path, &bytes)
}

/// Reads a file. Returns `None` if the file does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, StateFileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateFileError::io(path, error)),
    }
}

/// Reads a value from a JSON file. Returns `None` if the file does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateFileError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| StateFileError::Damaged { path: path.to_owned(), reason: error.to_string() })
}

/// Returns the UTF-8 names in a folder, unsorted. The list is empty if the folder does not exist.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, StateFileError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StateFileError::io(folder, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| StateFileError::io(folder, error))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Opens a lock file, and creates it if it is missing. A lock is released when the last copy of the file is closed. A
/// process that inherits the file therefore holds the lock until it ends.
pub(crate) fn lock_file(path: &Path) -> Result<File, StateFileError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| StateFileError::io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_folder_is_private() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a/b");
        private_folder(&path).unwrap();
        assert_eq!([mode(&path), mode(&above.path().join("a"))], [0o700, 0o700]);
    }

    #[test]
    fn an_open_folder_is_restricted() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        private_folder(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }
}
