//! The delayed queue of one machine: it forgets when it ends, which the table does not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::Env;
use ebb_flow::ports::{MessageQueue, QueueMessage};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

/// Messages that are dealt with at a time.
const AT_ONCE: usize = 32;

/// The sending end.
pub(crate) struct LocalQueue {
    sender: mpsc::UnboundedSender<QueueMessage>,
}

/// A queue: where messages go in, and where they come out when their delay is over.
pub(crate) fn channel() -> (LocalQueue, mpsc::UnboundedReceiver<QueueMessage>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (LocalQueue { sender }, receiver)
}

#[async_trait]
impl MessageQueue for LocalQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        if delay.is_zero() {
            // Nobody listens any more: the stack is ending.
            self.sender.send(message).ok();
            return;
        }
        let sender = self.sender.downgrade();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(sender) = sender.upgrade() {
                sender.send(message).ok();
            }
        });
    }

    async fn check(&self) -> Result<(), String> {
        self.sender.send(QueueMessage::Mark).map_err(|_| "the stack is ending".to_owned())
    }
}

/// Deals with messages until the stack stops; what is being dealt with then is finished first.
pub(crate) async fn work(
    env: Arc<Env>,
    telemetry: Arc<Telemetry>,
    mut messages: mpsc::UnboundedReceiver<QueueMessage>,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    loop {
        let message = tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => break,
            message = messages.recv() => message,
        };
        let (Some(message), Ok(place)) = (message, Arc::clone(&places).acquire_owned().await) else { break };
        let (env, telemetry) = (Arc::clone(&env), Arc::clone(&telemetry));
        tasks.spawn(async move {
            let _place = place;
            let work = Box::pin(ebb_flow::sweep::receive_message(&env, &message));
            if let Err(error) = telemetry.invoke(FunctionKind::Sweep, InvocationOrigin::default(), work).await {
                tracing::warn!(?message, %error, "dealt with again when it is due");
            }
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}
