//! The forms of signatures with an HMAC, which documents choose.

use schemars::JsonSchema;
use serde::Deserialize;

/// The hash of an HMAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HmacAlgorithm {
    #[default]
    Sha256,
    Sha1,
    Sha384,
    Sha512,
}

/// The text form of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignatureEncoding {
    #[default]
    Hex,
    Base64,
    Base64url,
}

/// The algorithm of a JSON Web Signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum JwsAlgorithm {
    #[default]
    Hs256,
    Hs384,
    Hs512,
}

impl JwsAlgorithm {
    /// Returns the name in the header of a token, and the hash.
    pub fn parts(self) -> (&'static str, HmacAlgorithm) {
        match self {
            Self::Hs256 => ("HS256", HmacAlgorithm::Sha256),
            Self::Hs384 => ("HS384", HmacAlgorithm::Sha384),
            Self::Hs512 => ("HS512", HmacAlgorithm::Sha512),
        }
    }
}

/// A part of the text that a sender signs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub enum SignedPiece {
    Literal(String),
    /// The bytes of the body.
    Body,
    /// The time of the signature, as it was sent.
    Timestamp,
    /// The value of a header, whose name is in lower case.
    Header(String),
}

impl SignedPiece {
    /// Parses a text with `${rawBody}` and `${headers.NAME}`, and with `${timestamp}` if it is `timed`.
    ///
    /// # Errors
    /// Returns a sentence about the first part that is wrong, or about a part that is missing.
    pub fn parse(text: &str, timed: bool) -> Result<Vec<Self>, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((literal, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or("`${` is never closed")?;
            pieces.extend((!literal.is_empty()).then(|| Self::Literal(literal.to_owned())));
            pieces.push(match (name, name.strip_prefix("headers.")) {
                ("rawBody", _) => Self::Body,
                ("timestamp", _) => Self::Timestamp,
                (_, Some(header)) if !header.is_empty() => Self::Header(header.to_ascii_lowercase()),
                _ => return Err(format!("`{name}` is not known: there is `rawBody`, `timestamp` and `headers.NAME`")),
            });
            rest = after;
        }
        pieces.extend((!rest.is_empty()).then(|| Self::Literal(rest.to_owned())));
        match (pieces.contains(&Self::Body), pieces.contains(&Self::Timestamp)) {
            (false, _) => Err("the signed text has no `${rawBody}`, so it does not prove the body".to_owned()),
            (_, true) if !timed => Err("`${timestamp}` is not known without the key `timestamp`".to_owned()),
            (_, false) if timed => Err("the time is not signed: `signed` has no `${timestamp}`".to_owned()),
            _ => Ok(pieces),
        }
    }
}
