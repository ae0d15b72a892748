//! The delayed queue on SQS.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;

use crate::ports::{Message, Queue};

/// SQS delivers no message later than this.
const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// Sends messages to one SQS queue.
pub(crate) struct SqsQueue {
    client: Client,
    url: String,
}

impl SqsQueue {
    pub(crate) fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    async fn try_to_send(&self, message: &Message, delay: Duration) -> Result<(), String> {
        let body = serde_json::to_string(message).map_err(|error| error.to_string())?;
        // Rounded up: a hint that comes too early finds nothing due.
        let seconds = delay.min(LONGEST_DELAY).as_millis().div_ceil(1000);
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        let sent = self.client.send_message().queue_url(&self.url).message_body(body).delay_seconds(seconds);
        let sent = sent.send().await;
        sent.map(drop).map_err(|error| aws_sdk_sqs::error::DisplayErrorContext(&error).to_string())
    }
}

#[async_trait]
impl Queue for SqsQueue {
    async fn send(&self, message: Message, delay: Duration) {
        if let Err(error) = self.try_to_send(&message, delay).await {
            tracing::warn!(%error, "a hint was not sent; the schedule finds what is due");
        }
    }

    async fn check(&self) -> Result<(), String> {
        self.try_to_send(&Message::Mark, Duration::ZERO).await
    }
}
