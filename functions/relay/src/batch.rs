//! Executes batches, within the time and the size of a response.

pub(crate) mod admit;
mod requests;
mod services;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ebb_protocol::limits::{self, BATCH_RESPONSE_BODY};
use ebb_protocol::relay::{BATCH, RESPONSE_MARGIN, VERSION};
use ebb_protocol::{ApiServerState, Batch, BatchResponse, RelayInfo, RelayRequest, RelayResponse, TaskId, TaskState};
use futures::StreamExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::within;
use crate::reconcile::{CONFLICT_PAUSE, task_events};
use crate::{ReconcileError, Reconciler, Relay, Result, millis, names, now_ms, policy, task_waits};

/// Units of one batch that are processed at the same time.
const AT_ONCE: usize = 16;
/// The time for which a request is repeated after conflicting writes.
const CONFLICT_RETRY: Duration = Duration::from_secs(10);
/// The time within which the API server has to respond to [`RelayRequest::About`].
const API_SERVER_WAIT: Duration = Duration::from_millis(1500);
/// Maximum bytes of the UID of another cluster in an error.
const MAX_UID: usize = 128;
/// Bytes of a [`BatchResponse`] in addition to its large responses.
const ENVELOPE: usize = 16 << 10;

/// The arrival of a batch, and the limits that its requests share.
pub(crate) struct BatchContext {
    pub(crate) at: Instant,
    /// The arrival, in milliseconds since 1970.
    pub(crate) ms: u64,
    transit: Duration,
    /// Limits the requests that are processed at the same time. Waiting for a termination needs no permit.
    pub(crate) slots: Semaphore,
    /// Bytes of the responses so far. The control plane reads at most [`BATCH_RESPONSE_BODY`].
    response_bytes: AtomicUsize,
}

impl BatchContext {
    fn new(transit: Duration) -> Self {
        let (slots, response_bytes) = (Semaphore::new(AT_ONCE), AtomicUsize::new(0));
        Self { at: Instant::now(), ms: now_ms(), transit, slots, response_bytes }
    }

    /// Returns the deadline of a request, at most `longest` after the arrival. If the sender receives no response
    /// before its timeout, it counts the relay as unreachable.
    fn deadline(&self, request: &RelayRequest, longest: Duration) -> Instant {
        let longest = match request {
            // Its sender does not wait longer.
            RelayRequest::Call(call) => longest.min(Duration::from_millis(call.valid_for_ms) + RESPONSE_MARGIN),
            _ => longest,
        };
        self.at + request.properties().timeout.saturating_sub(RESPONSE_MARGIN).saturating_sub(self.transit).min(longest)
    }

