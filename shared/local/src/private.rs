//! Folders that only their owner can enter.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

const OWNER_ALONE: u32 = 0o700;

/// Creates the folder and its parents for its owner only. Restricts an existing folder of this user.
///
/// # Errors
/// The folder can be neither created nor restricted.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(OWNER_ALONE).create(path)?;
    let found = fs::metadata(path)?;
    let is_ours = found.uid() == nix::unistd::geteuid().as_raw();
    if is_ours && found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(OWNER_ALONE))?;
    }
    Ok(())
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
        folder(&path).unwrap();
        assert_eq!([mode(&path), mode(&above.path().join("a"))], [0o700, 0o700]);
    }

    #[test]
    fn an_open_folder_is_restricted() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        folder(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }
}
