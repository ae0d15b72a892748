//! Named API tokens, `ebbt_ID_SECRET`, and the scopes of callers.
//!
//! The secret has 256 random bits, so its digest can be stored without a salt.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::id::{digest, short_digest};
use crate::source_signature::same;

/// The beginning of every named token. Scanners for leaked secrets can search for it.
pub const PREFIX: &str = "ebbt_";
const ID_LENGTH: usize = 16;
/// The maximum number of characters of the name of a token.
pub const MAX_NAME: usize = 63;
const MAX_PLUGIN_NAME: usize = 253;
/// The maximum number of bytes of a label in a scope, `KEY=VALUE`. It has no white space.
const MAX_LABEL: usize = 256;

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
    Zeroizing::new(format!("{PREFIX}{}_{}", token_id(name), random_text(random).as_str()))
}

/// Returns 256 random bits as 43 characters of `A-Z a-z 0-9 _ -`.
pub(crate) fn random_text(random: [u64; 4]) -> Zeroizing<String> {
    Zeroizing::new(URL_SAFE_NO_PAD.encode(Zeroizing::new(random.map(u64::to_be_bytes).concat()).as_slice()))
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

/// The targets to which a scope is limited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetLimit {
    /// Every target.
    All,
    /// The targets that the caller owns.
    Own,
    /// The targets with this label.
    Label { name: String, value: String },
}

impl TargetLimit {
    /// Parses the rest of a scope: an empty text, `:own` or `:label:KEY=VALUE`.
    fn parse(rest: &str) -> Option<Self> {
        match rest {
            "" => Some(Self::All),
            ":own" => Some(Self::Own),
            _ => {
                let label = rest.strip_prefix(":label:")?;
                let (name, value) = label.split_once('=').filter(|(name, _)| !name.is_empty())?;
                let is_plain = crate::limits::clean(label, MAX_LABEL) == label && !label.contains(char::is_whitespace);
                is_plain.then(|| Self::Label { name: name.to_owned(), value: value.to_owned() })
            }
        }
    }

    /// Returns true if the limit covers a target with this owner and these labels, for the caller of this name.
    fn covers(&self, caller: &str, owner: Option<&str>, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::All => true,
            Self::Own => owner == Some(caller),
            Self::Label { name, value } => labels.get(name) == Some(value),
        }
    }
}

impl fmt::Display for TargetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Own => f.write_str(":own"),
            Self::Label { name, value } => write!(f, ":label:{name}={value}"),
        }
    }
}

/// A caller, and the targets for which it has a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAccess {
    /// The verified name of the caller. It owns what it creates.
    pub caller: String,
    /// A target that one of the limits covers is permitted.
    pub limits: Vec<TargetLimit>,
}

impl TargetAccess {
    /// Returns false for access to every target.
    pub fn is_limited(&self) -> bool {
        !self.limits.contains(&TargetLimit::All)
    }

    /// Describes the targets: `its own targets or targets with the label team=x`.
    pub fn description(&self) -> String {
        let of = |limit: &TargetLimit| match limit {
            TargetLimit::All => "every target".to_owned(),
            TargetLimit::Own => "its own targets".to_owned(),
            TargetLimit::Label { name, value } => format!("targets with the label {name}={value}"),
        };
        let all: Vec<String> = self.limits.iter().map(of).collect();
        if all.is_empty() { "no target".to_owned() } else { all.join(" or ") }
    }

    /// Returns true if the caller has the permission for a target with this owner and these labels.
    pub fn covers(&self, owner: Option<&str>, labels: &BTreeMap<String, String>) -> bool {
        self.limits.iter().any(|limit| limit.covers(&self.caller, owner, labels))
    }
}

/// The requests that a caller may send.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenScope {
    /// Reads targets, runs, logs and outputs. Reads all plugins, and previews plans.
    Read(TargetLimit),
    /// Creates, updates, retries and deletes targets.
    TargetsWrite(TargetLimit),
    /// Reads the sensitive outputs of targets that Ebb stores. A request also needs [`Self::Read`].
    TargetsReveal(TargetLimit),
    /// Reads plugins, and publishes and withdraws those of one name, or all. Without a name, it also reads sources,
    /// connections and subscriptions.
    PluginsWrite(Option<String>),
    /// Reads, creates and deletes sources.
    SourcesWrite,
    /// Has every permission.
    Operate,
}

