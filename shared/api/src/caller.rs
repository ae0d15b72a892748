//! The verified sender of a request, and the permissions that it has.

use std::fmt;
use std::sync::Arc;

use ebb_protocol::{CallerInfo, ErrorCode, TargetAccess, TargetLimit, Timestamp, TokenScope, limits, rfc3339};
use serde_json::Value;

use crate::{HttpProblem, HttpResult};

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
    pub(crate) fn scope(self) -> TokenScope {
        match self {
            Self::User => TokenScope::Read(TargetLimit::All),
            Self::Author => TokenScope::PluginsWrite(None),
            Self::Operator => TokenScope::Operate,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPermission<'a> {
    ReadPlugins,
    /// Writes at least one plugin. The plugin is not known yet.
    PublishPlugin,
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
    pub(crate) fn scope(self) -> TokenScope {
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

/// The proof of a caller. A session is verified with it for each request.
#[derive(Clone)]
pub(crate) enum CallerProof {
    /// The digest of a token of the configuration.
    Role(String),
    Named {
        id: String,
        digest: String,
        expires: Timestamp,
    },
    /// The verified claims of an identity token.
    Identity(Arc<Value>),
}

/// The verified sender of a request.
#[derive(Clone)]
pub(crate) struct ApiCaller {
    /// `role ROLE`, `token NAME` or `ISSUER SUBJECT`.
    name: String,
    /// A text for people, which identifies no caller.
    pub(crate) display: Option<String>,
    scopes: Vec<TokenScope>,
    pub(crate) proof: CallerProof,
    /// The latest end of its token or session. A token of the configuration has none.
    pub(crate) expires: Option<Timestamp>,
    /// The end of a login that is not used again, if it is before the latest one.
    pub(crate) expires_unused: Option<Timestamp>,
}

impl ApiCaller {
    /// Returns a caller whose proof was verified.
    pub(crate) fn new(name: String, scopes: Vec<TokenScope>, proof: CallerProof) -> Self {
        let expires = match &proof {
            CallerProof::Role(_) => None,
            CallerProof::Named { expires, .. } => Some(*expires),
            CallerProof::Identity(claims) => claims["exp"].as_u64().map(|at| Timestamp(at.saturating_mul(1_000))),
        };
        Self { name, display: None, scopes, proof, expires, expires_unused: None }
    }

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

    pub(crate) fn access(&self, permission: ApiPermission<'_>) -> TargetAccess {
        let limits = self.scopes.iter().filter_map(|scope| permission.limit(scope));
        TargetAccess { caller: self.name.clone(), limits: limits.collect() }
    }

    pub(crate) fn scope_list(&self) -> String {
        self.info().scopes.join(", ")
    }

    /// Returns `role ROLE`, `token NAME` or `ISSUER SUBJECT`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of a caller with a name of its own. A role has none.
    pub(crate) fn own_name(&self) -> Option<&str> {
        (!matches!(self.proof, CallerProof::Role(_))).then_some(&self.name)
    }

    /// Returns the owner of a filter: `me` is the caller, and no owner has this name.
    pub(crate) fn owner<'a>(&'a self, filter: &'a str) -> &'a str {
        if filter == "me" { &self.name } else { filter }
    }

    pub(crate) fn stored_name(&self) -> String {
        limits::clean(&self.name, limits::REFUSAL)
    }

    pub(crate) fn info(&self) -> CallerInfo {
        let scopes = self.scopes.iter().map(ToString::to_string).collect();
        let (name, display) = (self.name.clone(), self.display.clone());
        let [expires, expires_unused] = [self.expires, self.expires_unused].map(|end| end.map(rfc3339));
        CallerInfo { name, display, scopes, expires, expires_unused }
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

impl fmt::Display for ApiCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

pub(crate) fn forbidden(detail: String) -> HttpProblem {
    HttpProblem::new(ErrorCode::Forbidden, detail)
}
