//! Waits for an event that the test does not control.

use std::time::{Duration, Instant};

/// Longer than any wait takes unless something is broken. A machine under load takes a good part of it.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// The time between two looks.
pub const LOOK: Duration = Duration::from_millis(50);

/// Looks until there is something to see.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what} for {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}
