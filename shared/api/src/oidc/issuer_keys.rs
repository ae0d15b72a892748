//! The discovery document and the public keys of an issuer. They are kept for an hour.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ebb_documents::template::is_loopback;
use ebb_egress::{HttpCall, HttpRequest};
use ebb_engine::Millis;
use ebb_flow::ports::SteadyTime;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

/// The time after which fetched keys are not used any more, so that a removed key ends.
const MAX_AGE: Millis = Millis(3_600_000);
/// The time between two fetches, also after a limit of requests. A sender can name unknown keys without end.
const FETCH_INTERVAL: Millis = Millis(60_000);
/// The time after a failed fetch.
const RETRY_INTERVAL: Millis = Millis(5_000);
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum number of keys of an issuer.
const MAX_KEYS: usize = 100;

/// The reason why a request failed, and the time until the next fetch.
type FetchFailure = (String, Millis);
/// The id of a key, and the algorithm of its signatures.
pub(super) type KeyName<'a> = (&'a str, Algorithm);

#[derive(Debug, Default)]
pub(super) struct IssuerKeys {
    fetched: RwLock<Option<Arc<FetchedIssuer>>>,
    /// The earliest time of the next fetch. The lock is held during a fetch.
    next_fetch: Mutex<SteadyTime>,
}

#[derive(Debug)]
pub(super) struct FetchedIssuer {
    at: SteadyTime,
    keys: Vec<Jwk>,
    pub document: DiscoveryDocument,
}

/// The members of the discovery document that are used. An issuer of pipelines may lack the endpoints of a sign-in.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DiscoveryDocument {
    pub issuer: String,
    pub(super) jwks_uri: String,
    #[serde(default)]
    pub authorization_endpoint: String,
    #[serde(default)]
    pub token_endpoint: String,
    #[serde(default)]
    pub userinfo_endpoint: String,
    /// True if each answer names its issuer (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    /// The accepted values of `prompt`. An issuer may list none.
    #[serde(default)]
    pub prompt_values_supported: Vec<String>,
}

impl DiscoveryDocument {
    /// Returns the value of `prompt` that lets a person with a session at the issuer choose another account.
    pub(super) fn account_prompt(&self) -> &'static str {
        let lists = |value: &str| self.prompt_values_supported.iter().any(|listed| listed == value);
        if lists("login") && !lists("select_account") { "login" } else { "select_account" }
    }
}

#[derive(Deserialize)]
struct KeySet {
    /// Keys of unknown kinds are skipped.
    keys: Vec<Value>,
}

impl FetchedIssuer {
    pub(super) fn key(&self, (kid, algorithm): KeyName<'_>) -> Option<DecodingKey> {
        let named = self.keys.iter().filter(|key| key.common.key_id.as_deref() == Some(kid));
        named.filter(|key| fits(key, algorithm)).find_map(|key| DecodingKey::from_jwk(key).ok())
    }

    fn has(&self, wanted: Option<KeyName<'_>>) -> bool {
        wanted.is_none_or(|name| self.key(name).is_some())
    }
}

impl IssuerKeys {
    /// Returns what `issuer` has published. Fetches it if it is missing or old, and once a minute at most if it lacks the wanted
    /// key.
    ///
    /// # Errors
    /// Returns the reason why it cannot be fetched.
    pub(super) async fn published(
        &self,
        issuer: &str,
        wanted: Option<KeyName<'_>>,
        http: &dyn HttpCall,
        now: SteadyTime,
    ) -> Result<Arc<FetchedIssuer>, String> {
        if let Some(known) = self.known(now).filter(|known| known.has(wanted)) {
            return Ok(known);
        }
        let mut next_fetch = self.next_fetch.lock().await;
        let is_too_soon = now < *next_fetch;
        // Another request may have fetched it.
        match self.known(now) {
            Some(known) if is_too_soon || known.has(wanted) => return Ok(known),
            None if is_too_soon => return Err("the last request failed: try again in some seconds".to_owned()),
            Some(_) | None => {}
        }
        match fetch(issuer, http, now).await {
            Ok(fetched) => {
                let fetched = Arc::new(fetched);
                *next_fetch = now.plus(FETCH_INTERVAL);
                *self.fetched.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&fetched));
                Ok(fetched)
            }
            Err((reason, wait)) => {
                *next_fetch = now.plus(wait);
                tracing::warn!(issuer, reason, "cannot fetch the keys of an issuer");
                Err(reason)
            }
        }
    }

    /// Returns what was fetched, unless it is missing or old.
    fn known(&self, now: SteadyTime) -> Option<Arc<FetchedIssuer>> {
        let fetched = self.fetched.read().unwrap_or_else(PoisonError::into_inner);
        fetched.clone().filter(|fetched| now < fetched.at.plus(MAX_AGE))
    }
}

/// Checks that a URL of an issuer is `https`. On the loopback interface, `http` is allowed.
pub(super) fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        scheme => Err(format!("{text:?} has the scheme {scheme}; expected https")),
    }
}

fn later(reason: String) -> FetchFailure {
    (reason, RETRY_INTERVAL)
}

async fn fetch(issuer: &str, http: &dyn HttpCall, now: SteadyTime) -> Result<FetchedIssuer, FetchFailure> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let document: DiscoveryDocument = get_json(http, &url).await?;
    if document.issuer != issuer {
        return Err(later(format!("{url} names another issuer")));
    }
    check_url(&document.jwks_uri).map_err(later)?;
    let set: KeySet = get_json(http, &document.jwks_uri).await?;
    let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    Ok(FetchedIssuer { at: now, keys: keys.take(MAX_KEYS).collect(), document })
}

fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let own = match (algorithm, &key.algorithm) {
        (Algorithm::RS256, AlgorithmParameters::RSA(_)) => KeyAlgorithm::RS256,
        (Algorithm::ES256, AlgorithmParameters::EllipticCurve(key)) if key.curve == EllipticCurve::P256 => {
            KeyAlgorithm::ES256
        }
        _ => return false,
    };
    key.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && key.common.key_algorithm.is_none_or(|declared| declared == own)
}

async fn get_json<T: DeserializeOwned>(http: &dyn HttpCall, url: &str) -> Result<T, FetchFailure> {
    let body = get(http, url, None).await?;
    serde_json::from_slice(&body).map_err(|error| later(format!("{url}: {error}")))
}

/// Returns the body of a response with status 200.
pub(super) async fn get(
    http: &dyn HttpCall,
    url: &str,
    authorization: Option<String>,
) -> Result<Vec<u8>, FetchFailure> {
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    headers.extend(authorization.map(|value| ("authorization".to_owned(), value)));
    let request = HttpRequest::new("GET", url, headers, Vec::new(), FETCH_TIMEOUT);
    let response = http.call(request).await.map_err(|error| later(format!("{url}: {error}")))?;
    match response.status {
        200 => Ok(response.body),
        _ => {
            let wait = if response.is_limited() { FETCH_INTERVAL } else { RETRY_INTERVAL };
            Err((format!("{url} responded with status {}", response.status_text()), wait))
        }
    }
}
