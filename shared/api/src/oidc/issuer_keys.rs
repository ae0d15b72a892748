//! The public keys and the endpoints of an issuer, from its discovery document. They are kept for an hour.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use ebb_egress::{HttpCall, HttpRequest};
use ebb_engine::Millis;
use ebb_flow::ports::SteadyTime;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::check_url;

/// The reason of a question that comes too soon after a failed one.
const TOO_SOON: &str = "the last request failed: try again in some seconds";
/// The time after which fetched keys are not used any more, so that a removed key ends.
const MAX_AGE: Millis = Millis(3_600_000);
/// The time between two fetches. A sender can name unknown keys without end.
const FETCH_INTERVAL: Millis = Millis(60_000);
/// The time after a failed fetch.
const RETRY_INTERVAL: Millis = Millis(5_000);
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum number of keys of an issuer.
const MAX_KEYS: usize = 100;

#[derive(Debug)]
pub(super) struct IssuerKeys {
    issuer: String,
    discovery: String,
    fetched: RwLock<Option<FetchedKeys>>,
    /// The earliest time of the next fetch. The lock is held during a fetch.
    next_fetch: Mutex<Option<SteadyTime>>,
}

#[derive(Debug)]
struct FetchedKeys {
    at: SteadyTime,
    keys: Vec<Jwk>,
    endpoints: IssuerEndpoints,
}

/// The endpoints of the discovery document that a sign-in needs. An issuer of pipelines may lack them.
#[derive(Clone, Debug, Default)]
pub(super) struct IssuerEndpoints {
    pub authorization: String,
    pub token: String,
    pub user_info: String,
    /// True if each answer names its issuer (RFC 9207).
    pub names_issuer: bool,
    /// The accepted values of `prompt`. An issuer may list none.
    pub prompts: Vec<String>,
}

impl IssuerEndpoints {
    /// Returns the value of `prompt` that lets a person with a session at the issuer choose another account.
    pub(super) fn account_prompt(&self) -> &'static str {
        let lists = |value: &str| self.prompts.iter().any(|listed| listed == value);
        if lists("login") && !lists("select_account") { "login" } else { "select_account" }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyError {
    /// The issuer has no such key.
    Unknown,
    /// The keys cannot be fetched, for this reason.
    Unavailable(String),
}

#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    jwks_uri: String,
    #[serde(default)]
    authorization_endpoint: String,
    #[serde(default)]
    token_endpoint: String,
    #[serde(default)]
    userinfo_endpoint: String,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    prompt_values_supported: Vec<String>,
}

#[derive(Deserialize)]
struct KeySet {
    /// Keys of unknown kinds are skipped.
    keys: Vec<Value>,
}

impl IssuerKeys {
    pub(super) fn new(url: &Url, issuer: &str) -> Self {
        let base = url.as_str().trim_end_matches('/');
        let discovery = format!("{base}/.well-known/openid-configuration");
        Self { issuer: issuer.to_owned(), discovery, fetched: RwLock::default(), next_fetch: Mutex::default() }
    }

    /// Returns the key with an id for an algorithm. Fetches the keys if they are missing or old, and once a minute at
    /// most if the id is unknown.
    pub(super) async fn find(
        &self,
        kid: &str,
        algorithm: Algorithm,
        http: &dyn HttpCall,
        now: SteadyTime,
    ) -> Result<DecodingKey, KeyError> {
        if let Some(Ok(key)) = self.known(kid, algorithm, now) {
            return Ok(key);
        }
        let mut next_fetch = self.next_fetch.lock().await;
        // Another request may have fetched the keys.
        let known = self.known(kid, algorithm, now);
        if let Some(Ok(key)) = known {
            return Ok(key);
        }
        if next_fetch.is_some_and(|next| now < next) {
            return Err(match known {
                Some(_) => KeyError::Unknown,
                None => KeyError::Unavailable(TOO_SOON.to_owned()),
            });
        }
        self.renew(&mut next_fetch, http, now).await.map_err(KeyError::Unavailable)?;
        self.known(kid, algorithm, now).unwrap_or(Err(KeyError::Unknown))
    }

