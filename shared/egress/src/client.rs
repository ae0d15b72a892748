//! The client that leaves the machine.
//!
//! Guarantees: only addresses that the policy allows are connected to; no proxy, redirect or cookie; no more than the
//! limit of a body is read, in no more than the request's time. What failed before anything was sent is tried again
//! for less than a second. What a server may have seen is sent again only if the method is safe (`GET`, `HEAD`): a
//! header that names a key says nothing of whether the receiver looks at it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable as _};
use ebb_protocol::limits;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::dns::Resolve;
use tokio::time::Instant;

use crate::guard::{GuardedResolver, Policy, PolicyViolation, SystemResolver};
use crate::{CallError, HttpCall, HttpRequest, HttpResponse};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Short: a function that was frozen in between finds its connections dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const IDLE_PER_HOST: usize = 16;
/// After this long no further try is decided. With the longest wait of [`RETRIES`] all is over within a second: slower
/// tries are for the callers, who know the unit's `retry`.
const RETRY_WITHIN: Duration = Duration::from_millis(500);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRIES: usize = 3;

/// Headers that belong to the connection or to the client: taken from a document they could split requests.
const OWN_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers whose values are never printed.
const SECRET_HEADERS: [&str; 4] =
    ["authorization", "cookie", "proxy-authorization", ebb_protocol::unit::CALLBACK_TOKEN];

/// Sends requests by HTTP/1.1, over TLS where the URL says so. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    http: reqwest::Client,
    policy: Arc<Policy>,
    /// Bytes of an answer's body that are read.
    largest: usize,
}

/// Why there is no client: mostly that the machine has no certificates of authorities.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client can be made; are certificates (ca-certificates) installed?")]
pub struct HttpClientError(#[source] reqwest::Error);

impl HttpClient {
    /// A client that looks names up as the machine does.
    pub fn new(policy: Policy) -> Result<Self, HttpClientError> {
        Self::with_resolver(policy, Arc::new(SystemResolver))
    }

    /// A client that looks names up by `resolver`. What it finds is judged by the policy like anything else.
    pub fn with_resolver(policy: Policy, resolver: Arc<dyn Resolve>) -> Result<Self, HttpClientError> {
        let policy = Arc::new(policy);
        let http = reqwest::Client::builder()
            .user_agent(concat!("ebb/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            // A packed answer could unpack to more than the limit while no more than it is read.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .dns_resolver(Arc::new(GuardedResolver::new(Arc::clone(&policy), resolver)))
            .build()
            .map_err(HttpClientError)?;
        Ok(Self { http, policy, largest: limits::RESPONSE_BODY })
    }

    /// Reads answers of at most `bytes`, in place of [`limits::RESPONSE_BODY`].
    #[must_use]
    pub fn with_limit(self, bytes: usize) -> Self {
        Self { largest: bytes, ..self }
    }

    async fn attempts(&self, request: &reqwest::Request) -> Result<HttpResponse, CallError> {
        let started = Instant::now();
        let backoff = ExponentialBuilder::default().with_min_delay(RETRY_FIRST).with_max_times(RETRIES).with_jitter();
        let again = |failure: &SendFailure| {
            let harmless = failure.sent == SendState::Nothing || request.method().is_safe();
            let passing = matches!(failure.error, CallError::Connect(_));
            harmless && passing && started.elapsed() < RETRY_WITHIN
        };
        (|| self.once(request)).retry(backoff).when(again).await.map_err(|failure| failure.error)
    }

    async fn once(&self, request: &reqwest::Request) -> Result<HttpResponse, SendFailure> {
        let request = request.try_clone().expect("a body that is no stream can be cloned");
        let mut answer = self.http.execute(request).await.map_err(SendFailure::from)?;
        let status = answer.status().as_u16();
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            value.to_str().ok().map(|value| (name.as_str().to_owned(), value.to_owned()))
        };
        let headers = answer.headers().iter().filter_map(text).collect();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(SendFailure::from)? {
            if body.len() + chunk.len() > self.largest {
                let error = CallError::TooLarge(self.largest);
                return Err(SendFailure { error, sent: SendState::Perhaps });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, headers, body })
    }
}

#[async_trait]
impl HttpCall for HttpClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let started = Instant::now();
        let timeout = request.timeout;
        let request = checked(&self.policy, request).map_err(CallError::Refused)?;
        let ended = tokio::time::timeout(timeout, self.attempts(&request)).await;
        let ended = ended.unwrap_or(Err(CallError::Timeout(timeout)));
        // The host alone: paths and queries may carry secrets.
        let (method, host) = (request.method(), request.url().host_str());
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &ended {
            Ok(response) => tracing::debug!(%method, host, duration_ms, status = response.status, "called"),
            Err(error) => tracing::debug!(%method, host, duration_ms, %error, "called in vain"),
        }
        ended
    }
}

/// The request with all its parts checked, or what is wrong with it.
fn checked(policy: &Policy, request: HttpRequest) -> Result<reqwest::Request, String> {
    let url = policy.check_url(&request.url).map_err(|refusal| limits::message(&refusal.to_string()))?;
    let method = match request.method.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => {
            Method::from_bytes(request.method.as_bytes())
        }
        other => return Err(limits::message(&format!("the method {other:?} is not allowed"))),
    };
    let method = method.map_err(|error| error.to_string())?;
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for (name, value) in &request.headers {
        let (name, value) = header(name, value).map_err(|problem| limits::message(&problem))?;
        headers.append(name, value);
    }
    let mut checked = reqwest::Request::new(method, url);
    *checked.headers_mut() = headers;
    if !request.body.is_empty() {
        *checked.body_mut() = Some(request.body.into());
    }
    Ok(checked)
}

/// A header for the wire. Problems name the header, never its value, which may be a secret.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no header name"))?;
    if OWN_HEADERS.contains(&parsed.as_str()) {
        return Err(format!("the header {parsed} belongs to the connection and cannot be given"));
    }
    let plain = if value.is_ascii() { HeaderValue::from_str(value).ok() } else { None };
    let mut value =
        plain.ok_or_else(|| format!("the value of the header {parsed} holds other than visible ASCII characters"))?;
    value.set_sensitive(SECRET_HEADERS.contains(&parsed.as_str()));
    Ok((parsed, value))
}

/// Whether a server can have seen the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendState {
    Nothing,
    Perhaps,
}

#[derive(Debug)]
struct SendFailure {
    error: CallError,
    sent: SendState,
}

impl From<reqwest::Error> for SendFailure {
    fn from(error: reqwest::Error) -> Self {
        // URLs may carry secrets in their query, and the caller knows which one it has called.
        let error = error.without_url();
        let sent = if error.is_connect() { SendState::Nothing } else { SendState::Perhaps };
        let causes = || std::iter::successors(Some::<&(dyn Error + 'static)>(&error), |cause| (*cause).source());
        if let Some(refusal) = causes().find_map(|cause| cause.downcast_ref::<PolicyViolation>()) {
            return Self { error: CallError::Refused(limits::message(&refusal.to_string())), sent: SendState::Nothing };
        }
        let mut text = String::new();
        for cause in causes().map(ToString::to_string) {
            // Some causes repeat the text of their own cause.
            if !text.contains(&cause) {
                text.push_str(if text.is_empty() { "" } else { ": " });
                text.push_str(&cause);
            }
        }
        Self { error: CallError::Connect(limits::message(&text)), sent }
    }
}

#[cfg(test)]
mod tests;
