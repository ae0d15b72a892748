//! Limits the memory for request bodies whose sender is not authenticated yet.
//!
//! Signatures cover the body, so a body is read before its signature is verified. The headers are checked first.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use ebb_protocol::error_code::ErrorCode;
use futures::StreamExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::{HttpProblem, HttpResult};

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
/// Maximum time without a byte of a body.
const MAX_IDLE: Duration = Duration::from_secs(5);
/// Bytes per permit of a large body.
const UNIT: usize = 1 << 10;

/// The permits for bodies whose sender is not authenticated.
pub(crate) struct BodyBudget {
    small: Semaphore,
    large: Semaphore,
    idle: Duration,
}

/// A received body. It holds its permit until it is dropped.
pub(crate) struct RequestBody<'a> {
    pub(crate) bytes: Bytes,
    _permit: SemaphorePermit<'a>,
}

impl RequestBody<'_> {
    /// Returns the permit of a body whose sender is authenticated.
    pub(crate) fn into_proven(self) -> Bytes {
        self.bytes
    }
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self { small: Semaphore::new(SMALL_BODIES), large: Semaphore::new(LARGE_BODIES / UNIT), idle: MAX_IDLE }
    }
}

impl BodyBudget {
    /// Reads a body of at most `limit` bytes. A small body has one permit. A larger one gets permits for the bytes that
    /// have arrived, because a sender can declare a length and send nothing.
    ///
    /// # Errors
    /// Returns 413 if the body is too large, 503 if it waits 5 s for a permit, 408 if no byte arrives for 5 s or the body
    /// is not received within 20 s, and 400 if the connection is closed early.
    pub(crate) async fn read(&self, headers: &HeaderMap, body: Body, limit: usize) -> HttpResult<RequestBody<'_>> {
        check_length(headers, limit)?;
        let length = declared(headers).unwrap_or(limit);
        let received = timeout(MAX_RECEIVE_TIME, self.receive(body, length)).await;
        received
            .unwrap_or_else(|_| Err(late(format!("the body did not arrive within {} s", MAX_RECEIVE_TIME.as_secs()))))
    }

    async fn receive(&self, body: Body, length: usize) -> HttpResult<RequestBody<'_>> {
        let is_small = length <= SMALL_BODY;
        let mut permit = if is_small { acquire(&self.small, 1).await? } else { acquire(&self.large, 0).await? };
        let (mut parts, mut bytes) = (body.into_data_stream(), Vec::new());
        loop {
            let Ok(part) = timeout(self.idle, parts.next()).await else {
                return Err(late(format!("no byte of the body arrived for {} s", self.idle.as_secs())));
            };
            let Some(part) = part else { break };
            let part = part.map_err(|error| incomplete(&error, length))?;
            let (before, total) = (bytes.len(), bytes.len().saturating_add(part.len()));
            if total > length {
                return Err(too_large(length));
            }
            if !is_small {
                permit.merge(acquire(&self.large, total.div_ceil(UNIT) - before.div_ceil(UNIT)).await?);
            }
            bytes.extend_from_slice(&part);
        }
        Ok(RequestBody { bytes: bytes.into(), _permit: permit })
    }
}

/// Waits up to 5 s for permits.
async fn acquire(permits: &Semaphore, count: usize) -> HttpResult<SemaphorePermit<'_>> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match timeout(MAX_WAIT, permits.acquire_many(count)).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => {
            Err(HttpProblem::new(ErrorCode::Busy, "too many requests are being received: send the same request again"))
        }
    }
}

fn late(problem: String) -> HttpProblem {
    HttpProblem::new(ErrorCode::RequestTimeout, format!("{problem}; send it again"))
}

/// Rejects a body by its `Content-Length`, before memory is allocated for it.
///
/// # Errors
/// Returns 413 for more than `limit` bytes.
pub(crate) fn check_length(headers: &HeaderMap, limit: usize) -> HttpResult<()> {
    if declared(headers).is_some_and(|length| length > limit) { Err(too_large(limit)) } else { Ok(()) }
}

