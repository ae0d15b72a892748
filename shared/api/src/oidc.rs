//! Callers with an identity token (JWT) of an OpenID Connect issuer, and people who sign in at one.
//!
//! 1. The issuer in the token selects an issuer of the configuration. Nothing else of the token is used before step 3.
//! 2. `IssuerKeys` has its key with the `kid` of the token.
//! 3. Signature, issuer, audience and times are verified.
//! 4. The rules of the issuer return the scopes.
//!
//! For a sign-in, `SignInClient` gets the token. The issuer is that of the sign-in, and the audience is the client.

mod issuer_keys;
mod problem;
mod sign_in_client;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_documents::cel::convert::{CelOutput, from_json};
use ebb_documents::cel::{Expression, Scope};
use ebb_flow::Env;
use ebb_protocol::{ErrorCode, PendingSignIn, TokenScope, limits, parse_scopes};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use crate::{ApiCaller, CallerProof, HttpProblem, HttpResult};
use issuer_keys::{FetchedIssuer, IssuerKeys, KeyName, check_url};
use problem::{refused, unavailable};
use sign_in_client::SignInClient;

pub(crate) use sign_in_client::SignInAccount;

/// The maximum bytes of a token.
pub(crate) const MAX_TOKEN: usize = 16 << 10;
/// The accepted signatures. A key of an issuer is public, so a signature with a shared secret proves nothing.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::RS256, Algorithm::ES256];
/// The largest difference between the clocks of issuer and server.
const LEEWAY_SECONDS: u64 = 60;

/// The issuers whose identity tokens are accepted.
#[derive(Debug, Default)]
pub struct OidcIssuers {
    issuers: Vec<TrustedIssuer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TrustedIssuer {
    /// The claim `iss`.
    issuer: String,
    /// The name that people see instead of the URL.
    name: Option<String>,
    /// The claim that people see instead of the name of a person.
    display: Option<String>,
    /// The claim `aud`.
    audience: String,
    rules: Vec<ScopeRule>,
    /// The client for people who sign in to the console.
    sign_in: Option<SignInClient>,
    #[serde(skip)]
    keys: IssuerKeys,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "RuleConfig")]
struct ScopeRule {
    when: Expression,
    scopes: Vec<TokenScope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    when: String,
    scopes: Vec<String>,
}

/// Returns true for the form of a JWT: a JSON object in base64url and two more parts.
pub(crate) fn is_jwt(token: &str) -> bool {
    token.starts_with("ey") && token.split('.').count() == 3
}

fn not_a_jwt<E>(_: E) -> HttpProblem {
    refused("the token is not a JWT that is signed with RS256 or ES256")
}

impl OidcIssuers {
    /// Parses a JSON list of `{issuer, name, display, audience, rules: [{when, scopes}], signIn: {clientId, clientSecret, scope,
    /// userInfo}}`. An empty text is an empty list.
    ///
    /// # Errors
    /// Returns a text for operators: the first field that is wrong, and the expected value.
    pub fn parse(json: &str) -> Result<Self, String> {
        if json.trim().is_empty() {
            return Ok(Self::default());
        }
        let issuers: Vec<TrustedIssuer> = serde_json::from_str(json)
            .map_err(|error| format!("{error}; expected a JSON list of {{issuer, audience, rules}}"))?;
        for (at, TrustedIssuer { issuer, name, audience, sign_in, .. }) in issuers.iter().enumerate() {
            check_url(issuer)?;
            if issuers[..at].iter().any(|known| known.issuer == *issuer) {
                return Err(format!("issuer {issuer} is listed twice: put all its rules into one entry"));
            }
            if let Some(name) = name {
                let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
                // An owner with one of the names would look like another kind of caller.
                let is_taken = ["role", "token", "source", "platform"].contains(&name.as_str());
                if !is_word || is_taken || issuers[..at].iter().any(|known| known.name.as_ref() == Some(name)) {
                    return Err(format!("the name {name:?} is used, or has not only letters, digits, `-`, `_`, `.`"));
                }
            }
            if audience.is_empty() {
                return Err(format!("the audience of issuer {issuer} is empty; expected the claim `aud`"));
            }
            let checked = sign_in.as_ref().map_or(Ok(()), SignInClient::check);
            checked.map_err(|reason| format!("`signIn` of issuer {issuer}: {reason}"))?;
        }
        Ok(Self { issuers })
    }

    fn find(&self, named: &str) -> Option<&TrustedIssuer> {
        self.issuers.iter().find(|issuer| issuer.issuer == named)
    }

    /// Returns the sender of a JWT.
    ///
    /// # Errors
    /// Returns 401 with the reason why the token is not accepted, 403 if no rule grants it a scope, and 503 if the keys
    /// of the issuer cannot be fetched.
    pub(crate) async fn verify(&self, token: &str, env: &Env) -> HttpResult<ApiCaller> {
        let unsigned = jsonwebtoken::dangerous::insecure_decode::<Value>(token).map_err(not_a_jwt)?;
        let named = unsigned.claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let Some(issuer) = self.find(named) else {
            let named = limits::clean(named, limits::REFUSAL);
            return Err(refused(format!("the issuer {named:?} of the token is not in EBB_OIDC")));
        };
        let claims = issuer.verified(token, &issuer.audience, env).await?;
        issuer.caller(claims)
    }

