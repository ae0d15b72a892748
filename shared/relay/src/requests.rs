//! The verbs.

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
use crate::documents;
use crate::error::ReconcileError;
use crate::fair_queue::SlotGrant;
use crate::names;
use crate::record::{TaskPhase, TaskRecord, TaskSpec};
use crate::relay::{Reconciler, Relay};
use crate::store::{VersionedRecord, now_ms};
use crate::terminate::GRACE_MS;

/// How long a caller is made to wait for something to die, beside its grace period.
const TERMINATION_WAIT: Duration = Duration::from_secs(5);
/// How long lower attempts may take to die before the request has to come again: less than the time for its answer.
const LOWER_WAIT: Duration = Duration::from_secs(12);
/// How long a request is done again because somebody else has changed what it is about.
const CONFLICT_RETRY: Duration = Duration::from_secs(10);
pub(crate) const CONFLICT_PAUSE: Duration = Duration::from_millis(20);
/// Between two looks: the first pause, and the longest of those that grow.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The batch is for another cluster, of which the control plane has pinned the uid: nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this relay's cluster is {ours}, and the batch is for {theirs}")]
pub struct OtherCluster {
    pub ours: String,
    /// The one that was asked for.
    pub theirs: String,
}

impl Relay {
    /// Answers a batch that was under way for `late`. Requests of one unit are done in their order, those of several units
    /// at once.
    ///
    /// # Errors
    /// [`OtherCluster`].
    pub async fn batch(&self, batch: Batch, late: Duration) -> Result<BatchResponse, OtherCluster> {
        let batch = batch.after(late);
        let received = BatchContext::new(late);
        let ours = self.inner.cluster_uid.clone();
        if batch.cluster != ours {
            return Err(OtherCluster { ours, theirs: batch.cluster });
        }
        let count = batch.requests.len();
        if batch.v != VERSION || count > BATCH {
            let why = format!("version {} or {count} requests: not known here, or too many", batch.v);
            // Whether something runs is another matter.
            let answer = |request: &RelayRequest| match request {
                RelayRequest::Ensure(_) => RelayResponse::Refused(why.clone()),
                _ => RelayResponse::Unavailable(why.clone()),
            };
            let answers = batch.requests.iter().map(answer).collect();
            return Ok(BatchResponse { v: VERSION, cluster: ours, responses: answers });
        }
        // None of these gets a place that becomes free while the batch is acted on.
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
                // No unit has a name like this.
                RelayRequest::About | RelayRequest::List { .. } => format!("looks {number}"),
            };
            groups.entry(unit).or_default().push((number, request));
        }
        let done = groups.into_values().map(|group| {
            let (inner, received) = (self.inner.clone(), received.clone());
            async move {
                let numbers: Vec<usize> = group.iter().map(|(number, _)| *number).collect();
                // A task of its own: whoever has asked may go away, and nothing may stay half done for that.
                let task = tokio::spawn(async move { inner.answer_unit(group, received).await });
                let failed =
                    |number| (number, RelayResponse::Unavailable("the relay has failed: see its log".to_owned()));
                task.await.unwrap_or_else(|_| numbers.into_iter().map(failed).collect())
            }
        });
        let mut answers: Vec<_> = futures::stream::iter(done).buffer_unordered(BATCH).concat().await;
        answers.sort_by_key(|(number, _)| *number);
        let answers = answers.into_iter().map(|(_, answer)| answer).collect();
        Ok(BatchResponse { v: VERSION, cluster: ours, responses: answers })
    }
}

impl Reconciler {
    async fn answer_unit(
        self: &Arc<Self>,
        group: Vec<(usize, RelayRequest)>,
        received: BatchContext,
    ) -> Vec<(usize, RelayResponse)> {
        let mut answers = Vec::new();
        for (number, request) in group {
            let answer = self.answer_in_time(request, &received).await;
            answers.push((number, received.answers.fit(answer)));
        }
        answers
    }

    /// An answer in time, whatever the API server does.
    async fn answer_in_time(self: &Arc<Self>, request: RelayRequest, received: &BatchContext) -> RelayResponse {
        let name = match &request {
            RelayRequest::Ensure(request) => Some(request.task.clone()),
            RelayRequest::Cancel { task: name, .. } | RelayRequest::Dequeue(name) => Some(name.clone()),
            _ => None,
        };
        let deadline = received.deadline(&request, self.settings.step_timeout);
        let done = async {
            let permit = received.slots.acquire().await.ok();
            self.answer_request(request, received, permit).await
        };
        let answer = tokio::time::timeout_at(deadline.into(), done).await;
        answer.unwrap_or_else(|_| {
            if let Some(name) = name.filter(|name| names::check_task(name).is_ok()) {
                // What was half done is finished.
                self.reconcile(&name);
            }
            RelayResponse::Unavailable("the API server takes too long: ask again".to_owned())
        })
    }

