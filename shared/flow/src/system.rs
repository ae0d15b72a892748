//! The clock and randomness of the machine.

use std::time::SystemTime;

use crate::ports::{Clock, RandomSource};
use ebb_engine::Timestamp;

#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn next(&self) -> u64 {
        rand::random()
    }
}
