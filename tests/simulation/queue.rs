//! The queue. It may lose, duplicate and delay messages.

use ebb_flow::ports::ForwardedAttempts;

use super::*;

/// The longest delay that the queue accepts.
const MAX_DELAY: Duration = Duration::from_secs(900);
/// A message is delivered up to [`DELIVERIES`] times, with this pause, until an invocation accepts it.
const AGAIN_MS: u64 = 30_000;
const DELIVERIES: usize = 3;
/// The longest delay of a late message.
const LATE_MS: u64 = 600_000;

impl SimExecutor {
    fn deliver_message(&self, message: QueueMessage, millis: u64) {
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
impl ebb_flow::ports::MessageQueue for SimExecutor {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        let Self { runtime, faults, ledger, .. } = self;
        self.may_die(FaultKind::DeathBeforeCall).await;
        if delay > MAX_DELAY {
            ledger.report_violation(format!("the queue accepts delays up to 15 minutes: {delay:?} for {message:?}"));
        }
        let millis = u64::try_from(delay.min(MAX_DELAY).as_millis()).unwrap_or(u64::MAX);
        ledger.trace(|| format!("queued {message:?} in {millis} ms"));
        {
            let mut state = ledger.state();
            if let QueueMessage::Dispatch(ForwardedAttempts { run, units, .. }) = &message {
                state.passed_on.extend(units.iter().map(|(unit, attempt)| format!("{run}-{}-{}", unit.0, attempt.0)));
            }
            state.messages.push((runtime.elapsed(), message.clone()));
        }
        if faults.should_inject(FaultKind::MessageDuplicated) {
            let later = faults.zero_or_below(FaultKind::MessageDuplicated, LATE_MS);
            self.deliver_message(message.clone(), millis + later);
        }
        let lag = self.inject_below(FaultKind::MessageLate, LATE_MS).unwrap_or(0);
        if !faults.should_inject(FaultKind::MessageLost) {
            self.deliver_message(message, millis + lag);
        }
        self.may_die(FaultKind::DeathAfterCall).await;
    }
}
