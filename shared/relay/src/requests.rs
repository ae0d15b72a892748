//! Executes the requests of a batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::listing::RelayInfo;
use ebb_protocol::relay::{
    BATCH, Batch, BatchResponse, EnsureTask, ObjectTask, RelayRequest, RelayResponse, TaskId, TaskState, VERSION,
};
use futures::StreamExt as _;
use rand::Rng as _;
use tokio::sync::SemaphorePermit;

use crate::admit::RequestError;
use crate::batch_context::BatchContext;
use crate::clock::now_ms;
use crate::documents;
use crate::error::ReconcileError;
use crate::fair_queue::SlotGrant;
use crate::names;
use crate::reconcile::CONFLICT_PAUSE;
use crate::reconciler::Reconciler;
use crate::record::{TaskPhase, TaskRecord, TaskSpec};
use crate::relay::Relay;
use crate::store::VersionedRecord;
use crate::terminate::GRACE_MS;

/// The time for which a request waits for a termination, beside the grace period.
const TERMINATION_WAIT: Duration = Duration::from_secs(5);
/// The time for which a start waits for lower attempts. It is shorter than the timeout of the request.
const LOWER_WAIT: Duration = Duration::from_secs(12);
/// The time for which a request is repeated after conflicting writes.
const CONFLICT_RETRY: Duration = Duration::from_secs(10);
/// The first pause between two reads of a record. Further pauses double.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The batch is for the cluster with another UID. Nothing was executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch is for cluster {theirs}, but this relay serves {ours}")]
pub struct OtherCluster {
    pub ours: String,
    pub theirs: String,
}

impl Relay {
    /// Executes a batch that was under way for `transit`. Requests of one unit are executed in their order, those of
    /// different units at the same time.
    ///
    /// # Errors
    /// Returns [`OtherCluster`] if the batch is for another cluster.
    pub async fn batch(&self, batch: Batch, transit: Duration) -> Result<BatchResponse, OtherCluster> {
        let batch = batch.after(transit);
        let received = BatchContext::new(transit);
        let ours = self.inner.cluster_uid.clone();
        if batch.cluster != ours {
            return Err(OtherCluster { ours, theirs: batch.cluster });
        }
        let count = batch.requests.len();
        if batch.v != VERSION || count > BATCH {
            let why = format!(
                "the batch has version {} and {count} requests; expected version {VERSION} and at most {BATCH}",
                batch.v
            );
            // A cancelled task may still run, so only a start can be refused.
            let response = |request: &RelayRequest| match request {
                RelayRequest::Ensure(_) => RelayResponse::Refused(why.clone()),
                _ => RelayResponse::Unavailable(why.clone()),
            };
            let responses = batch.requests.iter().map(response).collect();
            return Ok(BatchResponse { v: VERSION, cluster: ours, responses });
        }
        // All tasks leave the queue first, so that none of them gets a slot that becomes free during the batch
        // (DequeueBeforeKill).
        for request in &batch.requests {
            if let RelayRequest::Dequeue(name) = request {
                self.inner.queue.dequeue(name);
            }
        }
        let mut groups: BTreeMap<String, Vec<(usize, RelayRequest)>> = BTreeMap::new();
        for (number, request) in batch.requests.into_iter().enumerate() {
            let unit = match &request {
                RelayRequest::Ensure(request) => request.task.unit.clone(),
                RelayRequest::Get(name)
                | RelayRequest::Dequeue(name)
                | RelayRequest::Acknowledge(name)
                | RelayRequest::Delete(name)
                | RelayRequest::Cancel { task: name, .. } => name.unit.clone(),
                RelayRequest::Release { instance } => format!("release {instance}"),
                // Requests without a unit. The space keeps the key apart from unit names.
                RelayRequest::About | RelayRequest::List { .. } => format!("without unit {number}"),
            };
            groups.entry(unit).or_default().push((number, request));
        }
        let done = groups.into_values().map(|group| {
            let (inner, received) = (self.inner.clone(), received.clone());
            async move {
                let numbers: Vec<usize> = group.iter().map(|(number, _)| *number).collect();
                // A separate Tokio task completes the requests even if the caller disconnects.
                let task = tokio::spawn(async move { inner.execute_unit(group, received).await });
                let failed = |number| {
                    (number, RelayResponse::Unavailable("internal error of the relay: see its log".to_owned()))
                };
                task.await.unwrap_or_else(|_| numbers.into_iter().map(failed).collect())
            }
        });
        let mut responses: Vec<_> = futures::stream::iter(done).buffer_unordered(BATCH).concat().await;
        responses.sort_by_key(|(number, _)| *number);
        let responses = responses.into_iter().map(|(_, response)| response).collect();
        Ok(BatchResponse { v: VERSION, cluster: ours, responses })
    }
}

