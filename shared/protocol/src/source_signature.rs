//! Signatures of the webhooks that sources receive from other platforms.
//!
//! Every scheme reads the exact bytes of the body, so it is verified before the body is parsed. All comparisons take
//! constant time. Schemes without a timestamp accept a repetition at any time, so the caller must deduplicate.
//!
//! A secret may hold several values during a rotation: see [`verify`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_engine::{HmacAlgorithm, SignatureEncoding, SignedPiece, Timestamp};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

pub use crate::jws::JwsScheme;
use crate::sign::{self, MAX_ID, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, hmac_with};
pub use crate::signed_text::{SignedText, SignedTime};
use crate::{MessageId, SignatureError, WebhookKeys};

/// The names of the Standard Webhooks headers at Svix.
const SVIX: [&str; 3] = ["svix-id", "svix-timestamp", "svix-signature"];
const STANDARD_WEBHOOKS: [&str; 3] = [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE];
const GITLAB_TOKEN: &str = "x-gitlab-token";
const E2B_SIGNATURE: &str = "e2b-signature";
const AUTHORIZATION: &str = "authorization";
/// The minimum number of characters of a value. A shorter word of a secret is no value of its own but part of a
/// passphrase.
const MIN_VALUE: usize = 16;
/// Values of one secret. A rotation uses two, and each costs one HMAC.
const MAX_VALUES: usize = 8;

/// How a platform proves that it sent a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub enum SourceScheme {
    /// `HEADER: PREFIX SIGNATURE` without the space, with an HMAC of the text.
    Hmac {
        header: String,
        prefix: String,
        algorithm: HmacAlgorithm,
        encoding: SignatureEncoding,
        #[cfg_attr(test, serde(default))]
        text: SignedText,
    },
    /// A JSON Web Signature for the body.
    Jws(JwsScheme),
    /// Standard Webhooks, with the headers `webhook-*` or `svix-*` and a `whsec_` secret.
    Standard,
    /// Standard Webhooks if the secret has a `whsec_` value and the request has such headers. Otherwise the header
    /// `X-Gitlab-Token` has the secret itself.
    Gitlab,
    /// `e2b-signature` has SHA-256 of the secret followed by the body, which is not an HMAC. A holder of one signed body
    /// can append bytes to it, among them 0x80, which are never part of a JSON text that ended.
    E2b,
    /// `Authorization: Bearer SECRET`.
    Bearer,
    /// `Authorization: Basic`, with the secret as the password.
    Basic { user: String },
    /// The query parameter `secret`.
    Url,
}

impl SourceScheme {
    #[must_use]
    pub fn github() -> Self {
        Self::hex("x-hub-signature-256", "sha256=", HmacAlgorithm::Sha256)
    }

    /// Returns the scheme of Gitea's `X-Gitea-Signature`. Forgejo sends it too.
    #[must_use]
    pub fn gitea() -> Self {
        Self::hex("x-gitea-signature", "", HmacAlgorithm::Sha256)
    }

    /// Returns the scheme of Vercel's `x-vercel-signature`.
    #[must_use]
    pub fn vercel() -> Self {
        Self::hex("x-vercel-signature", "", HmacAlgorithm::Sha1)
    }

    fn hex(header: &str, prefix: &str, algorithm: HmacAlgorithm) -> Self {
        Self::Hmac {
            header: header.to_owned(),
            prefix: prefix.to_owned(),
            algorithm,
            encoding: SignatureEncoding::Hex,
            text: SignedText::default(),
        }
    }

    /// Returns the scheme of a sender of these headers, whose names are in lower case, so that [`sign()`] signs their values.
    #[must_use]
    pub fn sending(mut self, headers: &BTreeMap<String, String>) -> Self {
        if let Self::Hmac { text, .. } = &mut self {
            // The time in a list is given with the signatures.
            let time = text.timestamp.as_ref().filter(|time| time.field.is_none());
            let time = time.and_then(|time| headers.get(&time.header));
            for piece in &mut text.pieces {
                let given = match &*piece {
                    SignedPiece::Header(name) => headers.get(name),
                    SignedPiece::Timestamp => time,
                    SignedPiece::Literal(_) | SignedPiece::Body => None,
                };
                if let Some(value) = given {
                    *piece = SignedPiece::Literal(value.clone());
                }
            }
        }
        self
    }

