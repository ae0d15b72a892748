//! The clock and randomness of the machine.

use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use crate::lock::lock;
use crate::ports::{Clock, RandomSource, SteadyTime};
use ebb_engine::{Millis, Timestamp};

/// The last steady time, with both clocks of the machine at that time.
static LAST: Mutex<Option<(SteadyTime, Instant, Timestamp)>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(Millis::from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()).0)
    }

    fn steady(&self) -> SteadyTime {
        let mut last = lock(&LAST);
        let (instant, now) = (Instant::now(), self.now());
        let steady = last.map_or_else(SteadyTime::default, |(steady, before, then)| {
            steady.plus(passed(instant.saturating_duration_since(before).into(), then, now))
        });
        *last = Some((steady, instant, now));
        steady
    }
}

/// Returns the time between two readings. The monotonic clock stops while the machine sleeps, and the time of day can go
/// back, so the larger step counts.
fn passed(monotonic: Millis, then: Timestamp, now: Timestamp) -> Millis {
    Millis(monotonic.0.max(now.since(then).0))
}

#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn next(&self) -> u64 {
        rand::random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_time_never_stops() {
        for (case, monotonic, then, now, expected) in [
            ("both clocks", 3, 10, 13, 3),
            ("the time of day goes back", 3, 4_000_000, 400_003, 3),
            ("the machine sleeps", 3, 10, 4_000_000, 3_999_990),
        ] {
            assert_eq!(passed(Millis(monotonic), Timestamp(then), Timestamp(now)), Millis(expected), "{case}");
        }
        let readings = [(); 3].map(|()| SystemClock.steady());
        assert!(readings.is_sorted() && SystemClock.steady().since(readings[0]) < Millis(60_000), "{readings:?}");
    }
}
