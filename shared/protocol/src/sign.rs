//! Signatures of webhooks: Standard Webhooks 1.0, symmetric (`v1`, HMAC-SHA256).
//!
//! The signature covers `ID.TIMESTAMP.BODY` with the exact bytes of the body, so it is verified before the body is
//! parsed. The clock is an argument. Asymmetric signatures (`v1a`) are ignored.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::{Millis, Timestamp};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::limits::WEBHOOK_TOLERANCE_SECONDS;

/// The header with the id of a message, the same in every repetition.
pub const WEBHOOK_ID: &str = "webhook-id";
/// The header with the time of sending, in seconds since 1970.
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, separated by spaces.
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";

pub const MAX_ID: usize = 128;

/// The name that signs the requests of a target's own webhook units, in the place of a plugin. No plugin can have it.
pub const OWN_HOOKS: &str = "_target";
/// The prefix of the derivation of a plugin's secret. It must never change, because receivers hold the derived
/// secrets.
const PLUGIN_PURPOSE: &[u8] = b"ebb unit requests 1\0";
const PREFIX: &str = "whsec_";
const VERSION: &str = "v1";
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Signatures that are verified. A rotation uses two, and each costs one HMAC per key.
const MAX_SIGNATURES: usize = 8;
const MAX_KEYS: usize = 8;
/// Digits of a timestamp: enough for seconds, and without overflow.
const MAX_DIGITS: usize = 12;

/// A shared secret: `whsec_` and 24 to 64 bytes in base64. It is never printed or compared, and is wiped from memory
/// when dropped.
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<Vec<u8>>);

/// A text that is not a secret. The error does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("no signing secret is given: expected {PREFIX} followed by 24 to 64 random bytes in base64")]
    Missing,
    #[error("this signing secret does not begin with {PREFIX}")]
    Prefix,
    #[error("this is a key for asymmetric signatures (whsk_, whpk_): expected a secret that begins with {PREFIX}")]
    Asymmetric,
    #[error("the part of this signing secret after {PREFIX} is not standard base64 with padding")]
    Base64,
    #[error("this signing secret has {0} bytes before base64: expected 24 to 64")]
    Length(usize),
    #[error("more than {MAX_KEYS} signing secrets: remove those that have been replaced")]
    TooMany,
}

impl WebhookSecret {
    /// Parses `whsec_BASE64`. Surrounding white space is ignored.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SecretError::Missing);
        }
        if text.starts_with("whsk_") || text.starts_with("whpk_") {
            return Err(SecretError::Asymmetric);
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        Self::checked(Zeroizing::new(STANDARD.decode(encoded).map_err(|_| SecretError::Base64)?))
    }

    /// Returns a secret of 24 to 64 random bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        Self::checked(Zeroizing::new(bytes.to_vec()))
    }

    /// Returns the text that [`WebhookSecret::parse`] reads.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(self.0.as_slice())))
    }

    fn checked(bytes: Zeroizing<Vec<u8>>) -> Result<Self, SecretError> {
        if SECRET_BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(SecretError::Length(bytes.len())) }
    }

    /// Derives a key for another purpose than signatures.
    pub(crate) fn derive(&self, purpose: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(hmac_with(&self.0).chain_update(purpose).finalize().into_bytes().into())
    }

    /// Derives the secret that signs the requests of a plugin's webhook units. Its holder learns nothing about this
    /// secret or the secrets of other plugins.
    #[must_use]
    pub fn for_plugin(&self, plugin: &str) -> Self {
        Self(Zeroizing::new(self.derive(&[PLUGIN_PURPOSE, plugin.as_bytes()].concat()).to_vec()))
    }

    fn mac(&self, id: &[u8], timestamp: &[u8], body: &[u8]) -> Hmac<Sha256> {
        let parts = [id, b".", timestamp, b".", body];
        parts.into_iter().fold(hmac_with(&self.0), |mac, part| mac.chain_update(part))
    }
}

