//! Bodies of requests for named API tokens.

use ebb_engine::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};

/// Creates a named token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateToken {
    /// Letters, digits, `-`, `_` and `.`, at most 63.
    #[schema(pattern = r"^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,63}$")]
    pub name: String,
    /// 1 to 50 scopes.
    #[schema(schema_with = scopes)]
    pub scopes: Vec<String>,
    /// The time until it expires: a number with its unit, such as `12h` or `30d`. The default is `90d`, the maximum
    /// `366d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^([1-9][0-9]{0,9}ms|[1-9][0-9]{0,6}s|[12][0-9]{7}s|[1-9][0-9]{0,4}m|[1-4][0-9]{5}m|[1-9][0-9]{0,2}h|[1-7][0-9]{3}h|[1-9][0-9]?d|[12][0-9]{2}d|3[0-5][0-9]d|36[0-6]d)$"
    )]
    pub ttl: Option<String>,
}

fn scopes() -> Array {
    let scope = "^((read|targets:(write|reveal))(:own|:label:[!-<>-~]{1,100}=[!-~]{0,100})?|plugins:write(:(?!own$)[A-Za-z]([A-Za-z0-9-]{0,200}[A-Za-z0-9])?)?|sources:write|operate)$";
    let scope = ObjectBuilder::new().schema_type(Type::String).pattern(Some(scope));
    let description = "`read`, `targets:write` or `targets:reveal`, each also with `:own` or `:label:KEY=VALUE`, \
                       `plugins:write`, `plugins:write:NAME`, `sources:write` or `operate`.";
    ArrayBuilder::new().items(scope).min_items(Some(1)).max_items(Some(50)).description(Some(description)).build()
}

/// A named token, or one of the command line, without its secret.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Timestamp => #[serde(with = "crate::time")] #[schema(value_type = String)])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    /// The name of a token of the command line is that of its caller.
    pub name: String,
    /// That of the caller of a token of the command line, for people.
    pub display: Option<String>,
    pub scopes: Vec<String>,
    pub created: Timestamp,
    /// The latest end. A token of the command line also ends if it is unused for 24 hours.
    pub expires: Timestamp,
    /// The caller that created it.
    pub created_by: String,
    /// For people: `NAME SUBJECT`, if the issuer of that caller has a name.
    pub created_by_name: Option<String>,
}

/// A new token with its secret, which no other response contains.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
pub struct TokenList {
    /// Tokens that are not revoked, by name. An expired one is listed for 30 days.
    pub tokens: Vec<TokenInfo>,
}

/// The sender of a request.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallerInfo {
    /// `role ROLE`, `token NAME` or `ISSUER SUBJECT`.
    pub name: String,
    /// The value of the `display` claim of its issuer. It is a text for people and identifies no caller.
    pub display: Option<String>,
    /// The scopes of its token.
    pub scopes: Vec<String>,
    /// The latest end of its token. Absent for a token of the configuration.
    pub expires: Option<String>,
    /// The end of a login that is not used again, if it is before `expires`.
    pub expires_unused: Option<String>,
}

/// Exchanges a code of the console for a token of the command line.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateLogin {
    pub code: String,
    /// The text whose SHA-256 was the challenge of the page.
    pub verifier: String,
}
