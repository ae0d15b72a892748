//! Callers with an identity token (JWT) of an OpenID Connect issuer.
//!
//! 1. The issuer in the token selects an issuer of the configuration. Nothing else of the token is used before step 3.
//! 2. `IssuerKeys` returns its key with the `kid` of the token.
//! 3. Signature, issuer, audience and times are verified.
//! 4. The rules of the issuer return the scopes.

mod issuer_keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use axum::http::StatusCode;
use ebb_cel::convert::{CelOutput, from_json};
use ebb_cel::{Expression, Scope};
use ebb_egress::HttpCall;
use ebb_engine::Timestamp;
use ebb_protocol::api_token::{TokenScope, parse_scopes};
use ebb_protocol::limits;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::Value;
use url::{Host, Url};

use crate::{HttpProblem, HttpResult};
use issuer_keys::{IssuerKeys, KeyError};

/// The accepted signatures. A key of an issuer is public, so a signature with a shared secret proves nothing.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::RS256, Algorithm::ES256];
/// The largest difference between the clocks of issuer and server.
const LEEWAY_SECONDS: u64 = 60;

/// The issuers whose identity tokens are accepted.
#[derive(Debug, Default)]
pub struct OidcIssuers {
    issuers: Vec<TrustedIssuer>,
}

#[derive(Debug)]
struct TrustedIssuer {
    /// The claim `iss`.
    issuer: String,
    /// The claim `aud`.
    audience: String,
    rules: Vec<ScopeRule>,
    keys: IssuerKeys,
}

#[derive(Debug)]
struct ScopeRule {
    when: Expression,
    scopes: Vec<TokenScope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerConfig {
    issuer: String,
    audience: String,
    rules: Vec<RuleConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    when: String,
    scopes: Vec<String>,
}

/// The verified sender of an identity token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IdentityClaims {
    /// `ISSUER SUBJECT`.
    pub name: String,
    pub scopes: Vec<TokenScope>,
}

/// Returns true for the form of a JWT: a JSON object in base64url and two more parts.
pub(crate) fn is_jwt(token: &str) -> bool {
    token.starts_with("ey") && token.split('.').count() == 3
}

fn refused(detail: impl Into<String>) -> HttpProblem {
    HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid-token", detail)
}

/// Checks that a URL of an issuer is `https`. On the loopback interface, `http` is allowed.
fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        scheme => Err(format!("{text:?} has the scheme {scheme}; expected https")),
    }
}

impl OidcIssuers {
    /// Parses a JSON list of `{issuer, audience, rules: [{when, scopes}]}`. An empty text is an empty list.
    ///
    /// # Errors
    /// Returns a text for operators: the first field that is wrong, and the expected value.
    pub fn parse(json: &str) -> Result<Self, String> {
        if json.trim().is_empty() {
            return Ok(Self::default());
        }
        let configs: Vec<IssuerConfig> = serde_json::from_str(json)
            .map_err(|error| format!("expected a JSON list of {{issuer, audience, rules}}: {error}"))?;
        let mut issuers: Vec<TrustedIssuer> = Vec::new();
        for config in configs {
            let url = check_url(&config.issuer)?;
            if issuers.iter().any(|known| known.issuer == config.issuer) {
                return Err(format!("issuer {} is listed twice: put all its rules into one entry", config.issuer));
            }
            if config.audience.is_empty() {
                return Err(format!("the audience of issuer {} is empty; expected the claim `aud`", config.issuer));
            }
            let rules = config.rules.iter().map(ScopeRule::parse).collect::<Result<Vec<_>, String>>()?;
            let keys = IssuerKeys::new(&url, &config.issuer);
            issuers.push(TrustedIssuer { issuer: config.issuer, audience: config.audience, rules, keys });
        }
        Ok(Self { issuers })
    }

