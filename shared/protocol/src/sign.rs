//! Signatures of webhooks: Standard Webhooks 1.0, symmetric (`v1`, HMAC-SHA256).
//!
//! Signed is `ID.TIMESTAMP.BODY`, over the body's bytes as they were received: nothing is parsed before it is
//! verified, and a body need not be text. The clock is an argument. Asymmetric signatures (`v1a`) are passed over.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::Timestamp;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::limits::WEBHOOK_TOLERANCE_SECONDS;

/// Header with the id of the message, the same for every repetition of it.
pub const WEBHOOK_ID: &str = "webhook-id";
/// Header with the time of sending, in seconds since 1970.
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
/// Header with the signatures, separated by spaces.
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";

pub const MAX_ID: usize = 128;

/// Stands before the name of a plugin whose secret is derived. Receivers hold what follows from it: it never changes.
const PLUGIN_PURPOSE: &[u8] = b"ebb unit requests 1\0";
const PREFIX: &str = "whsec_";
const VERSION: &str = "v1";
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Signatures that are looked at. A sender in rotation makes two; each costs us one HMAC per key.
const MAX_SIGNATURES: usize = 8;
const MAX_KEYS: usize = 8;
/// Digits of a timestamp that is looked at: enough for seconds, and no number can overflow.
const MAX_DIGITS: usize = 12;

/// A shared secret, `whsec_` and 24 to 64 bytes in base64. Neither printed nor compared, and wiped from memory when
/// it is dropped.
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<Vec<u8>>);

/// Text that is no secret. Says nothing of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("no signing secret is given: expected {PREFIX} followed by 24 to 64 random bytes in base64")]
    Missing,
    /// It does not begin as one.
    #[error("a signing secret begins with {PREFIX}; this one does not")]
    Prefix,
    /// It is a key of the asymmetric scheme.
    #[error("this is a key for asymmetric signatures (whsk_, whpk_); a secret that begins with {PREFIX} is needed")]
    Asymmetric,
    /// What follows the prefix is not base64.
    #[error("what follows {PREFIX} in a signing secret is standard base64 with its padding; this is not")]
    Base64,
    /// Too few or too many bytes.
    #[error("a signing secret has 24 to 64 bytes before base64; this one has {0}")]
    Length(usize),
    #[error("at most {MAX_KEYS} signing secrets are tried; remove those that have been replaced")]
    TooMany,
}

impl WebhookSecret {
    /// Reads `whsec_BASE64`; white space around it is no part of it.
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

