//! Bodies whose sender is not proven yet: how long each may be, and how many bytes of all are held at one time.
//!
//! Signatures cover the body, so it has to be read before they are verified. What the head of a request says is judged first.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::HttpProblem;

/// Bytes of all bodies that are larger than [`SMALL`]: sixteen of the largest lifecycle webhooks, in a function of 256 MB.
const UNPROVEN: usize = 16 << 20;
/// Bytes of a body that takes no room: most webhooks and polls are smaller, and a connection costs as much.
const SMALL: usize = 16 << 10;
/// How long a body waits for room. Senders of webhooks wait 15 s or longer (Standard Webhooks).
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a body may take to arrive.
const SLOWEST: Duration = Duration::from_secs(20);
/// Room is given in units of so many bytes: a semaphore counts at most 2^29 or so.
const UNIT: usize = 1 << 10;

/// Room for bodies that are not proven.
pub(crate) struct Unproven(Semaphore);

/// A body that has arrived. Its room is taken until this is dropped.
pub(crate) struct Arrived<'a> {
    bytes: Bytes,
    _room: Option<SemaphorePermit<'a>>,
}

impl Arrived<'_> {
    /// Gives the room back, once the sender is proven.
    pub(crate) fn into_proven(self) -> Bytes {
        self.bytes
    }
}

impl AsRef<[u8]> for Arrived<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Unproven {
    fn default() -> Self {
        Self(Semaphore::new(UNPROVEN / UNIT))
    }
}

impl Unproven {
    /// Reads a body of at most `limit` bytes. It takes room for the length that its head declares, or for the limit.
    ///
    /// # Errors
    /// 413 too large, 503 no room in time, 408 too slow, 400 broken off.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<Arrived<'_>, HttpProblem> {
        check_length(headers, limit)?;
        let length = declared(headers).unwrap_or(limit);
        let room = match length <= SMALL {
            true => None,
            false => {
                let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
                match timeout(PATIENCE, self.0.acquire_many(units)).await {
                    Ok(Ok(room)) => Some(room),
                    Ok(Err(_)) | Err(_) => {
                        let detail =
                            "too many large requests are being received: send the same request again";
                        return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
                    }
                }
            }
        };
        match timeout(SLOWEST, to_bytes(body, length)).await {
            Ok(Ok(bytes)) => Ok(Arrived { bytes, _room: room }),
            Ok(Err(error)) => Err(broken(&error, length)),
            Err(_) => {
                let detail = format!("the body did not arrive within {} s", SLOWEST.as_secs());
                Err(HttpProblem::new(StatusCode::REQUEST_TIMEOUT, "slow", detail))
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
    let exceeded =
        std::error::Error::source(error).is_some_and(|source| source.to_string().contains("length limit"));
    match exceeded {
        true => too_large(limit),
        false => HttpProblem::new(StatusCode::BAD_REQUEST, "body", format!("the body broke off: {error}")),
    }
}

fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> HttpProblem {
    let detail = format!("the body is larger than {limit} bytes");
    HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
}
