//! Bearer tokens of callbacks. A token permits reports on one attempt until it expires.
//!
//! The format is `ebb1.KIND.RUN.UNIT.ATTEMPT.EPOCH.EXPIRY.MORE.MAC`, at most [`MAX_TOKEN`] bytes of `A-Z a-z 0-9 . _ -`.
//! The claims are readable. The MAC (HMAC-SHA256) authenticates them, with a key that is derived from a secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::id::{RunId, short_digest};
use crate::sign::{WebhookKeys, WebhookSecret, hmac_with};

pub const MAX_TOKEN: usize = 256;

/// The first part of every token, covered by the MAC.
const SCHEME: &str = "ebb1";
/// The derivation of the key of a MAC from a secret.
const PURPOSE: &[u8] = b"ebb callback token 1";

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
    pub expiry: Timestamp,
    pub kind: TokenKind,
    /// The number of results that remain after this attempt of an undo. 0 for other units.
    pub remaining_results: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is authentic and has expired. A success is still recorded as a late result.
    #[error("the callback token has expired")]
    Expired(TokenClaims),
    /// The token is malformed, or no key has signed it. Texts of one length take the same time.
    #[error("the callback token is not valid: use the one that came with the request, unchanged")]
    Invalid,
}

impl TokenClaims {
    /// Returns a token with these claims, signed with the first key.
    pub fn sign(&self, keys: &WebhookKeys) -> String {
        let Self { run, unit, attempt, epoch, expiry, kind, remaining_results: remaining } = self;
        let signed =
            format!("{SCHEME}.{}.{run}.{}.{}.{}.{}.{remaining}", kind.as_str(), unit.0, attempt.0, epoch.0, expiry.0);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(keys.first(), &signed).finalize().into_bytes()))
    }

    /// Returns the claims of a token that one of the keys has signed.
    ///
    /// # Errors
    /// Returns [`TokenError::Expired`] with the claims of an authentic token, and [`TokenError::Invalid`] for another text.
    pub fn verify(text: &str, keys: &WebhookKeys, now: Timestamp) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError::Invalid);
        }
        let (signed, given) = text.rsplit_once('.').ok_or(TokenError::Invalid)?;
        let given = URL_SAFE_NO_PAD.decode(given).map_err(|_| TokenError::Invalid)?;
        // All keys are tried, so that the time does not reveal which one fits.
        let fitting = keys.iter().filter(|key| mac(key, signed).verify_slice(&given).is_ok()).count();
        if fitting == 0 {
            return Err(TokenError::Invalid);
        }
        let claims = Self::read(signed).ok_or(TokenError::Invalid)?;
        if claims.expiry <= now { Err(TokenError::Expired(claims)) } else { Ok(claims) }
    }

    fn read(signed: &str) -> Option<Self> {
        let mut parts = signed.split('.');
        let (SCHEME, kind) = (parts.next()?, parts.next()?) else { return None };
        let claims = Self {
            kind: [TokenKind::Relay, TokenKind::Webhook].into_iter().find(|known| known.as_str() == kind)?,
            run: parts.next()?.parse().ok()?,
            unit: Unit(parts.next()?.parse().ok()?),
            attempt: Attempt(parts.next()?.parse().ok()?),
            epoch: Epoch(parts.next()?.parse().ok()?),
            expiry: Timestamp(parts.next()?.parse().ok()?),
            remaining_results: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(claims)
    }
}

fn mac(secret: &WebhookSecret, signed: &str) -> Hmac<Sha256> {
    hmac_with(secret.derive(PURPOSE).as_slice()).chain_update(signed)
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
