//! Outbound HTTP: one request with limits, without redirects, and a limit of the bytes of all responses in memory.

pub mod client;
pub mod guard;

pub use client::{HttpClient, HttpClientError};
pub use guard::{Policy, PolicyViolation};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest `retry-after` that is respected.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    /// Names in lower case, with values. Values that are not text are omitted.
    pub headers: Vec<(String, String)>,
    /// At most [`ebb_protocol::limits::RESPONSE_BODY`] bytes, unless the client has another limit.
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

    /// Returns the wait that the server requests by `retry-after`, in seconds or as a date, limited to [`MAX_RETRY_AFTER`].
    /// A date before `now` is zero. Returns `None` if the header is missing or malformed.
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let value = self.header("retry-after")?.trim();
        let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            // A number with too many digits is a long wait.
            Duration::from_secs(value.parse().unwrap_or(u64::MAX))
        } else {
            let until = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
            until.saturating_sub(Duration::from_millis(now.0))
        };
        Some(wait.min(MAX_RETRY_AFTER))
    }
}

/// A request without a usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The URL, its address or the request is not allowed. This is final.
    #[error("{0}")]
    Refused(String),
    /// The connection failed or was broken. The server may have received the request.
    #[error("{0}")]
    Connect(String),
    /// No complete response arrived in time. The server may have received the request.
    #[error("no response within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The response is larger than the limit. This is final.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
}

pub type CallResult<T> = Result<T, CallError>;

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
