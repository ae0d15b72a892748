//! The secrets that sources name, in the file `secrets.json` of the state folder.

use std::path::{Path, PathBuf};

use ebb_protocol::named_secrets::{NamedSecrets, SecretReader, SecretText};

use crate::files;

/// Reads the file at each use, so that a changed secret needs no restart. Rejects a file that other users can read.
#[derive(Debug)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    pub fn of(state: &Path) -> Self {
        Self(state.join("secrets.json"))
    }

    /// Returns all secrets, or none if the file does not exist.
    ///
    /// # Errors
    /// Returns a text for operators. It contains no value.
    pub(crate) fn read(&self) -> Result<NamedSecrets, String> {
        let path = self.0.display();
        let Some(json) = files::read_secret(&self.0).map_err(|error| error.to_string())? else {
            return Ok(NamedSecrets::default());
        };
        NamedSecrets::parse(&json).map_err(|reason| format!("{path}: {reason}"))
    }
}

impl SecretReader for SecretFile {
    fn secret(&self, name: &str) -> Result<Option<SecretText>, String> {
        self.read()?.secret(name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_a_private_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = SecretFile::of(folder.path());
        assert!(file.secret("A").unwrap().is_none());
        fs::write(&file.0, r#"{"A": "canary"}"#).unwrap();
        for mode in [0o640, 0o604, 0o644, 0o660] {
            fs::set_permissions(&file.0, Permissions::from_mode(mode)).unwrap();
            let reason = file.secret("A").unwrap_err();
            assert!(reason.contains("run `chmod ") && !reason.contains("canary"), "{reason}");
        }
        fs::set_permissions(&file.0, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(file.secret("A").unwrap().unwrap().as_str(), "canary");
    }
}
