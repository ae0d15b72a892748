//! The message queue with delays of one machine. Messages are lost when the process ends; the table stores the due
//! times.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::Env;
use ebb_flow::ports::{MessageQueue, QueueMessage};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

/// The maximum number of messages that are handled at the same time.
const MAX_CONCURRENT: usize = 32;
/// The maximum number of deliveries beside them. They wait for the receivers of subscriptions, and delay no other message.
const MAX_DELIVERIES: usize = 256;

/// The sending end of the queue. Messages arrive after their delay.
pub struct LocalQueue(pub mpsc::UnboundedSender<QueueMessage>);

#[async_trait]
impl MessageQueue for LocalQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        if delay.is_zero() {
            // The receiver is closed while the stack stops.
            self.0.send(message).ok();
            return;
        }
        let sender = self.0.downgrade();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(sender) = sender.upgrade() {
                sender.send(message).ok();
            }
        });
    }

    async fn check(&self) -> Result<(), String> {
        self.0.send(QueueMessage::Mark).map_err(|_| "the stack is ending".to_owned())
    }
}

/// Handles messages until the stack stops, then waits for those in progress.
pub(crate) async fn handle_messages(
    env: Arc<Env>,
    telemetry: Arc<Telemetry>,
    mut messages: mpsc::UnboundedReceiver<QueueMessage>,
    mut stopped: watch::Receiver<bool>,
) {
    let (slots, deliveries) = (Arc::new(Semaphore::new(MAX_CONCURRENT)), Arc::new(Semaphore::new(MAX_DELIVERIES)));
    let mut tasks = JoinSet::new();
    loop {
        let message = tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => break,
            message = messages.recv() => message,
        };
        let Some(message) = message else { break };
        let slots = if let QueueMessage::Deliver(..) = message { &deliveries } else { &slots };
        let (env, telemetry, slots) = (Arc::clone(&env), Arc::clone(&telemetry), Arc::clone(slots));
        tasks.spawn(async move {
            let Ok(_slot) = slots.acquire().await else { return };
            let task = Box::pin(ebb_flow::sweep::receive_message(&env, &message));
            if let Err(error) = telemetry.invoke(FunctionKind::Sweep, InvocationOrigin::default(), task).await {
                tracing::warn!(?message, %error, "the message failed; a sweep repeats it when it is due");
            }
        });
        while tasks.try_join_next().is_some() {}
    }
    // Messages that have not begun are dropped.
    slots.close();
    deliveries.close();
    while tasks.join_next().await.is_some() {}
}
