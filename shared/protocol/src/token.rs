//! Bearer tokens of callbacks. A token permits reports on one attempt until it expires.
//!
//! The format is `ebb1.KEY.KIND.RUN.UNIT.ATTEMPT.EPOCH.EXPIRY.MORE.MAC`, at most [`MAX_TOKEN`] bytes of `A-Z a-z 0-9 .
//! _ -`. The claims are readable. The MAC (HMAC-SHA256) authenticates them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use hmac::Mac as _;
use zeroize::Zeroizing;

use crate::id::{RunId, short_digest};
use crate::sign::hmac_with;

pub const MAX_TOKEN: usize = 256;

/// The first part of every token, covered by the MAC.
const SCHEME: &str = "ebb1";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=64;
const MAX_KEY_ID: usize = 16;
const MAX_KEYS: usize = 8;

/// The holder of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A relay. Only a relay may report outputs that stay in the cluster.
    Relay,
    /// The server of a webhook unit.
    Webhook,
}

impl TokenKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "r",
            Self::Webhook => "w",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    pub run: RunId,
    pub unit: Unit,
    pub attempt: Attempt,
    /// The epoch of the dispatch.
    pub epoch: Epoch,
    /// The time of the expiry.
    pub expiry: Timestamp,
    pub kind: TokenKind,
    /// The number of results that remain after this attempt of an undo. 0 for other units.
    pub remaining_results: u32,
}

/// The error of a token.
///
/// All variants except [`TokenError::Expired`] have the same text and take the same time for texts of one length. They
/// differ only in our own log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is authentic and has expired. A success is still recorded as a late result.
    #[error("the callback token has expired")]
    Expired(TokenClaims),
    #[error("{REFUSED}")]
    Malformed,
    /// The key is unknown or was removed.
    #[error("{REFUSED}")]
    UnknownKey,
    #[error("{REFUSED}")]
    Forged,
}

const REFUSED: &str = "the callback token is not valid: use the one that came with the request, unchanged";

/// The name of a key in tokens: 1 to 16 of `[a-z0-9]`.
#[derive(PartialEq, Eq)]
struct KeyId(String);

/// A text that is not a list of keys. The error does not contain keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenKeyError {
    #[error("no token key is given: expected ID:BASE64 with 32 to 64 random bytes")]
    Missing,
    #[error("this token key has no colon: expected ID:BASE64")]
    Colon,
    #[error("the id of this token key, before the colon, is invalid: expected 1 to {MAX_KEY_ID} of a-z and 0-9")]
    Id,
    #[error("token key {0}: the part after the colon is not standard base64 with padding")]
    Base64(String),
    #[error("token key {id} has {length} bytes before base64: expected 32 to 64")]
    Length { id: String, length: usize },
    #[error("token key {0} is repeated: a new key needs a new id")]
    Repeated(String),
    #[error("more than {MAX_KEYS} token keys: remove those that have been replaced")]
    TooMany,
}

struct TokenKey {
    id: KeyId,
    bytes: Zeroizing<Vec<u8>>,
}

/// The keys of tokens, at least one. The first signs, all verify. A replaced key stays as long as the longest token is
/// valid. Keys are never printed, and are wiped from memory when dropped.
pub struct TokenKeys {
    first: TokenKey,
    others: Vec<TokenKey>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.iter().map(|key| key.id.0.as_str()).collect();
        write!(f, "TokenKeys({})", ids.join(", "))
    }
}

impl TokenKeys {
    /// Returns keys with one key of 32 to 64 random bytes.
    pub fn from_bytes(id: &str, bytes: &[u8]) -> Result<Self, TokenKeyError> {
        Ok(Self { first: TokenKey::new(id, Zeroizing::new(bytes.to_vec()))?, others: Vec::new() })
    }

