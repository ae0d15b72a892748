//! Outbound HTTP: one request with limits, without redirects, and a limit of the bytes of all responses in memory.

pub mod client;
pub mod digest;
pub mod guard;
pub mod sigv4;

pub use client::{HttpClient, HttpClientError, is_client_certificate};
pub use guard::{Policy, PolicyViolation};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ebb_protocol::{SecretText, Timestamp, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest `retry-after` that is respected.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The wait after a limit of requests whose response states none. Limits often count by the minute.
pub const UNSTATED_WAIT: Duration = Duration::from_secs(30);
/// The same for a secondary limit of GitHub, whose headers are about another limit.
const SECONDARY_WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    /// An absolute URL, `http` or `https`.
    pub url: String,
    /// Names in lower case, with values.
    pub headers: Vec<(String, String)>,
    /// The body. It may be empty.
    pub body: Vec<u8>,
    /// The time from the first lookup to the last byte of the response.
    pub timeout: Duration,
    /// The limit of the response body in bytes, usually [`ebb_protocol::limits::RESPONSE_BODY`].
    pub largest: usize,
}

impl HttpRequest {
    /// Returns a request with the usual limit of the response body.
    pub fn new(
        method: &str,
        url: impl Into<String>,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Self {
        Self { method: method.to_owned(), url: url.into(), headers, body, timeout, largest: limits::RESPONSE_BODY }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    /// Names in lower case, with values. Values that are not text are omitted.
    pub headers: Vec<(String, String)>,
    /// At most as many bytes as the request permits.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Returns a response without headers.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// Returns the first value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the status for people, such as `403 (no requests left)`.
    pub fn status_text(&self) -> String {
        let is_unusual = self.status != 429 && self.is_limited();
        format!("{}{}", self.status, if is_unusual { " (no requests left)" } else { "" })
    }

    /// Returns true if the server has rejected the request because of a limit of requests: by 429, or by 403 or 503 with no
    /// requests left. GitHub also answers 403 with `retry-after`, or with the name of the limit in the body.
    pub fn is_limited(&self) -> bool {
        match self.status {
            429 => true,
            403 => self.has_no_requests_left() || self.header("retry-after").is_some() || self.is_secondary_limit(),
            503 => self.has_no_requests_left(),
            _ => false,
        }
    }

    fn has_no_requests_left(&self) -> bool {
        let is_spent = |name: &&str| self.header(name).is_some_and(|left| left.trim() == "0");
        ["x-ratelimit-remaining", "x-rate-limit-remaining", "ratelimit-remaining"].iter().any(is_spent)
            || self.rate_limits().any(|item| member(item, ["r", "remaining"]) == Some("0"))
    }

    /// Returns true for a secondary limit of GitHub, which counts other things than requests.
    fn is_secondary_limit(&self) -> bool {
        const NAME: &[u8] = b"secondary rate limit";
        let is_named = || self.body.windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME));
        matches!(self.status, 403 | 429) && !self.has_no_requests_left() && is_named()
    }

    /// Returns the items of the field `ratelimit`. In early drafts, each item has one member, such as `remaining=0`. In later
    /// ones it is a policy with all of its members, such as `"default";r=0;t=30`.
    fn rate_limits(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(|(name, _)| name == "ratelimit").flat_map(|(_, value)| value.split(','))
    }

    /// Returns the wait that the server requests by `retry-after`, in seconds or as a date, or by `retry-after-ms`. For a
    /// limit of requests, it is otherwise the time until the stated reset, or [`UNSTATED_WAIT`]. Other responses state a
    /// reset, too, which is no request to wait. It is at most [`MAX_RETRY_AFTER`]. A malformed value and a time before `now`
    /// say nothing: clocks differ. Of a secondary limit, the reset is not stated.
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let stated = self.header("retry-after").and_then(|text| {
            number(text).map(wait).or_else(|| {
                let until = httpdate::parse_http_date(text.trim()).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
                Some(until.checked_sub(Duration::from_millis(now.0))?.min(MAX_RETRY_AFTER))
            })
        });
        let stated = stated.or_else(|| Some(wait(number(self.header("retry-after-ms")?)? / 1000.0)));
        stated.or_else(|| match self.is_secondary_limit() {
            true => Some(SECONDARY_WAIT),
            false => self.is_limited().then(|| self.reset(now).unwrap_or(UNSTATED_WAIT)),
        })
    }

    /// Does the same as [`Self::retry_after`], in seconds. A part of a second counts as one, because the wait is a minimum.
    pub fn retry_after_seconds(&self, now: Timestamp) -> Option<u64> {
        self.retry_after(now).map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
    }

    /// Returns the time until the reset of a limit.
    fn reset(&self, now: Timestamp) -> Option<Duration> {
        let named = |name: &str| reset(number(self.header(name)?)?, now);
        let is_spent = |item: &&str| member(item, ["r", "remaining"]).is_none_or(|left| left == "0");
        let of_policy = |item: &str| reset(number(member(item, ["t", "reset"])?)?, now);
        let names = ["x-ratelimit-reset-after", "x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset"];
        names.into_iter().find_map(named).or_else(|| self.rate_limits().filter(is_spent).filter_map(of_policy).max())
    }

    /// Returns the headers about limits of requests: what the server requests, and the state of a limit that it has applied.
    pub fn limit_headers(&self) -> impl Iterator<Item = &(String, String)> {
        let is_state = |name: &str| name.starts_with("x-rate") || name.starts_with("ratelimit");
        let is_limited = self.is_limited();
        self.headers.iter().filter(move |(name, _)| name.starts_with("retry-after") || (is_limited && is_state(name)))
    }
}

