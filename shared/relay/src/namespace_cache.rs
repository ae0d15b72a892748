//! Reads something of a namespace once for all tasks that wait there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as Lock;

/// Waits for a read that is in progress. Holds the last one with its time.
type CachedRead<T> = Arc<Lock<Option<(Instant, Arc<T>)>>>;

/// Caches by namespace.
pub(crate) struct NamespaceCache<T>(Mutex<HashMap<String, CachedRead<T>>>);

impl<T> Default for NamespaceCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> NamespaceCache<T> {
    /// Returns what was read of a namespace, if that was not longer ago than `max_age`. Reads it otherwise.
    pub(crate) async fn get(&self, namespace: &str, max_age: Duration, read: impl Future<Output = T>) -> Arc<T> {
        let cached =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(namespace.to_owned()).or_default().clone();
        let mut cached = cached.lock().await;
        if let Some((at, value)) = &*cached
            && at.elapsed() < max_age
        {
            return value.clone();
        }
        let at = Instant::now();
        let value = Arc::new(read.await);
        *cached = Some((at, value.clone()));
        value
    }
}
