//! `kind: Connection`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::placed::At;
use super::{ApiVersion, ConnectionKind, SecretDoc, SourceText};

/// The entry of `plugins` for the own units of targets.
pub const OWN_UNITS: &str = "_target";

/// A connection: the credential of requests to one origin.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Connection", rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectionDoc {
    pub api_version: ApiVersion,
    pub kind: ConnectionKind,
    /// The name of the connection, which `webhook: {connection: NAME}` names.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// The origin that gets the credential: `https://HOST` or `https://HOST:PORT`.
    pub origin: At<String>,
    /// The credential.
    pub auth: AuthChoice,
    /// The plugins whose webhooks may use the connection, by name without version. `_target` stands for the own units of
    /// targets.
    #[serde(default)]
    pub plugins: Vec<At<String>>,
    /// The sources that may complete events with the connection.
    #[serde(default)]
    pub sources: Vec<At<String>>,
    /// The subscriptions that may send notifications with the connection.
    #[serde(default)]
    pub subscriptions: Vec<At<String>>,
    #[serde(skip)]
    pub source: Arc<SourceText>,
    /// The document as YAML with all `@{…}` expanded.
    #[serde(skip)]
    pub expanded: String,
}

/// The key `auth`. It has exactly one scheme.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Auth", deny_unknown_fields)]
pub struct AuthChoice {
    #[serde(rename = "bearer", alias = "basic", alias = "header", alias = "signed")]
    #[schemars(flatten)]
    pub scheme: AuthDoc,
}

/// A scheme that authorizes requests. `secret` names a value of the deployment's secret store.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub enum AuthDoc {
    /// `Authorization: Bearer VALUE`.
    Bearer(SecretDoc),
    /// `Authorization: Basic …`.
    Basic(BasicAuthDoc),
    /// The value in a header.
    Header(HeaderAuthDoc),
    /// Standard Webhooks. The receiver gets the headers of callbacks.
    Signed(SecretDoc),
}

impl AuthDoc {
    /// Returns the key of the scheme.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bearer(_) => "bearer",
            Self::Basic(_) => "basic",
            Self::Header(_) => "header",
            Self::Signed(_) => "signed",
        }
    }

    /// Returns the name of the secret.
    pub fn secret(&self) -> &At<String> {
        match self {
            Self::Basic(basic) => &basic.secret,
            Self::Header(header) => &header.secret,
            Self::Bearer(secret) | Self::Signed(secret) => &secret.secret,
        }
    }

    /// Returns the name of the header with the credential in lower case. A signature has none.
    pub fn header(&self) -> Option<String> {
        match self {
            Self::Bearer(_) | Self::Basic(_) => Some("authorization".to_owned()),
            Self::Header(header) => Some(header.name.value.to_ascii_lowercase()),
            Self::Signed(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "BasicAuth", deny_unknown_fields)]
pub struct BasicAuthDoc {
    pub username: At<String>,
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "HeaderAuth", deny_unknown_fields)]
pub struct HeaderAuthDoc {
    /// The header, such as `X-Api-Key`.
    pub name: At<String>,
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
    /// The text before the value, such as `Token `.
    #[serde(default)]
    pub prefix: At<String>,
}
