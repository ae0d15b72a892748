//! Ebb as a client of an issuer: the sign-in of a person by the authorization code flow with PKCE (RFC 7636).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_console::paths;
use ebb_egress::HttpRequest;
use ebb_flow::{Env, oauth_error};
use ebb_protocol::{PendingSignIn, SecretText, is_secret_name};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::issuer_keys::{DiscoveryDocument, FETCH_TIMEOUT, check_url, get};
use super::problem::{refused, unavailable};
use crate::{HttpProblem, HttpResult};

/// The account of an issuer as which a person signs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SignInAccount {
    /// The account of the session at the issuer, if the browser has a session there.
    #[default]
    Present,
    /// Another account. The issuer asks for it.
    Other,
}

fn default_scope() -> String {
    "openid profile email".to_owned()
}

/// The registration of Ebb at an issuer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SignInClient {
    pub client_id: String,
    /// The name of the secret of a confidential client. A public client has none.
    client_secret: Option<String>,
    /// The claims that are asked for, as scopes of the issuer.
    #[serde(default = "default_scope")]
    scope: String,
    /// True if the userinfo endpoint is asked for claims, too.
    #[serde(default)]
    user_info: bool,
}

#[derive(Deserialize)]
pub(super) struct TokenResponse {
    /// The identity token, which is not verified.
    pub id_token: String,
    /// The token for the userinfo endpoint.
    #[serde(default)]
    access_token: String,
}

/// Returns the URL to which an issuer sends the browser back.
fn redirect_uri(env: &Env) -> String {
    format!("{}{}", env.settings.source.trim_end_matches('/'), paths::SIGN_IN_RETURN)
}

/// # Errors
/// Returns a text for people. The log has the cause.
fn client_secret(name: &str, env: &Env) -> Result<SecretText, String> {
    let found = env.settings.secrets.secret(name);
    let found = found.and_then(|found| found.ok_or_else(|| format!("the secret {name} does not exist")));
    found.map_err(|reason| {
        tracing::error!(name, reason, "the secret of the client for sign-ins cannot be read");
        "its `clientSecret` cannot be read; the log has the cause".to_owned()
    })
}

/// Returns the problem of a response of an issuer, and logs it.
fn unusable(document: &DiscoveryDocument, reason: &str) -> HttpProblem {
    tracing::warn!(issuer = document.issuer, reason, "cannot end a sign-in at an issuer");
    unavailable(&document.issuer, reason)
}

