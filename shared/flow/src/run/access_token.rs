//! Access tokens of connections, by the client credentials of OAuth 2.0 (RFC 6749, 4.4), and those of GitHub Apps.
//!
//! All functions share a token. It is stored encrypted, and a lease lets one function ask for the next one. The others use the
//! present token until its end. A failure is stored with a pause, so that a token endpoint gets few requests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_documents::model::{ClientAuthMethod, ConnectionDoc, GithubAppDoc, OauthDoc};
use ebb_documents::plan::UnitPlan;
use ebb_egress::{BytePermit, CallError, CallResult, HttpRequest, HttpResponse, TlsParts};
use ebb_protocol::{Millis, ReasonCode, SecretText, Timestamp, WebhookKeys, id, limits, seal};
use ebb_store::AccessTokenItem;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::env::KnownToken;
use crate::run::cluster_call::ClusterRoute;
use crate::run::masking::{forms, masked};
use crate::{AttemptFailure, Env, FlowResult, response_body};

/// Maximum wait for the response of a token endpoint, and for another function that asks it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The lease of a request for a token.
const LEASE: Millis = Millis(10_000);
/// The time between two looks at a lease.
const POLL: Duration = Duration::from_millis(200);
/// The pause after a failure, unless the server requests another one.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// The time for which a 401 of a URL that has rejected two tokens renews none.
const KEPT: Millis = Millis(60_000);
/// The life of a token whose response has none, and the longest one.
const DEFAULT_LIFE: u64 = 300;
const MAX_LIFE: u64 = 24 * 3600;
/// Bytes of a token. Masking shorter ones would damage responses.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 8..=16 << 10;
/// The seconds for which a token of a GitHub App is valid, of at most 600, and by which the clock of GitHub may be behind.
const APP_LIFE: u64 = 540;
const APP_SKEW: u64 = 60;
/// Characters of a digest of a client.
const DIGEST: usize = 16;

/// The reason why a request has no credential. It contains no secret.
#[derive(Clone, Debug)]
pub(crate) struct CredentialProblem {
    pub(crate) why: String,
    /// The seconds until a repetition may succeed. `None` if an operator has to act.
    pub(crate) retry_after: Option<u64>,
}

impl CredentialProblem {
    /// Returns the failure of an attempt of `unit`. An undo is retried, because an operator can restore a connection.
    pub(crate) fn failure(self, unit: &UnitPlan) -> AttemptFailure {
        let code = if unit.undoes.is_empty() { ReasonCode::NotStartable } else { ReasonCode::Failed };
        AttemptFailure { retry_after: self.retry_after, ..AttemptFailure::new(code, &self.why) }
    }
}

impl From<String> for CredentialProblem {
    fn from(why: String) -> Self {
        Self { why, retry_after: None }
    }
}

/// A GitHub App, which signs its own tokens.
struct GithubApp {
    id: String,
    key: EncodingKey,
}

impl GithubApp {
    fn token(&self, now: Timestamp) -> Option<SecretText> {
        let seconds = now.0 / 1000;
        let claims = json!({"iat": seconds.saturating_sub(APP_SKEW), "exp": seconds + APP_LIFE, "iss": self.id});
        jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &self.key).ok().map(SecretText::new)
    }
}

pub(crate) struct TokenClient {
    connection: String,
    /// Empty for the tokens of an App itself.
    url: String,
    headers: Vec<(String, String)>,
    form: SecretText,
    app: Option<GithubApp>,
    tls: TlsParts,
    /// The forms of the secret that are masked in answers.
    pub(crate) masked: Vec<SecretText>,
    /// Identifies the request, and says nothing about the secret.
    digest: String,
}