    /// Returns the verified sender of a JWT.
    ///
    /// # Errors
    /// Returns 401 with the reason why the token is not accepted, 403 if no rule grants it a scope, and 503 if the keys
    /// of the issuer cannot be fetched.
    pub(crate) async fn verify(&self, token: &str, http: &dyn HttpCall, now: Timestamp) -> HttpResult<IdentityClaims> {
        let unsigned = jsonwebtoken::dangerous::insecure_decode::<Value>(token)
            .map_err(|_| refused("the token is not a JWT that is signed with RS256 or ES256"))?;
        let header = unsigned.header;
        let named = unsigned.claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let Some(issuer) = self.issuers.iter().find(|issuer| issuer.issuer == named) else {
            let named = limits::clean(named, limits::REFUSAL);
            return Err(refused(format!("the issuer {named:?} of the token is not in EBB_OIDC")));
        };
        let key = issuer.key(&header, http, now).await?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&issuer.issuer]);
        validation.set_audience(&[&issuer.audience]);
        validation.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        let verified = jsonwebtoken::decode::<Value>(token, &key, &validation);
        let claims = verified.map_err(|error| issuer.rejection(error.kind()))?.claims;
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or_else(|| refused("the claim `sub` of the token is not a text"))?;
        let name = format!("{} {subject}", issuer.issuer);
        // The name is that of an owner. Two subjects must not have the same name, so none is shortened or cleaned.
        if subject.contains(['\n', '\t']) || limits::clean(&name, limits::MESSAGE) != name {
            return Err(refused("the claim `sub` of the token is too long, or has a character that cannot be printed"));
        }
        let scopes = issuer.scopes(&claims);
        if scopes.is_empty() {
            let detail = format!("no rule of EBB_OIDC grants a scope to {name}");
            return Err(HttpProblem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        }
        Ok(IdentityClaims { name, scopes })
    }
}

impl TrustedIssuer {
    /// Returns the key that a header names.
    async fn key(&self, header: &Header, http: &dyn HttpCall, now: Timestamp) -> HttpResult<DecodingKey> {
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refused(format!("the token is signed with {:?}; expected RS256 or ES256", header.alg)));
        }
        if header.crit.is_some() {
            return Err(refused("the header of the token has `crit`, which is not supported"));
        }
        let Some(kid) = &header.kid else { return Err(refused("the header of the token has no `kid`")) };
        let unknown = || {
            let kid = limits::clean(kid, limits::REFUSAL);
            refused(format!("the issuer {} has no key {kid:?} for {:?}", self.issuer, header.alg))
        };
        self.keys.find(kid, header.alg, http, now).await.map_err(|error| match error {
            KeyError::Unknown => unknown(),
            KeyError::Unavailable(reason) => {
                let detail = format!("the keys of the issuer {} cannot be fetched: {reason}", self.issuer);
                HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "issuer-unavailable", detail)
            }
        })
    }

    /// Returns the scopes of all rules that hold. A rule that reads a missing claim does not hold.
    fn scopes(&self, claims: &Value) -> Vec<TokenScope> {
        let holds = |rule: &&ScopeRule| {
            let variables = BTreeMap::from([("claims", from_json(claims))]);
            matches!(ebb_cel::evaluate(&rule.when, &variables), Ok(CelOutput::Json(Value::Bool(true))))
        };
        self.rules.iter().filter(holds).flat_map(|rule| rule.scopes.iter().cloned()).collect()
    }

    fn rejection(&self, error: &ErrorKind) -> HttpProblem {
        match error {
            ErrorKind::ExpiredSignature => {
                HttpProblem::new(StatusCode::UNAUTHORIZED, "token-expired", "the token has expired: get another one")
            }
            ErrorKind::ImmatureSignature => refused("the token is not valid yet: its claim `nbf` is in the future"),
            ErrorKind::InvalidAudience => {
                refused(format!("the claim `aud` of the token is wrong; expected {:?}", self.audience))
            }
            ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
                refused(format!("the claim `{claim}` of the token is missing or malformed"))
            }
            _ => refused(format!("the signature of the token does not fit the keys of {}", self.issuer)),
        }
    }
}

impl ScopeRule {
    fn parse(config: &RuleConfig) -> Result<Self, String> {
        let when = ebb_cel::parse(&config.when, Scope::Identity).map_err(|issues| {
            let first = issues.first().map(|issue| issue.message.clone()).unwrap_or_default();
            format!("`when` {:?}: {first}", config.when)
        })?;
        if config.scopes.is_empty() {
            return Err(format!("the rule {:?} has no scopes; expected at least one", config.when));
        }
        let scopes = parse_scopes(config.scopes.iter().map(String::as_str)).map_err(|error| error.to_string())?;
        Ok(Self { when, scopes })
    }
}
