//! `kind: Connection`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ApiVersion, At, ConnectionKind, SecretDoc, SourceText};

/// The entry of `plugins` for the own units of targets.
pub const OWN_UNITS: &str = "_target";

/// A connection: the credential of requests to one origin.
#[serde_with::apply(Vec => #[serde(default)])]
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Connection", rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectionDoc {
    pub api_version: ApiVersion,
    pub kind: ConnectionKind,
    /// The name of the connection, which `webhook: {connection: NAME}` names.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// The origin that gets the credential: `https://HOST` or `https://HOST:PORT`, or with a cluster
    /// `http://NAME.NAMESPACE.svc:PORT`.
    pub origin: At<String>,
    /// The cluster whose relay sends the requests to a Service there. The credential is in a Secret of the cluster.
    pub cluster: Option<At<String>>,
    /// The credential.
    pub auth: AuthDoc,
    /// The certificates of private authorities as PEM. The servers of the connection may have a certificate of theirs.
    #[serde(default)]
    pub ca: At<String>,
    /// The plugins whose webhooks may use the connection, by name without version. `_target` stands for the own units of
    /// targets.
    pub plugins: Vec<At<String>>,
    /// The sources that may complete events with the connection.
    pub sources: Vec<At<String>>,
    /// The subscriptions that may send notifications with the connection.
    pub subscriptions: Vec<At<String>>,
    /// The attempts of units that use the connection at once. By default, there is no limit.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: Option<At<u32>>,
    #[serde(skip)]
    pub source: Arc<SourceText>,
    /// The document as YAML with all `@{…}` expanded.
    #[serde(skip)]
    pub expanded: String,
}

/// The key `auth`. It has exactly one scheme.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Auth", rename_all = "camelCase")]
#[schemars(extend("type" = "object"))]
pub enum AuthDoc {
    /// `Authorization: Bearer VALUE`.
    Bearer(SecretDoc),
    /// `Authorization: Basic …`.
    Basic(BasicAuthDoc),
    /// The value in a header.
    Header(HeaderAuthDoc),
    /// Standard Webhooks. The receiver gets the headers of callbacks.
    Signed(SignedAuthDoc),
    /// An access token of OAuth 2.0, which Ebb gets with client credentials and renews.
    Oauth(OauthDoc),
    /// HTTP Digest, with MD5 or SHA-256.
    Digest(BasicAuthDoc),
    /// AWS Signature Version 4.
    Sigv4(Sigv4Doc),
    /// A client certificate of TLS. The secret has its chain and its private key as PEM.
    Mtls(SecretDoc),
    /// A token of an installation of a GitHub App, or of the App, which Ebb makes and renews.
    GithubApp(GithubAppDoc),
}

impl AuthDoc {
    /// Returns the key of the scheme.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bearer(_) => "bearer",
            Self::Basic(_) => "basic",
            Self::Header(_) => "header",
            Self::Signed(_) => "signed",
            Self::Oauth(_) => "oauth",
            Self::Digest(_) => "digest",
            Self::Sigv4(_) => "sigv4",
            Self::Mtls(_) => "mtls",
            Self::GithubApp(_) => "githubApp",
        }
    }

    /// Returns the names of the secrets: one, and a second one if the scheme has a certificate or a session token. A Secret of a
    /// cluster is none of them.
    pub fn secrets(&self) -> impl Iterator<Item = &At<String>> {
        let (first, second) = match self {
            Self::Basic(user) | Self::Digest(user) => (Some(&user.secret), None),
            Self::Header(header) => (header.secret.as_ref(), None),
            Self::Signed(signed) => (signed.secret.as_ref(), None),
            Self::GithubApp(app) => (Some(&app.secret), None),
            Self::Bearer(secret) | Self::Mtls(secret) => (Some(&secret.secret), None),
            Self::Oauth(oauth) => (Some(&oauth.secret), Some(&oauth.certificate)),
            Self::Sigv4(sigv4) => (Some(&sigv4.secret), Some(&sigv4.session_token)),
        };
        first.into_iter().chain(second.filter(|name| !name.value.is_empty()))
    }

    /// Returns the Secret of the cluster that has the credential.
    pub fn cluster_secret(&self) -> Option<&ClusterSecretDoc> {
        match self {
            Self::Header(header) => header.secret_ref.as_ref(),
            Self::Signed(signed) => signed.secret_ref.as_ref(),
            _ => None,
        }
    }

    /// Returns the name of the header with the credential in lower case. A signature of Standard Webhooks and a certificate
    /// have none.
    pub fn header(&self) -> Option<String> {
        match self {
            Self::Header(header) => Some(header.name.value.to_ascii_lowercase()),
            Self::Signed(_) | Self::Mtls(_) => None,
            Self::Bearer(_)
            | Self::Basic(_)
            | Self::Oauth(_)
            | Self::Digest(_)
            | Self::Sigv4(_)
            | Self::GithubApp(_) => Some("authorization".to_owned()),
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
#[serde(rename = "GithubApp", rename_all = "camelCase", deny_unknown_fields)]
pub struct GithubAppDoc {
    /// The ID or the client ID of the App.
    pub app_id: At<String>,
    /// The ID of the installation. Without it, requests have a token of the App, such as those below `/app/hook`.
    #[serde(default)]
    pub installation: At<String>,
    /// The name of the secret with the private key of the App as PEM.
    pub secret: At<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "HeaderAuth", rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderAuthDoc {
    /// The header, such as `X-Api-Key`.
    pub name: At<String>,
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: Option<At<String>>,
    /// In place of `secret`, with `cluster`.
    pub secret_ref: Option<ClusterSecretDoc>,
    /// The text before the value, such as `Token `.
    #[serde(default)]
    pub prefix: At<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "SignedAuth", rename_all = "camelCase", deny_unknown_fields)]
pub struct SignedAuthDoc {
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: Option<At<String>>,
    /// In place of `secret`, with `cluster`.
    pub secret_ref: Option<ClusterSecretDoc>,
}

/// A key of a Secret in the cluster of the connection. Its value does not leave the cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "ClusterSecret", deny_unknown_fields)]
pub struct ClusterSecretDoc {
    /// A namespace of the policy of the cluster.
    pub namespace: At<String>,
    pub name: At<String>,
    pub key: At<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Oauth", rename_all = "camelCase", deny_unknown_fields)]
pub struct OauthDoc {
    /// The token endpoint: a URL, or a path at the origin of the connection.
    pub token_url: At<String>,
    pub client_id: At<String>,
    /// The name of the secret with the client secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
    /// The place of the client credentials: in the header `Authorization`, or in the form.
    #[serde(default)]
    pub method: ClientAuthMethod,
    /// The scopes, separated by spaces.
    #[serde(default)]
    pub scope: At<String>,
    /// The parameter `audience`, which some providers require.
    #[serde(default)]
    pub audience: At<String>,
    /// The name of the secret with a client certificate, as that of `mtls`, for both servers.
    #[serde(default)]
    pub certificate: At<String>,
}

/// The place of the credentials of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClientAuthMethod {
    #[default]
    Basic,
    Post,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Sigv4", rename_all = "camelCase", deny_unknown_fields)]
pub struct Sigv4Doc {
    pub access_key_id: At<String>,
    /// The name of the secret with the secret access key: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
    /// The region, such as `eu-central-1`.
    pub region: At<String>,
    /// The service, such as `s3` or `execute-api`.
    pub service: At<String>,
    /// The name of the secret with the session token of temporary credentials.
    #[serde(default)]
    pub session_token: At<String>,
}
