//! Clock and randomness of this machine.

use std::time::SystemTime;

use ebb_engine::Timestamp;
use ebb_flow::ports::{Clock, Random};

/// The clock of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The randomness of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemRandom;

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        rand::random()
    }
}