    /// Returns the header with the proof. [`Self::Url`] has none.
    fn header(&self) -> Option<&str> {
        match self {
            Self::Hmac { header, .. } | Self::Jws(JwsScheme { header, .. }) => Some(header),
            Self::Standard => Some(WEBHOOK_SIGNATURE),
            Self::Gitlab => Some(GITLAB_TOKEN),
            Self::E2b => Some(E2B_SIGNATURE),
            Self::Bearer | Self::Basic { .. } => Some(AUTHORIZATION),
            Self::Url => None,
        }
    }

    /// Returns the proof that the sender of the signed bytes has a value of the secret: the text of the header or parameter,
    /// or the last part of a JSON Web Signature.
    fn proof(&self, value: &str, signed: &[u8]) -> Zeroizing<String> {
        Zeroizing::new(match self {
            Self::Hmac { prefix, algorithm, encoding, .. } => {
                format!("{prefix}{}", encoding_parts(*encoding).1(mac_parts(*algorithm).1(value.as_bytes(), signed)))
            }
            Self::Jws(jws) => URL_SAFE_NO_PAD.encode(mac_parts(jws.algorithm.parts().1).1(value.as_bytes(), signed)),
            Self::E2b => URL_SAFE_NO_PAD.encode(Sha256::new().chain_update(value).chain_update(signed).finalize()),
            Self::Bearer => format!("Bearer {value}"),
            Self::Basic { user } => {
                format!("Basic {}", STANDARD.encode(Zeroizing::new(format!("{user}:{value}")).as_bytes()))
            }
            Self::Standard | Self::Gitlab | Self::Url => value.to_owned(),
        })
    }

    /// Returns the keys of Standard Webhooks in a secret, or `None` if the sender signs in another way.
    fn signing_keys(&self, secret: &str) -> Result<Option<WebhookKeys>, SourceSignatureError> {
        let is_key = |word: &&str| *self == Self::Standard || (*self == Self::Gitlab && word.starts_with("whsec_"));
        let keys = Zeroizing::new(secret.split_whitespace().filter(is_key).collect::<Vec<_>>().join(" "));
        if keys.is_empty() && *self != Self::Standard {
            return Ok(None);
        }
        let expected = "whsec_ and 24 to 64 random bytes in base64";
        WebhookKeys::parse(&keys).map(Some).map_err(|_| SourceSignatureError::Secret(expected))
    }

    /// Returns the error of a proof that no value of the secret gives.
    fn mismatch(&self) -> SourceSignatureError {
        let header = self.header().unwrap_or("the query parameter `secret`").to_owned();
        let expected = match self {
            Self::Hmac { prefix, algorithm, encoding, text, .. } => {
                let also = if text.pieces.is_empty() { "" } else { " of the text `signed` and" };
                let (algorithm, encoding) = (mac_parts(*algorithm).0, encoding_parts(*encoding).0);
                format!("{prefix}X, where X is the {algorithm}, {encoding},{also}")
            }
            Self::Jws(jws) => format!("a JSON Web Signature ({})", jws.algorithm.parts().0),
            Self::E2b => "the E2B signature version 1".to_owned(),
            _ => return SourceSignatureError::Credentials(header),
        };
        SourceSignatureError::Signature { header, expected }
    }