impl TokenClient {
    pub(crate) fn new(
        keys: &WebhookKeys,
        document: &ConnectionDoc,
        oauth: &OauthDoc,
        (secret, tls): (&str, TlsParts),
    ) -> Self {
        let url = match oauth.token_url.value.starts_with('/') {
            true => format!("{}{}", document.origin.value, oauth.token_url.value),
            false => oauth.token_url.value.clone(),
        };
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let mut masked = vec![SecretText::new(encoded(secret))];
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
        ];
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        for (name, value) in [("scope", &oauth.scope.value), ("audience", &oauth.audience.value)] {
            if !value.is_empty() {
                form.append_pair(name, value);
            }
        }
        match oauth.method {
            ClientAuthMethod::Basic => {
                let pair = SecretText::new(format!("{}:{}", encoded(&oauth.client_id.value), masked[0].as_str()));
                let pair = STANDARD.encode(pair.as_bytes());
                headers.push(("authorization".to_owned(), format!("Basic {pair}")));
                masked.push(SecretText::new(pair));
            }
            ClientAuthMethod::Post => {
                form.append_pair("client_id", &oauth.client_id.value).append_pair("client_secret", secret);
            }
        }
        let form = SecretText::new(form.finish());
        masked.extend(forms(secret));
        let certified = tls.certificate.as_ref().map_or("", |pem| pem.as_str());
        let all = SecretText::new(format!("{url}\n{headers:?}\n{}\n{certified}", form.as_str()));
        let connection = document.name.value.clone();
        let digest = Self::digest(keys, &connection, &all);
        Self { connection, url, headers, form, app: None, tls, masked, digest }
    }

    /// Returns `None` if the secret is not a private key in PKCS #1, the form of GitHub.
    pub(crate) fn of_app(
        keys: &WebhookKeys,
        document: &ConnectionDoc,
        app: &GithubAppDoc,
        (secret, tls): (&str, TlsParts),
    ) -> Option<Self> {
        let pem = secret.trim().strip_prefix("-----BEGIN RSA PRIVATE KEY-----")?;
        let lines = pem.strip_suffix("-----END RSA PRIVATE KEY-----")?.split_whitespace();
        let der = STANDARD.decode(lines.collect::<String>()).ok()?;
        let (id, installation) = (app.app_id.value.clone(), app.installation.value.as_str());
        let url = match installation {
            "" => String::new(),
            of => {
                // The API of GitHub Enterprise Server has a path.
                let origin = document.origin.value.as_str();
                let api = if origin.starts_with("https://api.") { "" } else { "/api/v3" };
                format!("{origin}{api}/app/installations/{of}/access_tokens")
            }
        };
        let all = SecretText::new(format!("{url}\n{id}\n{secret}"));
        let connection = document.name.value.clone();
        let digest = Self::digest(keys, &connection, &all);
        let app = GithubApp { id, key: EncodingKey::from_rsa_der(&der) };
        app.token(Timestamp::default())?;
        let headers = vec![("accept".to_owned(), "application/json".to_owned())];
        let (form, app, masked) = (SecretText::default(), Some(app), forms(secret).collect());
        Some(Self { connection, url, headers, form, app, tls, masked, digest })
    }

    fn digest(keys: &WebhookKeys, connection: &str, request: &SecretText) -> String {
        id::short_digest(&[&seal::seal_value(keys, connection, request.as_bytes())], DIGEST)
    }

    /// The place of the encrypted token.
    fn place(&self) -> String {
        format!("connection {} {}", self.connection, self.digest)
    }

    fn open(&self, env: &Env, item: &AccessTokenItem) -> Option<KnownToken> {
        let token = seal::open_value(&env.settings.unit_keys, &self.place(), item.token.as_deref()?)?;
        let token = SecretText::new(String::from_utf8(token).ok()?);
        Some(KnownToken { token, obtained: item.obtained, expires: item.expires })
    }

    /// Notes that a URL has rejected two tokens one after the other, so its 401 is not about the token.
    pub(crate) fn keep(&self, env: &Env, url: &str) {
        env.cache.rejections.put(&self.rejection(url), env.now().plus(KEPT), url.len());
    }

    fn rejection(&self, url: &str) -> String {
        format!("{} {url}", self.digest)
    }

    /// Returns a token that is valid and not the one that a URL has `rejected`, or the reason why there is none. Takes two
    /// thirds of `time` at most. The rest of it is for the request that needs the token.
    pub(crate) async fn token(
        &self,
        env: &Env,
        rejected: Option<(&SecretText, &str)>,
        time: Duration,
    ) -> FlowResult<Result<SecretText, CredentialProblem>> {
        let is_other = |known: &KnownToken| rejected.is_none_or(|(token, _)| *token != known.token);
        let is_usable = |known: &KnownToken| env.now() < known.expires && is_other(known);
        let kept_until = rejected.and_then(|(_, url)| env.cache.rejections.get(&self.rejection(url)));
        let is_asked = !time.is_zero() && kept_until.is_none_or(|until| until <= env.now());
        let known = env.cache.access_tokens.get(&self.digest).filter(is_usable);
        if let Some(known) = known.filter(|known| is_fresh(known, env.now())) {
            return Ok(Ok(known.token));
        }
        let (begun, key) = (env.now(), (self.connection.as_str(), self.digest.as_str()));
        loop {
            let now = env.now();
            let item = env.store.read_access_token(key).await?.unwrap_or_default();
            let known = self.open(env, &item).filter(is_usable);
            if let Some(known) = known.as_ref().filter(|known| is_fresh(known, now) || item.leased_until > now) {
                env.cache.access_tokens.put(&self.digest, known.clone(), known.token.len());
                return Ok(Ok(known.token.clone()));
            }
            if item.leased_until > now
                && let Some(why) = item.failure
            {
                return Ok(Err(self.problem(why, Some(item.leased_until.since(now).0.div_ceil(1000)))));
            }
            if !is_asked {
                return Ok(Err(self.problem("is not asked now".to_owned(), Some(1))));
            }
            let lease = AccessTokenItem { leased_until: now.plus(LEASE), failure: None, ..item };
            if item.leased_until <= now && env.store.put_access_token(key, &lease, Some(now)).await? {
                let left = (time * 2 / 3).saturating_sub(Duration::from_millis(env.now().since(begun).0));
                return self.renew(env, lease, (known, left.min(TIMEOUT))).await;
            }
            if now.since(begun) >= TIMEOUT.min(time / 3).into() {
                return Ok(Err(self.problem("is being asked by another request".to_owned(), Some(1))));
            }
            env.clock.sleep(POLL).await;
        }
    }

    fn problem(&self, why: String, retry_after: Option<u64>) -> CredentialProblem {
        CredentialProblem { why: format!("the token endpoint of connection {} {why}", self.connection), retry_after }
    }

    /// Asks for a token and stores it, or the failure. The present token is used as long as it is valid.
    async fn renew(
        &self,
        env: &Env,
        lease: AccessTokenItem,
        (present, timeout): (Option<KnownToken>, Duration),
    ) -> FlowResult<Result<SecretText, CredentialProblem>> {
        let mut headers = self.headers.clone();
        let own = self.app.as_ref().and_then(|app| app.token(env.now()));
        headers.extend(own.iter().map(|own| ("authorization".to_owned(), format!("Bearer {}", own.as_str()))));
        let request = HttpRequest::new("POST", &self.url, headers, self.form.as_bytes().to_vec(), timeout);
        let (granted, now) = match own {
            Some(own) if self.url.is_empty() => (Ok((own, APP_LIFE - APP_SKEW)), env.now()),
            _ => {
                let answer = send(env, request, &self.tls, None).await;
                let granted = match &answer {
                    Ok((response, _permit)) => granted(response, env.now(), &self.masked),
                    Err(CallError::Refused(why)) => Err((format!("cannot be asked: {why}"), None)),
                    Err(error) => Err((format!("gave no answer: {error}"), Some(PAUSE))),
                };
                (granted, env.now())
            }
        };
        let key = (self.connection.as_str(), self.digest.as_str());
        match granted {
            Ok((token, life)) => {
                let sealed = seal::seal_value(&env.settings.unit_keys, &self.place(), token.as_bytes());
                let expires = now.plus(Millis(life.saturating_mul(1000)));
                let item =
                    AccessTokenItem { token: Some(sealed), obtained: now, expires, ..AccessTokenItem::default() };
                env.store.put_access_token(key, &item, None).await?;
                let known = KnownToken { token: token.clone(), obtained: now, expires };
                env.cache.access_tokens.put(&self.digest, known, token.len());
                Ok(Ok(token))
            }
            Err((why, pause)) => {
                let leased_until = now.plus(pause.unwrap_or(PAUSE).into());
                let item = AccessTokenItem { leased_until, failure: pause.is_some().then(|| why.clone()), ..lease };
                env.store.put_access_token(key, &item, None).await?;
                let problem = self.problem(why, pause.map(|pause| pause.as_secs().max(1)));
                Ok(present.map(|present| present.token).ok_or(problem))
            }
        }
    }
}

