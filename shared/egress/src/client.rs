//! The HTTP client for servers outside of the deployment.
//!
//! Guarantees:
//!
//! - Connections go only to addresses that the policy allows.
//! - There are no proxies, redirects or cookies.
//! - The size of the response and the duration of the request are limited. Large responses share a budget.
//! - A request that was certainly not sent is repeated for less than a second. A request that may have been sent is
//!   repeated only if its method is safe (`GET`, `HEAD`), because an idempotency key does not prove that the receiver
//!   uses it.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable as _};
use ebb_protocol::{SecretText, id, limits};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::dns::Resolve;
use tokio::time::Instant;

use crate::guard::{GuardedResolver, Policy, PolicyViolation, SystemResolver};
use crate::{ByteBudget, BytePermit, CallError, CallResult, HttpCall, HttpRequest, HttpResponse, TlsParts};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// This time is short, because the connections of a frozen function are dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle connections per host, so that a fan-out opens few new ones.
const IDLE_PER_HOST: usize = 256;
/// The time after which no further attempt starts. With the longest wait of [`RETRIES`], all attempts end within a
/// second. Slower retries follow the `retry` of the unit.
const RETRY_WITHIN: Duration = Duration::from_millis(500);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRIES: usize = 3;

/// Clients with parts of TLS that are kept. Each has connections of its own.
const MAX_CERTIFIED: usize = 16;

/// The first bytes of a body that need no permit. A server that sends nothing more holds none.
const FREE_BYTES: usize = 16 << 10;

/// Headers of the connection or the client. Documents must not set them, because they could be used for request
/// smuggling.
const OWN_HEADERS: &str =
    "connection content-length expect host keep-alive proxy-connection te trailer transfer-encoding upgrade";

/// Sends requests by HTTP/1.1, with TLS for `https`. Clones share connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    http: reqwest::Client,
    policy: Arc<Policy>,
    /// The clients with parts of TLS, by their digest.
    certified: Arc<Mutex<HashMap<String, reqwest::Client>>>,
}

/// The client cannot be created, usually because the machine has no CA certificates.
#[derive(Debug, thiserror::Error)]
#[error("cannot create an HTTP client; check that CA certificates (ca-certificates) are installed")]
pub struct HttpClientError(#[source] reqwest::Error);

impl HttpClient {
    /// Returns a client with the resolver of the machine.
    pub fn new(policy: Policy) -> Result<Self, HttpClientError> {
        Self::with_resolver(policy, Arc::new(SystemResolver))
    }

    /// Returns a client with another resolver. The policy also applies to the addresses that it returns.
    pub(crate) fn with_resolver(policy: Policy, resolver: Arc<dyn Resolve>) -> Result<Self, HttpClientError> {
        let policy = Arc::new(policy);
        let http = builder(&policy, resolver).build().map_err(HttpClientError)?;
        Ok(Self { http, policy, certified: Arc::default() })
    }

    fn certified(&self, TlsParts { certificate, authorities }: &TlsParts) -> CallResult<Self> {
        let pem = certificate.as_ref().map_or("", |pem| pem.as_str());
        let all = SecretText::new(format!("{pem}\n{authorities}"));
        let digest = id::digest(all.as_bytes());
        let mut known = self.certified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(http) = known.get(&digest) {
            return Ok(Self { http: http.clone(), ..self.clone() });
        }
        // The error is not repeated, because it may be about the key.
        let wrong =
            |_| CallError::Refused("the client certificate with its private key, or `ca`, cannot be used".to_owned());
        let authorities = reqwest::Certificate::from_pem_bundle(authorities.as_bytes()).map_err(wrong)?;
        let mut http = builder(&self.policy, Arc::new(SystemResolver)).tls_certs_merge(authorities);
        if certificate.is_some() {
            http = http.identity(reqwest::Identity::from_pem(pem.as_bytes()).map_err(wrong)?);
        }
        let http = http.build().map_err(wrong)?;
        if known.len() >= MAX_CERTIFIED {
            known.clear();
        }
        known.insert(digest, http.clone());
        Ok(Self { http, ..self.clone() })
    }

    /// Sends a request once, whose response has at most `largest` bytes. `head` gets the response without its body as soon as it
    /// is there.
    async fn once(
        &self,
        (request, largest): (&reqwest::Request, usize),
        budget: Option<&ByteBudget>,
        head: &Mutex<Option<Box<HttpResponse>>>,
    ) -> CallResult<(HttpResponse, BytePermit)> {
        let set_head = |known| *head.lock().unwrap_or_else(PoisonError::into_inner) = known;
        set_head(None);
        let request = request.try_clone().expect("a body that is no stream can be cloned");
        let mut response = self.http.execute(request).await?;
        let status = response.status().as_u16();
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            value.to_str().ok().map(|value| (name.as_str().to_owned(), value.to_owned()))
        };
        let headers = response.headers().iter().filter_map(text).collect();
        let answer = HttpResponse { status, headers, body: Vec::new() };
        set_head(Some(Box::new(answer.clone())));
        let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
        let (mut body, mut permit) = (Vec::new(), None);
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > largest {
                return Err(CallError::TooLarge(largest));
            }
            if let (Some(budget), None) = (budget, &permit)
                && body.len() + chunk.len() > FREE_BYTES
            {
                permit = Some(budget.reserve(announced.map_or(largest, |bytes| bytes.min(largest))).await);
            }
            body.extend_from_slice(&chunk);
        }
        Ok((HttpResponse { body, ..answer }, permit.unwrap_or_default()))
    }

    async fn send(&self, request: HttpRequest, budget: Option<&ByteBudget>) -> CallResult<(HttpResponse, BytePermit)> {
        let (started, head, timeout, largest) = (Instant::now(), Mutex::default(), request.timeout, request.largest);
        let request = checked(&self.policy, request).map_err(CallError::Refused)?;
        let backoff = ExponentialBuilder::default().with_min_delay(RETRY_FIRST).with_max_times(RETRIES).with_jitter();
        let mut is_sent = false;
        let is_retryable = |error: &CallError| {
            is_sent |= matches!(error, CallError::Connect(_));
            let is_safe = matches!(error, CallError::Connect(_)) && request.method().is_safe();
            (is_safe || matches!(error, CallError::NoConnection(_))) && started.elapsed() < RETRY_WITHIN
        };
        let attempts = (|| self.once((&request, largest), budget, &head)).retry(backoff).when(is_retryable);
        let ended = tokio::time::timeout(timeout, attempts).await.unwrap_or(Err(CallError::Timeout(timeout)));
        let head = head.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ended = ended.map_err(|error| match (head, error) {
            (Some(head), error) => CallError::Unread(head, Box::new(error)),
            (None, CallError::NoConnection(text)) if is_sent => CallError::Connect(text),
            (None, error) => error,
        });
        // Only the host is logged, because paths and queries may contain secrets.
        let (method, host) = (request.method(), request.url().host_str());
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &ended {
            Ok((response, _)) => tracing::debug!(%method, host, duration_ms, status = response.status, "called"),
            Err(error) => tracing::debug!(%method, host, duration_ms, %error, "a call failed"),
        }
        ended
    }
}

