//! Authorises requests by bearer tokens with roles.

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::HttpProblem;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiRole {
    /// Reads targets, runs, logs and plugins, and previews plans.
    User,
    /// Reads, publishes and withdraws plugins, and previews plans.
    Author,
    /// Has every permission.
    Operator,
}

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPermission {
    ReadPlugins,
    WritePlugins,
    ReadTargets,
    /// Creates, updates and deletes targets.
    WriteTargets,
    /// Retries, overrides, orphans, clusters and checks.
    Operate,
}

impl ApiRole {
    fn may(self, permission: ApiPermission) -> bool {
        match self {
            Self::Operator => true,
            Self::Author => matches!(permission, ApiPermission::ReadPlugins | ApiPermission::WritePlugins),
            Self::User => matches!(permission, ApiPermission::ReadPlugins | ApiPermission::ReadTargets),
        }
    }
}

/// The valid tokens, as digests. The time of a comparison of digests reveals nothing about a token.
#[derive(Debug, Default)]
pub struct ApiTokens {
    tokens: Vec<([u8; 32], ApiRole)>,
}

impl ApiTokens {
    pub fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, ApiRole)>) -> Self {
        let digest = |token: &str| <[u8; 32]>::from(Sha256::digest(token.as_bytes()));
        Self { tokens: tokens.into_iter().map(|(token, role)| (digest(token), role)).collect() }
    }

    /// Checks the bearer token of a request.
    ///
    /// # Errors
    /// Returns 401 without a valid token, and 403 for a role without the permission.
    pub(crate) fn check(&self, headers: &HeaderMap, permission: ApiPermission) -> Result<(), HttpProblem> {
        let Some(token) = bearer(headers) else {
            let detail = "the request has no token: send `Authorization: Bearer TOKEN`";
            return Err(HttpProblem::new(StatusCode::UNAUTHORIZED, "missing-token", detail));
        };
        let digest = <[u8; 32]>::from(Sha256::digest(token.as_bytes()));
        match self.tokens.iter().find(|(valid, _)| *valid == digest) {
            None => Err(HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid-token", "the token is unknown")),
            Some((_, role)) if role.may(permission) => Ok(()),
            Some((_, role)) => {
                let detail = format!("the role of the token, {role:?}, does not allow this request");
                Err(HttpProblem::new(StatusCode::FORBIDDEN, "forbidden", detail))
            }
        }
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
