//! The clock and randomness of the machine.

use std::time::SystemTime;

use crate::ports::{Clock, RandomSource};
use ebb_engine::{Millis, Timestamp};

#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp(Millis::from(since).0)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn next(&self) -> u64 {
        rand::random()
    }
}