impl Reconciler {
    async fn execute_unit(
        self: &Arc<Self>,
        group: Vec<(usize, RelayRequest)>,
        received: BatchContext,
    ) -> Vec<(usize, RelayResponse)> {
        let mut responses = Vec::new();
        for (number, request) in group {
            let response = self.respond_in_time(request, &received).await;
            responses.push((number, received.responses.fit(response)));
        }
        responses
    }

    /// Responds within the deadline, even if the API server does not.
    async fn respond_in_time(self: &Arc<Self>, request: RelayRequest, received: &BatchContext) -> RelayResponse {
        let name = match &request {
            RelayRequest::Ensure(request) => Some(request.task.clone()),
            RelayRequest::Cancel { task: name, .. } | RelayRequest::Dequeue(name) => Some(name.clone()),
            _ => None,
        };
        let deadline = received.deadline(&request, self.settings.step_timeout);
        let done = async {
            let permit = received.slots.acquire().await.ok();
            self.execute_request(request, received, permit).await
        };
        let response = tokio::time::timeout_at(deadline.into(), done).await;
        response.unwrap_or_else(|_| {
            if let Some(name) = name.filter(|name| names::check_task(name).is_ok()) {
                // The loop completes a partly executed request.
                self.reconcile(&name);
            }
            RelayResponse::Unavailable("the API server did not respond in time; repeat the request".to_owned())
        })
    }

    async fn execute_request(
        self: &Arc<Self>,
        request: RelayRequest,
        received: &BatchContext,
        mut permit: Option<SemaphorePermit<'_>>,
    ) -> RelayResponse {
        let begun = Instant::now();
        loop {
            let done = match &request {
                RelayRequest::Ensure(request) => self.ensure(request, received).await.map(RelayResponse::State),
                RelayRequest::Get(name) => self.get(name).await.map(RelayResponse::State),
                RelayRequest::Cancel { task: name, grace_ms } => {
                    self.cancel(name, *grace_ms, received, &mut permit).await.map(RelayResponse::State)
                }
                RelayRequest::Dequeue(name) => self.dequeue(name).await.map(RelayResponse::State),
                RelayRequest::Acknowledge(name) => self.acknowledge(name).await.map(|()| RelayResponse::Done),
                RelayRequest::Release { instance } => match names::check_instance(instance) {
                    Ok(()) => self.release(instance).await.map(|()| RelayResponse::Done).map_err(Into::into),
                    Err(why) => Err(RequestError::Refused(why)),
                },
                RelayRequest::About => Ok(RelayResponse::About(self.about())),
                RelayRequest::List { after } => {
                    self.list(after.as_deref()).await.map(RelayResponse::Listing).map_err(Into::into)
                }
                RelayRequest::Delete(name) => self.delete_task(name).await,
            };
            return match done {
                Ok(response) => response,
                Err(RequestError::Failed(ReconcileError::Conflict)) if begun.elapsed() < CONFLICT_RETRY => {
                    tokio::time::sleep(CONFLICT_PAUSE).await;
                    continue;
                }
                Err(RequestError::Refused(why)) => RelayResponse::Refused(why),
                Err(RequestError::Failed(error)) => RelayResponse::Unavailable(error.to_string()),
            };
        }
    }

