//! Secrets and address of a stack, in files that only their owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_protocol::sign::WebhookKeys;
use ebb_protocol::token::TokenKeys;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::StackError;

/// The error of `keys.json` or `server.json`.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file does not have the format that this program writes.
    #[error("cannot read {}: {reason}. Restore the file, or remove it to create a new one; new keys invalidate the callbacks of running units", path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// The lock of a state folder, held while a stack uses it.
pub(crate) type FolderLock = Flock<File>;

/// The wait for a lock. A killed process holds its lock until the kernel has closed its files.
const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Creates and locks the state folder. Waits up to [`LOCK_WAIT`].
///
/// The folder itself is locked, because a lock file could be removed while it is held.
pub(crate) async fn lock(state: &Path) -> Result<FolderLock, StackError> {
    let failed = |source| KeysError::Io { path: state.to_owned(), source };
    crate::private::folder(state).map_err(failed)?;
    let mut folder = File::open(state).map_err(failed)?;
    let begun = Instant::now();
    loop {
        folder = match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err(_) if begun.elapsed() >= LOCK_WAIT => return Err(StackError::InUse(state.to_owned())),
            Err((folder, _)) => folder,
        };
        tokio::time::sleep(LOCK_INTERVAL).await;
    }
}

/// The secrets of a stack, created once and stored in `keys.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StackKeys {
    webhook_secret: String,
    platform_secret: String,
    unit_secret: String,
    token_key: String,
    api_token: String,
}

impl StackKeys {
    pub(crate) fn open(state: &Path) -> Result<Self, KeysError> {
        let path = state.join("keys.json");
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| KeysError::Damaged { path, reason: error.to_string() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let keys = Self::generate();
                write_private(&path, &keys)?;
                Ok(keys)
            }
            Err(source) => Err(KeysError::Io { path, source }),
        }
    }

    fn generate() -> Self {
        let secret = || format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>()));
        Self {
            webhook_secret: secret(),
            platform_secret: secret(),
            unit_secret: secret(),
            token_key: format!("local:{}", STANDARD.encode(rand::random::<[u8; 32]>())),
            api_token: URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()),
        }
    }

    /// Returns the id of this state folder for relays: a digest of a 256-bit key, independent of the folder's path.
    pub(crate) fn installation(&self) -> String {
        ebb_protocol::id::installation(&[&self.token_key])
    }

    pub(crate) fn webhook_keys(&self) -> Result<WebhookKeys, KeysError> {
        WebhookKeys::parse(&self.webhook_secret).map_err(damaged)
    }

    pub(crate) fn platform_keys(&self) -> Result<WebhookKeys, KeysError> {
        WebhookKeys::parse(&self.platform_secret).map_err(damaged)
    }

    pub(crate) fn unit_keys(&self) -> Result<WebhookKeys, KeysError> {
        WebhookKeys::parse(&self.unit_secret).map_err(damaged)
    }

    pub(crate) fn token_keys(&self) -> Result<TokenKeys, KeysError> {
        TokenKeys::parse(&self.token_key).map_err(damaged)
    }

    pub(crate) fn connection(&self, url: &str, s3: &str) -> StackConnection {
        StackConnection {
            url: url.to_owned(),
            token: self.api_token.clone(),
            webhook_secret: self.webhook_secret.clone(),
            platform_secret: Some(self.platform_secret.clone()),
            s3: Some(s3.to_owned()),
        }
    }
}

fn damaged<E: std::fmt::Display>(error: E) -> KeysError {
    KeysError::Damaged { path: PathBuf::from("keys.json"), reason: error.to_string() }
}

/// The address and the credentials of a stack, stored in `server.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackConnection {
    pub url: String,
    pub token: String,
    pub webhook_secret: String,
    /// The secret with which the platform verifies notifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<String>,
}

impl std::fmt::Debug for StackConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl StackConnection {
    /// Reads the connection of the last stack; `None` if there was none.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn read(state: &Path) -> Result<Option<Self>, KeysError> {
        let path = state.join("server.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| KeysError::Damaged { path, reason: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(KeysError::Io { path, source }),
        }
    }

    pub(crate) fn write(&self, state: &Path) -> Result<(), KeysError> {
        write_private(&state.join("server.json"), self)
    }

    pub(crate) fn port(&self) -> Option<u16> {
        port(&self.url)
    }

    pub(crate) fn s3_port(&self) -> Option<u16> {
        port(self.s3.as_deref()?)
    }
}

fn port(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.parse().ok()
}

/// Replaces a file atomically. Only the owner can read it.
fn write_private<T: Serialize>(path: &Path, value: &T) -> Result<(), KeysError> {
    let failed = |source| KeysError::Io { path: path.to_owned(), source };
    let damaged = |error: serde_json::Error| KeysError::Damaged { path: path.to_owned(), reason: error.to_string() };
    let text = serde_json::to_string_pretty(value).map_err(damaged)?;
    let partial = path.with_extension("partial");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&partial).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&partial, path).map_err(failed)
}
