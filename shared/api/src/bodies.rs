//! Limits the memory for request bodies whose sender is not authenticated yet.
//!
//! Signatures cover the body, so a body is read before its signature is verified. The headers are checked first.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::HttpProblem;

/// Maximum bytes of all bodies above [`SMALL_BODY`]: 16 of the largest lifecycle webhooks, in a function of 256 MB.
const LARGE_BODIES: usize = 16 << 20;
/// Maximum bytes of a small body. Most webhooks and polls are smaller.
const SMALL_BODY: usize = 16 << 10;
/// Maximum number of small bodies, 16 MiB together. They have a separate semaphore, so that a few large bodies that
/// arrive slowly do not block them.
const SMALL_BODIES: usize = 1 << 10;
/// Maximum wait of a body for a permit. Senders of webhooks wait 15 s or longer (Standard Webhooks).
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Maximum time for a body to arrive.
const MAX_RECEIVE_TIME: Duration = Duration::from_secs(20);
/// Bytes per permit of a large body.
const UNIT: usize = 1 << 10;

/// The permits for bodies whose sender is not authenticated.
pub(crate) struct BodyBudget {
    small: Semaphore,
    large: Semaphore,
}

/// A received body. It holds its permit until it is dropped.
pub(crate) struct RequestBody<'a> {
    bytes: Bytes,
    _permit: SemaphorePermit<'a>,
}

impl RequestBody<'_> {
    /// Returns the permit of a body whose sender is authenticated.
    pub(crate) fn into_proven(self) -> Bytes {
        self.bytes
    }
}

impl AsRef<[u8]> for RequestBody<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self { small: Semaphore::new(SMALL_BODIES), large: Semaphore::new(LARGE_BODIES / UNIT) }
    }
}

impl BodyBudget {
    /// Reads a body of at most `limit` bytes, with a permit for the declared length, or else for `limit`.
    ///
    /// # Errors
    /// Returns 413 if the body is too large, 503 if it gets no permit within 5 s, 408 if it is not received within 20
    /// s, and 400 if the connection is closed early.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<RequestBody<'_>, HttpProblem> {
        check_length(headers, limit)?;
        let length = declared(headers).unwrap_or(limit);
        let permit = match length <= SMALL_BODY {
            true => self.small.acquire_many(1),
            false => self.large.acquire_many(u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX)),
        };
        let Ok(Ok(permit)) = timeout(MAX_WAIT, permit).await else {
            let detail = "too many requests are being received: send the same request again";
            return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
        };
        match timeout(MAX_RECEIVE_TIME, to_bytes(body, length)).await {
            Ok(Ok(bytes)) => Ok(RequestBody { bytes, _permit: permit }),
            Ok(Err(error)) => Err(incomplete(&error, length)),
            Err(_) => {
                let detail = format!("the body did not arrive within {} s; send it again", MAX_RECEIVE_TIME.as_secs());
                Err(HttpProblem::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", detail))
            }
        }
    }
}

/// Rejects a body by its `Content-Length`.
///
/// # Errors
/// Returns 413 for more than `limit` bytes.
pub(crate) fn check_length(headers: &HeaderMap, limit: usize) -> Result<(), HttpProblem> {
    if declared(headers).is_some_and(|length| length > limit) { Err(too_large(limit)) } else { Ok(()) }
}

/// Returns the problem of a body of at most `limit` bytes that could not be read.
pub(crate) fn incomplete(error: &axum::Error, limit: usize) -> HttpProblem {
    if std::error::Error::source(error).is_some_and(|source| source.to_string().contains("length limit")) {
        return too_large(limit);
    }
    HttpProblem::new(StatusCode::BAD_REQUEST, "incomplete-body", format!("the body is incomplete: {error}"))
}

fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> HttpProblem {
    let detail = format!("the body has more than {limit} bytes, the limit of this path");
    HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use axum::http::HeaderValue;
    use futures::{FutureExt as _, poll};
    use tokio::task::unconstrained;

    use super::*;

    type Read<'a> = Pin<Box<dyn Future<Output = Result<RequestBody<'a>, HttpProblem>> + 'a>>;

    fn read(budget: &BodyBudget, length: usize) -> Read<'_> {
        read_from(budget, length, Body::from(vec![0; length]))
    }

    /// Reads a body that never arrives.
    fn stall(budget: &BodyBudget, length: usize) -> Read<'_> {
        let body = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        read_from(budget, length, Body::from_stream(body))
    }

    fn read_from(budget: &BodyBudget, length: usize, body: Body) -> Read<'_> {
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from(length))]);
        // Tokio limits polls per task. A thousand bodies in one task exceed the limit.
        unconstrained(async move { budget.read(&headers, body, LARGE_BODIES).await }).boxed_local()
    }

    #[tokio::test]
    async fn small_bodies_are_limited_and_do_not_block_large_ones() {
        let budget = BodyBudget::default();
        let mut stalled: Vec<_> = (0..SMALL_BODIES).map(|_| stall(&budget, SMALL_BODY)).collect();
        for read in &mut stalled {
            assert!(poll!(read).is_pending());
        }
        let mut waiting = read(&budget, 1);
        assert!(poll!(&mut waiting).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY + 1)).is_ready());
        stalled.pop();
        assert_eq!(waiting.await.unwrap().as_ref(), [0]);
    }

    #[tokio::test]
    async fn large_bodies_do_not_block_small_ones() {
        let budget = BodyBudget::default();
        let mut stalled = stall(&budget, LARGE_BODIES);
        assert!(poll!(&mut stalled).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY + 1)).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY)).is_ready());
    }
}