    /// Returns the header with the sender's id of a delivery, the same in every repetition. E2B's `e2b-delivery-id`
    /// numbers attempts, so it is not one.
    fn delivery_header(&self) -> Option<&'static str> {
        match self {
            Self::Gitlab => Some("idempotency-key"),
            Self::Hmac { header, .. } => match header.to_ascii_lowercase().as_str() {
                "x-hub-signature-256" => Some("x-github-delivery"),
                "x-gitea-signature" => Some("x-gitea-delivery"),
                "x-forgejo-signature" => Some("x-forgejo-delivery"),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The error of a source's webhook, sent with status 401. Its text contains no secret and no signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceSignatureError {
    /// The configuration is wrong. No request can be verified.
    #[error("the secret of this source cannot be used: store {0} in the deployment's secrets")]
    Secret(&'static str),
    #[error(
        "the request has a signature by the signing token of GitLab, and the secret of this source has no value whsec_…: store \
         the signing token, or enter the secret as \"Secret token\" of GitLab"
    )]
    SigningToken,
    #[error("the header {0} is missing: configure the secret of this source at the sender")]
    Missing(String),
    #[error("the header {0} is empty: the webhook has no secret; enter the secret of this source at the sender")]
    Empty(String),
    #[error(
        "the signature in {header} does not match: expected {expected} of the exact bytes of the body, with the secret of \
         this source"
    )]
    Signature { header: String, expected: String },
    #[error("the token in {header} is refused: {problem}")]
    Token { header: String, problem: &'static str },
    #[error("the credentials in {0} do not match: configure the secret of this source at the sender")]
    Credentials(String),
    #[error("the query parameter `secret` is missing: add ?secret=VALUE to the URL at the sender")]
    MissingQuery,
    #[error("headers webhook-* and svix-* are both given: send one family")]
    Families,
    #[error(transparent)]
    Headers(SignatureError),
    #[error("{}", .0.to_string().replace("webhook-", "svix-"))]
    Svix(SignatureError),
}

/// Checks that a request has a proof of its sender, without the body and the secret. [`verify`] checks the proof.
///
/// # Errors
/// Returns the error of [`verify`] for a request without a proof.
pub fn check_given(
    scheme: &SourceScheme,
    headers: &HeaderMap,
    url_secret: Option<&str>,
) -> Result<(), SourceSignatureError> {
    let is_signed = match scheme {
        SourceScheme::Standard => headers.contains_key(SVIX[2]),
        SourceScheme::Gitlab => headers.contains_key(WEBHOOK_SIGNATURE),
        _ => false,
    };
    if is_signed { Ok(()) } else { given_proof(scheme, headers, url_secret).map(drop) }
}

/// Checks that the sender of `body` has `secret`. `url_secret` is the decoded query parameter `secret`. Returns the sender's
/// id of the delivery, 1 to [`MAX_ID`] visible ASCII characters, if it has one. Only Standard Webhooks sign it.
///
/// During a rotation, any value of the secret verifies: the whole text, and each word if all words have 16 characters or
/// more. White space separates words. A secret with less than 16 characters is refused.
pub fn verify(
    scheme: &SourceScheme,
    secret: &str,
    headers: &HeaderMap,
    url_secret: Option<&str>,
    body: &[u8],
    now: Timestamp,
) -> Result<Option<String>, SourceSignatureError> {
    let values = values(secret)?;
    if (*scheme == SourceScheme::Standard || headers.contains_key(WEBHOOK_SIGNATURE))
        && let Some(keys) = scheme.signing_keys(secret)?
    {
        return standard(&keys, headers, body, now).map(Some);
    }
    let has_header = |name: &str| headers.contains_key(name);
    if *scheme == SourceScheme::Gitlab && has_header(WEBHOOK_SIGNATURE) && !has_header(GITLAB_TOKEN) {
        return Err(SourceSignatureError::SigningToken);
    }
    let given = given_proof(scheme, headers, url_secret)?;
    let (signed, proofs) = match scheme {
        SourceScheme::Hmac { text, encoding, .. } => {
            let mut given = text.signatures(&given);
            if *encoding == SignatureEncoding::Base64url {
                given.iter_mut().for_each(|signature| *signature = signature.trim_end_matches('='));
            }
            (text.bytes(headers, body, now).map_err(of_headers)?, given)
        }
        SourceScheme::Jws(jws) => {
            let refused = |problem| SourceSignatureError::Token { header: jws.header.clone(), problem };
            let (signed, signature) = jws.opened(&given, body, now).map_err(refused)?;
            (Cow::Owned(signed), vec![signature])
        }
        _ => (Cow::Borrowed(body), vec![given.as_str()]),
    };
    // All values are tried, so that the time does not reveal which one fits.
    let fits = |value: &&str| {
        let proof = scheme.proof(value, &signed);
        proofs.iter().filter(|given| same(proof.as_bytes(), given.as_bytes())).count()
    };
    if values.iter().map(fits).sum::<usize>() == 0 {
        return Err(scheme.mismatch());
    }
    scheme.delivery_header().map_or(Ok(None), |name| delivery_id(headers, name))
}

