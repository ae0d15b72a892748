//! Bodies whose sender is not proven yet: how long each may be, and how many bytes of all are held at one time.
//!
//! Signatures cover the body, so it has to be read before they are verified. What the head of a request says is judged first.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::HttpProblem;

/// Bytes of all bodies that are larger than [`SMALL_BODY`]: sixteen of the largest lifecycle webhooks, in a function of 256 MB.
const LARGE_BODIES: usize = 16 << 20;
/// The largest body that counts as a small one: most webhooks and polls are smaller.
const SMALL_BODY: usize = 16 << 10;
/// Small bodies at one time: 16 MiB of them. They have room of their own, so that a few large bodies that arrive slowly
/// do not keep out the many small ones.
const SMALL_BODIES: usize = 1 << 10;
/// How long a body waits for room. Senders of webhooks wait 15 s or longer (Standard Webhooks).
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How long a body may take to arrive.
const MAX_RECEIVE_TIME: Duration = Duration::from_secs(20);
/// Room for large bodies is given in units of so many bytes: a semaphore counts at most 2^29 or so.
const UNIT: usize = 1 << 10;

/// The room for bodies whose sender is not proven.
pub(crate) struct BodyBudget {
    small: Semaphore,
    large: Semaphore,
}

/// A body that has arrived. Its room is taken until this is dropped.
pub(crate) struct RequestBody<'a> {
    bytes: Bytes,
    _room: SemaphorePermit<'a>,
}

impl RequestBody<'_> {
    /// Gives the room back, once the sender is proven.
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
    /// Reads a body of at most `limit` bytes. It takes room for the length that its head declares, or for the limit.
    ///
    /// # Errors
    /// 413 too large, 503 no room in time, 408 too slow, 400 broken off.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<RequestBody<'_>, HttpProblem> {
        check_length(headers, limit)?;
        let length = declared(headers).unwrap_or(limit);
        let room = match length <= SMALL_BODY {
            true => self.small.acquire_many(1),
            false => self.large.acquire_many(u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX)),
        };
        let Ok(Ok(room)) = timeout(MAX_WAIT, room).await else {
            let detail = "too many requests are being received: send the same request again";
            return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
        };
        match timeout(MAX_RECEIVE_TIME, to_bytes(body, length)).await {
            Ok(Ok(bytes)) => Ok(RequestBody { bytes, _room: room }),
            Ok(Err(error)) => Err(broken(&error, length)),
            Err(_) => {
                let detail = format!("the body did not arrive within {} s", MAX_RECEIVE_TIME.as_secs());
                Err(HttpProblem::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", detail))
            }
        }
    }
}

/// Refuses a body by the length that its head declares.
///
/// # Errors
/// 413.
pub(crate) fn check_length(headers: &HeaderMap, limit: usize) -> Result<(), HttpProblem> {
    if declared(headers).is_some_and(|length| length > limit) { Err(too_large(limit)) } else { Ok(()) }
}

/// Says why a body of at most `limit` bytes could not be read.
pub(crate) fn broken(error: &axum::Error, limit: usize) -> HttpProblem {
    let exceeded = std::error::Error::source(error).is_some_and(|source| source.to_string().contains("length limit"));
    match exceeded {
        true => too_large(limit),
        false => HttpProblem::new(StatusCode::BAD_REQUEST, "incomplete-body", format!("the body broke off: {error}")),
    }
}

fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> HttpProblem {
    let detail = format!("the body is larger than {limit} bytes");
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

    /// Reads a body that arrives at once.
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
        // Without tokio's limit of polls per task, which a thousand bodies in one task exceed.
        unconstrained(async move { budget.read(&headers, body, LARGE_BODIES).await }).boxed_local()
    }

    #[tokio::test]
    async fn small_bodies_are_bounded_and_keep_out_no_large_ones() {
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
    async fn large_bodies_keep_out_no_small_ones() {
        let budget = BodyBudget::default();
        let mut stalled = stall(&budget, LARGE_BODIES);
        assert!(poll!(&mut stalled).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY + 1)).is_pending());
        assert!(poll!(read(&budget, SMALL_BODY)).is_ready());
    }
}
