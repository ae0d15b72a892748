//! The delayed queue: may lose, double and delay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::QueueMessage;

use super::super::{FaultInjector, FaultKind, SimFunctions, SimRuntime};
use super::ledger::SimLedger;

/// Longest delay that the queue takes.
const LONGEST: Duration = Duration::from_secs(900);
/// A message whose taker died is delivered again after this long, up to [`DELIVERIES`] times.
const AGAIN_MS: u64 = 30_000;
const DELIVERIES: usize = 3;
/// How late a message may be, in milliseconds.
const LATE_MS: u64 = 600_000;

/// What is known of the messages of a simulation.
#[derive(Default)]
pub(super) struct MessageCount {
    sent: AtomicU64,
    last: Mutex<u64>,
}

impl MessageCount {
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
pub(super) struct SimQueue {
    pub(super) runtime: SimRuntime,
    pub(super) functions: Arc<SimFunctions>,
    pub(super) ledger: Arc<SimLedger>,
    pub(super) faults: Arc<FaultInjector>,
    pub(super) counted: Arc<MessageCount>,
}

impl SimQueue {
    fn deliver(&self, message: QueueMessage, millis: u64) {
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
impl ebb_flow::ports::MessageQueue for SimQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        if self.faults.should_inject(FaultKind::DeathBeforeCall) {
            self.runtime.die().await;
        }
        if delay > LONGEST {
            self.ledger.report_violation(format!("the queue takes delays up to 15 minutes: {delay:?} for {message:?}"));
        }
        if let QueueMessage::Dispatch { run, units, .. } = &message {
            let tries = units.iter().map(|(unit, attempt)| format!("{run}-{unit}-{attempt}"));
            self.ledger.state().passed_on.extend(tries);
        }
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).min(900_000);
        self.ledger.trace(|| format!("queued {message:?} in {millis} ms"));
        self.counted.sent.fetch_add(1, Ordering::Relaxed);
        *self.counted.last.lock().expect("no panic while it is held") = self.runtime.elapsed();
        let late = |kind| self.faults.random_below(kind, LATE_MS);
        if self.faults.should_inject(FaultKind::MessageDuplicated) {
            let later = self.faults.zero_or_below(FaultKind::MessageDuplicated, LATE_MS);
            self.deliver(message.clone(), millis + later);
        }
        let lag = if self.faults.should_inject(FaultKind::MessageLate) { late(FaultKind::MessageLate) } else { 0 };
        if !self.faults.should_inject(FaultKind::MessageLost) {
            self.deliver(message, millis + lag);
        }
        if self.faults.should_inject(FaultKind::DeathAfterCall) {
            self.runtime.die().await;
        }
    }

    async fn check(&self) -> Result<(), String> {
        self.send(QueueMessage::Mark, Duration::ZERO).await;
        Ok(())
    }
}