/// The proof of a sender: headers, or the query parameter `secret`. It cannot be printed.
pub struct SourceCredentials {
    pub headers: Vec<(String, String)>,
    pub url_secret: Option<Zeroizing<String>>,
}

/// Returns the proof that the sender of `body` has `secret`. During a rotation, the first value signs. `id` becomes the
/// sender's id of the delivery, if the scheme has one.
///
/// # Errors
/// Returns [`SourceSignatureError::Secret`] for a secret that cannot verify a request either.
pub fn sign(
    scheme: &SourceScheme,
    secret: &str,
    id: &MessageId,
    body: &[u8],
    now: Timestamp,
) -> Result<SourceCredentials, SourceSignatureError> {
    let value = *values(secret)?.first().expect("a secret has a value");
    let (mut headers, mut url_secret) = (Vec::new(), None);
    if let Some(keys) = scheme.signing_keys(secret)? {
        headers.extend(sign::sign(keys.first(), id, now, body).map(|(name, value)| (name.to_owned(), value)));
    } else {
        let (start, signed) = match scheme {
            SourceScheme::Hmac { text, header, .. } => {
                let (others, signed) = text.sent(id.as_str(), body, now).map_err(of_headers)?;
                // A list begins with the time.
                let (list, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|(name, _)| name == header);
                headers = others;
                (list.into_iter().map(|(_, time)| time + ",").collect(), signed)
            }
            SourceScheme::Jws(jws) => {
                let (signed, token) = jws.unsigned(body);
                (token, Cow::Owned(signed))
            }
            _ => (String::new(), Cow::Borrowed(body)),
        };
        let proof = scheme.proof(value, &signed);
        match scheme.header() {
            Some(header) => headers.push((header.to_owned(), format!("{start}{}", proof.as_str()))),
            None => url_secret = Some(proof),
        }
    }
    if let Some(name) = scheme.delivery_header() {
        headers.push((name.to_owned(), id.as_str().to_owned()));
    }
    Ok(SourceCredentials { headers, url_secret })
}

/// Checks that a secret can verify requests.
///
/// # Errors
/// Returns [`SourceSignatureError::Secret`] with the expected form.
pub fn check_secret(scheme: &SourceScheme, secret: &str) -> Result<(), SourceSignatureError> {
    match scheme {
        SourceScheme::Standard => scheme.signing_keys(secret).map(drop),
        _ => values(secret).map(drop),
    }
}

/// Returns the values of a secret, at least one.
fn values(secret: &str) -> Result<Vec<&str>, SourceSignatureError> {
    let whole = secret.trim();
    let is_short = |value: &str| value.chars().count() < MIN_VALUE;
    if is_short(whole) {
        return Err(SourceSignatureError::Secret("a value of at least 16 characters"));
    }
    let mut values: Vec<&str> = whole.split_whitespace().collect();
    if values.iter().any(|word| is_short(word)) {
        values.clear();
    }
    if values.len() > MAX_VALUES {
        return Err(SourceSignatureError::Secret("at most 8 values"));
    }
    if values.len() != 1 {
        values.push(whole);
    }
    Ok(values)
}

/// Compares in a time that depends only on the lengths.
pub(crate) fn same(expected: impl AsRef<[u8]>, given: impl AsRef<[u8]>) -> bool {
    let mac = |bytes: &[u8]| hmac_with(expected.as_ref()).chain_update(bytes);
    mac(given.as_ref()).verify(&mac(expected.as_ref()).finalize().into_bytes()).is_ok()
}

/// Returns the code of a text with a key.
type MacFunction = fn(&[u8], &[u8]) -> Vec<u8>;

/// Returns the name of an algorithm for people, and its function.
fn mac_parts(algorithm: HmacAlgorithm) -> (&'static str, MacFunction) {
    fn with<M: Mac + KeyInit>(key: &[u8], body: &[u8]) -> Vec<u8> {
        let mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.chain_update(body).finalize().into_bytes().to_vec()
    }
    match algorithm {
        HmacAlgorithm::Sha1 => ("HMAC-SHA1", with::<Hmac<Sha1>>),
        HmacAlgorithm::Sha256 => ("HMAC-SHA256", with::<Hmac<Sha256>>),
        HmacAlgorithm::Sha384 => ("HMAC-SHA384", with::<Hmac<Sha384>>),
        HmacAlgorithm::Sha512 => ("HMAC-SHA512", with::<Hmac<Sha512>>),
    }
}

