//! Verifies callers, and authorises their requests.
//!
//! A caller has a token of the configuration with a role, a named token of the table, or the claims of an identity token. Each kind
//! has one function that verifies it: [`ApiTokens::role_caller`](crate::ApiTokens::role_caller), [`ServerState::named_caller`],
//! and those of [`OidcIssuers`](crate::OidcIssuers). A bearer token, a code of a link, and a session lead to them.

use axum::http::{HeaderMap, header};
use ebb_protocol::{ErrorCode, SessionId, TokenInfo, api_token, has_digest, parse_scopes, rfc3339};

use crate::oidc::{self, MAX_TOKEN};
use crate::{ApiCaller, ApiPermission, CallerProof, HttpProblem, HttpResult, ServerState, forbidden};

fn unknown_token() -> HttpProblem {
    HttpProblem::new(ErrorCode::InvalidToken, "the token is unknown")
}

impl ServerState {
    /// Returns the verified sender of a request, who has a permission.
    ///
    /// # Errors
    /// Returns 403 for a token without the permission, otherwise the errors of [`Self::authenticate`].
    pub(crate) async fn authorize(&self, headers: &HeaderMap, permission: ApiPermission<'_>) -> HttpResult<ApiCaller> {
        let caller = self.authenticate(headers).await?;
        caller.require(permission)?;
        Ok(caller)
    }

    /// # Errors
    /// Returns 401 without a valid token, and 503 if the token cannot be read.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap) -> HttpResult<ApiCaller> {
        let Some(token) = bearer(headers) else {
            return Err(HttpProblem::new(
                ErrorCode::MissingToken,
                "the request has no token: send `Authorization: Bearer TOKEN`",
            ));
        };
        self.caller_with(token).await
    }

    /// # Errors
    /// Returns 401 for an invalid token, and 503 if it cannot be read.
    pub(crate) async fn caller_with(&self, token: &str) -> HttpResult<ApiCaller> {
        if token.len() > MAX_TOKEN {
            let detail = format!("the token is longer than {MAX_TOKEN} bytes");
            return Err(HttpProblem::new(ErrorCode::InvalidToken, detail));
        }
        let is_own = |digest: &str| has_digest(token, digest);
        let ended = || HttpProblem::new(ErrorCode::TokenExpired, "the login has ended");
        match self.tokens.role_caller(is_own) {
            Some(caller) => Ok(caller),
            None if oidc::is_jwt(token) => Box::pin(self.tokens.issuers.verify(token, &self.env)).await,
            None => match (api_token::id_of(token), SessionId::parse_token(token)) {
                (Some(id), _) => self.named_caller(id, is_own).await,
                (_, Some(session)) => self.session_caller(&session).await?.ok_or_else(ended),
                _ => Err(unknown_token()),
            },
        }
    }

    /// Checks that the sender of a request may read the metrics of all targets, which needs the scope `read`.
    ///
    /// # Errors
    /// Returns 401 without a valid token, 403 for a token without the scope, and 503 if the token cannot be read.
    pub async fn authorize_metrics(&self, headers: &HeaderMap) -> HttpResult<()> {
        self.authorize(headers, ApiPermission::ReadMetrics).await.map(drop)
    }

    /// Returns the caller with the named token of an id, if its digest is the own one.
    ///
    /// # Errors
    /// Returns 401 without such a token, or if it has expired or was revoked, and 503 if it cannot be read.
    pub(crate) async fn named_caller(&self, id: &str, is_own: impl Fn(&str) -> bool) -> HttpResult<ApiCaller> {
        // A wrong secret gets the same response as an unknown id.
        let found = self.env.store.read_token(id).await?.filter(|found| is_own(&found.digest));
        let found = found.ok_or_else(unknown_token)?;
        let TokenInfo { name, scopes, expires, .. } = found.info;
        if let Some(revoked) = found.revoked {
            let detail = format!("the token {name} was revoked at {}: create another one", rfc3339(revoked));
            return Err(HttpProblem::new(ErrorCode::TokenRevoked, detail));
        }
        if expires <= self.env.now() {
            let detail = format!("the token {name} has expired at {}: create another one", rfc3339(expires));
            return Err(HttpProblem::new(ErrorCode::TokenExpired, detail));
        }
        let scopes = parse_scopes(scopes.iter().map(String::as_str)).map_err(|error| {
            tracing::error!(name, %error, "a stored token has an unknown scope");
            forbidden(format!("the token {name} has an unknown scope"))
        })?;
        let proof = CallerProof::Named { id: id.to_owned(), digest: found.digest, expires };
        Ok(ApiCaller::new(format!("token {name}"), scopes, proof))
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