    /// Parses `ID:BASE64` entries that are separated by white space or commas. The first one signs.
    pub fn parse(text: &str) -> Result<Self, TokenKeyError> {
        let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let mut keys: Vec<TokenKey> = Vec::new();
        for word in words {
            let key = TokenKey::parse(word)?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(TokenKeyError::Repeated(key.id.0));
            }
            keys.push(key);
        }
        if keys.len() > MAX_KEYS {
            return Err(TokenKeyError::TooMany);
        }
        let mut keys = keys.into_iter();
        Ok(Self { first: keys.next().ok_or(TokenKeyError::Missing)?, others: keys.collect() })
    }

    /// Returns the text that [`TokenKeys::parse`] reads.
    pub fn reveal(&self) -> Zeroizing<String> {
        let keys: Vec<String> =
            self.iter().map(|key| format!("{}:{}", key.id.0, STANDARD.encode(key.bytes.as_slice()))).collect();
        Zeroizing::new(keys.join(","))
    }

    /// Returns a token with these claims, signed with the first key.
    pub fn mint(&self, claims: &TokenClaims) -> String {
        let TokenClaims { run, unit, attempt, epoch, expiry, kind, remaining_results: remaining } = claims;
        let signed = format!(
            "{SCHEME}.{}.{}.{run}.{}.{}.{}.{}.{remaining}",
            self.first.id.0,
            kind.as_str(),
            unit.0,
            attempt.0,
            epoch.0,
            expiry.0
        );
        let mac = hmac_with(&self.first.bytes).chain_update(&signed).finalize().into_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// Returns the claims of an authentic token. The error of an expired token has them too.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<TokenClaims, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError::Malformed);
        }
        let (signed, mac) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).map_err(|_| TokenError::Malformed)?;
        let mut parts = signed.split('.');
        let (Some(SCHEME), Some(id)) = (parts.next(), parts.next()) else {
            return Err(TokenError::Malformed);
        };
        // An unknown key takes the same time as a known one, so that the time does not reveal which keys exist.
        let known = self.iter().find(|key| key.id.0 == id);
        let key = known.unwrap_or(&self.first);
        let authentic = hmac_with(&key.bytes).chain_update(signed).verify_slice(&mac).is_ok();
        match (known, authentic) {
            (None, _) => return Err(TokenError::UnknownKey),
            (Some(_), false) => return Err(TokenError::Forged),
            (Some(_), true) => {}
        }
        let claims = TokenClaims::read(parts).ok_or(TokenError::Malformed)?;
        if claims.expiry <= now { Err(TokenError::Expired(claims)) } else { Ok(claims) }
    }

    fn iter(&self) -> impl Iterator<Item = &TokenKey> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl TokenKey {
    fn new(id: &str, bytes: Zeroizing<Vec<u8>>) -> Result<Self, TokenKeyError> {
        let id = KeyId::parse(id)?;
        if KEY_BYTES.contains(&bytes.len()) {
            Ok(Self { id, bytes })
        } else {
            Err(TokenKeyError::Length { id: id.0, length: bytes.len() })
        }
    }

    fn parse(text: &str) -> Result<Self, TokenKeyError> {
        let (id, encoded) = text.split_once(':').ok_or(TokenKeyError::Colon)?;
        // The id is checked first, because errors show it. A key in its place must not appear in an error.
        let id = KeyId::parse(id)?.0;
        match STANDARD.decode(encoded).map(Zeroizing::new) {
            Ok(bytes) => Self::new(&id, bytes),
            Err(_) => Err(TokenKeyError::Base64(id)),
        }
    }
}

impl KeyId {
    fn parse(text: &str) -> Result<Self, TokenKeyError> {
        let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let fits = (1..=MAX_KEY_ID).contains(&text.len());
        if plain && fits { Ok(Self(text.to_owned())) } else { Err(TokenKeyError::Id) }
    }
}

impl TokenClaims {
    fn read<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let kind = match parts.next()? {
            "r" => TokenKind::Relay,
            "w" => TokenKind::Webhook,
            _ => return None,
        };
        let claims = Self {
            kind,
            run: parts.next()?.parse().ok()?,
            unit: Unit(parts.next()?.parse().ok()?),
            attempt: Attempt(parts.next()?.parse().ok()?),
            epoch: Epoch(parts.next()?.parse().ok()?),
            expiry: Timestamp(parts.next()?.parse().ok()?),
            remaining_results: parts.next()?.parse().ok()?,
        };
        if parts.next().is_none() { Some(claims) } else { None }
    }
}

/// Returns the value of `EBB_IDEMPOTENCY_KEY` and `idempotency-key`: 36 characters of `[a-z0-9-]`, the same for every
/// attempt of a unit, safe in URLs and DNS labels.
///
/// The digest is not keyed, because it grants no rights and must outlive every key.
pub fn idempotency_key(instance_key: &str, resource: &str, unit: &str) -> String {
    format!("ebb-{}", short_digest(&["idempotency key", instance_key, resource, unit], 32))
}

#[cfg(test)]
mod tests;