    async fn ensure(
        self: &Arc<Self>,
        request: &EnsureTask<ObjectTask>,
        received: &BatchContext,
    ) -> Result<TaskState, RequestError> {
        let name = &request.task;
        names::check_task(name).map_err(RequestError::Refused)?;
        let valid_for = Duration::from_millis(request.valid_for_ms);
        let mut admitted: Option<EnsureTask<ObjectTask>> = None;
        loop {
            let lock = self.registry.lock(&name.unit).await;
            if let Some(held) = self.store.get(name).await? {
                return self.ensure_existing(held, request).await;
            }
            let others = self.store.list(&name.unit).await?;
            if others.iter().any(|other| other.name.attempt > name.attempt) {
                return Ok(TaskState::Tombstoned);
            }
            let request = match &admitted {
                Some(request) => request,
                None => {
                    let mut own = request.clone();
                    self.validate(&mut own).await?;
                    admitted.insert(own)
                }
            };
            let is_expired = received.at.elapsed() >= valid_for;
            let mut dying = false;
            // A concurrent relay may have created this task. The next round finds its record.
            let lower = |other: &&TaskRecord| other.phase.is_open() && other.name.attempt < name.attempt;
            for other in others.iter().filter(lower) {
                dying = true;
                self.begin_cancel(&other.name, GRACE_MS).await?;
            }
            if is_expired || (dying && received.at.elapsed() > LOWER_WAIT) {
                let why = if dying { "lower attempts are still terminating" } else { "the request has expired" };
                return Err(RequestError::Failed(ReconcileError::Internal(why.to_owned())));
            }
            if !dying {
                return self.begin(request, received.ms).await;
            }
            drop(lock);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Creates the record and applies as many objects as possible.
    async fn begin(
        self: &Arc<Self>,
        request: &EnsureTask<ObjectTask>,
        received_ms: u64,
    ) -> Result<TaskState, RequestError> {
        let mut objects = request.body.clone();
        let documents = objects.secrets.clone();
        for document in &mut objects.secrets {
            document.document = serde_json::Value::Null;
        }
        let token = rand::rng().random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut spec = TaskSpec {
            callback: request.callback.clone(),
            namespace: self.namespace(&objects),
            objects,
            applied: Vec::new(),
            token,
            received_ms,
            not_after_ms: received_ms.saturating_add(request.valid_for_ms),
            deadline_ms: received_ms.saturating_add(request.timeout_ms),
            has_slot: false,
            sensitive: request.body.secrets.iter().flat_map(documents::sensitive_outputs).collect(),
            reported: false,
            early_failure: None,
        };
        let instance = &spec.objects.instance;
        if spec.container().is_some() && self.queue.acquire(&request.task, instance) == SlotGrant::Granted {
            spec.has_slot = true;
        }
        let record = TaskRecord { name: request.task.clone(), phase: TaskPhase::Starting, spec: Some(spec) };
        let created = async {
            let mut held = self.store.create(record).await.map_err(|error| match error {
                ReconcileError::TooLarge(why) => RequestError::Refused(why),
                other => other.into(),
            })?;
            self.start(&mut held, &documents).await?;
            Ok::<_, RequestError>(held)
        };
        let created = created.await;
        // Reconcile failed starts too: they may have a record and a slot.
        self.reconcile(&request.task);
        Ok(self.state(&created?, None)?)
    }

    /// Responds by the record of a task that exists. A start that lacks its documents gets them. An unacknowledged
    /// result goes to the newest callback, whose token is valid for the longest time.
    async fn ensure_existing(
        self: &Arc<Self>,
        mut held: VersionedRecord,
        request: &EnsureTask<ObjectTask>,
    ) -> Result<TaskState, RequestError> {
        let taken_and_kept = held.record.phase == TaskPhase::Acknowledged
            && held.record.spec.as_ref().is_some_and(|spec| spec.objects.keep);
        let is_told_later = taken_and_kept || matches!(held.record.phase, TaskPhase::Starting | TaskPhase::Ended);
        let mut changed = taken_and_kept;
        if let Some(spec) = held.record.spec.as_mut().filter(|_| is_told_later) {
            changed |= spec.callback != request.callback;
            spec.callback = request.callback.clone();
        }
        if taken_and_kept {
            held.record.phase = TaskPhase::Ended;
        }
        if changed {
            // The relay knows the result of every request for the objects of the replaced version.
            held.confirmed |= self.registry.take_confirmed(&request.task, &held.resource_version);
            self.store.save(&mut held).await?;
        }
        if held.record.phase == TaskPhase::Starting {
            self.start(&mut held, &request.body.secrets).await?;
        }
        if !held.record.phase.is_over() {
            self.reconcile(&request.task);
        }
        Ok(self.state(&held, None)?)
    }

    async fn get(self: &Arc<Self>, name: &TaskId) -> Result<TaskState, RequestError> {
        names::check_task(name).map_err(RequestError::Refused)?;
        let Some(held) = self.store.get(name).await? else {
            let others = self.store.list(&name.unit).await?;
            let is_past = others.iter().any(|other| other.name.attempt > name.attempt);
            return Ok(if is_past { TaskState::Tombstoned } else { TaskState::Unknown });
        };
        let log = match (&held.record.spec, held.record.phase.is_open()) {
            (Some(spec), true) if !held.record.is_queued() => Some(self.task_log(spec).await?),
            _ => None,
        };
        Ok(self.state(&held, log)?)
    }

    /// Is never refused, because the control plane would conclude that nothing runs.
    async fn cancel(
        self: &Arc<Self>,
        name: &TaskId,
        grace_ms: u64,
        received: &BatchContext,
        permit: &mut Option<SemaphorePermit<'_>>,
    ) -> Result<TaskState, RequestError> {
        if names::check_task(name).is_err() {
            // No task can have such a name.
            return Ok(TaskState::Tombstoned);
        }
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
                return Ok(self.state(&held, None)?);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Is never refused, like [`cancel`](Self::cancel). Does not wait for a termination.
    async fn dequeue(self: &Arc<Self>, name: &TaskId) -> Result<TaskState, RequestError> {
        if names::check_task(name).is_err() {
            return Ok(TaskState::Tombstoned);
        }
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
        Ok(self.state(&dequeued, None)?)
    }

    /// Begins to stop a task. An unknown task gets a tombstone. The caller holds the lock of the unit.
    async fn begin_cancel(self: &Arc<Self>, name: &TaskId, grace_ms: u64) -> Result<(), ReconcileError> {
        let Some(mut held) = self.store.get(name).await? else {
            let record =
                TaskRecord { name: name.clone(), phase: TaskPhase::Tombstone { since_ms: now_ms() }, spec: None };
            return self.store.create(record).await.map(drop);
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
        match &held.record.phase {
            TaskPhase::Starting | TaskPhase::Running => self.begin_termination(&mut held, grace_ms, None).await?,
            TaskPhase::Terminating { .. }
            | TaskPhase::Ended
            | TaskPhase::Acknowledged
            | TaskPhase::Tombstone { .. } => {}
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

    async fn acknowledge(self: &Arc<Self>, name: &TaskId) -> Result<(), RequestError> {
        names::check_task(name).map_err(RequestError::Refused)?;
        if self.mark_acknowledged(name).await? {
            self.reconcile(name);
        }
        Ok(())
    }

    async fn delete_task(self: &Arc<Self>, name: &TaskId) -> Result<RelayResponse, RequestError> {
        names::check_task(name).map_err(RequestError::Refused)?;
        Ok(match self.delete_unmanaged_task(name).await? {
            Some(why) => RelayResponse::Unavailable(why),
            None => RelayResponse::Done,
        })
    }

    fn about(&self) -> RelayInfo {
        RelayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            up_ms: u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX),
            tasks: u64::try_from(self.registry.count()).unwrap_or(u64::MAX),
        }
    }

    fn state(&self, held: &VersionedRecord, log: Option<String>) -> Result<TaskState, ReconcileError> {
        let waits = held.record.is_queued().then(|| self.queue.position(&held.record.name)).flatten();
        if let Some(ahead) = waits {
            return Ok(TaskState::Queued { ahead });
        }
        Ok(match &held.record.phase {
            phase if phase.is_open() => {
                let (pending, heartbeat) = self.registry.status(&held.record.name);
                let heartbeat_ms = heartbeat.map(crate::settings::millis);
                TaskState::Running { log: log.unwrap_or_default(), pending, heartbeat_ms }
            }
            TaskPhase::Ended => TaskState::Ended(Box::new(held.result()?)),
            TaskPhase::Acknowledged if held.result.is_some() => TaskState::Ended(Box::new(held.result()?)),
            _ => TaskState::Tombstoned,
        })
    }
}

#[cfg(test)]
mod tests;
