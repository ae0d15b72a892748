//! A clock that stands until it is moved, and what goes with it: nothing happens by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::Timestamp;
use ebb_flow::ports::{Clock, Message, Queue, Random};

/// The clock.
#[derive(Debug, Default)]
pub struct Time(AtomicU64);

impl Time {
    /// Stands at so many milliseconds since 1970.
    pub fn at(millis: u64) -> Self {
        Self(AtomicU64::new(millis))
    }

    /// Moves it on.
    pub fn pass(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Time {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// The same numbers each time.
#[derive(Debug, Default)]
pub struct Numbers(AtomicU64);

impl Random for Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// A queue from which messages are taken when their time has come.
#[derive(Debug)]
pub struct Messages {
    clock: Arc<Time>,
    waiting: Mutex<Vec<(Timestamp, Message)>>,
}

impl Messages {
    /// An empty one.
    pub fn new(clock: Arc<Time>) -> Self {
        Self { clock, waiting: Mutex::default() }
    }

    /// Takes those whose time has come.
    pub fn take(&self) -> Vec<Message> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let (due, later) = std::mem::take(&mut *waiting).into_iter().partition(|(at, _)| *at <= now);
        *waiting = later;
        let due: Vec<(Timestamp, Message)> = due;
        due.into_iter().map(|(_, message)| message).collect()
    }
}

#[async_trait]
impl Queue for Messages {
    async fn send(&self, message: Message, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let at = Timestamp(self.clock.now().0.saturating_add(delay));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((at, message));
    }

    async fn check(&self) -> Result<(), String> {
        self.send(Message::Mark, Duration::ZERO).await;
        Ok(())
    }
}
