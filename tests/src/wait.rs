//! Waits for events that a test does not control.

use std::time::{Duration, Instant};

/// Longer than any wait takes, even on a machine under load.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub async fn until<T>(event: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "waited for {event} for {WAIT_TIMEOUT:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
