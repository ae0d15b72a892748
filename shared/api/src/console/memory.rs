//! Caches reads for the pages of all browsers for a short time. Pages that ask for the same share one read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ebb_flow::instance::change_watch::SHARED;
use ebb_flow::ports::SteadyTime;
use ebb_protocol::api::{TargetDetail, TargetDiagnosis, TargetPage};
use ebb_store::{RunHead, TargetHead};
use tokio::sync::OnceCell;

#[derive(Default)]
pub(crate) struct ConsoleMemory {
    /// Pages of lists, by the access of the caller and the query.
    pub(super) lists: SharedReads<TargetPage>,
    /// The detail and the diagnosis of a target, by the stamp of its page.
    pub(super) targets: SharedReads<Arc<(TargetDetail, TargetDiagnosis)>>,
    pub(super) heads: SharedReads<Option<Arc<TargetHead>>>,
    pub(super) runs: SharedReads<Option<Arc<RunHead>>>,
}

/// Values by name. A value is read once in [`SHARED`], also by concurrent readers.
pub(super) struct SharedReads<V>(Mutex<HashMap<String, SharedRead<V>>>);

/// The time of the first question, and its answer.
type SharedRead<V> = (SteadyTime, Arc<OnceCell<V>>);

impl<V> Default for SharedReads<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> SharedReads<V> {
    /// Returns the value of a name, which `read` reads if it is not known.
    pub(super) async fn get<E>(
        &self,
        now: SteadyTime,
        name: String,
        read: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let cell = {
            let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cells.retain(|_, (at, _)| now.since(*at) < SHARED);
            Arc::clone(&cells.entry(name).or_insert_with(|| (now, Arc::default())).1)
        };
        cell.get_or_try_init(|| read).await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use ebb_engine::Millis;

    use super::*;

    #[tokio::test]
    async fn concurrent_readers_share_a_read_for_a_second() {
        let (shared, count) = (SharedReads::default(), AtomicU32::new(0));
        let get = async |at: u64, name: &str| {
            let read = async { Ok::<_, ()>(count.fetch_add(1, Ordering::Relaxed)) };
            shared.get(SteadyTime(Millis(at)), name.to_owned(), read).await.unwrap()
        };
        assert_eq!(futures::join!(get(1_000, "a"), get(1_000, "a"), get(1_999, "a")), (0, 0, 0));
        assert_eq!((get(1_999, "b").await, get(2_000, "a").await, get(2_000, "b").await), (1, 2, 1));
        let failed = shared.get(SteadyTime(Millis(9_000)), "a".to_owned(), async { Err(()) }).await;
        assert_eq!((failed, get(9_000, "a").await), (Err(()), 3));
    }
}
