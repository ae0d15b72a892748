//! Limits the lines of a log about one condition that many tasks meet.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// The time of the last line.
#[derive(Default)]
pub(crate) struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Returns true if a line may be logged now.
    pub(crate) fn allows(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_interval() {
        let (limit, begun) = (LogLimit::default(), Instant::now());
        let allowed = [0, 1, 9, 10, 11, 20].map(|second| limit.allows(begun + Duration::from_secs(second)));
        assert_eq!(allowed, [true, false, false, true, false, true]);
    }
}