    /// Returns the issuers at which a person can sign in, each with its name for people.
    pub(crate) fn for_people(&self) -> impl Iterator<Item = (&str, &str)> {
        let for_people = self.issuers.iter().filter(|issuer| issuer.sign_in.is_some());
        for_people.map(|issuer| (issuer.issuer.as_str(), issuer.name.as_ref().unwrap_or(&issuer.issuer).as_str()))
    }

    /// Returns the name of an owner for people, if it is one of an issuer with a name.
    pub(crate) fn owner_name(&self, owner: Option<&str>) -> Option<String> {
        let (issuer, subject) = owner?.split_once(' ')?;
        self.find(issuer)?.owner_name(subject)
    }

    /// Returns the issuer with a URL or a name, and its client. No name is a URL.
    fn client(&self, named: &str) -> Option<(&TrustedIssuer, &SignInClient)> {
        let by_name = || self.issuers.iter().find(|issuer| issuer.name.as_deref() == Some(named));
        let issuer = self.find(named).or_else(by_name)?;
        Some((issuer, issuer.sign_in.as_ref()?))
    }

    fn client_of(&self, pending: &PendingSignIn) -> HttpResult<(&TrustedIssuer, &SignInClient)> {
        self.client(&pending.issuer).ok_or_else(|| {
            let named = limits::clean(&pending.issuer, limits::REFUSAL);
            refused(format!("EBB_OIDC has no `signIn` for the issuer {named:?}: an operator can add it"))
        })
    }

    /// Returns the URL at which a browser signs in.
    ///
    /// # Errors
    /// Returns 401 for an issuer without a client, and 503 if its document cannot be fetched.
    pub(crate) async fn sign_in_url(
        &self,
        pending: &PendingSignIn,
        account: SignInAccount,
        env: &Env,
    ) -> HttpResult<Url> {
        let (issuer, client) = self.client_of(pending)?;
        let published = issuer.published(None, env).await?;
        let url = client.authorization_url(&published.document, account, pending, env);
        url.map_err(|reason| unavailable(&issuer.issuer, &reason))
    }

    /// Returns the person who has signed in. A browser brings the code of the issuer, and its parameter `iss` or an empty text.
    ///
    /// # Errors
    /// Returns 401 if the answer is not one to the sign-in, 403 if no rule grants the person a scope, and 503 if the issuer
    /// does not respond as expected. Each error says who can change it.
    pub(crate) async fn signed_in(
        &self,
        pending: &PendingSignIn,
        (code, named): (&str, &str),
        env: &Env,
    ) -> HttpResult<ApiCaller> {
        let (issuer, client) = self.client_of(pending)?;
        let published = issuer.published(None, env).await?;
        let document = &published.document;
        let is_unnamed = named.is_empty() && !document.authorization_response_iss_parameter_supported;
        if !is_unnamed && named != issuer.issuer {
            return Err(refused(format!("the answer is not of the issuer {}: sign in again", issuer.issuer)));
        }
        let too_long = |what: &str| {
            refused(format!("{what} longer than {MAX_TOKEN} bytes: an operator can ask for fewer claims in `scope`"))
        };
        let tokens = client.redeem(document, code, pending, env).await?;
        if tokens.id_token.len() > MAX_TOKEN {
            return Err(too_long("the identity token is"));
        }
        let mut claims = issuer.verified(&tokens.id_token, &client.client_id, env).await?;
        if !client.is_audience(&claims) {
            return Err(refused(format!("the claim `azp` of the token is wrong; expected {:?}", client.client_id)));
        }
        if !claims.get("nonce").and_then(Value::as_str).is_some_and(|nonce| pending.has_nonce(nonce)) {
            return Err(refused("the identity token is of another sign-in: sign in again"));
        }
        client.add_user_info(document, &tokens, &mut claims, env).await?;
        if claims.to_string().len() > MAX_TOKEN {
            return Err(too_long("the claims are"));
        }
        issuer.caller(claims)
    }

    /// Returns the person with verified claims of an earlier sign-in, or `None` if the configuration does not trust them any
    /// more.
    pub(crate) fn known_person(&self, claims: Value) -> Option<ApiCaller> {
        let (issuer, client) = self.client(claims.get("iss")?.as_str()?)?;
        client.is_audience(&claims).then(|| issuer.caller(claims).ok()).flatten()
    }
}

impl TrustedIssuer {
    fn owner_name(&self, subject: &str) -> Option<String> {
        self.name.as_ref().map(|name| format!("{name} {subject}"))
    }