pub(crate) fn hmac_with(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Secrets during a rotation, at least one. All verify; [`sign`] uses the first, [`sign_with`] all of them.
#[derive(Clone, Debug)]
pub struct WebhookKeys {
    first: WebhookSecret,
    others: Vec<WebhookSecret>,
}

impl WebhookKeys {
    pub fn new(first: WebhookSecret, others: Vec<WebhookSecret>) -> Result<Self, SecretError> {
        if others.len() < MAX_KEYS { Ok(Self { first, others }) } else { Err(SecretError::TooMany) }
    }

    /// Parses secrets that are separated by white space or commas. The first one signs.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let mut secrets = words.map(WebhookSecret::parse).collect::<Result<Vec<_>, _>>()?.into_iter();
        Self::new(secrets.next().ok_or(SecretError::Missing)?, secrets.collect())
    }

    /// Derives the keys for the requests of a plugin's webhook units, in the same order.
    #[must_use]
    pub fn for_plugin(&self, plugin: &str) -> Self {
        let others = self.others.iter().map(|secret| secret.for_plugin(plugin)).collect();
        Self { first: self.first.for_plugin(plugin), others }
    }

    /// Returns the texts that [`WebhookKeys::parse`] reads. The first one signs.
    pub fn reveal(&self) -> Vec<Zeroizing<String>> {
        self.iter().map(WebhookSecret::reveal).collect()
    }

    pub fn first(&self) -> &WebhookSecret {
        &self.first
    }

    pub fn iter(&self) -> impl Iterator<Item = &WebhookSecret> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl From<WebhookSecret> for WebhookKeys {
    fn from(first: WebhookSecret) -> Self {
        Self { first, others: Vec::new() }
    }
}

/// The id of a message: 1 to [`MAX_ID`] visible ASCII characters without a full stop, which separates the signed
/// parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the webhook-id is invalid: expected 1 to {MAX_ID} visible ASCII characters without a full stop")]
pub struct MessageIdError;

impl MessageId {
    pub fn parse(text: &str) -> Result<Self, MessageIdError> {
        let fits = (1..=MAX_ID).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.');
        if fits && plain { Ok(Self(text.to_owned())) } else { Err(MessageIdError) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error of a webhook, sent with status 401. Its text does not depend on a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the header {0} is missing: sign the request as Standard Webhooks specifies")]
    Missing(String),
    #[error("the header {0} is given more than once: send it once")]
    Repeated(String),
    #[error("the header {header} cannot be read: expected {expected}")]
    Malformed { header: String, expected: &'static str },
    /// The webhook is a replay, or the sender's clock is slow. Both times are in seconds since 1970.
    #[error(
        "webhook-timestamp {timestamp} is {} s before our clock ({now}), more than the tolerance of \
         {WEBHOOK_TOLERANCE_SECONDS} s: sign again with the current time, or set the sender's clock", now - timestamp
    )]
    TooOld { timestamp: u64, now: u64 },
    /// The sender's clock is fast. Both times are in seconds since 1970.
    #[error(
        "webhook-timestamp {timestamp} is {} s after our clock ({now}), more than the tolerance of \
         {WEBHOOK_TOLERANCE_SECONDS} s: give it in seconds, and set the sender's clock", timestamp - now
    )]
    InFuture { timestamp: u64, now: u64 },
    #[error(
        "the time in {header} differs from our clock by more than {tolerance}: sign again with the current time, or set the \
         sender's clock"
    )]
    Tolerance { header: String, tolerance: Millis },
    #[error("webhook-signature has no v1 signature: expected v1,BASE64 made with HMAC-SHA256")]
    NoVersion,
    /// No signature is valid for this content and one of the keys.
    #[error(
        "no v1 signature in webhook-signature matches: sign the exact bytes of the body, as webhook-id.webhook-timestamp.body, \
         with the secret of this endpoint"
    )]
    NoMatch,
}