const READ: &str = "read";
const TARGETS_WRITE: &str = "targets:write";
const TARGETS_REVEAL: &str = "targets:reveal";
const PLUGINS_WRITE: &str = "plugins:write";

/// The error of an unknown scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scope {0:?}; expected read, targets:write or targets:reveal, each also with :own or :label:KEY=VALUE, \
     plugins:write, plugins:write:NAME with the name of one plugin, sources:write or operate"
)]
pub struct ScopeError(String);

impl FromStr for TokenScope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let limited = |scope: &str| TargetLimit::parse(text.strip_prefix(scope)?);
        let plugin = || text.strip_prefix(PLUGINS_WRITE)?.strip_prefix(':').filter(|name| is_plugin_name(name));
        let found = match text {
            PLUGINS_WRITE => Some(Self::PluginsWrite(None)),
            "sources:write" => Some(Self::SourcesWrite),
            "operate" => Some(Self::Operate),
            _ => limited(READ)
                .map(Self::Read)
                .or_else(|| limited(TARGETS_WRITE).map(Self::TargetsWrite))
                .or_else(|| limited(TARGETS_REVEAL).map(Self::TargetsReveal))
                .or_else(|| plugin().map(|name| Self::PluginsWrite(Some(name.to_owned())))),
        };
        found.ok_or_else(|| ScopeError(crate::limits::clean(text, crate::limits::REFUSAL)))
    }
}

/// Returns true if a plugin can have the name, without a version. No other scope of a name would permit anything, except
/// that of `_target`, which would give the secret of all own units of targets. `own` is meant as the limit of other scopes.
fn is_plugin_name(name: &str) -> bool {
    name != "own"
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !name.ends_with('-')
        && name.len() <= MAX_PLUGIN_NAME
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(limit) => write!(f, "{READ}{limit}"),
            Self::TargetsWrite(limit) => write!(f, "{TARGETS_WRITE}{limit}"),
            Self::TargetsReveal(limit) => write!(f, "{TARGETS_REVEAL}{limit}"),
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
    use crate::tests::rows;

    #[test]
    fn a_token_has_the_id_of_its_name() {
        let token = issue("ci", [1, 2, 3, u64::MAX]);
        assert_eq!(id_of(&token), Some(token_id("ci").as_str()));
        assert_eq!(token.len(), "ebbt_".len() + ID_LENGTH + 1 + 43);
        let digest = token_digest(&token);
        assert!(has_digest(&token, &digest) && !has_digest(&issue("ci", [1, 2, 3, 4]), &digest));
        for text in rows::<String>("texts_that_are_no_tokens") {
            assert_eq!(id_of(&text), None, "{text}");
        }
    }

    #[test]
    fn a_limit_covers_own_or_labelled_targets() {
        let label = |name: &str, value: &str| TargetLimit::Label { name: name.to_owned(), value: value.to_owned() };
        let labels = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
        let covers = |limits: &[TargetLimit], owner: Option<&str>| {
            TargetAccess { caller: "token a".to_owned(), limits: limits.to_vec() }.covers(owner, &labels)
        };
        for owner in [None, Some("token a"), Some("token b"), Some("token aa"), Some("")] {
            let is_own = owner == Some("token a");
            assert!(covers(&[TargetLimit::All], owner) && !covers(&[], owner));
            assert_eq!(covers(&[TargetLimit::Own], owner), is_own);
            assert!(covers(&[TargetLimit::Own, label("team", "x")], owner));
            for other in [label("team", "y"), label("team", ""), label("tea", "x"), label("", "")] {
                assert!(!covers(std::slice::from_ref(&other), owner), "{other:?}");
                assert_eq!(covers(&[other, TargetLimit::Own], owner), is_own);
            }
        }
    }

    #[test]
    fn scopes_are_parsed_and_printed() {
        for text in rows::<String>("scopes_are_parsed_and_printed") {
            assert_eq!(text.parse::<TokenScope>().unwrap().to_string(), text);
        }
        let long = format!("read:label:a={}", "x".repeat(MAX_LABEL - 1));
        let long_name = format!("plugins:write:{}", "a".repeat(254));
        for text in rows::<String>("texts_that_are_no_scopes").into_iter().chain([long, long_name]) {
            assert!(text.parse::<TokenScope>().is_err(), "{text}");
        }
    }
}
