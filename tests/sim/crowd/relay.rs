//! The relay of the cluster in which pod units run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::RelayError;
use ebb_wire::callback::{Callback, ReasonCode};
use ebb_wire::relay::{Destination, Ensure, WorkName, WorkState};
use ebb_wire::value::Value;

use super::super::{Mishap, TaskId};
use super::work::{Work, callback_of, run_of};

enum Stand {
    Running(TaskId),
    Ended(Box<Callback>, Destination),
    Tombstoned,
}

type Stands = Arc<Mutex<BTreeMap<WorkName, Stand>>>;

/// A relay. It never forgets a name.
pub(super) struct Relay {
    work: Arc<Work>,
    stands: Stands,
    away_until: Arc<Mutex<u64>>,
}

/// How long it may be out of reach, in milliseconds.
const AWAY_MS: u64 = 300_000;
/// How much later a request may arrive once more; less than `L`.
const AGAIN_MS: u64 = 20_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

impl Relay {
    pub(super) fn new(work: Arc<Work>, stands: &Shared) -> Self {
        Self { work, stands: Arc::clone(&stands.stands), away_until: Arc::clone(&stands.away_until) }
    }

    /// Whether the request arrives.
    fn arrives(&self) -> Result<(), RelayError> {
        let now = self.work.runtime.elapsed();
        let mut away_until = lock(&self.away_until);
        if now >= *away_until && self.work.mishaps.strikes(Mishap::RelayAwayLong) {
            *away_until = now + self.work.mishaps.below(Mishap::RelayAwayLong, AWAY_MS);
        }
        if now < *away_until || self.work.mishaps.strikes(Mishap::RelayAway) {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        Ok(())
    }

    /// What the caller gets to know.
    async fn answer<T>(&self, answer: T) -> Result<T, RelayError> {
        if self.work.mishaps.strikes(Mishap::DeathAfterCall) {
            self.work.runtime.die().await;
        }
        if self.work.mishaps.strikes(Mishap::RelayAnswerLost) {
            return Err(RelayError::Unreachable("the answer was lost as planned".to_owned()));
        }
        Ok(answer)
    }

    async fn request(&self) -> Result<(), RelayError> {
        if self.work.mishaps.strikes(Mishap::DeathBeforeCall) {
            self.work.runtime.die().await;
        }
        self.arrives()
    }
}

/// What a relay remembers, whoever asks it.
#[derive(Default)]
pub(super) struct Shared {
    stands: Stands,
    away_until: Arc<Mutex<u64>>,
}

fn reads(request: &Ensure) -> Vec<String> {
    let script = request.script().expect("only scripts are sent here");
    let values = script.inputs.iter().filter_map(|input| match &input.value {
        Some(Value::Json(serde_json::Value::String(text))) => Some(text.clone()),
        _ => None,
    });
    values.collect()
}

fn begin(work: &Arc<Work>, stands: &Stands, request: &Ensure) -> Option<TaskId> {
    let key = request.script()?.env.iter().find(|(name, _)| name == "EBB_IDEMPOTENCY_KEY")?;
    let part = work.books.part(&key.1)?;
    let running =
        work.begin(&part, run_of(&request.name.unit)?, request.name.attempt, true, true, reads(request));
    let (own, stands) = (Arc::clone(work), Arc::clone(stands));
    let (name, to, timeout) = (request.name.clone(), request.callback.clone(), request.timeout_ms);
    let task = work.runtime.spawn(async move {
        let vanishes = own.mishaps.strikes(Mishap::PodLost);
        let limit = if vanishes { own.mishaps.below(Mishap::PodLost, part.millis + 1) } else { timeout };
        let ended = std::sync::Mutex::new(None);
        let performed = async { *lock(&ended) = Some(own.perform(running).await) };
        own.runtime.first(performed, own.runtime.sleep(limit)).await;
        let callback = match ended.into_inner().expect("no panic while it is held") {
            Some(ended) => Callback { log: Some("it ran".to_owned()), ..callback_of(&ended) },
            None if vanishes => Callback::failed(ReasonCode::Lost, "the pod vanished as planned"),
            None => Callback::failed(ReasonCode::Timeout, "its time is up"),
        };
        lock(&stands).insert(name, Stand::Ended(Box::new(callback.clone()), to.clone()));
        own.call_back(to.token, callback).await;
    });
    Some(task.id)
}

/// Kills what runs of `name`, and keeps it from ever running.
fn tombstone(work: &Work, stands: &Stands, name: &WorkName) {
    let before = lock(stands).insert(name.clone(), Stand::Tombstoned);
    if let Some(Stand::Running(task)) = before {
        work.runtime.kill(task);
    }
}

fn ensure(work: &Arc<Work>, stands: &Stands, request: &Ensure) -> Result<WorkState, RelayError> {
    for attempt in 1..request.name.attempt {
        let name = WorkName { unit: request.name.unit.clone(), attempt };
        if !matches!(lock(stands).get(&name), Some(Stand::Ended(..))) {
            tombstone(work, stands, &name);
        }
    }
    let mut open = lock(stands);
    Ok(match open.get(&request.name) {
        None => {
            let task = begin(work, stands, request);
            let task = task.ok_or_else(|| RelayError::Refused("no such unit".to_owned()))?;
            open.insert(request.name.clone(), Stand::Running(task));
            WorkState::running("")
        }
        Some(Stand::Running(_)) => WorkState::running(""),
        Some(Stand::Tombstoned) => WorkState::Tombstoned,
        Some(Stand::Ended(callback, to)) => {
            work.runtime.spawn(Arc::clone(work).call_back(to.token.clone(), callback.as_ref().clone()));
            WorkState::Ended(callback.clone())
        }
    })
}

#[async_trait]
impl ebb_flow::ports::Relay for Relay {
    async fn ensure(&self, _: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        self.request().await?;
        if self.work.mishaps.strikes(Mishap::RelayRequestDoubled) {
            let later = self.work.mishaps.below(Mishap::RelayRequestDoubled, AGAIN_MS);
            let (work, stands, request) = (Arc::clone(&self.work), Arc::clone(&self.stands), request.clone());
            self.work.runtime.spawn(async move {
                work.runtime.sleep(later).await;
                ensure(&work, &stands, &request).ok();
            });
        }
        let state = ensure(&self.work, &self.stands, &request)?;
        self.answer(state).await
    }

    async fn cancel(&self, _: Option<&str>, name: &WorkName, _: Duration) -> Result<WorkState, RelayError> {
        self.request().await?;
        let ended = match lock(&self.stands).get(name) {
            Some(Stand::Ended(callback, _)) => Some(WorkState::Ended(callback.clone())),
            _ => None,
        };
        if ended.is_none() {
            tombstone(&self.work, &self.stands, name);
        }
        self.answer(ended.unwrap_or(WorkState::Tombstoned)).await
    }

    async fn get(&self, _: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.request().await?;
        let state = match lock(&self.stands).get(name) {
            None => WorkState::Unknown,
            Some(Stand::Running(_)) => WorkState::running(""),
            Some(Stand::Ended(callback, _)) => WorkState::Ended(callback.clone()),
            Some(Stand::Tombstoned) => WorkState::Tombstoned,
        };
        self.answer(state).await
    }

    async fn acknowledge(&self, _: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        self.request().await
    }

    async fn release(&self, _: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.request().await
    }
}
