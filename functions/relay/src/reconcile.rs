//! Reconciles tasks: one loop per task, one step at a time.

mod container;
mod ready;
mod removal;
mod start;
pub(crate) mod task_events;
pub(crate) mod terminate;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use ebb_protocol::relay::{CallbackEndpoint, TaskId};
use tokio::sync::Notify;

use crate::error::{LogSubject, ReconcileError, Result, within};
use crate::{Reconciler, TaskPhase, VersionedRecord, now_ms};

/// The pause before a task without events is reconciled again, in case a watch missed an event.
pub(crate) const RESYNC: Duration = Duration::from_secs(30);
pub(crate) const CONFLICT_PAUSE: Duration = Duration::from_millis(20);
/// The pause between two checks of objects that are being deleted, because watches do not report every deletion.
pub(crate) const DELETION_PAUSE: Duration = Duration::from_secs(1);
/// The pauses before a failed step is repeated: from 0.2 s to 60 s, the default.
const BACKOFF: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(200)).without_max_times();
/// The timeout of a callback. The control plane dispatches the next attempts before it responds.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause before an error of the same kind of a task is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileAction {
    Done,
    RequeueNow,
    /// Takes the next step at an event, or after this time.
    Requeue(Duration),
    /// Repeats the step after a growing pause.
    Retry,
}

impl ReconcileAction {
    /// Requeues at a time in milliseconds since 1970, but at most after [`RESYNC`].
    pub(crate) fn requeue_at(time_ms: u64) -> Self {
        // One more millisecond is added, because the deadline itself is still in time.
        Self::Requeue(Duration::from_millis(time_ms.saturating_sub(now_ms()).saturating_add(1)).min(RESYNC))
    }
}

impl Reconciler {
    /// Wakes the loop of a task, or starts one.
    pub(crate) fn reconcile(self: &Arc<Self>, name: &TaskId) {
        if let Some(wake) = self.registry.wake_or_register(name) {
            tokio::spawn(reconcile_loop(self.clone(), name.clone(), wake));
        }
    }

    async fn step(self: &Arc<Self>, name: &TaskId) -> Result<ReconcileAction> {
        match within(self.settings.step_timeout, Box::pin(self.step_unless_ended(name))).await? {
            Some(next) => Ok(next),
            None => self.deliver_result(name).await,
        }
    }

    /// Takes a step. Returns `None` if the task has a result to send.
    async fn step_unless_ended(self: &Arc<Self>, name: &TaskId) -> Result<Option<ReconcileAction>> {
        let _lock = self.registry.lock(&name.unit).await;
        let Some(mut held) = self.store.head(name).await? else {
            self.release_slot(name);
            return Ok(Some(ReconcileAction::Done));
        };
        if held.record.phase != TaskPhase::Ended {
            self.store.read_rest(&mut held).await?;
        }
        if held.record.may_run() {
            self.queue.force_acquire(name);
        }
        let next = match held.record.phase {
            TaskPhase::Starting => self.start(&mut held, &[]).await,
            TaskPhase::Running => self.wait(&mut held).await,
            TaskPhase::Terminating { .. } => self.terminate(&mut held).await,
            TaskPhase::Ended => {
                self.release_slot_once_over(&held).await?;
                return Ok(None);
            }
            TaskPhase::Acknowledged => {
                self.release_slot_once_over(&held).await?;
                self.cleanup(&mut held).await
            }
            TaskPhase::Tombstone { .. } => Ok(ReconcileAction::Done),
        }?;
        if next == ReconcileAction::Done {
            self.release_slot(name);
        }
        Ok(Some(next))
    }

    /// Sends the result once and records the acknowledgement.
    async fn deliver_result(&self, name: &TaskId) -> Result<ReconcileAction> {
        // The sends are limited: results are large, and all of them wait while the control plane does not respond.
        let Ok(permit) = self.callbacks.acquire().await else { return Ok(ReconcileAction::Retry) };
        let held = within(self.settings.step_timeout, self.store.get(name)).await?;
        let Some(held) = held.filter(|held| held.record.phase == TaskPhase::Ended) else {
            return Ok(ReconcileAction::RequeueNow);
        };
        if let Some(reason) = self.send_callback(held).await? {
            let TaskId { unit, attempt } = name;
            tracing::info!(unit, attempt, reason, "the callback was not accepted");
            return Ok(ReconcileAction::Retry);
        }
        drop(permit);
        within(self.settings.step_timeout, self.mark_acknowledged(name)).await?;
        Ok(ReconcileAction::RequeueNow)
    }

    /// Sends the result once. Returns the reason if the control plane has neither accepted nor finally rejected it.
    async fn send_callback(&self, held: VersionedRecord) -> Result<Option<String>> {
        held.result()?;
        let Some(CallbackEndpoint { url, token, .. }) = held.record.spec.map(|spec| spec.callback) else {
            return Ok(None);
        };
        if let Err(why) = self.may_call(&url) {
            return Ok(Some(why));
        }
        let request = self.http.post(&url).bearer_auth(&token).header("content-type", "application/json");
        let sent = request.timeout(CALLBACK_TIMEOUT).body(held.result.unwrap_or_default()).send().await;
        Ok(match sent.map(|response| response.status().as_u16()) {
            Ok(200..=299 | 410) => None,
            Ok(status) => Some(format!("status {status}")),
            Err(error) => Some(error.without_url().to_string()),
        })
    }

    /// Records that a result was acknowledged. Returns false if there was none.
    pub(crate) async fn mark_acknowledged(&self, name: &TaskId) -> Result<bool> {
        let _lock = self.registry.lock(&name.unit).await;
        let Some(mut held) = self.store.get(name).await? else { return Ok(false) };
        if held.record.phase != TaskPhase::Ended {
            return Ok(false);
        }
        held.record.phase = TaskPhase::Acknowledged;
        self.store.save(&mut held).await?;
        Ok(true)
    }
}

async fn reconcile_loop(inner: Arc<Reconciler>, name: TaskId, wake: Arc<Notify>) {
    let mut pauses = BACKOFF.build();
    let TaskId { unit, attempt } = &name;
    loop {
        let next = inner.step(&name).await;
        if !matches!(next, Err(_) | Ok(ReconcileAction::Retry)) {
            pauses = BACKOFF.build();
        }
        let rest = match next {
            Ok(ReconcileAction::Done) if inner.registry.unregister_if_idle(&name) => return inner.store.forget(&name),
            Ok(ReconcileAction::Done | ReconcileAction::RequeueNow) => continue,
            Ok(ReconcileAction::Requeue(rest)) => Some(rest),
            Ok(ReconcileAction::Retry) => pauses.next(),
            Err(ReconcileError::Conflict) => Some(CONFLICT_PAUSE),
            Err(error) if inner.log_outage(&error) => pauses.next(),
            Err(error) => {
                if inner.log_limit.allows(LogSubject::Step(name.clone(), error.kind()), LOG_INTERVAL, Instant::now()) {
                    tracing::warn!(unit, attempt, %error, "a step of a task failed");
                }
                pauses.next()
            }
        };
        let _ = tokio::time::timeout(rest.unwrap_or(RESYNC), wake.notified()).await;
    }
}
