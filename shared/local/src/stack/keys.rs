//! Secrets and address of a stack, in files that only their owner can read.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_protocol::sign::WebhookKeys;
use serde::{Deserialize, Serialize};

use super::stack_error::StackError;
use crate::files::{self, StateFileError};

/// The wait for a lock. A killed process holds its lock until the kernel has closed its files.
const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Creates and locks the state folder. Waits up to [`LOCK_WAIT`]. Refuses a folder that another user can change, because
/// its table has plugins, which this user would run. The lock is held until the file is closed.
///
/// The folder itself is locked, because a lock file could be removed while it is held.
pub(crate) async fn lock(state: &Path) -> Result<StateLock, StackError> {
    let begun = Instant::now();
    loop {
        match try_lock(state) {
            Ok(Some(lock)) => {
                files::check_entries(state)?;
                return Ok(lock);
            }
            _ if begun.elapsed() >= LOCK_WAIT => return Err(StackError::InUse(state.to_owned())),
            Ok(None) => {}
            // `StateLock::remove` has renamed it meanwhile.
            Err(StateFileError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOCK_INTERVAL).await;
    }
}

/// Returns `None` if another program has the lock, or the folder was replaced meanwhile.
fn try_lock(state: &Path) -> Result<Option<StateLock>, StateFileError> {
    files::private_folder(state)?;
    let io = |error| StateFileError::io(state, error);
    let folder = File::open(state).map_err(io)?;
    let is_locked = folder.try_lock().is_ok();
    let [own, present] = [folder.metadata(), std::fs::metadata(state)].map(|found| found.map_err(io));
    let id = |found: Metadata| (found.dev(), found.ino());
    Ok((is_locked && id(own?) == id(present?)).then_some(StateLock(folder)))
}

/// The lock of a state folder. It ends when this is dropped.
#[derive(Debug)]
pub struct StateLock(File);

impl StateLock {
    /// Removes the locked folder `state`. A program that waits for its lock makes a new one.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be renamed or a file cannot be removed.
    pub fn remove(self, state: &Path) -> std::io::Result<()> {
        let name = state.file_name().unwrap_or_default().to_string_lossy();
        let removed = state.with_file_name(format!("{name}.removed-{}", std::process::id()));
        std::fs::rename(state, &removed)?;
        drop(self.0);
        std::fs::remove_dir_all(removed)
    }
}

/// The secrets of a stack, created once and stored in `keys.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StackKeys {
    webhook_secret: String,
    platform_secret: String,
    unit_secret: String,
    token_secret: String,
    api_token: String,
}

impl StackKeys {
    pub(crate) fn open(state: &Path) -> Result<Self, StateFileError> {
        let path = state.join("keys.json");
        if let Some(keys) = files::read_json(&path).map_err(damaged)? {
            return Ok(keys);
        }
        let [webhook_secret, platform_secret, unit_secret, token_secret] =
            std::array::from_fn(|_| format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())));
        let api_token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let keys = Self { webhook_secret, platform_secret, unit_secret, token_secret, api_token };
        files::write_json(&path, &keys)?;
        Ok(keys)
    }

    /// Returns the id of this state folder for relays: a digest of a 256-bit key, independent of the folder's path.
    pub(crate) fn installation(&self) -> String {
        ebb_protocol::id::installation(&[&self.token_secret])
    }

    /// Returns the keys of lifecycle webhooks, of notifications, of webhooks to units and of callback tokens.
    pub(crate) fn signing_keys(&self) -> Result<[WebhookKeys; 4], StateFileError> {
        let invalid = |reason: String| damaged(StateFileError::Damaged { path: "keys.json".into(), reason });
        let parse = |secret: &String| WebhookKeys::parse(secret).map_err(|error| invalid(error.to_string()));
        let secrets = [&self.webhook_secret, &self.platform_secret, &self.unit_secret, &self.token_secret];
        let [webhook, platform, unit, token] = secrets.map(parse);
        Ok([webhook?, platform?, unit?, token?])
    }

    pub(crate) fn connection(&self, url: &str, s3: &str) -> StackConnection {
        StackConnection {
            url: url.to_owned(),
            token: self.api_token.clone(),
            webhook_secret: self.webhook_secret.clone(),
            platform_secret: self.platform_secret.clone(),
            s3: s3.to_owned(),
        }
    }
}

/// Adds the fix to the error of a damaged file.
fn damaged(error: StateFileError) -> StateFileError {
    let StateFileError::Damaged { path, reason } = error else { return error };
    let fix = "Restore the file, or remove it to create a new one; new keys invalidate the callbacks of running units";
    StateFileError::Damaged { path, reason: format!("{reason}. {fix}") }
}

/// The address and the credentials of a stack, stored in `server.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackConnection {
    pub url: String,
    pub token: String,
    pub webhook_secret: String,
    /// The secret with which the platform verifies notifications.
    pub platform_secret: String,
    /// The URL of the S3 endpoint, without a slash at the end.
    pub s3: String,
}

impl std::fmt::Debug for StackConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl StackConnection {
    /// Reads the connection of the last stack. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns [`StateFileError`] if the file cannot be read, or if another user can change it or the folder.
    pub fn read(state: &Path) -> Result<Option<Self>, StateFileError> {
        files::check_folder(state)?;
        files::read_json(&state.join("server.json"))
    }

    pub(crate) fn write(&self, state: &Path) -> Result<(), StateFileError> {
        files::write_json(&state.join("server.json"), self)
    }
}

pub(crate) fn port(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The program that waits has another folder, with none of the files that are removed.
    #[tokio::test]
    async fn a_removed_state_is_not_that_of_the_next_program() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.d");
        let first = lock(&state).await.unwrap();
        fs::write(state.join("keys.json"), "{}").unwrap();
        let (second, removed) = tokio::join!(lock(&state), async { first.remove(&state) });
        removed.unwrap();
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        assert!(matches!(lock(&state).await, Err(StackError::InUse(_))), "{second:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Only root can give a file to another user.
    #[tokio::test]
    async fn the_state_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join(".ebb");
        drop(lock(&state).await.unwrap());
        StackKeys::open(&state).unwrap().connection("http://127.0.0.1:1", "http://127.0.0.1:2").write(&state).unwrap();
        assert!(StackConnection::read(&state).unwrap().is_some());
        let is_refused = async || {
            let locked = lock(&state).await;
            assert!(matches!(locked, Err(StackError::File(StateFileError::Unsafe { .. }))), "{locked:?}");
        };
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(state.join("keys.json"), Some(65_534), None).unwrap();
            assert!(matches!(StackKeys::open(&state), Err(StateFileError::Unsafe { .. })));
            is_refused().await;
            std::os::unix::fs::chown(state.join("keys.json"), Some(0), None).unwrap();
            std::os::unix::fs::chown(&state, Some(65_534), None).unwrap();
            assert!(matches!(StackConnection::read(&state), Err(StateFileError::Unsafe { .. })));
            is_refused().await;
            std::os::unix::fs::chown(&state, Some(0), None).unwrap();
        }
        fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(StackConnection::read(&state), Err(StateFileError::Unsafe { .. })));
        is_refused().await;
    }
}
