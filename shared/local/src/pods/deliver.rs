//! Watches a task until its result is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use ebb_egress::{CallError, HttpRequest};
use ebb_protocol::callback::Callback;
use ebb_protocol::relay::TaskId;
use tokio::sync::Notify;

use super::relay::RelayShared;
use super::task_folder::{FolderState, StoredRequest};
use super::{PodsError, folder};

/// The interval at which a task is polled: the first one, and the longest.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// The pause between two attempts of a callback: the first one, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The timeout of a callback. The control plane dispatches the units that became ready before it responds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The outcome of a callback.
enum DeliveryResult {
    Done,
    Retry(String),
}

/// Watches one task: starts it or writes its result if it has no supervisor, and sends its result until it is acknowledged.
/// `wake` makes it poll at once.
pub(super) async fn watch_task(inner: Arc<RelayShared>, name: TaskId, wake: Arc<Notify>) {
    let mut look = POLL_INTERVAL.0;
    let mut pause = BACKOFF.0;
    loop {
        let rest = match step(&inner, &name).await {
            Ok(DeliveryStep::Done) if inner.unwatch_if_done(&name) => return,
            Ok(DeliveryStep::Done) => continue,
            Ok(DeliveryStep::Poll) => {
                look = (look + look / 8).min(POLL_INTERVAL.1);
                look
            }
            Ok(DeliveryStep::Retry(reason)) => {
                tracing::debug!(unit = name.unit, attempt = name.attempt, reason, "callback not accepted yet");
                pause = (pause * 2).min(BACKOFF.1);
                pause / 2
            }
            Err(error) => {
                tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "task cannot be watched");
                pause = (pause * 2).min(BACKOFF.1);
                pause / 2
            }
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = wake.notified() => {}
        }
    }
}

enum DeliveryStep {
    /// There is nothing more to do.
    Done,
    Poll,
    /// The result is not acknowledged yet.
    Retry(String),
}

async fn step(inner: &RelayShared, name: &TaskId) -> Result<DeliveryStep, PodsError> {
    let task = inner.task_folder(name);
    match task.state()? {
        FolderState::Absent | FolderState::Tombstoned => Ok(DeliveryStep::Done),
        FolderState::Running => Ok(DeliveryStep::Poll),
        FolderState::Waiting | FolderState::Lost => {
            inner.resume(name).await?;
            Ok(DeliveryStep::Poll)
        }
        FolderState::Ended(_) if task.acknowledged().exists() => Ok(DeliveryStep::Done),
        FolderState::Ended(result) => {
            let Some(received) = folder::read_json::<StoredRequest>(&task.request())? else {
                return Ok(DeliveryStep::Retry("the request is gone".to_owned()));
            };
            let asked = inner.ensure_count(name);
            Ok(match deliver(inner, name, &received, &result).await {
                DeliveryResult::Done if inner.mark_acknowledged(name, asked)? => DeliveryStep::Done,
                DeliveryResult::Done => DeliveryStep::Poll,
                DeliveryResult::Retry(why) => DeliveryStep::Retry(why),
            })
        }
    }
}

async fn deliver(inner: &RelayShared, name: &TaskId, received: &StoredRequest, result: &Callback) -> DeliveryResult {
    let body = match serde_json::to_vec(result) {
        Ok(body) => body,
        Err(error) => return DeliveryResult::Retry(error.to_string()),
    };
    let callback = &received.request.callback;
    let request = HttpRequest {
        method: "POST".to_owned(),
        url: inner.options.callback_url.clone().unwrap_or_else(|| callback.url.clone()),
        headers: vec![
            ("authorization".to_owned(), format!("Bearer {}", callback.token)),
            ("content-type".to_owned(), "application/json".to_owned()),
        ],
        body,
        timeout: TIMEOUT,
    };
    match inner.options.call.call(request).await {
        Ok(response) if (200..300).contains(&response.status) => DeliveryResult::Done,
        // Too early, too many, too slow: the control plane has not refused this result.
        Ok(response) if matches!(response.status, 408 | 425 | 429) => {
            DeliveryResult::Retry(format!("status {}", response.status))
        }
        Ok(response) if (400..500).contains(&response.status) => {
            let status = response.status;
            tracing::warn!(unit = name.unit, attempt = name.attempt, status, "callback refused");
            DeliveryResult::Done
        }
        Ok(response) => DeliveryResult::Retry(format!("status {}", response.status)),
        Err(error @ CallError::Refused(_)) => {
            tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "callback not allowed");
            DeliveryResult::Done
        }
        Err(error) => DeliveryResult::Retry(error.to_string()),
    }
}
