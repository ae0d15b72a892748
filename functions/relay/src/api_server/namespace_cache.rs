//! Reads something of a namespace once for all tasks that wait there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as Lock;

use crate::lock::lock;

/// Waits for a read that is in progress. Holds the last one with its time.
type CachedRead<T> = Arc<Lock<Option<(Instant, Arc<T>)>>>;

#[derive(Default)]
pub(crate) struct NamespaceCache<T>(Mutex<HashMap<String, CachedRead<T>>>);

impl<T> NamespaceCache<T> {
    /// Returns what was read of a namespace, if that was not longer ago than `max_age`. Reads it otherwise.
    pub(crate) async fn get(&self, namespace: &str, max_age: Duration, read: impl Future<Output = T>) -> Arc<T> {
        let cached = {
            let mut all = lock(&self.0);
            // An entry that is in use has further references, and gets them only under this lock.
            all.retain(|_, entry| {
                let is_new = |(at, _): &(Instant, Arc<T>)| at.elapsed() < max_age;
                Arc::strong_count(entry) > 1 || entry.try_lock().is_ok_and(|last| last.as_ref().is_some_and(is_new))
            });
            all.entry(namespace.to_owned()).or_default().clone()
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn old_reads_are_forgotten() {
        let cache = NamespaceCache::default();
        let minute = Duration::from_secs(60);
        assert_eq!(*cache.get("a", minute, async { 1 }).await, 1);
        assert_eq!(*cache.get("b", minute, async { 2 }).await, 2);
        assert_eq!(*cache.get("a", minute, async { 3 }).await, 1);
        assert_eq!(cache.0.lock().unwrap().len(), 2);
        // An entry that is being read stays.
        let reading = cache.0.lock().unwrap()["b"].clone();
        assert_eq!(*cache.get("c", Duration::ZERO, async { 4 }).await, 4);
        let mut left: Vec<String> = cache.0.lock().unwrap().keys().cloned().collect();
        left.sort();
        assert_eq!(left, ["b", "c"]);
        drop(reading);
        cache.get("c", Duration::ZERO, async { 5 }).await;
        assert_eq!(cache.0.lock().unwrap().len(), 1);
    }
}
