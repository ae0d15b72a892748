//! Bodies of requests for named API tokens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Creates a named token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateToken {
    /// Letters, digits, `-`, `_` and `.`, at most 63.
    pub name: String,
    /// `read`, `targets:write`, `plugins:write`, `plugins:write:NAME`, `sources:write` or `operate`, at least one.
    #[schema(min_items = 1)]
    pub scopes: Vec<String>,
    /// The time until it expires: a number with its unit, such as `12h` or `30d`. The default is `90d`, the maximum
    /// `366d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// A named token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    pub name: String,
    pub scopes: Vec<String>,
    pub created: String,
    pub expires: String,
    /// The caller that created it.
    pub created_by: String,
}

/// A new token with its secret, which no other response contains.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedToken {
    /// The value for `Authorization: Bearer`.
    pub token: String,
    #[serde(flatten)]
    pub info: TokenInfo,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("info", &self.info).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenList {
    /// Tokens that are not revoked, by name. An expired one is listed for 30 days.
    pub tokens: Vec<TokenInfo>,
}
