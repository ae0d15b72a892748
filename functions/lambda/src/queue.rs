//! The message queue with delays, on SQS.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use ebb_flow::ports::{MessageQueue, QueueMessage};
use futures::StreamExt as _;

const MAX_DELAY: Duration = Duration::from_secs(900);
/// The maximum number of messages of one request to SQS.
const BATCH: usize = 10;
const MAX_CONCURRENT: usize = 8;

pub(crate) struct SqsQueue {
    pub(crate) client: Client,
    pub(crate) url: String,
}

impl SqsQueue {
    /// Sends at most [`BATCH`] messages.
    async fn try_to_send(&self, messages: &[QueueMessage], delay: Duration) -> Result<(), String> {
        // The delay is rounded up, because an early wake-up would find no due item.
        let seconds = delay.min(MAX_DELAY).as_millis().div_ceil(1000);
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        let entries = messages.iter().zip(0_u32..).map(|(message, id)| {
            let body = serde_json::to_string(message).map_err(|error| error.to_string())?;
            let entry = SendMessageBatchRequestEntry::builder().id(id.to_string()).message_body(body);
            entry.delay_seconds(seconds).build().map_err(|error| error.to_string())
        });
        let entries = entries.collect::<Result<_, _>>()?;
        let sent = self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries)).send().await;
        let sent = sent.map_err(|error| DisplayErrorContext(&error).to_string())?;
        let Some(failed) = sent.failed().first() else { return Ok(()) };
        let (count, reason) = (sent.failed().len(), failed.message().unwrap_or_else(|| failed.code()));
        Err(format!("{count} of {} messages were rejected: {reason}", messages.len()))
    }
}

#[async_trait]
impl MessageQueue for SqsQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        if let Err(error) = self.try_to_send(&[message], delay).await {
            tracing::warn!(%error, "cannot send a wake-up; the schedule covers for it");
        }
    }

    async fn send_all(&self, messages: Vec<QueueMessage>) {
        let batches: Vec<_> = messages.chunks(BATCH).map(|batch| self.try_to_send(batch, Duration::ZERO)).collect();
        let mut sent = futures::stream::iter(batches).buffer_unordered(MAX_CONCURRENT);
        while let Some(sent) = sent.next().await {
            if let Err(error) = sent {
                tracing::warn!(%error, "cannot send wake-ups; the schedule covers for them");
            }
        }
    }

    async fn check(&self) -> Result<(), String> {
        self.try_to_send(&[QueueMessage::Mark], Duration::ZERO).await
    }
}