/// Returns the problem of a body of at most `limit` bytes that could not be read.
pub(crate) fn incomplete(error: &axum::Error, limit: usize) -> HttpProblem {
    if std::error::Error::source(error).is_some_and(|source| source.to_string().contains("length limit")) {
        return too_large(limit);
    }
    HttpProblem::new(ErrorCode::IncompleteBody, format!("the body is incomplete: {error}"))
}

fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> HttpProblem {
    HttpProblem::new(ErrorCode::TooLarge, format!("the body has more than {limit} bytes, the limit of this path"))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use axum::http::HeaderValue;
    use futures::{FutureExt as _, poll};
    use tokio::task::unconstrained;

    use super::*;

    type Read<'a> = Pin<Box<dyn Future<Output = HttpResult<RequestBody<'a>>> + 'a>>;

    fn read(budget: &BodyBudget, length: usize) -> Read<'_> {
        read_from(budget, length, Body::from(vec![0; length]))
    }

    /// Reads a body that stops after `sent` bytes.
    fn stall(budget: &BodyBudget, length: usize, sent: usize) -> Read<'_> {
        let sent = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![0; sent]))]);
        read_from(budget, length, Body::from_stream(sent.chain(futures::stream::pending())))
    }

    fn read_from(budget: &BodyBudget, length: usize, body: Body) -> Read<'_> {
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from(length))]);
        // Tokio limits polls per task. A thousand bodies in one task exceed the limit.
        unconstrained(async move { budget.read(&headers, body, LARGE_BODIES).await }).boxed_local()
    }

    #[tokio::test]
    async fn small_bodies_are_limited_and_do_not_block_large_ones() {
        let budget = BodyBudget::default();
        let mut stalled: Vec<_> = (0..SMALL_BODIES).map(|_| stall(&budget, SMALL_BODY, 0)).collect();
        for read in &mut stalled {
            assert!(poll!(read).is_pending());
        }
        let mut waiting = read(&budget, 1);
        assert!(poll!(&mut waiting).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY + 1)).is_ready());
        stalled.pop();
        assert_eq!(&waiting.await.unwrap().bytes[..], [0]);
    }

    #[tokio::test]
    async fn large_bodies_do_not_block_small_ones() {
        let budget = BodyBudget::default();
        let mut stalled = stall(&budget, LARGE_BODIES, LARGE_BODIES);
        assert!(poll!(&mut stalled).is_pending());
        let mut waiting = read(&budget, SMALL_BODY + 1);
        assert!(poll!(&mut waiting).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY)).is_ready());
        drop(stalled);
        assert_eq!(waiting.await.unwrap().bytes.len(), SMALL_BODY + 1);
    }

    #[tokio::test]
    async fn a_declared_length_takes_no_permits() {
        let budget = BodyBudget::default();
        let mut stalled: Vec<_> = (0..100).map(|_| stall(&budget, LARGE_BODIES, 1)).collect();
        for read in &mut stalled {
            assert!(poll!(read).is_pending());
        }
        assert!(poll!(read(&budget, LARGE_BODIES / 2)).is_ready());
    }

    #[tokio::test]
    async fn an_idle_body_ends() {
        let budget = BodyBudget { idle: Duration::from_millis(10), ..BodyBudget::default() };
        for length in [SMALL_BODY, LARGE_BODIES] {
            let Err(HttpProblem(problem)) = stall(&budget, length, 1).await else { panic!("the body is complete") };
            assert_eq!(problem.status, 408, "{problem:?}");
            // So does one that is longer than it declares.
            let longer = read_from(&budget, length, Body::from(vec![0; length + 1])).await;
            assert_eq!(longer.err().map(|problem| problem.0.status), Some(413));
        }
        assert_eq!(budget.large.available_permits(), LARGE_BODIES / UNIT);
    }
}
