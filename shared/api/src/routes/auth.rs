//! Authorises requests by bearer tokens: those of the configuration with a role, named ones of the table, and identity
//! tokens of issuers.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, header};
use ebb_protocol::api::{CallerInfo, TokenInfo};
use ebb_protocol::api_token::{self, TargetAccess, TargetLimit, TokenScope, has_digest, parse_scopes};
use ebb_protocol::error_code::ErrorCode;
use ebb_protocol::limits;
use ebb_protocol::time::rfc3339;
use ebb_store::TokenItem;

use crate::oidc::{self, IdentityClaims, MAX_TOKEN, OidcIssuers};
use crate::{HttpProblem, HttpResult, ServerState};

/// The role of a token of the configuration. Each role is a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiRole {
    /// Reads targets, runs, logs and plugins, and previews plans.
    User,
    /// Reads, publishes and withdraws plugins, and previews plans. Reads sources, connections and subscriptions.
    Author,
    /// Has every permission.
    Operator,
}

impl ApiRole {
    fn scope(self) -> TokenScope {
        match self {
            Self::User => TokenScope::Read(TargetLimit::All),
            Self::Author => TokenScope::PluginsWrite(None),
            Self::Operator => TokenScope::Operate,
        }
    }
}

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPermission<'a> {
    ReadPlugins,
    /// Writes at least one plugin. The plugin is not known yet.
    PublishPlugin,
    /// Writes the plugin of a name.
    WritePlugin(&'a str),
    ReadTargets,
    /// Reads counts over all targets.
    ReadMetrics,
    /// Reads the sensitive outputs of targets.
    RevealTargets,
    /// Creates, updates, retries and deletes targets.
    WriteTargets,
    ReadSources,
    WriteSources,
    /// Reads connections and subscriptions.
    ReadConnections,
    /// Connections, subscriptions, overrides, orphans, clusters, checks and tokens.
    Operate,
}

impl ApiPermission<'_> {
    fn is_in(self, scope: &TokenScope) -> bool {
        match (scope, self) {
            (TokenScope::Operate, _)
            | (TokenScope::Read(_), Self::ReadPlugins | Self::ReadTargets)
            | (TokenScope::TargetsWrite(_), Self::WriteTargets)
            | (TokenScope::TargetsReveal(_), Self::RevealTargets)
            | (TokenScope::Read(TargetLimit::All), Self::ReadMetrics)
            | (TokenScope::PluginsWrite(_), Self::ReadPlugins | Self::PublishPlugin)
            | (TokenScope::PluginsWrite(None), Self::WritePlugin(_) | Self::ReadSources | Self::ReadConnections)
            | (TokenScope::SourcesWrite, Self::ReadSources | Self::WriteSources) => true,
            (TokenScope::PluginsWrite(Some(own)), Self::WritePlugin(name)) => own == name,
            _ => false,
        }
    }

    /// Returns the targets to which `scope` limits the permission, if it has the permission.
    fn limit(self, scope: &TokenScope) -> Option<TargetLimit> {
        self.is_in(scope).then(|| match scope {
            TokenScope::Read(limit) | TokenScope::TargetsWrite(limit) | TokenScope::TargetsReveal(limit) => {
                limit.clone()
            }
            TokenScope::PluginsWrite(_) | TokenScope::SourcesWrite | TokenScope::Operate => TargetLimit::All,
        })
    }

    /// Returns the smallest scope with the permission, for all targets.
    pub(super) fn scope(self) -> TokenScope {
        match self {
            Self::ReadPlugins | Self::ReadTargets | Self::ReadMetrics => TokenScope::Read(TargetLimit::All),
            Self::PublishPlugin | Self::ReadConnections => TokenScope::PluginsWrite(None),
            // No scope is for `_target` alone.
            Self::WritePlugin(name) => {
                format!("plugins:write:{name}").parse().unwrap_or(TokenScope::PluginsWrite(None))
            }
            Self::RevealTargets => TokenScope::TargetsReveal(TargetLimit::All),
            Self::WriteTargets => TokenScope::TargetsWrite(TargetLimit::All),
            Self::ReadSources | Self::WriteSources => TokenScope::SourcesWrite,
            Self::Operate => TokenScope::Operate,
        }
    }
}

