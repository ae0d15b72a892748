//! Bearer tokens of callbacks: who may report on which try of which unit, and until when.
//!
//! A token is text of `A-Z a-z 0-9 . _ -`: `ebb1.KEY.KIND.RUN.UNIT.ATTEMPT.EPOCH.EXPIRY.MORE.MAC`, at most [`MAX_TOKEN`]
//! bytes. What it says can be read by anybody who holds it; the MAC (HMAC-SHA256) stands for who has made it. It is
//! no secret beyond the one try that it names.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use hmac::Mac as _;
use zeroize::Zeroizing;

use crate::id::{RunId, short_digest};
use crate::sign::hmac_with;

pub const MAX_TOKEN: usize = 256;

/// Opens every token and with it everything that is signed: a MAC of another scheme or version never fits.
const SCHEME: &str = "ebb1";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=64;
const MAX_KEY_ID: usize = 16;
const MAX_KEYS: usize = 8;

/// Who may use a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A relay, for what it runs. Only it may hand over outputs that stay in the cluster.
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

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    pub run: RunId,
    pub unit: Unit,
    pub attempt: Attempt,
    /// The epoch in which the try was sent.
    pub epoch: Epoch,
    /// From when on it is expired.
    pub expiry: Timestamp,
    pub kind: TokenKind,
    /// How many further things there are to take away after this one, for the try of an undo; otherwise 0.
    pub remaining_results: u32,
}

/// Why a token is not taken.
///
/// All but [`TokenError::Expired`] look the same outside: they print the same text, and take the same time for texts
/// of one length. The variants are for our own log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Authentic, but its time is over: a success is still recorded as late.
    #[error("the callback token has expired")]
    Expired(TokenClaims),
    /// Not of the form of a token, or longer than [`MAX_TOKEN`].
    #[error("{REFUSED}")]
    Malformed,
    /// Made with a key that is not known, or not known any more.
    #[error("{REFUSED}")]
    UnknownKey,
    #[error("{REFUSED}")]
    Forged,
}

const REFUSED: &str = "the callback token is not valid: use the one that came with the request, unchanged";

/// Names a key in tokens: 1 to 16 of `[a-z0-9]`.
#[derive(PartialEq, Eq)]
struct KeyId(String);

/// Text that is no list of keys. Says nothing of the keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenKeyError {
    #[error("no token key is given: expected ID:BASE64 with 32 to 64 random bytes")]
    Missing,
    /// It is not `ID:BASE64`.
    #[error("a token key is written ID:BASE64; this one has no colon")]
    Colon,
    /// The id is not one.
    #[error("the id of a token key, before the colon, is 1 to {MAX_KEY_ID} of a-z and 0-9; this one is not")]
    Id,
    #[error("token key {0}: what follows the colon is standard base64 with its padding; this is not")]
    Base64(String),
    /// Too few or too many bytes.
    #[error("token key {id}: 32 to 64 bytes before base64 are needed; this one has {length}")]
    Length {
        id: String,
        /// Its bytes.
        length: usize,
    },
    #[error("token key {0} is given twice: a new key needs a new id")]
    Repeated(String),
    #[error("at most {MAX_KEYS} token keys are known at a time")]
    TooMany,
}

struct TokenKey {
    id: KeyId,
    bytes: Zeroizing<Vec<u8>>,
}

/// The keys of tokens: the first signs, all verify. A key that was replaced stays for as long as the longest token
/// lives. Never empty; never printed; wiped from memory when dropped.
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
    /// One key of 32 to 64 random bytes that the caller has drawn.
    pub fn from_bytes(id: &str, bytes: &[u8]) -> Result<Self, TokenKeyError> {
        Ok(Self { first: TokenKey::new(id, Zeroizing::new(bytes.to_vec()))?, others: Vec::new() })
    }

    /// Reads `ID:BASE64` separated by white space or commas, at least one, the signing one first.
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

    /// The text that [`TokenKeys::parse`] reads.
    pub fn reveal(&self) -> Zeroizing<String> {
        let keys: Vec<String> =
            self.iter().map(|key| format!("{}:{}", key.id.0, STANDARD.encode(key.bytes.as_slice()))).collect();
        Zeroizing::new(keys.join(","))
    }

    /// The token that says `claims`, by the first key.
    pub fn mint(&self, claims: &TokenClaims) -> String {
        let TokenClaims { run, unit, attempt, epoch, expiry, kind, remaining_results: more } = claims;
        let signed = format!(
            "{SCHEME}.{}.{}.{run}.{}.{}.{}.{}.{more}",
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

    /// What an authentic token says. An expired one is an error that carries its claims.
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
        // With an unknown key the work is the same, under a key that cannot help: which keys exist is not to be
        // learnt from how long an answer takes.
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
        // The id first: errors name it, and where id and key were mixed up it must not be the key that they name.
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

/// What every try of a unit gets as `EBB_IDEMPOTENCY_KEY` and `idempotency-key`: 36 characters of `[a-z0-9-]`, safe
/// in URLs and DNS labels. `instance_key` is what [`crate::id::instance_key`] gives, hence one key per target, resource and unit.
///
/// A plain digest, not a keyed one: it gives no right to anything, and must outlive every key.
pub fn idempotency_key(life: &str, resource: &str, unit: &str) -> String {
    format!("ebb-{}", short_digest(&["idempotency key", life, resource, unit], 32))
}

#[cfg(test)]
mod tests;
