//! `sweep` on Lambda: the schedule's minute, and batches of the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_flow::FlowError;
use ebb_flow::ports::QueueMessage;
use ebb_flow::sweep::SweepSummary;
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::reloading::ReloadingValue;
use crate::{FunctionConfig, FunctionContext};

/// After this `sweep` gives up what still waits for others, so that the rest of what it has to do and to tell is not lost
/// with it.
const TIME_LIMIT: Duration = Duration::from_secs(25);

/// `sweep`, whose surroundings are those of [`router`](crate::router).
#[derive(Default)]
pub struct SweepHandler(ReloadingValue<FunctionConfig, Arc<FunctionContext>>);

impl SweepHandler {
    /// An event of the schedule, or a batch of the queue, and the id of the request. Gives the batch's failures for SQS to
    /// send again.
    ///
    /// # Errors
    /// The surroundings cannot be made, or the index cannot be asked; the schedule asks again.
    pub async fn invoke(
        &self,
        event: Value,
        request: String,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let deployed = self
            .0
            .get(Instant::now(), || FunctionConfig::read(None), |source| FunctionContext::of(source).map(Arc::new))
            .await?;
        let came = InvocationOrigin { request_id: request, received: None };
        let look = Box::pin(deployed.handle(event));
        Ok(Box::pin(deployed.telemetry.invoke(FunctionKind::Sweep, came, look)).await?)
    }
}

impl FunctionContext {
    async fn handle(&self, event: Value) -> Result<Value, FlowError> {
        match event.get("Records").and_then(Value::as_array) {
            Some(records) => Ok(self.handle_batch(records).await),
            None => self.run_schedule().await,
        }
    }

    async fn run_schedule(&self) -> Result<Value, FlowError> {
        let (env, store) = (&self.env, self.store.as_ref());
        if let Err(error) = ebb_flow::sweep::mark_schedule(env).await {
            tracing::warn!(%error, "that the schedule works is not marked");
        }
        // At the same time: a sweep that waits for clusters must not delay the scan for orphans.
        let end = tokio::time::sleep(TIME_LIMIT);
        let swept = Box::pin(ebb_flow::sweep::sweep_until(env, store, end));
        let orphans = timeout(TIME_LIMIT, Box::pin(ebb_flow::sweep::orphans::scan(env, store)));
        let retention =
            timeout(TIME_LIMIT, Box::pin(ebb_flow::sweep::retention::remove_expired(env, store, env.now())));
        let (swept, orphans, retention) = futures::join!(swept, orphans, retention);
        match orphans {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the scan for orphans is repeated later"),
            Err(_) => tracing::warn!("the cluster takes too long; the next scan looks for its orphans"),
        }
        match retention {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "lives whose retention is over are removed later"),
            Err(_) => tracing::warn!("the rest of the lives whose retention is over is removed later"),
        }
        // Also if the sweep failed: users see the cluster that units wait for.
        if let Err(error) = ebb_flow::sweep::outages::record_outages(env, store).await {
            tracing::warn!(%error, "the outages of clusters are not recorded");
        }
        let SweepSummary { processed: looked, failed, unfinished: given_up, lag_ms: late_ms } = swept?;
        tracing::debug!(looked, failed, given_up, late_ms, "swept");
        Ok(json!({ "looked": looked, "failed": failed, "givenUp": given_up, "lateMs": late_ms }))
    }

    /// Does what a message asks for. If that takes too long the table says when it is looked at again.
    async fn handle_message(&self, message: &QueueMessage) -> Result<(), FlowError> {
        let work = Box::pin(ebb_flow::sweep::receive_message(&self.env, message));
        match timeout(TIME_LIMIT, work).await {
            Ok(done) => done,
            Err(_) => {
                tracing::warn!(?message, "what a message asks for takes too long; it is put off");
                ebb_flow::sweep::postpone_message(&self.env, message).await;
                Ok(())
            }
        }
    }

    /// All messages at once: one that waits for a server must not make the others wait for their repetition.
    async fn handle_batch(&self, records: &[Value]) -> Value {
        let taken = records.iter().map(|record| async move {
            let body = record.get("body").and_then(Value::as_str).unwrap_or_default();
            let taken = match serde_json::from_str::<QueueMessage>(body) {
                Ok(message) => self.handle_message(&message).await,
                Err(error) => Err(FlowError::Broken(format!("a message that is none of ours: {error}"))),
            };
            match taken {
                Ok(()) => return None,
                Err(error) => tracing::warn!(%error, "a message is delivered again"),
            }
            Some(json!({ "itemIdentifier": record.get("messageId") }))
        });
        let failures = futures::future::join_all(taken).await.into_iter().flatten();
        json!({ "batchItemFailures": failures.collect::<Vec<_>>() })
    }
}
