//! The delayed queue: may lose, double and delay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::Message;

use super::super::{Functions, Mishap, Mishaps, Runtime};
use super::books::Books;

/// Longest delay that the queue takes.
const LONGEST: Duration = Duration::from_secs(900);
/// A message whose taker died is delivered again after this long, up to [`DELIVERIES`] times.
const AGAIN_MS: u64 = 30_000;
const DELIVERIES: usize = 3;
/// How late a message may be, in milliseconds.
const LATE_MS: u64 = 600_000;

/// What is known of the messages of a world.
#[derive(Default)]
pub(super) struct Counted {
    sent: AtomicU64,
    last: Mutex<u64>,
}

impl Counted {
    /// How many were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// When the last one was sent.
    pub(super) fn last(&self) -> u64 {
        *self.last.lock().expect("no panic while it is held")
    }
}

/// A queue.
pub(super) struct Queue {
    pub(super) runtime: Runtime,
    pub(super) functions: Arc<Functions>,
    pub(super) books: Arc<Books>,
    pub(super) mishaps: Arc<Mishaps>,
    pub(super) counted: Arc<Counted>,
}

impl Queue {
    fn deliver(&self, message: Message, millis: u64) {
        let (runtime, functions) = (self.runtime.clone(), Arc::clone(&self.functions));
        self.runtime.spawn(async move {
            runtime.sleep(millis).await;
            for _ in 0..DELIVERIES {
                if functions.message(message.clone()).await.is_ok() {
                    break;
                }
                runtime.sleep(AGAIN_MS).await;
            }
        });
    }
}

#[async_trait]
impl ebb_flow::ports::Queue for Queue {
    async fn send(&self, message: Message, delay: Duration) {
        if self.mishaps.strikes(Mishap::DeathBeforeCall) {
            self.runtime.die().await;
        }
        if delay > LONGEST {
            self.books.blame(format!("the queue takes delays up to 15 minutes: {delay:?} for {message:?}"));
        }
        if let Message::Dispatch { run, units, .. } = &message {
            let tries = units.iter().map(|(unit, attempt)| format!("{run}-{unit}-{attempt}"));
            self.books.state().passed_on.extend(tries);
        }
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).min(900_000);
        self.books.tell(|| format!("queued {message:?} in {millis} ms"));
        self.counted.sent.fetch_add(1, Ordering::Relaxed);
        *self.counted.last.lock().expect("no panic while it is held") = self.runtime.elapsed();
        let late = |kind| self.mishaps.below(kind, LATE_MS);
        if self.mishaps.strikes(Mishap::MessageDoubled) {
            let later = self.mishaps.beside_or_below(Mishap::MessageDoubled, LATE_MS);
            self.deliver(message.clone(), millis + later);
        }
        let lag = if self.mishaps.strikes(Mishap::MessageLate) { late(Mishap::MessageLate) } else { 0 };
        if !self.mishaps.strikes(Mishap::MessageLost) {
            self.deliver(message, millis + lag);
        }
        if self.mishaps.strikes(Mishap::DeathAfterCall) {
            self.runtime.die().await;
        }
    }

    async fn check(&self) -> Result<(), String> {
        self.send(Message::Mark, Duration::ZERO).await;
        Ok(())
    }
}