/// Returns a number without a sign and an exponent, with or without decimals.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| text.parse().ok())?
}

/// Returns a number of seconds in whole milliseconds, limited to [`MAX_RETRY_AFTER`].
fn wait(seconds: f64) -> Duration {
    Duration::from_millis((seconds.min(MAX_RETRY_AFTER.as_secs_f64()) * 1000.0).ceil() as u64)
}

/// Returns the time until a reset: a wait in seconds, or a time in seconds or milliseconds since 1970, by its size. Returns `None`
/// for a time before `now`.
fn reset(number: f64, now: Timestamp) -> Option<Duration> {
    let ahead = match number {
        ..1e9 => number,
        1e9..1e11 => number - now.0 as f64 / 1000.0,
        _ => (number - now.0 as f64) / 1000.0,
    };
    (ahead >= 0.0).then(|| wait(ahead))
}

/// Returns a member of an item of a structured field, by one of its names.
fn member<'a>(item: &'a str, names: [&str; 2]) -> Option<&'a str> {
    let mut members = item.split(';').filter_map(|member| member.trim().split_once('='));
    members.find(|(name, _)| names.contains(name)).map(|(_, value)| value)
}

/// A request without a usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The URL, its address or the request is not allowed. This is final.
    #[error("{0}")]
    Refused(String),
    /// There was no connection: the name has no address, the server refused it, or the TLS handshake failed. The server has
    /// received nothing of the request.
    #[error("{0}")]
    NoConnection(String),
    /// The connection was broken. The server may have received the request.
    #[error("{0}")]
    Connect(String),
    /// No complete response arrived in time. The server may have received the request.
    #[error("no response within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The response is larger than the limit. This is final.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// Status and headers have arrived. The rest of the response could not be read, for this cause.
    #[error("{1}")]
    Unread(Box<HttpResponse>, Box<CallError>),
}

impl CallError {
    /// Returns a response without its body if only the body could not be read. If the caller `reads` the body of a success, it
    /// returns the cause for a status 2xx.
    pub fn without_body(self, reads: bool) -> CallResult<HttpResponse> {
        match self {
            Self::Unread(head, cause) if reads && matches!(head.status, 200..=299) => Err(*cause),
            Self::Unread(head, _) => Ok(*head),
            error => Err(error),
        }
    }
}

pub type CallResult<T> = Result<T, CallError>;

/// The certificates of a client of TLS as PEM, in addition to the authorities of the machine.
#[derive(Clone, Default)]
pub struct TlsParts {
    /// The client certificate: its chain and the private key.
    pub certificate: Option<SecretText>,
    /// The certificates of further authorities, or an empty text.
    pub authorities: String,
}

impl TlsParts {
    /// Returns true if there are none.
    pub fn is_plain(&self) -> bool {
        self.certificate.is_none() && self.authorities.is_empty()
    }
}

#[async_trait]
pub trait HttpCall: Send + Sync {
    /// Sends one request without redirects. If the server may have received the request, it is repeated only if its
    /// method is safe.
    async fn call(&self, request: HttpRequest) -> CallResult<HttpResponse>;

    /// Does the same as [`Self::call`] within a budget for the bytes of all responses. The caller holds the permit as long as
    /// the body is in memory. The wait for it is part of the timeout. Clients without network need no permit.
    async fn call_within(&self, request: HttpRequest, _budget: &ByteBudget) -> CallResult<(HttpResponse, BytePermit)> {
        Ok((self.call(request).await?, BytePermit::default()))
    }

    /// Does the same as [`Self::call_within`] with the parts of TLS. Clients without network have no TLS.
    async fn call_certified(
        &self,
        request: HttpRequest,
        _tls: &TlsParts,
        budget: &ByteBudget,
    ) -> CallResult<(HttpResponse, BytePermit)> {
        self.call_within(request, budget).await
    }
}

/// A function is a client without network.
#[async_trait]
impl<F> HttpCall for F
where
    F: Fn(HttpRequest) -> CallResult<HttpResponse> + Send + Sync,
{
    async fn call(&self, request: HttpRequest) -> CallResult<HttpResponse> {
        self(request)
    }
}

/// Permits for bytes in memory, or for another unit of it. Clones share them.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    free: Arc<Semaphore>,
    all: u32,
}

/// The permit for bytes. Its drop returns them.
#[derive(Debug, Default)]
pub struct BytePermit(#[allow(dead_code, reason = "its drop counts")] Option<OwnedSemaphorePermit>);

impl ByteBudget {
    pub fn new(bytes: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes as usize)), all: bytes }
    }

    /// Waits for permits for `bytes`. More than the whole budget counts as the whole budget. The caller must not hold
    /// another permit.
    pub async fn reserve(&self, bytes: usize) -> BytePermit {
        let bytes = u32::try_from(bytes).unwrap_or(self.all).min(self.all);
        BytePermit(Arc::clone(&self.free).acquire_many_owned(bytes).await.ok())
    }
}

#[cfg(test)]
mod tests;