    async fn answer_request(
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
                Ok(answer) => answer,
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
            let late = received.at.elapsed() >= valid_for;
            let mut dying = false;
            // One of this very name was made by another relay meanwhile: it is found the next time.
            let lower = |other: &&TaskRecord| other.phase.is_open() && other.name.attempt < name.attempt;
            for other in others.iter().filter(lower) {
                dying = true;
                self.begin_cancel(&other.name, GRACE_MS).await?;
            }
            if late || (dying && received.at.elapsed() > LOWER_WAIT) {
                let why = if dying { "lower attempts still end" } else { "it is too late to start it" };
                return Err(RequestError::Failed(ReconcileError::Internal(why.to_owned())));
            }
            if !dying {
                return self.begin(request, received.ms).await;
            }
            drop(lock);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Makes the record and applies what can be applied right now.
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
        let made = async {
            let mut held = self.store.create(record).await.map_err(|error| match error {
                ReconcileError::TooLarge(why) => RequestError::Refused(why),
                other => other.into(),
            })?;
            self.start(&mut held, &documents).await?;
            Ok::<_, RequestError>(held)
        };
        let made = made.await;
        // Also of what has failed: it may have a record, and has a place or waits for one.
        self.reconcile(&request.task);
        Ok(self.state(&made?, None)?)
    }

    /// Whatever is remembered of a name decides; a start that lacks its documents gets them. A task that waits or starts,
    /// and a result that was not taken, go to the newest callback: its token is the one that is valid longest.
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
            // The outcome of every request for its objects is known of the version that is replaced here.
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

    /// Never refused: who asks would believe that nothing runs.
    async fn cancel(
        self: &Arc<Self>,
        name: &TaskId,
        grace_ms: u64,
        received: &BatchContext,
        permit: &mut Option<SemaphorePermit<'_>>,
    ) -> Result<TaskState, RequestError> {
        if names::check_task(name).is_err() {
            // Nothing can run under such a name, now or later.
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
                // The results of a batch are not all read at once: each may have 5 MiB.
                let _reading = received.slots.acquire().await;
                self.store.read_rest(&mut held).await?;
                return Ok(self.state(&held, None)?);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Never refused, as [`cancel`](Self::cancel). Waits for nothing to end.
    async fn dequeue(self: &Arc<Self>, name: &TaskId) -> Result<TaskState, RequestError> {
        if names::check_task(name).is_err() {
            return Ok(TaskState::Tombstoned);
        }
        let _lock = self.registry.lock(&name.unit).await;
        let left = async {
            match self.store.get(name).await? {
                Some(held) if !held.record.is_queued() => Ok(held),
                _ => {
                    self.begin_cancel(name, GRACE_MS).await?;
                    let missing = || ReconcileError::Internal("its record is gone: ask again".to_owned());
                    self.store.get(name).await?.ok_or_else(missing)
                }
            }
        };
        let left = left.await.inspect_err(|_| {
            // It left the queue when the batch came: its task puts it back.
            self.reconcile(name);
        })?;
        Ok(self.state(&left, None)?)
    }

    /// Begins to end a task, unless it has ended; a name that is not known gets a tombstone. The caller holds the lock.
    async fn begin_cancel(self: &Arc<Self>, name: &TaskId, grace_ms: u64) -> Result<(), ReconcileError> {
        let Some(mut held) = self.store.get(name).await? else {
            let record =
                TaskRecord { name: name.clone(), phase: TaskPhase::Tombstone { since_ms: now_ms() }, spec: None };
            return self.store.create(record).await.map(drop);
        };
        if held.record.phase == TaskPhase::Running {
            // It may have ended while nobody looked. Whether or not that can be seen, it is ended.
            match self.wait(&mut held).await {
                Ok(_) => {}
                Err(ReconcileError::Conflict) => return Err(ReconcileError::Conflict),
                Err(error) => {
                    tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "cancelled without a look");
                    let Some(again) = self.store.get(name).await? else { return Ok(()) };
                    held = again;
                }
            }
        }
        match &held.record.phase {
            TaskPhase::Starting | TaskPhase::Running => self.begin_termination(&mut held, grace_ms, None).await?,
            // Less patience than before.
            TaskPhase::Terminating { .. }
            | TaskPhase::Ended
            | TaskPhase::Acknowledged
            | TaskPhase::Tombstone { .. } => {}
        }
        // Less patience than before.
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
