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
