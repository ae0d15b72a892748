//! The logins of this person: one file with a token for each server. A token goes to no other server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_local::files::{self, StateFileError};
use serde::{Deserialize, Serialize};

use crate::{CliError, Result, output, timing};

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredLogin {
    pub(crate) token: String,
    /// The identity, for people.
    pub(crate) person: String,
    /// The latest end. The server ends a login before if it is unused.
    pub(crate) expires: String,
}

impl StoredLogin {
    /// Returns the time until the latest end.
    pub(crate) fn rest(&self) -> Duration {
        timing::until(&self.expires, timing::now()).unwrap_or_default()
    }
}

/// Logins by the names of their servers.
pub(crate) type Logins = BTreeMap<String, StoredLogin>;

fn unusable(error: &StateFileError) -> CliError {
    CliError::broken("cannot use the file of logins").with_causes(error)
}

fn path() -> PathBuf {
    // The specification of the variable ignores a relative path.
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = configured.or_else(|| Some(std::env::home_dir()?.join(".config")));
    folder.unwrap_or(PathBuf::from("/")).join("ebb/logins.json")
}

fn read(file: &Path) -> Result<Logins, StateFileError> {
    let bytes = files::read_secret(file)?;
    // The text of the parser could contain a part of a token.
    let reason = "expected the logins of `ebb login`: remove the file, and sign in again".to_owned();
    serde_json::from_slice(bytes.as_deref().unwrap_or(b"{}"))
        .map_err(|_| StateFileError::Damaged { path: file.to_owned(), reason })
}

/// Returns the login at the server with a name, if there is one.
///
/// # Errors
/// Returns an error for a file that cannot be used. If the server `has_token` without a login, it is one only for a file that
/// other users can read or change.
pub(crate) fn find(server: &str, has_token: bool) -> Result<Option<StoredLogin>> {
    match read(&path()) {
        Ok(mut logins) => Ok(logins.remove(server)),
        Err(error) if has_token && !matches!(error, StateFileError::Unsafe { .. }) => {
            output::status_line(&format!("warning: no login is used: {error}"));
            Ok(None)
        }
        Err(error) => Err(unusable(&error)),
    }
}

pub(crate) fn all() -> Result<Logins> {
    read(&path()).map_err(|error| unusable(&error))
}

/// Stores or removes the login at a server. Returns the former one. Logins that have ended are removed, too.
pub(crate) fn change(server: &str, login: Option<StoredLogin>) -> Result<Option<StoredLogin>> {
    let changed = || {
        let file = path();
        files::private_folder(file.parent().unwrap_or(Path::new("/")))?;
        // Another command can change the file at the same time.
        let path = file.with_extension("lock");
        let lock = files::lock_file(&path)?;
        lock.lock().map_err(|source| StateFileError::Io { path, source })?;
        let mut logins = read(&file)?;
        let former = logins.remove(server);
        logins.retain(|_, login| !login.rest().is_zero());
        logins.extend(login.map(|login| (server.to_owned(), login)));
        files::write_json(&file, &logins).map(|()| former)
    };
    changed().map_err(|error| unusable(&error))
}
