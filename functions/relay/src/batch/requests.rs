//! Executes the requests for tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::relay::{EnsureTask, ObjectTask, RunningTask, TaskId, TaskState};
use rand::Rng as _;
use tokio::sync::SemaphorePermit;

use crate::batch::{BatchContext, StateScope};
use crate::objects::{documents, references};
use crate::reconcile::terminate::GRACE_MS;
use crate::task::{decide, task_waits};
use crate::{ReconcileError, Reconciler, Result, TaskPhase, TaskRecord, TaskSpec, VersionedRecord, millis, now_ms};

/// The longest time from the request for a task to its cancellation, with a margin. A unit may run for a day.
const LONGEST_TASK: Duration = Duration::from_secs(25 * 3_600);
/// The time for which a request waits for a termination, in addition to the grace period.
const TERMINATION_WAIT: Duration = Duration::from_secs(5);
/// The time for which a start waits for lower attempts. It is shorter than the timeout of the request.
const LOWER_WAIT: Duration = Duration::from_secs(12);
/// The first pause between two reads of a record. Further pauses double.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Reconciler {
    pub(crate) async fn ensure(
        self: &Arc<Self>,
        request: &EnsureTask<ObjectTask>,
        received: &BatchContext,
    ) -> Result<TaskState> {
        let name = &request.task;
        let valid_for = Duration::from_millis(request.valid_for_ms);
        let mut admitted: Option<EnsureTask<ObjectTask>> = None;
        loop {
            let lock = self.registry.lock(&name.unit).await;
            if let Some(held) = self.store.get(name).await? {
                return self.ensure_existing(held, request).await;
            }
            // A concurrent relay may have created this task. The next round finds its record.
            let lower = decide::open_lower_attempts(name, self.store.list(&name.unit).await?);
            let Some(lower) = lower else { return Ok(TaskState::Tombstoned) };
            let request = match &admitted {
                Some(request) => request,
                None => {
                    let mut own = request.clone();
                    self.validate(&mut own).await?;
                    admitted.insert(own)
                }
            };
            let is_expired = received.at.elapsed() >= valid_for;
            for lower in &lower {
                self.begin_cancel(lower, GRACE_MS).await?;
            }
            if is_expired || (!lower.is_empty() && received.at.elapsed() > LOWER_WAIT) {
                let why =
                    if lower.is_empty() { "the request has expired" } else { "lower attempts are still terminating" };
                return Err(ReconcileError::Internal(why.to_owned()));
            }
            if lower.is_empty() {
                return self.begin(request, received.ms).await;
            }
            drop(lock);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Creates the record and applies as many objects as possible.
    async fn begin(self: &Arc<Self>, request: &EnsureTask<ObjectTask>, received_ms: u64) -> Result<TaskState> {
        let mut objects = request.body.clone();
        for document in &mut objects.secrets {
            document.document = serde_json::Value::Null;
        }
        let token = hex::encode(rand::rng().random::<[u8; 32]>());
        let mut spec = TaskSpec {
            callback: request.callback.clone(),
            names: request.names.clone(),
            namespace: self.namespace(&objects),
            uses: references::use_labels(&objects.apply, &self.namespace(&objects)),
            objects,
            applied: Vec::new(),
            token,
            received_ms,
            not_after_ms: received_ms.saturating_add(request.valid_for_ms),
            deadline_ms: received_ms.saturating_add(request.timeout_ms),
            has_slot: false,
            taken_over: false,
            sensitive: request.body.secrets.iter().flat_map(documents::sensitive_outputs).collect(),
            reported: false,
            early_failure: None,
        };
        spec.has_slot = spec.container().is_some() && self.queue.acquire(&request.task, &spec.objects.instance);
        let record = TaskRecord::new(request.task.clone(), TaskPhase::Starting, Some(spec));
        let created = async {
            let mut held = self.store.create(record).await.map_err(|error| match error {
                ReconcileError::TooLarge(why) => ReconcileError::Refused(why),
                other => other,
            })?;
            self.start(&mut held, &request.body.secrets).await?;
            Ok::<_, ReconcileError>(held)
        };
        let created = created.await;
        // Reconcile failed starts too: they may have a record and a slot.
        self.reconcile(&request.task);
        self.state(&created?, None)
    }

    /// Returns the response for an existing task from its record. A start that lacks its documents gets them.
    async fn ensure_existing(
        self: &Arc<Self>,
        mut held: VersionedRecord,
        request: &EnsureTask<ObjectTask>,
    ) -> Result<TaskState> {
        if held.record.renew(&request.callback) {
            self.store.save(&mut held).await?;
        }
        if held.record.phase == TaskPhase::Starting {
            self.start(&mut held, &request.body.secrets).await?;
        }
        if !held.record.phase.is_over() {
            self.reconcile(&request.task);
        }
        self.state(&held, None)
    }

    pub(crate) async fn get(self: &Arc<Self>, name: &TaskId, scope: StateScope) -> Result<TaskState> {
        let Some(held) = self.store.get(name).await? else {
            let lower = decide::open_lower_attempts(name, self.store.list(&name.unit).await?);
            return Ok(lower.map_or(TaskState::Tombstoned, |_| TaskState::Unknown));
        };
        let log = match (&held.record.spec, held.record.phase.is_open()) {
            (Some(spec), true) if scope == StateScope::WithLog && !held.record.is_queued() => {
                Some(self.task_log(name, spec).await?)
            }
            _ => None,
        };
        if scope == StateScope::WithoutLog && self.registry.is_outdated(name) {
            // A person looks at the task, so it is checked before its pause ends.
            self.reconcile(name);
        }
        self.state(&held, log)
    }

    pub(crate) async fn cancel(
        self: &Arc<Self>,
        name: &TaskId,
        grace_ms: u64,
        received: &BatchContext,
        permit: &mut Option<SemaphorePermit<'_>>,
    ) -> Result<TaskState> {
        let until = received.at + TERMINATION_WAIT + Duration::from_millis(grace_ms).min(TERMINATION_WAIT);
        let lock = self.registry.lock(&name.unit).await;
        self.begin_cancel(name, grace_ms).await?;
        drop((lock, permit.take()));
        let mut pause = POLL_INTERVAL;
        loop {
            let Some(mut held) = self.store.head(name).await? else { return Ok(TaskState::Unknown) };
            if !held.record.phase.is_open() || Instant::now() > until {
                // A result may have 5 MiB, so the permit limits how many are read at once.
                let _reading = received.slots.acquire().await;
                self.store.read_rest(&mut held).await?;
                return self.state(&held, None);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Cancels a queued task. Does not wait for a termination.
    pub(crate) async fn dequeue(self: &Arc<Self>, name: &TaskId) -> Result<TaskState> {
        let _lock = self.registry.lock(&name.unit).await;
        let dequeued = async {
            match self.store.get(name).await? {
                Some(held) if !held.record.is_queued() => Ok(held),
                _ => {
                    self.begin_cancel(name, GRACE_MS).await?;
                    let missing = || ReconcileError::Internal("the record was deleted; repeat the request".to_owned());
                    self.store.get(name).await?.ok_or_else(missing)
                }
            }
        };
        let dequeued = dequeued.await.inspect_err(|_| {
            // The task left the queue when the batch arrived. Its loop enqueues it again.
            self.reconcile(name);
        })?;
        self.state(&dequeued, None)
    }

    /// Begins to stop a task. An unknown task gets a tombstone. The caller holds the lock of the unit.
    async fn begin_cancel(self: &Arc<Self>, name: &TaskId, grace_ms: u64) -> Result<()> {
        let Some(mut held) = self.store.get(name).await? else {
            // A tombstone would say that nothing of the task runs.
            if let Some(left) = task_waits::first_text(&self.unmanaged_of(&name.unit).await?) {
                // During an upgrade, another relay may have recorded the task after the first read.
                let is_new = self.store.list(&name.unit).await?.iter().any(TaskRecord::names_objects);
                return Err(if is_new { ReconcileError::Conflict } else { ReconcileError::Internal(left) });
            }
            let mut prevented = TaskRecord::new(name.clone(), TaskPhase::Tombstone { since_ms: now_ms() }, None);
            // The records of this time are complete, so the task has applied nothing.
            if now_ms().saturating_sub(self.kept_since) > millis(LONGEST_TASK) {
                prevented.removed = Some(0);
            }
            return self.store.create(prevented).await.map(drop);
        };
        if held.record.phase == TaskPhase::Running {
            // Collect the result of a task that has just ended. If that fails, stop the task anyway.
            match self.wait(&mut held).await {
                Ok(_) => {}
                Err(ReconcileError::Conflict) => return Err(ReconcileError::Conflict),
                Err(error) => {
                    tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "a task is cancelled although its state is unknown");
                    let Some(again) = self.store.get(name).await? else { return Ok(()) };
                    held = again;
                }
            }
        }
        if matches!(held.record.phase, TaskPhase::Starting | TaskPhase::Running) {
            self.begin_termination(&mut held, grace_ms, None).await?;
        }
        // A shorter grace period replaces a longer one.
        if let TaskPhase::Terminating { grace_ms: before, .. } = &mut held.record.phase
            && grace_ms < *before
        {
            *before = grace_ms;
            self.store.save(&mut held).await?;
        }
        self.reconcile(name);
        Ok(())
    }

    fn state(&self, held: &VersionedRecord, log: Option<String>) -> Result<TaskState> {
        if let Some(ahead) = held.record.is_queued().then(|| self.queue.position(&held.record.name)).flatten() {
            return Ok(TaskState::Queued { ahead });
        }
        Ok(match &held.record.phase {
            phase if phase.is_open() => {
                let task = self.registry.status(&held.record.name);
                let received_ms = held.record.spec.as_ref().map(|spec| spec.received_ms);
                TaskState::Running(RunningTask {
                    log: log.unwrap_or_default(),
                    age_ms: received_ms.map(|received| now_ms().saturating_sub(received)),
                    ..task
                })
            }
            TaskPhase::Ended => TaskState::Ended(Box::new(held.result()?)),
            TaskPhase::Acknowledged if held.result.is_some() => TaskState::Ended(Box::new(held.result()?)),
            _ => TaskState::Tombstoned,
        })
    }
}