/// The verified sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiCaller {
    /// `role ROLE`, `token NAME` or `ISSUER SUBJECT`.
    name: String,
    is_role: bool,
    scopes: Vec<TokenScope>,
}

impl ApiCaller {
    /// Checks that a scope of the caller has a permission, which the scope may limit to some targets.
    ///
    /// # Errors
    /// Returns 403 with the missing scope.
    pub(crate) fn require(&self, permission: ApiPermission<'_>) -> HttpResult<()> {
        if self.scopes.iter().any(|scope| permission.is_in(scope)) {
            return Ok(());
        }
        let needed = permission.scope();
        Err(forbidden(format!("the request needs the scope {needed}; {self} has: {}", self.scope_list())))
    }

    /// Returns the targets for which the caller has a permission.
    pub(crate) fn access(&self, permission: ApiPermission<'_>) -> TargetAccess {
        let limits = self.scopes.iter().filter_map(|scope| permission.limit(scope));
        TargetAccess { caller: self.name.clone(), limits: limits.collect() }
    }

    /// Returns the scopes of the caller as text.
    pub(crate) fn scope_list(&self) -> String {
        let scopes: Vec<String> = self.scopes.iter().map(ToString::to_string).collect();
        scopes.join(", ")
    }

    /// Returns `role ROLE`, `token NAME` or `ISSUER SUBJECT`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of a caller with a name of its own. A role has none.
    pub(crate) fn own_name(&self) -> Option<&str> {
        (!self.is_role).then_some(&self.name)
    }

    /// Returns the name and the scopes for the caller itself.
    pub(crate) fn info(&self) -> CallerInfo {
        CallerInfo { name: self.name.clone(), scopes: self.scopes.iter().map(ToString::to_string).collect() }
    }

    /// Logs a change that the caller requests. `subject` is the object of the change.
    pub(crate) fn log_change(&self, change: &'static str, subject: impl fmt::Display) {
        tracing::info!(caller = self.name, change, %subject, "a caller changes the state");
    }

    /// Logs that the caller reads sensitive values of `subject`, by their names.
    pub(crate) fn log_reveal(&self, subject: impl fmt::Display, names: &[String]) {
        tracing::info!(caller = self.name, %subject, names = names.join(", "), "a caller reads sensitive values");
    }
}

impl From<IdentityClaims> for ApiCaller {
    fn from(IdentityClaims { name, scopes }: IdentityClaims) -> Self {
        Self { name, is_role: false, scopes }
    }
}

impl fmt::Display for ApiCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Maximum unused codes of links that sign in once.
const MAX_SIGN_IN_CODES: usize = 16;

/// The valid tokens of the configuration, as digests, and the issuers of identity tokens. The time of a comparison of
/// digests reveals nothing about a token.
#[derive(Debug, Default)]
pub struct ApiTokens {
    tokens: Vec<(String, ApiRole)>,
    issuers: OidcIssuers,
    /// The digests of the codes of links that sign in once, the oldest first. `None` for a server without such links.
    sign_in_codes: Option<Mutex<Vec<String>>>,
}

