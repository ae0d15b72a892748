//! Files and folders of the state: private to their owner, replaced atomically, locked.
//!
//! Another user could put keys, secrets or a table there. So a file or folder that another user can change is refused.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The prefix of files that are being written.
pub(crate) const UNFINISHED: &str = ".new-";

/// The failures that an answered write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateDurability {
    /// A killed process. A power failure can lose the last writes.
    #[default]
    Process,
    /// A power failure too. Writes wait for the disk.
    Full,
}

/// A file or folder of the state that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file does not have the format that this program writes.
    #[error("cannot read {}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// Another user can change the file or folder.
    #[error("{} {problem}", path.display())]
    Unsafe { path: PathBuf, problem: String },
}

impl StateFileError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// Returns why a file or folder is refused: another user than `me` and root owns it or can write to it.
fn unsafe_owner(path: &Path, owner: u32, mode: u32, me: u32) -> Option<String> {
    if owner != me && owner != 0 {
        let [owner, me] = [owner, me].map(|uid| {
            let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
            user.map_or_else(|| format!("with uid {uid}"), |user| user.name)
        });
        return Some(format!(
            "belongs to the user {owner}; expected {me}. Use another folder, or run `ebb` as {owner} if you trust its content"
        ));
    }
    (mode & 0o022 != 0).then(|| {
        let (mode, path) = (mode & 0o777, path.display());
        format!("has mode {mode:03o}, so other users can change it. Check its content, then run `chmod go-w {path}`")
    })
}

fn check(path: &Path, found: &Metadata) -> Result<(), StateFileError> {
    // A symbolic link has no mode of its own.
    let mode = if found.is_symlink() { 0 } else { found.mode() };
    match unsafe_owner(path, found.uid(), mode, nix::unistd::geteuid().as_raw()) {
        Some(problem) => Err(StateFileError::Unsafe { path: path.to_owned(), problem }),
        None => Ok(()),
    }
}

/// Returns `None` instead of the error of a file or folder that does not exist.
pub(crate) fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Refuses a folder that another user can change. If it is a symbolic link, the link and its target are checked. A
/// missing folder is accepted.
pub(crate) fn check_folder(path: &Path) -> Result<(), StateFileError> {
    for found in [fs::symlink_metadata(path), fs::metadata(path)] {
        if let Some(found) = existing(found).map_err(|error| StateFileError::io(path, error))? {
            check(path, &found)?;
        }
    }
    Ok(())
}

/// Refuses a folder that contains a file or folder that another user can change.
pub(crate) fn check_entries(folder: &Path) -> Result<(), StateFileError> {
    for name in names(folder)? {
        let path = folder.join(name);
        // It may have been removed meanwhile.
        let found = existing(fs::symlink_metadata(&path)).map_err(|error| StateFileError::io(&path, error))?;
        found.map_or(Ok(()), |found| check(&path, &found))?;
    }
    Ok(())
}

/// Creates the folder and its parents for its owner only. Restricts an existing folder of this user. Refuses one that
/// other users can change.
pub fn private_folder(path: &Path) -> Result<(), StateFileError> {
    let failed = |error| StateFileError::io(path, error);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    check_folder(path)?;
    let found = fs::metadata(path).map_err(failed)?;
    let is_ours = found.uid() == nix::unistd::geteuid().as_raw();
    if is_ours && found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Writes a file of mode 0600. A reader sees the old or the new file, even after the
/// failures that `durability` names.
pub(crate) fn replace(path: &Path, bytes: &[u8], durability: StateDurability) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    let is_synced = durability == StateDurability::Full;
    if is_synced {
        file.as_file().sync_all()?;
    }
    file.persist(path)?;
    // The name of the file is in the folder.
    if is_synced { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Writes a file that survives a power failure, and replaces it as a whole.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StateFileError> {
    replace(path, bytes, StateDurability::Full).map_err(|error| StateFileError::io(path, error))
}

/// Writes a value as JSON to a file that survives a power failure, and replaces it as a whole.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), StateFileError> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| StateFileError::Damaged { path: path.to_owned(), reason: error.to_string() })?;
    write_whole(path, &bytes)
}

/// Reads a file. Returns `None` if the file does not exist. Refuses one that other users can change.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, StateFileError> {
    let failed = |error| StateFileError::io(path, error);
    let Some(mut file) = existing(File::open(path)).map_err(failed)? else { return Ok(None) };
    check(path, &file.metadata().map_err(failed)?)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Reads a file with secrets: refuses one that other users can read or change.
pub fn read_secret(path: &Path) -> Result<Option<Vec<u8>>, StateFileError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let mode = fs::metadata(path).map_err(|error| StateFileError::io(path, error))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let problem = format!("has mode {mode:03o}, expected 600: run `chmod 600 {}`", path.display());
        return Err(StateFileError::Unsafe { path: path.to_owned(), problem });
    }
    Ok(Some(bytes))
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
    let failed = |error| StateFileError::io(folder, error);
    let Some(entries) = existing(fs::read_dir(folder)).map_err(failed)? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    Ok(names)
}

/// Opens a lock file, and creates it if it is missing. A lock is released when the last copy of the file is closed. A
/// process that inherits the file therefore holds the lock until it ends.
pub fn lock_file(path: &Path) -> Result<File, StateFileError> {
    let file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path);
    file.map_err(|error| StateFileError::io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn new_and_open_folders_become_private() {
        let above = tempfile::tempdir().unwrap();
        let [parent, new, open] = ["a", "a/b", "c"].map(|name| above.path().join(name));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        private_folder(&new).unwrap();
        private_folder(&open).unwrap();
        assert_eq!([parent, new, open].map(|path| mode(&path)), [0o700; 3]);
    }

    #[test]
    fn what_other_users_can_change_is_unsafe() {
        for (owner, mode, problem) in [
            (1_000, 0o100_600, None),
            (1_000, 0o040_755, None),
            // Root can change everything.
            (0, 0o100_644, None),
            (0, 0o100_666, Some("has mode 666, so other users can change it")),
            (1_000, 0o040_770, Some("has mode 770, so other users can change it")),
            (4_000_000_001, 0o100_600, Some("belongs to the user with uid 4000000001; expected ")),
        ] {
            let found = unsafe_owner(Path::new("keys.json"), owner, mode, 1_000);
            let fits = found.as_deref().zip(problem).is_some_and(|(found, problem)| found.starts_with(problem));
            assert!(fits || (found.is_none() && problem.is_none()), "{owner} {mode:o}: {found:?}");
        }
    }

    #[test]
    fn a_file_or_folder_that_others_can_write_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let (folder, file) = (above.path().join("a"), above.path().join("a/keys.json"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "{}").unwrap();
        let open = |path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        open(&folder, 0o777);
        assert!(matches!(private_folder(&folder), Err(StateFileError::Unsafe { .. })));
        assert_eq!(mode(&folder), 0o777, "the folder is not changed");
        open(&folder, 0o755);
        open(&file, 0o666);
        assert!(matches!(read(&file), Err(StateFileError::Unsafe { .. })));
        assert!(matches!(check_entries(&folder), Err(StateFileError::Unsafe { .. })));
        open(&file, 0o644);
        assert_eq!(read(&file).unwrap().unwrap(), b"{}");
        check_entries(&folder).unwrap();
    }
}
