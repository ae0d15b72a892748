//! Named API tokens, `ebbt_ID_SECRET`, and the scopes of callers.
//!
//! The secret has 256 random bits, so its digest can be stored without a salt.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::id::{digest, short_digest};
use crate::source_signature::same;

/// The beginning of every named token. Scanners for leaked secrets can search for it.
pub const PREFIX: &str = "ebbt_";
/// The number of characters of an id.
const ID_LENGTH: usize = 16;
/// The maximum number of characters of the name of a token.
pub const MAX_NAME: usize = 63;
/// The maximum number of characters of the name of a plugin.
const MAX_PLUGIN_NAME: usize = 253;

/// Returns the id of the token with a name.
pub fn token_id(name: &str) -> String {
    short_digest(&["api-token", name], ID_LENGTH)
}

/// Returns the id in a named token, or `None` for other texts.
pub fn id_of(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let is_id = id.len() == ID_LENGTH && id.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'));
    (is_id && !secret.is_empty()).then_some(id)
}

/// Returns the token of a name with a secret of 256 random bits.
pub fn issue(name: &str, random: [u64; 4]) -> Zeroizing<String> {
    let bytes = Zeroizing::new(random.map(u64::to_be_bytes).concat());
    let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice()));
    Zeroizing::new(format!("{PREFIX}{}_{}", token_id(name), secret.as_str()))
}

/// Returns the digest of a token that is stored.
pub fn token_digest(token: &str) -> String {
    digest(token.as_bytes())
}

/// Returns true if a token has a digest. The time of the comparison does not depend on the digests.
pub fn has_digest(token: &str, expected: &str) -> bool {
    same(expected, token_digest(token))
}

/// Checks the name of a token: letters, digits, `-`, `_` and `.`, at most [`MAX_NAME`].
///
/// # Errors
/// Returns the expected form.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_allowed) && !matches!(name, "." | "..") {
        true => Ok(()),
        false => Err(format!("the name is invalid; expected letters, digits, `-`, `_` and `.`, at most {MAX_NAME}")),
    }
}

/// The requests that a caller may send.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenScope {
    /// Reads targets, runs, logs, outputs and plugins, and previews plans.
    Read,
    /// Creates, updates, retries and deletes targets.
    TargetsWrite,
    /// Reads the sensitive outputs of targets that Ebb stores. A request also needs [`Self::Read`].
    TargetsReveal,
    /// Reads plugins, and publishes and withdraws those of one name, or all. Without a name, it also reads sources,
    /// connections and subscriptions.
    PluginsWrite(Option<String>),
    /// Reads, creates and deletes sources.
    SourcesWrite,
    /// Has every permission.
    Operate,
}

const PLUGINS_WRITE: &str = "plugins:write";

/// The error of an unknown scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scope {0:?}; expected read, targets:write, targets:reveal, plugins:write, plugins:write:NAME with the name \
     of one plugin, sources:write or operate"
)]
pub struct ScopeError(String);

impl FromStr for TokenScope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let plugin = || text.strip_prefix(PLUGINS_WRITE)?.strip_prefix(':').filter(|name| is_plugin_name(name));
        match text {
            "read" => Ok(Self::Read),
            "targets:write" => Ok(Self::TargetsWrite),
            "targets:reveal" => Ok(Self::TargetsReveal),
            PLUGINS_WRITE => Ok(Self::PluginsWrite(None)),
            "sources:write" => Ok(Self::SourcesWrite),
            "operate" => Ok(Self::Operate),
            _ => match plugin() {
                Some(name) => Ok(Self::PluginsWrite(Some(name.to_owned()))),
                None => Err(ScopeError(crate::limits::clean(text, crate::limits::REFUSAL))),
            },
        }
    }
}

/// Returns true if a plugin can have the name, without a version. No other scope of a name would permit anything, except
/// that of `_target`, which would give the secret of all own units of targets.
fn is_plugin_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !name.ends_with('-')
        && name.len() <= MAX_PLUGIN_NAME
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::TargetsWrite => f.write_str("targets:write"),
            Self::TargetsReveal => f.write_str("targets:reveal"),
            Self::PluginsWrite(None) => f.write_str(PLUGINS_WRITE),
            Self::PluginsWrite(Some(name)) => write!(f, "{PLUGINS_WRITE}:{name}"),
            Self::SourcesWrite => f.write_str("sources:write"),
            Self::Operate => f.write_str("operate"),
        }
    }
}

/// Parses scopes.
///
/// # Errors
/// Returns the first unknown scope.
pub fn parse_scopes<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<TokenScope>, ScopeError> {
    texts.into_iter().map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_id_of_its_name() {
        let token = issue("ci", [1, 2, 3, u64::MAX]);
        assert_eq!(id_of(&token), Some(token_id("ci").as_str()));
        assert_eq!(token.len(), "ebbt_".len() + ID_LENGTH + 1 + 43);
        let digest = token_digest(&token);
        assert!(has_digest(&token, &digest) && !has_digest(&issue("ci", [1, 2, 3, 4]), &digest));
        for text in
            ["", "ebbt_", "ebbt_abc_x", "ebbt_ABCDEFGHIJKLMNOP_x", "ebbt_aaaaaaaaaaaaaaaa_", "aaaaaaaaaaaaaaaa_x"]
        {
            assert_eq!(id_of(text), None, "{text}");
        }
    }

    #[test]
    fn scopes_are_parsed_and_printed() {
        let own = "plugins:write:tenant-db";
        for text in ["read", "targets:write", "targets:reveal", "plugins:write", own, "sources:write", "operate"] {
            assert_eq!(text.parse::<TokenScope>().unwrap().to_string(), text);
        }
        for text in ["", "Read", "plugins:write:", "plugins", "plugins:writes", "*", "operate "] {
            assert!(text.parse::<TokenScope>().is_err(), "{text}");
        }
        for name in ["*", "a/b", "slow/../any", "_target", "db@1.0.0", "db-", "1db", "a b", &"a".repeat(254)] {
            assert!(format!("plugins:write:{name}").parse::<TokenScope>().is_err(), "{name}");
        }
    }
}
