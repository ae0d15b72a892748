//! Reconciliation of tasks: one loop for each, one step at a time, until there is nothing left to do.

use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::relay::TaskId;
use tokio::sync::Notify;

use crate::callback::CallbackDelivery;
use crate::error::ReconcileError;
use crate::record::{TaskPhase, TaskRecord};
use crate::relay::Reconciler;
use crate::requests::CONFLICT_PAUSE;
use crate::store::now_ms;

/// The pause between two reconciliations of a task without events: they find what watches have missed.
pub(crate) const RESYNC: Duration = Duration::from_secs(30);
/// The pause before a failed step is repeated: the first and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// What is to be done after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileAction {
    /// Nothing any more.
    Done,
    RequeueNow,
    /// The next step, when something happens or after this time.
    Requeue(Duration),
    /// The next step, when something happens.
    AwaitChange,
    /// The same again, after a pause that grows.
    Retry,
}

impl ReconcileAction {
    /// At a time in milliseconds since 1970 by our clock, but not too late.
    pub(crate) fn requeue_at(time_ms: u64) -> Self {
        // One more: at that very millisecond it would be too early.
        Self::Requeue(Duration::from_millis(time_ms.saturating_sub(now_ms()).saturating_add(1)).min(RESYNC))
    }
}

/// Returns whether a task needs a loop that reconciles it.
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
    /// Makes sure that a loop reconciles the task, and wakes it.
    pub(crate) fn reconcile(self: &Arc<Self>, name: &TaskId) {
        if let Some(wake) = self.registry.wake_or_register(name) {
            tokio::spawn(run_until_shutdown(self.clone(), name.clone(), wake));
        }
    }

    /// Takes the next step for a task.
    async fn step(self: &Arc<Self>, name: &TaskId) -> Result<ReconcileAction, ReconcileError> {
        match self.within_step_timeout(Box::pin(self.step_unless_ended(name))).await? {
            Some(next) => Ok(next),
            None => self.deliver_result(name).await,
        }
    }

    /// `None`: it has a result that is to be sent.
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

    /// Calls back; a result that was taken is noted as such.
    async fn deliver_result(&self, name: &TaskId) -> Result<ReconcileAction, ReconcileError> {
        // Results are large, and a control plane that does not answer has all of them wait.
        let Ok(room) = self.callbacks.acquire().await else { return Ok(ReconcileAction::Retry) };
        let Some(held) = self.within_step_timeout(self.store.get(name)).await? else {
            return Ok(ReconcileAction::RequeueNow);
        };
        if held.record.phase != TaskPhase::Ended {
            return Ok(ReconcileAction::RequeueNow);
        }
        let delivery = self.send_callback(&held).await?;
        drop((held, room));
        match delivery {
            CallbackDelivery::Accepted => {
                self.within_step_timeout(self.mark_acknowledged(name)).await?;
                Ok(ReconcileAction::RequeueNow)
            }
            CallbackDelivery::Retry(reason) => {
                let TaskId { unit, attempt } = name;
                tracing::info!(unit, attempt, reason, "the result is not accepted yet");
                Ok(ReconcileAction::Retry)
            }
        }
    }

    /// Notes that a result was taken; gives whether there was one.
    ///
    /// # Errors
    /// When the record cannot be written.
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

    /// Gives up what takes too long: it holds the lock of its unit.
    async fn within_step_timeout<T>(
        &self,
        done: impl Future<Output = Result<T, ReconcileError>>,
    ) -> Result<T, ReconcileError> {
        let late = |_| Err(ReconcileError::Internal("the API server takes too long".to_owned()));
        tokio::time::timeout(self.settings.step_timeout, done).await.unwrap_or_else(late)
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
        // `None`: until it is woken.
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
                tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "a step has failed");
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