    /// Returns the endpoints. Fetches them if they are missing or old.
    ///
    /// # Errors
    /// Returns the reason why they cannot be fetched.
    pub(super) async fn endpoints(&self, http: &dyn HttpCall, now: SteadyTime) -> Result<IssuerEndpoints, String> {
        let known = || self.fresh(now, |fetched| fetched.endpoints.clone());
        if let Some(known) = known() {
            return Ok(known);
        }
        let mut next_fetch = self.next_fetch.lock().await;
        // Another request may have fetched them.
        if let Some(known) = known() {
            return Ok(known);
        }
        if next_fetch.is_some_and(|next| now < next) {
            return Err(TOO_SOON.to_owned());
        }
        self.renew(&mut next_fetch, http, now).await?;
        Ok(known().unwrap_or_default())
    }

    /// Fetches the document and the keys.
    async fn renew(
        &self,
        next_fetch: &mut Option<SteadyTime>,
        http: &dyn HttpCall,
        now: SteadyTime,
    ) -> Result<(), String> {
        match self.fetch(http).await {
            Ok((keys, endpoints)) => {
                *next_fetch = Some(now.plus(FETCH_INTERVAL));
                let fetched = FetchedKeys { at: now, keys, endpoints };
                *self.fetched.write().unwrap_or_else(PoisonError::into_inner) = Some(fetched);
                Ok(())
            }
            Err(reason) => {
                *next_fetch = Some(now.plus(RETRY_INTERVAL));
                tracing::warn!(issuer = self.issuer, reason, "cannot fetch the keys of an issuer");
                Err(reason)
            }
        }
    }

    /// Returns what `read` returns about the fetched data, or `None` if it is missing or old.
    fn fresh<T>(&self, now: SteadyTime, read: impl FnOnce(&FetchedKeys) -> T) -> Option<T> {
        let fetched = self.fetched.read().unwrap_or_else(PoisonError::into_inner);
        fetched.as_ref().filter(|fetched| now < fetched.at.plus(MAX_AGE)).map(read)
    }

    /// Returns a key of the fetched ones, or `None` if they are missing or old.
    fn known(&self, kid: &str, algorithm: Algorithm, now: SteadyTime) -> Option<Result<DecodingKey, KeyError>> {
        self.fresh(now, |fetched| {
            let mut fitting =
                fetched.keys.iter().filter(|key| key.common.key_id.as_deref() == Some(kid) && fits(key, algorithm));
            fitting.find_map(|key| DecodingKey::from_jwk(key).ok()).ok_or(KeyError::Unknown)
        })
    }

    async fn fetch(&self, http: &dyn HttpCall) -> Result<(Vec<Jwk>, IssuerEndpoints), String> {
        let discovery: DiscoveryDocument = get(http, &self.discovery).await?;
        if discovery.issuer != self.issuer {
            return Err(format!("{} names another issuer", self.discovery));
        }
        check_url(&discovery.jwks_uri)?;
        let set: KeySet = get(http, &discovery.jwks_uri).await?;
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let endpoints = IssuerEndpoints {
            authorization: discovery.authorization_endpoint,
            token: discovery.token_endpoint,
            user_info: discovery.userinfo_endpoint,
            names_issuer: discovery.authorization_response_iss_parameter_supported,
            prompts: discovery.prompt_values_supported,
        };
        Ok((keys.take(MAX_KEYS).collect(), endpoints))
    }
}

/// Returns true if a key is for signatures of an algorithm.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let signs = key.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let declared = key.common.key_algorithm;
    signs
        && match (algorithm, &key.algorithm) {
            (Algorithm::RS256, AlgorithmParameters::RSA(_)) => declared.is_none_or(|it| it == KeyAlgorithm::RS256),
            (Algorithm::ES256, AlgorithmParameters::EllipticCurve(key)) => {
                key.curve == EllipticCurve::P256 && declared.is_none_or(|it| it == KeyAlgorithm::ES256)
            }
            _ => false,
        }
}

async fn get<T: serde::de::DeserializeOwned>(http: &dyn HttpCall, url: &str) -> Result<T, String> {
    let request = HttpRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: vec![("accept".to_owned(), "application/json".to_owned())],
        body: Vec::new(),
        timeout: FETCH_TIMEOUT,
    };
    let response = http.call(request).await.map_err(|error| format!("{url}: {error}"))?;
    if response.status != 200 {
        return Err(format!("{url} responded with status {}", response.status));
    }
    serde_json::from_slice(&response.body).map_err(|error| format!("{url}: {error}"))
}
