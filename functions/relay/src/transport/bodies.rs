//! Reads request bodies with limits for the size of one, the size of all, and the time that one takes.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Bytes up to which a body needs no memory permit.
const SMALL: usize = 16 << 10;

pub(crate) struct BodyPool {
    max_bytes: usize,
    /// KiB for all bodies above [`SMALL`].
    free: Semaphore,
    wait_timeout: Duration,
    read_timeout: Duration,
}

/// A body. Its memory permit is released when it is dropped.
pub(crate) struct BufferedBody<'a> {
    bytes: Bytes,
    _permit: Option<SemaphorePermit<'a>>,
}

impl AsRef<[u8]> for BufferedBody<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyPool {
    /// Creates a pool for bodies of at most `max_bytes`, with memory for `at_once` bodies of this size.
    pub(crate) fn new(max_bytes: usize, at_once: usize, wait_timeout: Duration, read_timeout: Duration) -> Self {
        Self { max_bytes, free: Semaphore::new(max_bytes.div_ceil(1 << 10) * at_once), wait_timeout, read_timeout }
    }

    /// Reads a body. Reserves memory for its declared length, or for the largest body.
    ///
    /// # Errors
    /// Returns the status of the response: 413 for a large body, 503 without free memory in time, 408 for a slow body.
    pub(crate) async fn read(&self, headers: &HeaderMap, body: Body) -> Result<BufferedBody<'_>, StatusCode> {
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length: usize = declared.unwrap_or(self.max_bytes);
        let kib = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        if length > self.max_bytes {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let permit = match length <= SMALL {
            true => None,
            false => match timeout(self.wait_timeout, self.free.acquire_many(kib)).await {
                Ok(Ok(permit)) => Some(permit),
                _ => return Err(StatusCode::SERVICE_UNAVAILABLE),
            },
        };
        match timeout(self.read_timeout, to_bytes(body, length)).await {
            Ok(Ok(bytes)) => Ok(BufferedBody { bytes, _permit: permit }),
            Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
            Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
        }
    }
}