impl SignInClient {
    /// # Errors
    /// Returns a text for operators: the field that is wrong, and the expected value.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.client_id.is_empty() {
            return Err("`clientId` is empty; expected the id of the client at the issuer".to_owned());
        }
        if self.client_secret.as_ref().is_some_and(|name| !is_secret_name(name)) {
            return Err("`clientSecret` is not the name of a secret; expected a name such as EBB_CLIENT".to_owned());
        }
        if !self.scope.split(' ').any(|word| word == "openid") {
            let scope = &self.scope;
            return Err(format!("the scope {scope:?} has no `openid`, so the issuer would return no identity token"));
        }
        Ok(())
    }

    /// Returns the URL at which a browser signs in as the person who has a session at the issuer, or as another one.
    pub(super) fn authorization_url(
        &self,
        document: &DiscoveryDocument,
        account: SignInAccount,
        pending: &PendingSignIn,
        env: &Env,
    ) -> Result<Url, String> {
        let mut url = check_url(&document.authorization_endpoint)?;
        url.set_fragment(None);
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", &redirect_uri(env))
            .append_pair("scope", &self.scope)
            .append_pair("state", &pending.state())
            .append_pair("nonce", &pending.nonce())
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        if account == SignInAccount::Other {
            query.append_pair("prompt", document.account_prompt());
        }
        drop(query);
        Ok(url)
    }

    fn token_request(&self, url: Url, code: &str, pending: &PendingSignIn, env: &Env) -> Result<HttpRequest, String> {
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
        ];
        let (redirect, verifier) = (redirect_uri(env), pending.verifier());
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code");
        form.append_pair("code", code).append_pair("redirect_uri", &redirect);
        form.append_pair("code_verifier", &verifier);
        match &self.client_secret {
            None => {
                form.append_pair("client_id", &self.client_id);
            }
            Some(name) => {
                let secret = client_secret(name, env)?;
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let credential = STANDARD.encode(format!("{}:{}", encoded(&self.client_id), encoded(secret.as_str())));
                headers.push(("authorization".to_owned(), format!("Basic {credential}")));
            }
        }
        let body = form.finish().into_bytes();
        Ok(HttpRequest::new("POST", url, headers, body, FETCH_TIMEOUT))
    }

    /// Returns the problem of an issuer that does not accept the client. An operator has to act.
    fn refused_client(&self, document: &DiscoveryDocument, reason: &str) -> HttpProblem {
        let (issuer, client) = (&document.issuer, &self.client_id);
        tracing::error!(issuer, client, reason, "an issuer refuses the client of Ebb");
        let text = format!(
            "it refuses the client {client:?} of Ebb ({reason}). An operator can correct `signIn` in EBB_OIDC, or the client \
             at the issuer"
        );
        unavailable(issuer, &text)
    }

    /// Exchanges a code for tokens.
    ///
    /// # Errors
    /// Returns 401 for a code that the issuer does not accept, and 503 without a usable response.
    pub(super) async fn redeem(
        &self,
        document: &DiscoveryDocument,
        code: &str,
        pending: &PendingSignIn,
        env: &Env,
    ) -> HttpResult<TokenResponse> {
        let endpoint = &document.token_endpoint;
        let url = check_url(endpoint).map_err(|reason| unusable(document, &reason))?;
        let request = self.token_request(url, code, pending, env);
        let request = request.map_err(|reason| self.refused_client(document, &reason))?;
        let sent = request.headers.iter().filter_map(|(_, value)| value.strip_prefix("Basic ").map(str::to_owned));
        let secret = self.client_secret.as_ref().and_then(|name| client_secret(name, env).ok());
        let secrets: Vec<SecretText> = sent.map(SecretText::new).chain(secret).collect();
        let response = env.egress.call(request).await;
        let response = response.map_err(|error| unusable(document, &format!("{endpoint}: {error}")))?;
        let responded = || format!("{endpoint} responded with status {}", response.status_text());
        match response.status {
            // The text of the parser could contain a part of a token.
            200 => serde_json::from_slice(&response.body)
                .map_err(|_| unusable(document, &format!("{endpoint} returned no identity token"))),
            // A request that came too late or too often says nothing about the client.
            _ if response.status == 408 || response.is_limited() => Err(unusable(document, &responded())),
            400..=499 => {
                let refusal = serde_json::from_slice::<Value>(&response.body).unwrap_or_default();
                if refusal["error"] == "invalid_grant" {
                    let issuer = &document.issuer;
                    return Err(refused(format!(
                        "the issuer {issuer} does not accept its code any more: sign in again"
                    )));
                }
                let reason = oauth_error(&refusal, &secrets).unwrap_or_else(responded);
                Err(self.refused_client(document, &reason))
            }
            _ => Err(unusable(document, &responded())),
        }
    }

    /// Adds the claims of the userinfo endpoint that the verified claims lack, if the configuration asks for them.
    ///
    /// # Errors
    /// Returns 503 without a usable response.
    pub(super) async fn add_user_info(
        &self,
        document: &DiscoveryDocument,
        tokens: &TokenResponse,
        claims: &mut Value,
        env: &Env,
    ) -> HttpResult<()> {
        if !self.user_info {
            return Ok(());
        }
        let endpoint = &document.userinfo_endpoint;
        let read = async {
            check_url(endpoint)?;
            let body = get(env.egress.as_ref(), endpoint, Some(format!("Bearer {}", tokens.access_token)));
            let body = body.await.map_err(|(reason, _)| reason)?;
            // The text of the parser could contain a claim.
            serde_json::from_slice::<Map<String, Value>>(&body)
                .map_err(|_| format!("{endpoint} returned no JSON object"))
        };
        let found = read.await.map_err(|reason: String| unusable(document, &reason))?;
        // OpenID Connect Core 5.3.2: the claims of another subject must not be used.
        if found.get("sub") != claims.get("sub") {
            return Err(unusable(document, &format!("{endpoint} returned the claims of another subject")));
        }
        if let Value::Object(claims) = claims {
            // `azp` belongs to the token. It is checked again with each use of the session.
            for (name, value) in found.into_iter().filter(|(name, _)| name != "azp") {
                claims.entry(name).or_insert(value);
            }
        }
        Ok(())
    }

    /// Returns true if an identity token was issued to this client.
    pub(super) fn is_audience(&self, claims: &Value) -> bool {
        let is_own = |value: &Value| value.as_str() == Some(self.client_id.as_str());
        let (has_own, is_only) = match &claims["aud"] {
            Value::Array(all) => (all.iter().any(is_own), all.len() == 1),
            one => (is_own(one), true),
        };
        // A token for several audiences names the client that requested it.
        has_own && claims.get("azp").map_or(is_only, is_own)
    }
}
