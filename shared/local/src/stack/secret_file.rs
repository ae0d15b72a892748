//! The secrets that sources name, in the file `secrets.json` of the state folder.

use std::path::PathBuf;

use ebb_protocol::named_secrets::{NamedSecrets, SecretReader, SecretText};

use crate::files;

/// Reads the file at each use, so that a changed secret needs no restart.
#[derive(Debug)]
pub(crate) struct SecretFile(pub(crate) PathBuf);

impl SecretReader for SecretFile {
    fn secret(&self, name: &str) -> Result<Option<SecretText>, String> {
        let Some(json) = files::read(&self.0).map_err(|error| error.to_string())? else { return Ok(None) };
        let secrets = NamedSecrets::parse(&json).map_err(|reason| format!("{}: {reason}", self.0.display()))?;
        secrets.secret(name)
    }
}
