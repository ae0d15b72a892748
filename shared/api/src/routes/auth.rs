//! Who may do what: bearer tokens with roles.

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::HttpProblem;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiRole {
    /// Reads targets, runs, logs and plugins, and previews plans.
    User,
    /// Publishes and withdraws plugins, beside what a user may read of plugins.
    Author,
    Operator,
}

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPermission {
    ReadPlugins,
    WritePlugins,
    ReadTargets,
    /// Retry what has failed, or let it go.
    Operate,
}

impl ApiRole {
    fn may(self, right: ApiPermission) -> bool {
        match self {
            Self::Operator => true,
            Self::Author => matches!(right, ApiPermission::ReadPlugins | ApiPermission::WritePlugins),
            Self::User => matches!(right, ApiPermission::ReadPlugins | ApiPermission::ReadTargets),
        }
    }
}

/// The tokens that are known, by their digests: comparing digests leaks nothing of a token through time.
#[derive(Debug, Default)]
pub struct ApiTokens {
    tokens: Vec<([u8; 32], ApiRole)>,
}

impl ApiTokens {
    /// Knows these tokens.
    pub fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, ApiRole)>) -> Self {
        let digest = |token: &str| <[u8; 32]>::from(Sha256::digest(token.as_bytes()));
        Self { tokens: tokens.into_iter().map(|(token, role)| (digest(token), role)).collect() }
    }

    /// Whether the bearer token of a request has the right.
    ///
    /// # Errors
    /// 401 without a token that is known, 403 for one without the right.
    pub(crate) fn check(&self, headers: &HeaderMap, right: ApiPermission) -> Result<(), HttpProblem> {
        let Some(token) = bearer(headers) else {
            let detail = "this needs `Authorization: Bearer TOKEN`";
            return Err(HttpProblem::new(StatusCode::UNAUTHORIZED, "missing-token", detail));
        };
        let digest = <[u8; 32]>::from(Sha256::digest(token.as_bytes()));
        match self.tokens.iter().find(|(known, _)| *known == digest) {
            None => Err(HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid-token", "the token is not known")),
            Some((_, role)) if role.may(right) => Ok(()),
            Some((_, role)) => {
                let detail = format!("the token's role {role:?} may not do this");
                Err(HttpProblem::new(StatusCode::FORBIDDEN, "forbidden", detail))
            }
        }
    }
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
