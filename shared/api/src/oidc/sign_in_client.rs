//! Ebb as a client of an issuer: the sign-in of a person by the authorization code flow with PKCE (RFC 7636).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_console::paths;
use ebb_egress::HttpRequest;
use ebb_flow::Env;
use ebb_protocol::limits;
use ebb_protocol::named_secrets::{SecretText, is_secret_name};
use ebb_protocol::session::PendingSignIn;
use serde::Deserialize;
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::issuer_keys::{FETCH_TIMEOUT, IssuerEndpoints};
use super::{SignInAccount, check_url};

const DEFAULT_SCOPE: &str = "openid profile email";

/// The registration of Ebb at an issuer.
#[derive(Debug)]
pub(super) struct SignInClient {
    pub id: String,
    /// The name of the secret of a confidential client. A public client has none.
    secret: Option<String>,
    /// The claims that are asked for, as scopes of the issuer.
    scope: String,
    /// True if the userinfo endpoint is asked for claims, too.
    reads_user_info: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SignInConfig {
    client_id: String,
    client_secret: Option<String>,
    scope: Option<String>,
    #[serde(default)]
    user_info: bool,
}

/// The successful response of a token endpoint.
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    /// The identity token, which is not verified.
    pub id_token: String,
    /// The token for the userinfo endpoint.
    #[serde(default)]
    access_token: String,
}

/// The failed response of a token endpoint.
#[derive(Default, Deserialize)]
struct TokenRefusal {
    #[serde(default)]
    error: String,
}

/// The reason why an issuer has returned no token.
pub(super) enum RedeemError {
    /// The issuer does not accept the code. The person can begin again.
    Code,
    /// The issuer does not accept the client, with this code of an error. An operator has to act.
    Client(String),
    Unavailable(String),
}

/// Returns the URL to which an issuer sends the browser back.
pub(super) fn redirect_uri(env: &Env) -> String {
    format!("{}{}", env.settings.source.trim_end_matches('/'), paths::SIGN_IN_RETURN)
}

impl SignInClient {
    /// # Errors
    /// Returns a text for operators: the field that is wrong, and the expected value.
    pub(super) fn parse(config: SignInConfig) -> Result<Self, String> {
        let SignInConfig { client_id: id, client_secret: secret, scope, user_info: reads_user_info } = config;
        let scope = scope.unwrap_or_else(|| DEFAULT_SCOPE.to_owned());
        if id.is_empty() {
            return Err("`clientId` is empty; expected the id of the client at the issuer".to_owned());
        }
        if secret.as_ref().is_some_and(|name| !is_secret_name(name)) {
            return Err("`clientSecret` is not the name of a secret; expected a name such as EBB_CLIENT".to_owned());
        }
        if !scope.split(' ').any(|word| word == "openid") {
            return Err(format!("the scope {scope:?} has no `openid`, so the issuer would return no identity token"));
        }
        Ok(Self { id, secret, scope, reads_user_info })
    }

