//! Names of stored things.

use std::fmt;

use ebb_engine::Hook;
use serde::{Deserialize, Serialize};

/// One run: derived from the target's instance and the hook, so that starting it twice is starting it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// Text that is no run id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a run id: expected INSTANCE-GENERATION-HOOK in lower case, such as k3j2h4q5w6e7r8t9-1-pre-start")]
pub struct RunIdError(String);

const HOOKS: [(Hook, &str, &str); 4] = [
    (Hook::PreStart, "pre-start", "preStart"),
    (Hook::PostStart, "post-start", "postStart"),
    (Hook::PreStop, "pre-stop", "preStop"),
    (Hook::PostStop, "post-stop", "postStop"),
];

/// The hook's name in documents: `preStart`, `postStart`, `preStop`, `postStop`.
pub fn hook_name(hook: Hook) -> &'static str {
    HOOKS.iter().find(|row| row.0 == hook).map_or("", |row| row.2)
}

/// The hook of a name as documents have it.
pub fn hook_named(name: &str) -> Option<Hook> {
    HOOKS.iter().find(|row| row.2 == name).map(|row| row.0)
}

impl RunId {
    /// The run of a hook. `instance_key` is what [`instance_key`] gives.
    pub fn new(instance_key: &str, generation: u64, hook: Hook) -> Self {
        let name = HOOKS.iter().find(|row| row.0 == hook).map_or("", |row| row.1);
        Self(format!("{instance_key}-{generation}-{name}"))
    }

    /// The run of another hook of the same instance and generation.
    pub fn sibling(&self, hook: Hook) -> Self {
        match self.parts() {
            Some((instance_key, generation, _)) => Self::new(instance_key, generation, hook),
            None => self.clone(),
        }
    }

    /// The hook that it is the run of.
    pub fn hook(&self) -> Hook {
        self.parts().map_or(Hook::PreStart, |(_, _, hook)| hook)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> Option<(&str, u64, Hook)> {
        let (key, rest) = self.0.split_once('-')?;
        let (generation, name) = rest.split_once('-')?;
        let hook = HOOKS.iter().find(|row| row.1 == name)?.0;
        let plain = !key.is_empty() && key.len() <= 32;
        let plain = plain && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if plain { Some((key, generation.parse().ok()?, hook)) } else { None }
    }
}

impl TryFrom<String> for RunId {
    type Error = RunIdError;

    fn try_from(text: String) -> Result<Self, RunIdError> {
        let id = Self(text);
        if id.parts().is_some() { Ok(id) } else { Err(RunIdError(id.0)) }
    }
}

impl std::str::FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, RunIdError> {
        Self::try_from(text.to_owned())
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A short name of one life of a target: 16 characters of `[a-z2-7]`, the same for the same kind, name and uid. What
/// scripts see as `EBB_KEY` is made from it.
pub fn instance_key(kind: &str, name: &str, uid: &str) -> String {
    short_digest(&[kind, name, uid], 16)
}

/// The first `length` characters of the digest of `parts` in base 32, lower case. No two lists of parts are mixed up.
pub fn short_digest(parts: &[&str], length: usize) -> String {
    use sha2::{Digest as _, Sha256};
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    // Five bits of each byte are enough: 32 bytes give up to 32 characters.
    digest.finalize().iter().take(length).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

/// Returns the name of an installation, made of what stays the same as long as it exists.
pub fn installation(parts: &[&str]) -> String {
    const LENGTH: usize = 16;
    short_digest(parts, LENGTH)
}

/// A full digest as `sha256:HEX`.
pub fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Characters of a [`unit_key`] at most.
pub const MAX_UNIT_KEY: usize = 36;

/// What scripts see as `EBB_KEY`: `[a-z][a-z0-9]*`, at most [`MAX_UNIT_KEY`] characters, and so a name for a database,
/// a DNS label, a piece of a bucket's name. Begins with what fits of the resource's and the unit's name, ends with 16
/// characters of digest, which alone tell keys apart. `instance_key` is what [`instance_key`] gives, hence one key per target,
/// resource and unit, the same for every try.
pub fn unit_key(life: &str, resource: &str, unit: &str) -> String {
    const DIGEST: usize = 16;
    let named = resource.bytes().chain(unit.bytes()).map(|byte| byte.to_ascii_lowercase());
    // A name beginning with a digit would be quoted in SQL: the key starts at the first letter.
    let named = named.filter(u8::is_ascii_alphanumeric).skip_while(u8::is_ascii_digit);
    let mut key: String = named.take(MAX_UNIT_KEY - DIGEST).map(char::from).collect();
    if key.is_empty() {
        key.push('u');
    }
    key.push_str(&short_digest(&["unit key", life, resource, unit], DIGEST));
    key
}
