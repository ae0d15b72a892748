//! Limits how often the log repeats a line.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The last lines, each with the time until which it is not repeated.
#[derive(Default)]
pub(crate) struct LogLimit(Mutex<HashMap<String, Instant>>);

impl LogLimit {
    /// Returns true if a line may be logged now. It may be repeated after `pause`.
    pub(crate) fn allows(&self, line: String, pause: Duration, now: Instant) -> bool {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, until| *until > now);
        let is_new = !lines.contains_key(&line);
        lines.entry(line).or_insert(now + pause);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_repeated_after_its_pause() {
        let (limit, begun) = (LogLimit::default(), Instant::now());
        for (second, line, expected) in [
            (0, "a", true),
            (1, "a", false),
            (1, "b", true),
            (9, "a", false),
            (10, "a", true),
            (11, "a", false),
            (20, "a", true),
        ] {
            let now = begun + Duration::from_secs(second);
            assert_eq!(limit.allows(line.to_owned(), Duration::from_secs(10), now), expected, "{second} {line}");
        }
    }
}