#[async_trait]
impl HttpCall for HttpClient {
    async fn call(&self, request: HttpRequest) -> CallResult<HttpResponse> {
        self.send(request, None).await.map(|(response, _)| response)
    }

    async fn call_within(&self, request: HttpRequest, budget: &ByteBudget) -> CallResult<(HttpResponse, BytePermit)> {
        self.send(request, Some(budget)).await
    }

    async fn call_certified(
        &self,
        request: HttpRequest,
        tls: &TlsParts,
        budget: &ByteBudget,
    ) -> CallResult<(HttpResponse, BytePermit)> {
        self.certified(tls)?.send(request, Some(budget)).await
    }
}

fn builder(policy: &Arc<Policy>, resolver: Arc<dyn Resolve>) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("ebb/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        // A compressed response could exceed the limit after decompression.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_PER_HOST)
        .dns_resolver(Arc::new(GuardedResolver { policy: Arc::clone(policy), inner: resolver }))
}

/// Returns true if a text is PEM with a certificate and a private key.
pub fn is_client_certificate(pem: &str) -> bool {
    reqwest::Identity::from_pem(pem.as_bytes()).is_ok()
}

/// Checks all parts of a request and returns it.
fn checked(policy: &Policy, request: HttpRequest) -> Result<reqwest::Request, String> {
    let url = policy.check_url(&request.url).map_err(|refusal| limits::message(&refusal.to_string()))?;
    let allowed =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let method = allowed.into_iter().find(|allowed| allowed.as_str() == request.method);
    let method = method.ok_or_else(|| limits::message(&format!("the method {:?} is not allowed", request.method)))?;
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

/// Checks a header. Errors name the header but not its value, which may be a secret.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a header name"))?;
    if OWN_HEADERS.split(' ').any(|own| own == parsed.as_str()) {
        return Err(format!("the header {parsed} belongs to the connection and cannot be given"));
    }
    let plain = if value.is_ascii() { HeaderValue::from_str(value).ok() } else { None };
    let mut value = plain
        .ok_or_else(|| format!("the value of the header {parsed} contains characters other than visible ASCII"))?;
    // Any header can have a credential, by its connection or its document.
    value.set_sensitive(true);
    Ok((parsed, value))
}

impl From<reqwest::Error> for CallError {
    fn from(error: reqwest::Error) -> Self {
        let address = error.url().and_then(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?)));
        // The query of the URL may contain secrets.
        let error = error.without_url();
        let of_kind: fn(String) -> Self = if error.is_connect() { Self::NoConnection } else { Self::Connect };
        let causes = || std::iter::successors(Some::<&(dyn Error + 'static)>(&error), |cause| (*cause).source());
        if let Some(refusal) = causes().find_map(|cause| cause.downcast_ref::<PolicyViolation>()) {
            return Self::Refused(limits::message(&refusal.to_string()));
        }
        let is_refused = |cause: &(dyn Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if let Some(address) = address.filter(|_| causes().any(is_refused)) {
            return of_kind(limits::message(&format!("connection refused: nothing listens at {address}")));
        }
        let mut text = String::new();
        for cause in causes().map(ToString::to_string) {
            if !text.contains(&cause) {
                text.push_str(if text.is_empty() { "" } else { ": " });
                text.push_str(&cause);
            }
        }
        of_kind(limits::message(&text))
    }
}

#[cfg(test)]
mod tests;