/// Sends a request, by the relay of a cluster or directly.
pub(crate) async fn send(
    env: &Env,
    request: HttpRequest,
    tls: &TlsParts,
    route: Option<&ClusterRoute>,
) -> CallResult<(HttpResponse, BytePermit)> {
    let budget = &env.cache.budgets.bytes;
    if let Some(route) = route {
        return route.send(env, request).await;
    }
    match tls.is_plain() {
        true => env.egress.call_within(request, budget).await,
        false => env.egress.call_certified(request, tls, budget).await,
    }
}

/// Returns true in the first four fifths of the life of a token.
fn is_fresh(known: &KnownToken, now: Timestamp) -> bool {
    now < known.obtained.plus(Millis(known.expires.since(known.obtained).0 / 5 * 4))
}

/// Returns `error` and `error_description` of an answer, which RFC 6749, 5.2 defines for people, in quotation marks.
pub fn oauth_error(body: &Value, secrets: &[SecretText]) -> Option<String> {
    let texts = ["error", "error_description"].map(|name| body[name].as_str().unwrap_or_default());
    let text = masked(&texts.join(": "), secrets);
    let text = limits::clean(text.trim_matches([':', ' ']), 2 * limits::REFUSAL);
    (!text.is_empty()).then(|| format!("{text:?}"))
}

