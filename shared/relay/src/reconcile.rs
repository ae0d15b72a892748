//! Reconciles tasks: one loop per task, one step at a time.

use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::relay::TaskId;
use tokio::sync::Notify;

use crate::callback::CallbackDelivery;
use crate::clock::now_ms;
use crate::discovery::ResourceKind;
use crate::error::ReconcileError;
use crate::reconciler::Reconciler;
use crate::record::{TaskPhase, TaskRecord};

/// The pause before a task without events is reconciled again, in case a watch missed an event.
pub(crate) const RESYNC: Duration = Duration::from_secs(30);
pub(crate) const CONFLICT_PAUSE: Duration = Duration::from_millis(20);
/// The first and the longest pause before a failed step is repeated.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// The action after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileAction {
    Done,
    RequeueNow,
    /// Takes the next step at an event, or after this time.
    Requeue(Duration),
    /// Takes the next step at an event.
    AwaitChange,
    /// Repeats the step after a growing pause.
    Retry,
}

impl ReconcileAction {
    /// Requeues at a time in milliseconds since 1970, but at most after [`RESYNC`].
    pub(crate) fn requeue_at(time_ms: u64) -> Self {
        // One more millisecond, because the deadline itself is not yet over.
        Self::Requeue(Duration::from_millis(time_ms.saturating_sub(now_ms()).saturating_add(1)).min(RESYNC))
    }
}

/// Returns true if a task needs a reconcile loop.
pub(crate) fn needs_reconcile(record: &TaskRecord) -> bool {
    match record.phase {
        TaskPhase::Starting | TaskPhase::Running | TaskPhase::Terminating { .. } | TaskPhase::Ended => true,
        TaskPhase::Acknowledged => {
            record.spec.as_ref().is_some_and(|spec| !spec.objects.keep || spec.applied.is_empty())
        }
        TaskPhase::Tombstone { .. } => false,
    }
}

impl Reconciler {
    /// Starts a watch of a kind unless one runs. Its events wake the loops of the objects' tasks.
    pub(crate) fn watch(self: &Arc<Self>, kind: &ResourceKind, namespace: Option<&str>) {
        // A weak reference, so that the watch does not keep the relay alive.
        let inner = Arc::downgrade(self);
        self.watches.start(&self.client, kind, namespace, move |unit| {
            if let Some(inner) = inner.upgrade() {
                inner.registry.notify_unit(unit);
            }
        });
    }

    /// Wakes the loop of a task, or starts one.
    pub(crate) fn reconcile(self: &Arc<Self>, name: &TaskId) {
        if let Some(wake) = self.registry.wake_or_register(name) {
            tokio::spawn(run_until_shutdown(self.clone(), name.clone(), wake));
        }
    }

    async fn step(self: &Arc<Self>, name: &TaskId) -> Result<ReconcileAction, ReconcileError> {
        match self.within_step_timeout(Box::pin(self.step_unless_ended(name))).await? {
            Some(next) => Ok(next),
            None => self.deliver_result(name).await,
        }
    }

    /// Returns `None` if the task has a result to send.
    async fn step_unless_ended(self: &Arc<Self>, name: &TaskId) -> Result<Option<ReconcileAction>, ReconcileError> {
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

    /// Sends the result and records the acknowledgement.
    async fn deliver_result(&self, name: &TaskId) -> Result<ReconcileAction, ReconcileError> {
        // Results are large, and all of them wait while the control plane does not respond.
        let Ok(permit) = self.callbacks.acquire().await else { return Ok(ReconcileAction::Retry) };
        let Some(held) = self.within_step_timeout(self.store.get(name)).await? else {
            return Ok(ReconcileAction::RequeueNow);
        };
        if held.record.phase != TaskPhase::Ended {
            return Ok(ReconcileAction::RequeueNow);
        }
        let delivery = self.send_callback(&held).await?;
        drop((held, permit));
        match delivery {
            CallbackDelivery::Accepted => {
                self.within_step_timeout(self.mark_acknowledged(name)).await?;
                Ok(ReconcileAction::RequeueNow)
            }
            CallbackDelivery::Retry(reason) => {
                let TaskId { unit, attempt } = name;
                tracing::info!(unit, attempt, reason, "the callback was not accepted");
                Ok(ReconcileAction::Retry)
            }
        }
    }

    /// Records that a result was acknowledged. Returns false if there was none.
    pub(crate) async fn mark_acknowledged(&self, name: &TaskId) -> Result<bool, ReconcileError> {
        let _lock = self.registry.lock(&name.unit).await;
        let Some(mut held) = self.store.get(name).await? else { return Ok(false) };
        if held.record.phase != TaskPhase::Ended {
            return Ok(false);
        }
        held.record.phase = TaskPhase::Acknowledged;
        self.store.save(&mut held).await?;
        Ok(true)
    }

    /// Aborts a step that takes too long, because it holds the lock of its unit.
    async fn within_step_timeout<T>(
        &self,
        done: impl Future<Output = Result<T, ReconcileError>>,
    ) -> Result<T, ReconcileError> {
        let timed_out = |_| Err(ReconcileError::Internal("the API server did not respond in time".to_owned()));
        tokio::time::timeout(self.settings.step_timeout, done).await.unwrap_or_else(timed_out)
    }
}

async fn run_until_shutdown(inner: Arc<Reconciler>, name: TaskId, wake: Arc<Notify>) {
    let mut ends = inner.shutdown.clone();
    tokio::select! {
        _ = ends.changed() => {}
        () = reconcile_loop(&inner, &name, &wake) => {}
    }
}

async fn reconcile_loop(inner: &Arc<Reconciler>, name: &TaskId, wake: &Notify) {
    let mut pause = BACKOFF.0;
    loop {
        // `None` waits until the loop is woken.
        let rest = match inner.step(name).await {
            Ok(ReconcileAction::Done) if inner.registry.unregister_if_idle(name) => return,
            Ok(ReconcileAction::Done | ReconcileAction::RequeueNow) => {
                pause = BACKOFF.0;
                continue;
            }
            Ok(ReconcileAction::Requeue(rest)) => {
                pause = BACKOFF.0;
                Some(rest)
            }
            Ok(ReconcileAction::AwaitChange) => {
                pause = BACKOFF.0;
                None
            }
            Err(ReconcileError::Conflict) => Some(CONFLICT_PAUSE),
            Ok(ReconcileAction::Retry) => Some(next_backoff(&mut pause)),
            Err(error) => {
                tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "a step of a task failed");
                Some(next_backoff(&mut pause))
            }
        };
        match rest {
            Some(rest) => drop(tokio::time::timeout(rest, wake.notified()).await),
            None => wake.notified().await,
        }
    }
}

fn next_backoff(pause: &mut Duration) -> Duration {
    let rest = *pause;
    *pause = (rest * 2).min(BACKOFF.1);
    rest
}