impl ApiTokens {
    pub fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, ApiRole)>) -> Self {
        let tokens = tokens.into_iter().map(|(token, role)| (api_token::token_digest(token), role)).collect();
        Self { tokens, ..Self::default() }
    }

    /// Accepts identity tokens of `issuers`.
    #[must_use]
    pub fn with_issuers(self, issuers: OidcIssuers) -> Self {
        Self { issuers, ..self }
    }

    /// Returns the issuers of identity tokens.
    pub(crate) fn issuers(&self) -> &OidcIssuers {
        &self.issuers
    }

    /// Accepts a code once, as the first of the tokens. The code has 128 random bits or more.
    #[must_use]
    pub fn with_sign_in_code(self, code: &str) -> Self {
        Self { sign_in_codes: Some(Mutex::new(vec![api_token::token_digest(code)])), ..self }
    }

    /// Returns the digest of the token as which a code signs in. The code is not valid any more.
    pub(crate) fn take_sign_in_code(&self, code: &str) -> Option<&str> {
        let mut expected = self.sign_in_codes.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let found = expected.iter().position(|expected| has_digest(code, expected))?;
        expected.remove(found);
        self.tokens.first().map(|(digest, _)| digest.as_str())
    }

    /// Returns another code of a link, to the holder of the token as which it signs in. `None` for other tokens, and for a
    /// server without such links. The oldest of too many unused codes is not valid any more.
    pub(crate) fn issue_sign_in_code(&self, token: &str, random: [u64; 2]) -> Option<String> {
        let (own, _) = self.tokens.first()?;
        let codes = self.sign_in_codes.as_ref().filter(|_| has_digest(token, own))?;
        let code = random.map(|part| format!("{part:016x}")).concat();
        let mut codes = codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() >= MAX_SIGN_IN_CODES {
            codes.remove(0);
        }
        codes.push(api_token::token_digest(&code));
        Some(code)
    }

    /// Returns the digest of a token of the configuration.
    pub(crate) fn digest(&self, token: &str) -> Option<&str> {
        let digest = api_token::token_digest(token);
        self.tokens.iter().find(|(valid, _)| *valid == digest).map(|(valid, _)| valid.as_str())
    }

    /// Returns the caller with the first token whose digest fulfils a condition.
    pub(crate) fn caller_if(&self, is_own: impl Fn(&str) -> bool) -> Option<ApiCaller> {
        let (_, role) = self.tokens.iter().find(|(valid, _)| is_own(valid))?;
        let name = format!("role {role:?}").to_lowercase();
        Some(ApiCaller { name, is_role: true, scopes: vec![role.scope()] })
    }

    fn caller(&self, token: &str) -> Option<ApiCaller> {
        let digest = api_token::token_digest(token);
        self.caller_if(|valid| *valid == digest)
    }
}

/// Returns the problem of a caller without a permission.
pub(crate) fn forbidden(detail: String) -> HttpProblem {
    HttpProblem::new(ErrorCode::Forbidden, detail)
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

    /// Returns the verified sender of a request.
    ///
    /// # Errors
    /// Returns 401 without a valid token, and 503 if the token cannot be read.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap) -> HttpResult<ApiCaller> {
        let Some(token) = bearer(headers) else {
            return Err(HttpProblem::new(
                ErrorCode::MissingToken,
                "the request has no token: send `Authorization: Bearer TOKEN`",
            ));
        };
        if token.len() > MAX_TOKEN {
            return Err(HttpProblem::new(
                ErrorCode::InvalidToken,
                format!("the token is longer than {MAX_TOKEN} bytes"),
            ));
        }
        match self.tokens.caller(token) {
            Some(caller) => Ok(caller),
            None if oidc::is_jwt(token) => {
                let verified = self.tokens.issuers.verify(token, self.env.egress.as_ref(), self.env.steady());
                Ok(Box::pin(verified).await?.into())
            }
            None => self.named_caller(self.named_token(token).await?),
        }
    }

    /// Checks that the sender of a request may read the metrics of all targets, which needs the scope `read`.
    ///
    /// # Errors
    /// Returns 401 without a valid token, 403 for a token without the scope, and 503 if the token cannot be read.
    pub async fn authorize_metrics(&self, headers: &HeaderMap) -> HttpResult<()> {
        self.authorize(headers, ApiPermission::ReadMetrics).await.map(drop)
    }

    /// Returns the stored token with this secret, also one that has expired or was revoked.
    ///
    /// # Errors
    /// Returns 401 without such a token, and 503 if it cannot be read.
    pub(crate) async fn named_token(&self, token: &str) -> HttpResult<TokenItem> {
        let found = match api_token::id_of(token) {
            Some(id) => self.store.read_token(id).await?,
            None => None,
        };
        // A wrong secret gets the same response as an unknown id.
        let found = found.filter(|found| has_digest(token, &found.digest));
        found.ok_or_else(|| HttpProblem::new(ErrorCode::InvalidToken, "the token is unknown"))
    }

    /// Returns the caller with a named token.
    ///
    /// # Errors
    /// Returns 401 if the token has expired or was revoked.
    pub(crate) fn named_caller(&self, found: TokenItem) -> HttpResult<ApiCaller> {
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
        Ok(ApiCaller { name: format!("token {name}"), is_role: false, scopes })
    }
}

/// Returns the text after `Bearer `.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the name of a caller as a stored text.
pub(crate) fn stored_name(caller: &ApiCaller) -> String {
    limits::clean(&caller.name, limits::REFUSAL)
}