/// Returns the token of a response with its life in seconds, or the rest of a sentence about the failure with the pause until
/// the next request. Without a pause, an operator has to act.
fn granted(
    response: &HttpResponse,
    now: Timestamp,
    secrets: &[SecretText],
) -> Result<(SecretText, u64), (String, Option<Duration>)> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: Option<String>,
        /// The name that GitHub gives it.
        token: Option<String>,
        token_type: Option<String>,
        expires_in: Option<Value>,
    }
    let body = response_body::parse(&response.body, limits::JSON_VALUES).unwrap_or_default();
    let why = match oauth_error(&body, secrets) {
        // An error beside a token may have a part of it.
        Some(error) if body["access_token"].is_null() => format!("answered {} ({error})", response.status),
        _ => format!("answered {}", response.status),
    };
    let pause = || Some(response.retry_after(now).unwrap_or(PAUSE).clamp(PAUSE, MAX_PAUSE));
    match response.status {
        200..=299 => {}
        400 | 401 => return Err((format!("{why}: check the client id, the secret and the scope"), None)),
        _ => return Err((why, pause())),
    }
    let wrong = |problem: &str| (format!("{why} {problem}"), None);
    let is_refused = body.get("error").is_some_and(|error| !error.is_null());
    // The error of the parser may have a part of the token.
    let parsed = serde_json::from_value(body).ok().and_then(|parsed: Granted| {
        Some((parsed.access_token.or(parsed.token)?, parsed.token_type, parsed.expires_in))
    });
    let Some((token, token_type, expires_in)) = parsed else {
        // It can come from a server in between, such as a page about a maintenance.
        let (why, _) = wrong("without an access token");
        return Err((why, if is_refused { None } else { pause() }));
    };
    let token = SecretText::new(token);
    if token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(wrong("with a token that is not a bearer token"));
    }
    if !TOKEN_BYTES.contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("with a token that is not 8 to 16,384 visible ASCII characters"));
    }
    let life = match expires_in {
        Some(Value::Number(seconds)) => seconds.as_f64().map(|seconds| seconds as u64),
        Some(Value::String(seconds)) => seconds.parse().ok(),
        _ => None,
    };
    Ok((token, life.unwrap_or(DEFAULT_LIFE).clamp(1, MAX_LIFE)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::rows;

    #[test]
    fn responses_of_token_endpoints_have_a_token_and_its_life() {
        let secrets = [SecretText::new("canary".to_owned())];
        // A text is a page.
        let answer = |status, body: &Value| {
            let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            granted(&HttpResponse::new(status, text), Timestamp(0), &secrets)
        };
        for (more, life) in rows::<(serde_json::Map<String, Value>, u64)>("responses_with_a_token") {
            let mut body = json!({"access_token": "canary-token", "refresh_token": 1});
            body.as_object_mut().unwrap().extend(more);
            assert_eq!(answer(200, &body).map(|(_, life)| life), Ok(life), "{body}");
        }
        for (status, body, is_final, part) in rows::<(u16, Value, bool, String)>("responses_without_a_token") {
            let (why, pause) = answer(status, &body).map(drop).unwrap_err();
            let is_expected = pause.is_none() == is_final && why.contains(&part);
            assert!(is_expected && !why.contains("canary"), "{status} {body}: {why}");
        }
    }
}
