//! The delayed queue: delivers at a point in virtual time, and may lose or double by plan.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::QueueMessage;

use super::{SimFunctions, SimRandom, SimRuntime};

/// What goes wrong with messages, in percent of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFaults {
    pub lost: u8,
    /// Delivered once more, up to [`Self::late_ms`] later.
    pub doubled: u8,
    /// How much later a second delivery may come, in milliseconds.
    pub late_ms: u64,
}

/// A queue.
pub struct ScenarioQueue {
    runtime: SimRuntime,
    functions: Arc<SimFunctions>,
    random: SimRandom,
    faults: QueueFaults,
    sent: Mutex<Vec<(u64, String)>>,
}

/// Longest delay that the queue takes.
const LONGEST: Duration = Duration::from_secs(900);
/// A message whose taker died is delivered again after this long, up to [`DELIVERIES`] times.
const AGAIN_MS: u64 = 30_000;
const DELIVERIES: usize = 3;

impl ScenarioQueue {
    /// A queue that delivers to `functions`.
    pub fn new(runtime: SimRuntime, functions: Arc<SimFunctions>, seed: u64, faults: QueueFaults) -> Self {
        Self { runtime, functions, random: SimRandom::new(seed), faults, sent: Mutex::default() }
    }

    /// What was sent, with the time.
    pub fn sent(&self) -> Vec<(u64, String)> {
        self.sent.lock().expect("no panic while it is held").clone()
    }

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
impl ebb_flow::ports::MessageQueue for ScenarioQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        assert!(delay <= LONGEST, "the queue takes delays up to 15 minutes: {delay:?} for {message:?}");
        let millis = u64::try_from(delay.as_millis()).expect("at most 15 minutes");
        {
            let mut sent = self.sent.lock().expect("no panic while it is held");
            sent.push((self.runtime.elapsed(), format!("{message:?} in {millis} ms")));
        }
        if self.random.in_percent(self.faults.doubled) {
            self.deliver(message.clone(), millis + self.random.below(self.faults.late_ms + 1));
        }
        if !self.random.in_percent(self.faults.lost) {
            self.deliver(message, millis);
        }
    }

    async fn check(&self) -> Result<(), String> {
        self.send(QueueMessage::Mark, Duration::ZERO).await;
        Ok(())
    }
}
