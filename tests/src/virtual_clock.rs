//! A clock that tests advance, and a queue with its time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_flow::ports::{Clock, MessageQueue, QueueMessage, SteadyTime};

/// A clock that stands still until it is advanced.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
    /// The time by which the clock was turned back.
    back: AtomicU64,
}

impl ManualClock {
    /// Returns a clock at a time, in milliseconds since 1970.
    pub fn at(millis: u64) -> Self {
        Self { now: AtomicU64::new(millis), back: AtomicU64::default() }
    }

    pub fn advance(&self, millis: u64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
    }

    pub fn turn_back(&self, millis: u64) {
        self.now.fetch_sub(millis, Ordering::SeqCst);
        self.back.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime(Millis(self.now.load(Ordering::SeqCst) + self.back.load(Ordering::SeqCst)))
    }
}

/// A queue whose due messages are taken by the test.
#[derive(Debug)]
pub struct ManualQueue {
    clock: Arc<ManualClock>,
    waiting: Mutex<Vec<(Timestamp, QueueMessage)>>,
}

impl ManualQueue {
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self { clock, waiting: Mutex::default() }
    }

    pub fn take_due(&self) -> Vec<QueueMessage> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        waiting.extract_if(.., |(at, _)| *at <= now).map(|(_, message)| message).collect()
    }
}

#[async_trait]
impl MessageQueue for ManualQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let at = Timestamp(self.clock.now().0.saturating_add(delay));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((at, message));
    }
}
