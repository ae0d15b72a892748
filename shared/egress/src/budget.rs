//! Limits the bytes of responses that are in memory at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for bytes in memory. Clones share them.
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
