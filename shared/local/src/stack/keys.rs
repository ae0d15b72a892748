//! Secrets and the address of a stack, kept in its folder for the owner alone.

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

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is not what we write.
    #[error("{} is damaged ({reason}): remove it to have it made anew", path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// Held as long as a stack uses its folder.
pub(crate) type FolderLock = Flock<File>;

/// A process that was just killed holds its lock until the kernel has closed its files.
const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Makes the folder and locks it, within [`LOCK_WAIT`]. The folder itself is locked: a lock file could be removed while it
/// is held.
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

/// The secrets of a stack: made once, kept in `keys.json`.
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
                let kept = Self::make();
                write_private(&path, &kept)?;
                Ok(kept)
            }
            Err(source) => Err(KeysError::Io { path, source }),
        }
    }

    fn make() -> Self {
        let secret = || format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>()));
        Self {
            webhook_secret: secret(),
            platform_secret: secret(),
            unit_secret: secret(),
            token_key: format!("local:{}", STANDARD.encode(rand::random::<[u8; 32]>())),
            api_token: URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()),
        }
    }

    /// Names this state folder to relays, wherever it lies: a digest of a key of 256 bits, which says nothing of the key.
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

/// What a client needs to reach a stack; kept in `server.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackConnection {
    pub url: String,
    pub token: String,
    pub webhook_secret: String,
    /// Signs notifications: what the platform verifies them with.
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
    /// The address that the last stack of a folder had, or `None` if there was none.
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

/// Replaces a file whole, readable for its owner alone.
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