    /// A secret of random bytes that the caller has drawn, 24 to 64 of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        Self::checked(Zeroizing::new(bytes.to_vec()))
    }

    /// The text that [`WebhookSecret::parse`] reads, to hand to the other side.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(self.0.as_slice())))
    }

    fn checked(bytes: Zeroizing<Vec<u8>>) -> Result<Self, SecretError> {
        if SECRET_BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(SecretError::Length(bytes.len())) }
    }

    /// A key for something else than signatures, made from this secret: the same for the same `purpose`.
    pub(crate) fn derive(&self, purpose: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut mac = hmac_with(&self.0);
        mac.update(purpose);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// The secret that signs the requests of one plugin's webhook units. A receiver that has it learns nothing of this
    /// secret or of that of another plugin.
    #[must_use]
    pub fn for_plugin(&self, plugin: &str) -> Self {
        Self(Zeroizing::new(self.derive(&[PLUGIN_PURPOSE, plugin.as_bytes()].concat()).to_vec()))
    }

    fn mac(&self, id: &[u8], timestamp: &[u8], body: &[u8]) -> Hmac<Sha256> {
        let mut mac = hmac_with(&self.0);
        for part in [id, b".", timestamp, b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// HMAC-SHA256 under `key`.
pub(crate) fn hmac_with(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl std::str::FromStr for WebhookSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        Self::parse(text)
    }
}

/// Secrets while one replaces another. All verify; [`sign`] uses the first, [`sign_with`] all of them. Never empty.
#[derive(Clone, Debug)]
pub struct WebhookKeys {
    first: WebhookSecret,
    others: Vec<WebhookSecret>,
}

impl WebhookKeys {
    /// The secret that signs, and others that still verify.
    pub fn new(first: WebhookSecret, others: Vec<WebhookSecret>) -> Result<Self, SecretError> {
        if others.len() < MAX_KEYS { Ok(Self { first, others }) } else { Err(SecretError::TooMany) }
    }

    /// Reads secrets separated by white space or commas, at least one, the signing one first.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let mut secrets = words.map(WebhookSecret::parse).collect::<Result<Vec<_>, _>>()?.into_iter();
        Self::new(secrets.next().ok_or(SecretError::Missing)?, secrets.collect())
    }

    /// The secrets that sign and verify the requests of one plugin's webhook units: one derived from each of these, in
    /// their order.
    #[must_use]
    pub fn for_plugin(&self, plugin: &str) -> Self {
        let others = self.others.iter().map(|secret| secret.for_plugin(plugin)).collect();
        Self { first: self.first.for_plugin(plugin), others }
    }

    /// The texts that [`WebhookKeys::parse`] reads, to hand to the other side; the first one signs.
    pub fn reveal(&self) -> Vec<Zeroizing<String>> {
        self.iter().map(WebhookSecret::reveal).collect()
    }

    /// The secret that signs.
    pub fn first(&self) -> &WebhookSecret {
        &self.first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WebhookSecret> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl From<WebhookSecret> for WebhookKeys {
    fn from(first: WebhookSecret) -> Self {
        Self { first, others: Vec::new() }
    }
}

/// The id of a message: 1 to [`MAX_ID`] visible ASCII characters, none of them a full stop, which separates what is
/// signed. The same for every repetition of the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(String);

/// Text that is no message id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook-id is 1 to {MAX_ID} visible ASCII characters without a full stop")]
pub struct MessageIdError;

impl MessageId {
    /// Checks `text`.
    pub fn parse(text: &str) -> Result<Self, MessageIdError> {
        let fits = (1..=MAX_ID).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.');
        if fits && plain { Ok(Self(text.to_owned())) } else { Err(MessageIdError) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for MessageId {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        Self::parse(text)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A webhook whose signature is right and recent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedWebhook {
    /// Its id, the same for every repetition.
    pub id: MessageId,
    /// When the sender says to have sent it; whole seconds.
    pub timestamp: Timestamp,
}

/// Why a webhook is not taken. Told to the caller with status 401; nothing of it depends on a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the header {0} is missing: sign the request as Standard Webhooks says")]
    Missing(&'static str),
    /// A header is given more than once.
    #[error("the header {0} is given more than once: send it once")]
    Repeated(&'static str),
    #[error("the header {header} cannot be read: expected {expected}")]
    Malformed { header: &'static str, expected: &'static str },
    /// It was sent too long ago: a replay, or a clock that is slow.
    #[error(
        "webhook-timestamp {timestamp} is {} s before our clock ({now}), at most {WEBHOOK_TOLERANCE_SECONDS} s are \
         taken: sign again with the current time, or set the sender's clock", now - timestamp
    )]
    TooOld {
        /// Seconds since 1970 by the header.
        timestamp: u64,
        /// Seconds since 1970 by our clock.
        now: u64,
    },
    /// It was sent in the future: a clock that is fast.
    #[error(
        "webhook-timestamp {timestamp} is {} s after our clock ({now}), at most {WEBHOOK_TOLERANCE_SECONDS} s are \
         taken: give it in seconds, and set the sender's clock", timestamp - now
    )]
    InFuture {
        /// Seconds since 1970 by the header.
        timestamp: u64,
        /// Seconds since 1970 by our clock.
        now: u64,
    },
    /// There is no `v1` signature.
    #[error("webhook-signature has no v1 signature: expected v1,BASE64 made with HMAC-SHA256")]
    NoVersion,
    /// No signature was made by one of the keys over this content.
    #[error(
        "no v1 signature in webhook-signature fits: sign the body's exact bytes, as webhook-id.webhook-timestamp.body, \
         with the secret that this endpoint knows"
    )]
    NoMatch,
}

/// The three headers that sign `body` as sent `now`, names in lower case.
pub fn sign(secret: &WebhookSecret, id: &MessageId, now: Timestamp, body: &[u8]) -> [(&'static str, String); 3] {
    let timestamp = (now.0 / 1000).to_string();
    let mac = secret.mac(id.0.as_bytes(), timestamp.as_bytes(), body).finalize().into_bytes();
    let signature = format!("{VERSION},{}", STANDARD.encode(mac));
    [(WEBHOOK_ID, id.0.clone()), (WEBHOOK_TIMESTAMP, timestamp), (WEBHOOK_SIGNATURE, signature)]
}

/// The three headers that sign `body` as sent `now`, with one signature for each of `keys`: receivers that know either
/// secret verify it while one replaces the other.
pub fn sign_with(keys: &WebhookKeys, id: &MessageId, now: Timestamp, body: &[u8]) -> [(&'static str, String); 3] {
    let mut headers = sign(keys.first(), id, now, body);
    for secret in &keys.others {
        let [.., (_, signature)] = sign(secret, id, now, body);
        headers[2].1.push(' ');
        headers[2].1.push_str(&signature);
    }
    headers
}

/// What the headers of a webhook claim.
struct SignatureHeaders<'a> {
    id: MessageId,
    /// Seconds since 1970, and as they are written.
    timestamp: u64,
    written: &'a str,
    signatures: Vec<Vec<u8>>,
}

/// Checks what can be checked before there is a body: that all headers are there and can be read, and that the time is not
/// more than [`WEBHOOK_TOLERANCE_SECONDS`] from `now`. It says nothing of who has sent it.
pub fn check_headers(headers: &HeaderMap, now: Timestamp) -> Result<(), SignatureError> {
    read_headers(headers, now).map(drop)
}

/// Checks that one of `keys` has signed `body`, not more than [`WEBHOOK_TOLERANCE_SECONDS`] from `now`. Compares in
/// constant time. The caller has bounded the body; a repetition within the tolerance verifies again, so the caller
/// deduplicates by what the message asks for.
pub fn verify(
    keys: &WebhookKeys,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<VerifiedWebhook, SignatureError> {
    let SignatureHeaders { id, timestamp, written, signatures } = read_headers(headers, now)?;
    let mut fits = false;
    for key in keys.iter() {
        let mac = key.mac(id.0.as_bytes(), written.as_bytes(), body);
        for signature in &signatures {
            fits |= mac.clone().verify_slice(signature).is_ok();
        }
    }
    if fits { Ok(VerifiedWebhook { id, timestamp: Timestamp(timestamp * 1000) }) } else { Err(SignatureError::NoMatch) }
}

fn read_headers(headers: &HeaderMap, now: Timestamp) -> Result<SignatureHeaders<'_>, SignatureError> {
    let id = single(headers, WEBHOOK_ID)?;
    let id = MessageId::parse(id).map_err(|_| SignatureError::Malformed {
        header: WEBHOOK_ID,
        expected: "1 to 128 visible ASCII characters without a full stop",
    })?;
    let written = single(headers, WEBHOOK_TIMESTAMP)?;
    let timestamp = seconds(written)?;
    let now = now.0 / 1000;
    if now.saturating_sub(timestamp) > WEBHOOK_TOLERANCE_SECONDS {
        return Err(SignatureError::TooOld { timestamp, now });
    }
    if timestamp.saturating_sub(now) > WEBHOOK_TOLERANCE_SECONDS {
        return Err(SignatureError::InFuture { timestamp, now });
    }
    Ok(SignatureHeaders { id, timestamp, written, signatures: signatures(headers)? })
}

fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(SignatureError::Missing(name))?;
    if values.next().is_some() {
        return Err(SignatureError::Repeated(name));
    }
    value.to_str().map_err(|_| SignatureError::Malformed { header: name, expected: "visible ASCII characters" })
}

fn seconds(written: &str) -> Result<u64, SignatureError> {
    let plain = written.len() <= MAX_DIGITS && written.bytes().all(|byte| byte.is_ascii_digit());
    let number = if plain { written.parse().ok() } else { None };
    number.ok_or(SignatureError::Malformed {
        header: WEBHOOK_TIMESTAMP,
        expected: "whole seconds since 1970, in decimal digits",
    })
}

/// The `v1` signatures. What is no base64 cannot fit, and counts as a signature that does not.
fn signatures(headers: &HeaderMap) -> Result<Vec<Vec<u8>>, SignatureError> {
    let text = single(headers, WEBHOOK_SIGNATURE)?;
    let all: Vec<&str> = text
        .split(' ')
        .filter_map(|signature| signature.split_once(','))
        .filter(|(version, _)| *version == VERSION)
        .map(|(_, encoded)| encoded)
        .take(MAX_SIGNATURES + 1)
        .collect();
    if all.is_empty() {
        return Err(SignatureError::NoVersion);
    }
    if all.len() > MAX_SIGNATURES {
        return Err(SignatureError::Malformed { header: WEBHOOK_SIGNATURE, expected: "at most 8 v1 signatures" });
    }
    Ok(all.into_iter().map(|encoded| STANDARD.decode(encoded).unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests;