    /// Returns the URL at which a browser signs in as the person who has a session at the issuer, or as another one.
    pub(super) fn authorization_url(
        &self,
        endpoints: &IssuerEndpoints,
        account: SignInAccount,
        pending: &PendingSignIn,
        env: &Env,
    ) -> Result<Url, String> {
        let mut url = check_url(&endpoints.authorization)?;
        url.set_fragment(None);
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.id)
            .append_pair("redirect_uri", &redirect_uri(env))
            .append_pair("scope", &self.scope)
            .append_pair("state", &pending.state())
            .append_pair("nonce", &pending.nonce())
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        if account == SignInAccount::Other {
            query.append_pair("prompt", endpoints.account_prompt());
        }
        drop(query);
        Ok(url)
    }

    /// Returns the secret of the client, if it has one.
    fn secret(&self, env: &Env) -> Result<Option<SecretText>, RedeemError> {
        let Some(name) = &self.secret else { return Ok(None) };
        let found = env.settings.secrets.secret(name);
        let found = found.and_then(|found| found.ok_or_else(|| format!("the secret {name} does not exist")));
        found.map(Some).map_err(|reason| {
            tracing::error!(name, reason, "the secret of the client for sign-ins cannot be read");
            RedeemError::Client("its `clientSecret` cannot be read; the log has the cause".to_owned())
        })
    }

    fn token_request(
        &self,
        url: Url,
        code: &str,
        pending: &PendingSignIn,
        env: &Env,
    ) -> Result<HttpRequest, RedeemError> {
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
        ];
        let (redirect, verifier) = (redirect_uri(env), pending.verifier());
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code");
        form.append_pair("code", code).append_pair("redirect_uri", &redirect);
        form.append_pair("code_verifier", &verifier);
        match self.secret(env)? {
            None => {
                form.append_pair("client_id", &self.id);
            }
            Some(secret) => {
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let credential = STANDARD.encode(format!("{}:{}", encoded(&self.id), encoded(secret.as_str())));
                headers.push(("authorization".to_owned(), format!("Basic {credential}")));
            }
        }
        let body = form.finish().into_bytes();
        Ok(HttpRequest { method: "POST".to_owned(), url: url.into(), headers, body, timeout: FETCH_TIMEOUT })
    }

    /// Exchanges a code for tokens.
    pub(super) async fn redeem(
        &self,
        endpoint: &str,
        code: &str,
        pending: &PendingSignIn,
        env: &Env,
    ) -> Result<TokenResponse, RedeemError> {
        let url = check_url(endpoint).map_err(RedeemError::Unavailable)?;
        let request = self.token_request(url, code, pending, env)?;
        let response = env.egress.call(request).await;
        let response = response.map_err(|error| RedeemError::Unavailable(format!("{endpoint}: {error}")))?;
        match response.status {
            // The text of the parser could contain a part of a token.
            200 => serde_json::from_slice(&response.body)
                .map_err(|_| RedeemError::Unavailable(format!("{endpoint} returned no identity token"))),
            // A request that came too late or too often says nothing about the client.
            status @ (408 | 429) => Err(RedeemError::Unavailable(format!("{endpoint} responded with status {status}"))),
            status @ 400..=499 => {
                let refusal = serde_json::from_slice::<TokenRefusal>(&response.body).unwrap_or_default();
                match refusal.error.as_str() {
                    "invalid_grant" => Err(RedeemError::Code),
                    "" => Err(RedeemError::Client(format!("{endpoint} responded with status {status}"))),
                    error => Err(RedeemError::Client(limits::clean(error, limits::REFUSAL))),
                }
            }
            status => Err(RedeemError::Unavailable(format!("{endpoint} responded with status {status}"))),
        }
    }

    /// Adds the claims of the userinfo endpoint that the verified claims lack, if the configuration asks for them.
    ///
    /// # Errors
    /// Returns the reason why the endpoint cannot be used.
    pub(super) async fn add_user_info(
        &self,
        endpoint: &str,
        tokens: &TokenResponse,
        claims: &mut Value,
        env: &Env,
    ) -> Result<(), String> {
        if !self.reads_user_info {
            return Ok(());
        }
        let request = HttpRequest {
            method: "GET".to_owned(),
            url: check_url(endpoint)?.into(),
            headers: vec![
                ("accept".to_owned(), "application/json".to_owned()),
                ("authorization".to_owned(), format!("Bearer {}", tokens.access_token)),
            ],
            body: Vec::new(),
            timeout: FETCH_TIMEOUT,
        };
        let response = env.egress.call(request).await.map_err(|error| format!("{endpoint}: {error}"))?;
        if response.status != 200 {
            return Err(format!("{endpoint} responded with status {}", response.status));
        }
        // The text of the parser could contain a claim.
        let found: Map<String, Value> =
            serde_json::from_slice(&response.body).map_err(|_| format!("{endpoint} returned no JSON object"))?;
        // OpenID Connect Core 5.3.2: the claims of another subject must not be used.
        if found.get("sub") != claims.get("sub") {
            return Err(format!("{endpoint} returned the claims of another subject"));
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
        let is_own = |value: &Value| value.as_str() == Some(self.id.as_str());
        let (has_own, is_only) = match &claims["aud"] {
            Value::Array(all) => (all.iter().any(is_own), all.len() == 1),
            one => (is_own(one), true),
        };
        // A token for several audiences names the client that requested it.
        has_own && claims.get("azp").map_or(is_only, is_own)
    }
}