    /// Returns what the issuer has published, with the wanted key if it has one.
    async fn published(&self, wanted: Option<KeyName<'_>>, env: &Env) -> HttpResult<Arc<FetchedIssuer>> {
        let published = self.keys.published(&self.issuer, wanted, env.egress.as_ref(), env.steady()).await;
        published.map_err(|reason| unavailable(&self.issuer, &reason))
    }

    async fn verified(&self, token: &str, audience: &str, env: &Env) -> HttpResult<Value> {
        let header = jsonwebtoken::decode_header(token).map_err(not_a_jwt)?;
        let algorithm = header.alg;
        if !ALGORITHMS.contains(&algorithm) {
            return Err(refused(format!("the token is signed with {algorithm:?}; expected RS256 or ES256")));
        }
        if header.crit.is_some() {
            return Err(refused("the header of the token has `crit`, which is not supported"));
        }
        let Some(kid) = header.kid.as_deref() else { return Err(refused("the header of the token has no `kid`")) };
        let published = self.published(Some((kid, algorithm)), env).await?;
        let key = published.key((kid, algorithm)).ok_or_else(|| {
            let kid = limits::clean(kid, limits::REFUSAL);
            refused(format!(
                "the issuer {} has no key {kid:?} for {algorithm:?}. Keys are fetched once a minute: if it is a new one, try \
                 again then",
                self.issuer
            ))
        })?;
        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[audience]);
        validation.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        let verified = jsonwebtoken::decode::<Value>(token, &key, &validation);
        let claims = verified.map_err(|error| self.rejection(error.kind(), audience))?.claims;
        // The library also accepts a list. Each reader of the claims expects a text.
        if claims["iss"] != self.issuer.as_str() {
            return Err(self.rejection(&ErrorKind::InvalidIssuer, audience));
        }
        Ok(claims)
    }

    /// Returns the caller with verified claims.
    fn caller(&self, claims: Value) -> HttpResult<ApiCaller> {
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or_else(|| refused("the claim `sub` of the token is not a text"))?;
        let name = format!("{} {subject}", self.issuer);
        // The name is that of an owner. Two subjects must not have the same name, so none is shortened or cleaned.
        if subject.contains(['\n', '\t']) || limits::clean(&name, limits::MESSAGE) != name {
            return Err(refused("the claim `sub` of the token is too long, or has a character that cannot be printed"));
        }
        let scopes = self.scopes(&claims);
        if scopes.is_empty() {
            let found = claims.as_object().into_iter().flat_map(Map::keys);
            let mut found: Vec<&str> = found.map(String::as_str).collect();
            found.sort_unstable();
            let found = limits::clean(&found.join(", "), limits::REFUSAL);
            let detail = format!(
                "no rule of EBB_OIDC grants a scope to {name} with the claims {found}: an operator can add one"
            );
            return Err(HttpProblem::new(ErrorCode::Forbidden, detail));
        }
        let display = self.display.as_ref().and_then(|claim| claims.get(claim)?.as_str());
        let display = display.map(|text| limits::clean(text, limits::REFUSAL).replace(['\n', '\t'], " "));
        let display = display.or_else(|| self.owner_name(subject));
        let mut caller = ApiCaller::new(name, scopes, CallerProof::Identity(Arc::new(claims)));
        caller.display = display;
        Ok(caller)
    }

    /// Returns the scopes of all rules that hold. A rule that reads a missing claim does not hold.
    fn scopes(&self, claims: &Value) -> Vec<TokenScope> {
        let holds = |rule: &&ScopeRule| {
            let variables = BTreeMap::from([("claims", from_json(claims))]);
            matches!(ebb_documents::cel::evaluate(&rule.when, &variables), Ok(CelOutput::Json(Value::Bool(true))))
        };
        self.rules.iter().filter(holds).flat_map(|rule| rule.scopes.iter().cloned()).collect()
    }

    fn rejection(&self, error: &ErrorKind, audience: &str) -> HttpProblem {
        match error {
            ErrorKind::ExpiredSignature => {
                HttpProblem::new(ErrorCode::TokenExpired, "the token has expired: get another one")
            }
            ErrorKind::ImmatureSignature => refused("the token is not valid yet: its claim `nbf` is in the future"),
            ErrorKind::InvalidAudience => {
                refused(format!("the claim `aud` of the token is wrong; expected {audience:?}"))
            }
            ErrorKind::InvalidIssuer => {
                refused(format!("the claim `iss` of the token is wrong; expected {:?}", self.issuer))
            }
            ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
                refused(format!("the claim `{claim}` of the token is missing or malformed"))
            }
            _ => refused(format!("the signature of the token does not fit the keys of {}", self.issuer)),
        }
    }
}

impl TryFrom<RuleConfig> for ScopeRule {
    type Error = String;

    fn try_from(config: RuleConfig) -> Result<Self, String> {
        let when = ebb_documents::cel::parse(&config.when, Scope::Identity).map_err(|issues| {
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