/// Returns the three headers that sign `body` at `now`, with names in lower case.
pub fn sign(secret: &WebhookSecret, id: &MessageId, now: Timestamp, body: &[u8]) -> [(&'static str, String); 3] {
    let timestamp = (now.0 / 1000).to_string();
    let mac = secret.mac(id.0.as_bytes(), timestamp.as_bytes(), body).finalize().into_bytes();
    let signature = format!("{VERSION},{}", STANDARD.encode(mac));
    [(WEBHOOK_ID, id.0.clone()), (WEBHOOK_TIMESTAMP, timestamp), (WEBHOOK_SIGNATURE, signature)]
}

/// Returns headers with one signature per key, so that receivers with either secret verify them during a rotation.
pub fn sign_with(keys: &WebhookKeys, id: &MessageId, now: Timestamp, body: &[u8]) -> [(&'static str, String); 3] {
    let mut headers = sign(keys.first(), id, now, body);
    for secret in &keys.others {
        let [.., (_, signature)] = sign(secret, id, now, body);
        headers[2].1.push(' ');
        headers[2].1.push_str(&signature);
    }
    headers
}

/// Checks the headers before the body is read: all exist, and the time is at most [`WEBHOOK_TOLERANCE_SECONDS`] from
/// `now`. This does not authenticate the sender.
pub fn check_headers(headers: &HeaderMap, now: Timestamp) -> Result<(), SignatureError> {
    read_headers(headers, now).map(drop)
}

/// Checks that one of `keys` signed `body` at most [`WEBHOOK_TOLERANCE_SECONDS`] from `now`. Returns the id of the message.
/// Compares in constant time. A repetition within the tolerance is also valid, so the caller must deduplicate.
pub fn verify(
    keys: &WebhookKeys,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<MessageId, SignatureError> {
    let (id, timestamp, signatures) = read_headers(headers, now)?;
    let mut fits = false;
    for key in keys.iter() {
        let mac = key.mac(id.0.as_bytes(), timestamp.as_bytes(), body);
        for signature in &signatures {
            fits |= mac.clone().verify_slice(signature).is_ok();
        }
    }
    if fits { Ok(id) } else { Err(SignatureError::NoMatch) }
}

/// Returns the id, the text of the timestamp, and the signatures.
fn read_headers(headers: &HeaderMap, now: Timestamp) -> Result<(MessageId, &str, Vec<Vec<u8>>), SignatureError> {
    let id = single(headers, WEBHOOK_ID)?;
    let expected = "1 to 128 visible ASCII characters without a full stop";
    let id = MessageId::parse(id).map_err(|_| malformed(WEBHOOK_ID, expected))?;
    let written = single(headers, WEBHOOK_TIMESTAMP)?;
    let timestamp = seconds(written)?;
    let now = now.0 / 1000;
    if now.saturating_sub(timestamp) > WEBHOOK_TOLERANCE_SECONDS {
        return Err(SignatureError::TooOld { timestamp, now });
    }
    if timestamp.saturating_sub(now) > WEBHOOK_TOLERANCE_SECONDS {
        return Err(SignatureError::InFuture { timestamp, now });
    }
    Ok((id, written, signatures(headers)?))
}

/// Returns the value of a header that has to be given once.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| SignatureError::Missing(name.to_owned()))?;
    if values.next().is_some() {
        return Err(SignatureError::Repeated(name.to_owned()));
    }
    value.to_str().map_err(|_| malformed(name, "visible ASCII characters"))
}

pub(crate) fn malformed(header: &str, expected: &'static str) -> SignatureError {
    SignatureError::Malformed { header: header.to_owned(), expected }
}

fn seconds(written: &str) -> Result<u64, SignatureError> {
    let plain = written.len() <= MAX_DIGITS && written.bytes().all(|byte| byte.is_ascii_digit());
    let number = if plain { written.parse().ok() } else { None };
    number.ok_or_else(|| malformed(WEBHOOK_TIMESTAMP, "whole seconds since 1970, in decimal digits"))
}

/// Returns the `v1` signatures. Invalid base64 counts as a signature that does not match.
fn signatures(headers: &HeaderMap) -> Result<Vec<Vec<u8>>, SignatureError> {
    let text = single(headers, WEBHOOK_SIGNATURE)?;
    let all = text.split(' ').filter_map(|signature| signature.strip_prefix(VERSION)?.strip_prefix(','));
    let all: Vec<&str> = all.take(MAX_SIGNATURES + 1).collect();
    if all.is_empty() {
        return Err(SignatureError::NoVersion);
    }
    if all.len() > MAX_SIGNATURES {
        return Err(malformed(WEBHOOK_SIGNATURE, "at most 8 v1 signatures"));
    }
    Ok(all.into_iter().map(|encoded| STANDARD.decode(encoded).unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests;