/// Returns the name of an encoding for people, and its function.
fn encoding_parts(encoding: SignatureEncoding) -> (&'static str, fn(Vec<u8>) -> String) {
    match encoding {
        SignatureEncoding::Hex => ("in lower-case hex", hex::encode),
        SignatureEncoding::Base64 => ("in base64 with padding", |bytes| STANDARD.encode(bytes)),
        SignatureEncoding::Base64url => ("in base64url without padding", |bytes| URL_SAFE_NO_PAD.encode(bytes)),
    }
}

fn standard(
    keys: &WebhookKeys,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<String, SourceSignatureError> {
    let [ours, svix] = [STANDARD_WEBHOOKS, SVIX].map(|names| names.iter().any(|name| headers.contains_key(*name)));
    let verified = match (ours, svix) {
        (true, true) => return Err(SourceSignatureError::Families),
        (_, false) => sign::verify(keys, headers, body, now).map_err(SourceSignatureError::Headers),
        (false, true) => {
            let mut renamed = HeaderMap::new();
            for (name, from) in STANDARD_WEBHOOKS.into_iter().zip(SVIX) {
                for value in headers.get_all(from) {
                    renamed.append(name, value.clone());
                }
            }
            sign::verify(keys, &renamed, body, now).map_err(SourceSignatureError::Svix)
        }
    };
    Ok(verified?.as_str().to_owned())
}

/// Returns the given proof in the form of [`SourceScheme::proof`].
fn given_proof(
    scheme: &SourceScheme,
    headers: &HeaderMap,
    url_secret: Option<&str>,
) -> Result<String, SourceSignatureError> {
    let Some(header) = scheme.header() else {
        let given = url_secret.filter(|given| !given.is_empty());
        return given.map(str::to_owned).ok_or(SourceSignatureError::MissingQuery);
    };
    let given = single(headers, header)?;
    match scheme {
        SourceScheme::Standard => Ok(given.to_owned()),
        SourceScheme::Bearer => authorization(given, "Bearer").ok_or_else(|| malformed(header, "Bearer TOKEN")),
        SourceScheme::Basic { .. } => authorization(given, "Basic")
            .filter(|given| given.strip_prefix("Basic ").is_some_and(|encoded| STANDARD.decode(encoded).is_ok()))
            .ok_or_else(|| malformed(header, "Basic and USER:PASSWORD in base64")),
        // A sender without a secret sends the prefix alone, or nothing.
        SourceScheme::Hmac { prefix, .. } if given == prefix => Err(SourceSignatureError::Empty(header.to_owned())),
        _ if given.trim().is_empty() => Err(SourceSignatureError::Empty(header.to_owned())),
        // Senders use both alphabets of base64.
        SourceScheme::E2b => Ok(given.trim_end_matches('=').replace('+', "-").replace('/', "_")),
        _ => Ok(given.to_owned()),
    }
}

/// Returns an `Authorization` header of this scheme, whose name has no case.
fn authorization(given: &str, scheme: &str) -> Option<String> {
    let (name, credentials) = given.split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| format!("{scheme} {credentials}"))
}

fn delivery_id(headers: &HeaderMap, name: &str) -> Result<Option<String>, SourceSignatureError> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    let id = single(headers, name)?;
    if (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(Some(id.to_owned()))
    } else {
        Err(malformed(name, "1 to 128 visible ASCII characters"))
    }
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, SourceSignatureError> {
    sign::single(headers, name).map_err(of_headers)
}

fn of_headers(error: SignatureError) -> SourceSignatureError {
    match error {
        SignatureError::Missing(header) => SourceSignatureError::Missing(header),
        error => SourceSignatureError::Headers(error),
    }
}

fn malformed(header: &str, expected: &'static str) -> SourceSignatureError {
    SourceSignatureError::Headers(sign::malformed(header, expected))
}

#[cfg(test)]
mod tests;
