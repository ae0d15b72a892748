//! `sweep` on Lambda: events of the schedule, and batches of the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_flow::sweep::SweepSummary;
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin};
use ebb_flow::{FlowError, FlowResult, QueueMessage};
use lambda_http::{Error, LambdaEvent, lambda_runtime, service_fn};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::reloading::ReloadingValue;
use crate::{FunctionConfig, FunctionContext, log};

/// The time after which `sweep` stops waiting for other servers, so that results and telemetry are not lost.
const TIME_LIMIT: Duration = Duration::from_secs(25);

/// Begins the log and serves events of the schedule and batches of the queue. The context is that of
/// [`router`](crate::router). The response to a batch has the failed messages, which SQS delivers again.
///
/// An invocation fails if the configuration is invalid, or the index cannot be read. The next event of the schedule
/// repeats the sweep.
///
/// # Errors
/// Returns an error if Lambda's runtime interface fails.
pub async fn serve_sweep() -> Result<(), Error> {
    log();
    let current = &ReloadingValue::<FunctionConfig, Arc<FunctionContext>>::default();
    let make = |source: &FunctionConfig| FunctionContext::of(source).map(Arc::new);
    let function = |event: LambdaEvent<Value>| async move {
        let context = current.get(Instant::now(), || FunctionConfig::read(None), make).await?;
        let origin = InvocationOrigin { request_id: event.context.request_id, received: None };
        let sweep = Box::pin(context.handle(event.payload));
        Ok::<_, Error>(Box::pin(context.telemetry.invoke(FunctionKind::Sweep, origin, sweep)).await?)
    };
    lambda_runtime::run(service_fn(function)).await
}

impl FunctionContext {
    async fn handle(&self, event: Value) -> FlowResult<Value> {
        match event.get("Records").and_then(Value::as_array) {
            Some(records) => Ok(self.handle_batch(records).await),
            None => self.run_schedule().await,
        }
    }

    async fn run_schedule(&self) -> FlowResult<Value> {
        let env = &self.server.env;
        if let Err(error) = ebb_flow::sweep::mark_schedule(env).await {
            tracing::warn!(%error, "cannot record the run of the schedule");
        }
        // Both run concurrently, because a sweep that waits for clusters must not delay the scan for orphans.
        let swept = Box::pin(ebb_flow::sweep::sweep(env, &env.store, tokio::time::sleep(TIME_LIMIT)));
        let orphans = timeout(TIME_LIMIT, Box::pin(ebb_flow::sweep::orphans::scan(env)));
        let retention = timeout(TIME_LIMIT, Box::pin(ebb_flow::instance::retention::remove_expired(env, env.now())));
        let (swept, orphans, retention) = futures::join!(swept, orphans, retention);
        match orphans {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the scan for orphans failed; the next scan repeats it"),
            Err(_) => tracing::warn!("the scan for orphans timed out; the next scan continues"),
        }
        match retention {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot remove expired instances; the next run repeats it"),
            Err(_) => tracing::warn!("the removal of expired instances timed out; the next run continues"),
        }
        // This also follows a failed sweep, so that users see the clusters that units wait for.
        if let Err(error) = ebb_flow::sweep::outages::record_outages(env).await {
            tracing::warn!(%error, "cannot record outages of clusters");
        }
        let SweepSummary { processed: looked, failed, unfinished: given_up, lag_ms: late_ms } = swept?;
        tracing::debug!(looked, failed, given_up, late_ms, "swept");
        Ok(json!({ "looked": looked, "failed": failed, "givenUp": given_up, "lateMs": late_ms }))
    }

    /// Handles a message. After the time limit, its run or target is due again later.
    async fn handle_message(&self, message: &QueueMessage) -> FlowResult<()> {
        match timeout(TIME_LIMIT, Box::pin(ebb_flow::sweep::receive_message(&self.server.env, message))).await {
            Ok(done) => done,
            Err(_) => {
                tracing::warn!(?message, "the message timed out; it is postponed");
                ebb_flow::sweep::postpone_message(&self.server.env, message).await;
                Ok(())
            }
        }
    }

    /// Handles all messages concurrently, so that a message that waits for a server does not delay the others.
    async fn handle_batch(&self, records: &[Value]) -> Value {
        let handled = records.iter().map(|record| async move {
            let body = record.get("body").and_then(Value::as_str).unwrap_or_default();
            let result = match serde_json::from_str::<QueueMessage>(body) {
                Ok(message) => self.handle_message(&message).await,
                Err(error) => Err(FlowError::Broken(format!("invalid message: {error}"))),
            };
            let failed =
                result.inspect_err(|error| tracing::warn!(%error, "the message failed; SQS delivers it again"));
            failed.is_err().then(|| json!({ "itemIdentifier": record.get("messageId") }))
        });
        let failures = futures::future::join_all(handled).await.into_iter().flatten();
        json!({ "batchItemFailures": failures.collect::<Vec<_>>() })
    }
}
