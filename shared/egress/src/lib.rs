//! HTTP out of the control plane: one request, guarded, bounded, never redirected.

pub mod client;
pub mod deliver;
pub mod guard;

pub use client::{HttpClient, HttpClientError};
pub use deliver::{DeliveryOutcome, WebhookMessage, deliver, retry_after};
pub use guard::{Policy, PolicyViolation, UrlSchemes};

use std::time::Duration;

use async_trait::async_trait;

/// A request to a foreign server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// `POST`, …
    pub method: String,
    /// Absolute, `http` or `https`.
    pub url: String,
    /// Header names in lower case, with values.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// From the first lookup to the last byte of the answer.
    pub timeout: Duration,
}

/// What the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    /// Header names in lower case, with values; those that are no text are left out.
    pub headers: Vec<(String, String)>,
    /// At most [`ebb_protocol::limits::RESPONSE_BODY`] bytes, unless the client has another limit.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The URL, the address behind it, or the request is not allowed. Final.
    #[error("{0}")]
    Refused(String),
    /// No connection, or it broke. Whether the server has seen the request is unknown.
    #[error("{0}")]
    Connect(String),
    /// No whole answer in time. Whether the server has seen the request is unknown.
    #[error("no answer within {}", seconds(*.0))]
    Timeout(Duration),
    /// The answer is larger than the limit. Final.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// A time for people: `3 s`, `0.25 s`.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Sends one request and waits for the answer.
#[async_trait]
pub trait HttpCall: Send + Sync {
    /// One request, one answer: no redirect is followed, and nothing that the server may have seen is sent again
    /// unless the method is safe.
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError>;
}