    /// Returns `response`, or [`RelayResponse::TooLarge`] if it does not fit. The first response always fits.
    fn fit(&self, response: RelayResponse) -> RelayResponse {
        // Serialization cannot fail here. One byte separates two responses.
        let bytes = serde_json::to_vec(&response).map_or(0, |json| json.len() + 1);
        let add = |taken: usize| {
            let sum = taken.saturating_add(bytes);
            (taken == 0 || sum <= BATCH_RESPONSE_BODY - ENVELOPE).then_some(sum)
        };
        match self.response_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => response,
            Err(_) => RelayResponse::TooLarge,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateScope {
    WithLog,
    WithoutLog,
}

impl Relay {
    /// Executes a batch that was in transit for `transit`. Requests of one unit are executed in their order, and those
    /// of different units at the same time.
    ///
    /// # Errors
    /// Returns the reason if the batch is for another cluster. Nothing was executed then.
    pub async fn batch(&self, batch: Batch, transit: Duration) -> Result<BatchResponse, String> {
        let batch = batch.after(transit);
        let received = Arc::new(BatchContext::new(transit));
        let ours = self.inner.cluster_uid.clone();
        if batch.cluster != ours {
            let theirs = limits::clean(&batch.cluster, MAX_UID);
            return Err(format!("the batch is for cluster {theirs}, but this relay serves {ours}"));
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
        if batch.requests.iter().any(|request| !matches!(request, RelayRequest::List { .. })) {
            self.inner.work.notify_one();
        }
        // All tasks leave the queue first, so that none gets a slot that becomes free meanwhile (DequeueBeforeKill).
        for request in &batch.requests {
            if let RelayRequest::Dequeue(name) = request {
                self.inner.queue.dequeue(name);
            }
        }
        let mut groups: BTreeMap<String, Vec<(usize, RelayRequest)>> = BTreeMap::new();
        for (number, request) in batch.requests.into_iter().enumerate() {
            let group = match (request.properties().task, &request) {
                (Some(name), _) => name.unit.clone(),
                // The space separates the key from all unit names.
                (None, RelayRequest::Release { instance }) => format!("release {instance}"),
                (None, _) => format!("without unit {number}"),
            };
            groups.entry(group).or_default().push((number, request));
        }
        let done = groups.into_values().map(|group| {
            let (inner, received) = (self.inner.clone(), received.clone());
            async move {
                let numbers: Vec<usize> = group.iter().map(|(number, _)| *number).collect();
                // A separate Tokio task completes the requests even if the caller disconnects.
                let task = tokio::spawn(async move {
                    let mut responses = Vec::new();
                    for (number, request) in group {
                        responses.push((number, received.fit(inner.respond_in_time(request, &received).await)));
                    }
                    responses
                });
                let why = "internal error of the relay: see its log";
                let failed = |number| (number, RelayResponse::Unavailable(why.to_owned()));
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
    async fn respond_in_time(self: &Arc<Self>, request: RelayRequest, received: &BatchContext) -> RelayResponse {
        if let Some(Err(why)) = request.properties().task.map(TaskId::check) {
            return match request {
                // These requests are never refused, because the control plane would conclude that the task does not
                // run. A task cannot have this name.
                RelayRequest::Cancel { .. } | RelayRequest::Dequeue(_) => RelayResponse::State(TaskState::Tombstoned),
                _ => RelayResponse::Refused(why),
            };
        }
        let done = async {
            let mut permit = received.slots.acquire().await.ok();
            let begun = Instant::now();
            loop {
                match self.execute(&request, received, &mut permit).await {
                    Err(ReconcileError::Conflict) if begun.elapsed() < CONFLICT_RETRY => {
                        tokio::time::sleep(CONFLICT_PAUSE).await;
                    }
                    Err(ReconcileError::Refused(why)) => {
                        task_events::log_refusal(&request, &why);
                        return RelayResponse::Refused(why);
                    }
                    Err(error) => return RelayResponse::Unavailable(error.to_string()),
                    Ok(response) => return response,
                }
            }
        };
        let deadline = received.deadline(&request, self.settings.step_timeout);
        let Ok(response) = tokio::time::timeout_at(deadline.into(), done).await else {
            if let RelayRequest::Ensure(_) | RelayRequest::Cancel { .. } | RelayRequest::Dequeue(_) = request
                && let Some(name) = request.properties().task
            {
                // The reconcile loop completes a partly executed request.
                self.reconcile(name);
            }
            let why = match request {
                RelayRequest::Call(request) => format!("the service `{}` did not respond in time", request.service),
                _ => "the API server did not respond in time; repeat the request".to_owned(),
            };
            return RelayResponse::Unavailable(why);
        };
        response
    }

    async fn execute(
        self: &Arc<Self>,
        request: &RelayRequest,
        received: &BatchContext,
        permit: &mut Option<SemaphorePermit<'_>>,
    ) -> Result<RelayResponse> {
        Ok(match request {
            RelayRequest::Ensure(request) => RelayResponse::State(self.ensure(request, received).await?),
            RelayRequest::Get(name) => RelayResponse::State(self.get(name, StateScope::WithLog).await?),
            RelayRequest::Status(name) => RelayResponse::State(self.get(name, StateScope::WithoutLog).await?),
            RelayRequest::Cancel { task: name, grace_ms } => {
                RelayResponse::State(self.cancel(name, *grace_ms, received, permit).await?)
            }
            RelayRequest::Dequeue(name) => RelayResponse::State(self.dequeue(name).await?),
            RelayRequest::Acknowledge(name) => {
                if self.mark_acknowledged(name).await? {
                    self.reconcile(name);
                }
                RelayResponse::Done
            }
            RelayRequest::Release { instance } => {
                names::check_instance(instance).map_err(ReconcileError::Refused)?;
                self.release(instance).await?;
                RelayResponse::Done
            }
            RelayRequest::About => RelayResponse::About(RelayInfo {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                up_ms: millis(self.opened.elapsed()),
                tasks: u64::try_from(self.registry.count()).unwrap_or(u64::MAX),
                policy: Some(policy::report(&self.policy, &self.settings)),
                api_server: Some(self.api_server_state().await),
            }),
            RelayRequest::Call(request) => RelayResponse::Service(self.call_service(request, received).await?),
            RelayRequest::List { after } => RelayResponse::Listing(self.list(after.as_deref()).await?),
            RelayRequest::Delete(name) => {
                let remaining = task_waits::first_text(&self.remove_task(name).await?);
                remaining.map_or(RelayResponse::Done, RelayResponse::Unavailable)
            }
            // A cancelled task may still run, so only a start can be refused.
            RelayRequest::Unreadable { is_start: true, reason } => RelayResponse::Refused(reason.clone()),
            RelayRequest::Unreadable { is_start: false, reason } => RelayResponse::Unavailable(reason.clone()),
        })
    }

    async fn api_server_state(&self) -> ApiServerState {
        let tried = async { self.read_namespace("kube-system").await.map_err(ReconcileError::Api) };
        let failed = within(API_SERVER_WAIT, tried).await.err();
        let failed = failed.filter(|error| error.kind().1.is_none_or(|code| code >= 500));
        failed.map_or(ApiServerState::Responds, |error| ApiServerState::Fails(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_a_batch_stay_within_the_limit() {
        let received = BatchContext::new(Duration::ZERO);
        let large = || RelayResponse::State(TaskState::running("x".repeat(1 << 20)));
        let responses: Vec<RelayResponse> = (0..BATCH)
            .map(|at| received.fit(if at % 2 == 0 { large() } else { RelayResponse::Unavailable("busy".to_owned()) }))
            .collect();
        let count = |wanted: &RelayResponse| responses.iter().filter(|response| *response == wanted).count();
        assert_eq!((count(&large()), count(&RelayResponse::TooLarge)), (5, BATCH / 2 - 5));
        // All small responses fit.
        assert_eq!(count(&RelayResponse::Unavailable("busy".to_owned())), BATCH / 2);
        let responses = BatchResponse { v: VERSION, cluster: "c".repeat(36), responses };
        assert!(serde_json::to_vec(&responses).unwrap().len() <= BATCH_RESPONSE_BODY);
        // A single response has no limit.
        let single = RelayResponse::State(TaskState::running("x".repeat(BATCH_RESPONSE_BODY)));
        assert_eq!(BatchContext::new(Duration::ZERO).fit(single.clone()), single);
    }

    #[test]
    fn a_response_arrives_before_the_timeout_of_its_sender() {
        let task = TaskId { unit: "unit".to_owned(), attempt: 1 };
        let (short, long) = (RelayRequest::Get(task.clone()), RelayRequest::Cancel { task, grace_ms: 0 });
        for (request, transit, step, expected) in
            [(&short, 0, 90, 6), (&short, 1, 90, 5), (&short, 9, 90, 0), (&long, 1, 90, 12), (&long, 0, 2, 2)]
        {
            let received = BatchContext::new(Duration::from_secs(transit));
            let deadline = received.deadline(request, Duration::from_secs(step));
            assert_eq!((deadline - received.at).as_secs(), expected, "{request:?} {transit} {step}");
        }
    }
}
