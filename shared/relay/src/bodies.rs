//! Bodies of requests: how large one may be, how much of all is held at one time, and how long one may take to come.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Bytes of a body that is no matter: a heartbeat, a batch that asks for one thing.
const SMALL: usize = 16 << 10;

/// Room for bodies.
pub(crate) struct BodyPool {
    max_bytes: usize,
    /// KiB of all that are larger than [`SMALL`].
    free: Semaphore,
    /// How long one waits for room.
    wait_timeout: Duration,
    /// How long one may take to come.
    read_timeout: Duration,
}

/// A body that has come. Its room is taken until it is dropped.
pub(crate) struct BufferedBody<'a> {
    bytes: Bytes,
    _room: Option<SemaphorePermit<'a>>,
}

impl AsRef<[u8]> for BufferedBody<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyPool {
    /// For bodies of `most` bytes, and at one time for as many bytes as `at_once` of them have.
    pub(crate) fn new(max_bytes: usize, at_once: usize, wait_timeout: Duration, read_timeout: Duration) -> Self {
        Self { max_bytes, free: Semaphore::new(max_bytes.div_ceil(1 << 10) * at_once), wait_timeout, read_timeout }
    }

    /// Reads a body. It gets room for the length that is declared, or for the largest one.
    ///
    /// # Errors
    /// The status to answer with: 413, too large; 503, no room in time; 408, too slow.
    pub(crate) async fn read(&self, headers: &HeaderMap, body: Body) -> Result<BufferedBody<'_>, StatusCode> {
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length: usize = declared.unwrap_or(self.max_bytes);
        let kib = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        if length > self.max_bytes {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let room = match length <= SMALL {
            true => None,
            false => match timeout(self.wait_timeout, self.free.acquire_many(kib)).await {
                Ok(Ok(room)) => Some(room),
                _ => return Err(StatusCode::SERVICE_UNAVAILABLE),
            },
        };
        match timeout(self.read_timeout, to_bytes(body, length)).await {
            Ok(Ok(bytes)) => Ok(BufferedBody { bytes, _room: room }),
            Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
            Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
        }
    }
}
