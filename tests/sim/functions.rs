//! The functions as those outside see them: an invocation answers, or dies and gives no answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebb_flow::operator::overrides;
use ebb_flow::ports::QueueMessage;
use ebb_flow::run::callback::CallbackOutcome;
use ebb_flow::target::lifecycle::{self, LifecycleRejection};
use ebb_flow::{Env, FlowError, RequestError};
use ebb_protocol::api::{ForceCompleteUnit, ForceDeleteTarget};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResponse};

use super::{FaultInjector, FaultKind, SimRuntime, SimTable};

/// An invocation gave no answer, or the answer that it should be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvocationFailure;

/// When a sweep gives up what still waits for others, in milliseconds after it began.
const GIVEN_UP_MS: u64 = 25_000;

/// The functions over one table.
pub struct SimFunctions {
    runtime: SimRuntime,
    table: Arc<SimTable>,
    env: Mutex<Option<Arc<Env>>>,
    faults: Mutex<Option<FunctionFaults>>,
    broken: Mutex<Vec<String>>,
    invocations: AtomicU64,
}

/// The faults of function instances.
pub(super) struct FunctionFaults {
    /// When an invocation is ended, in milliseconds after it began.
    pub(super) timeout: u64,
    /// Where it may find nothing in its memory.
    pub(super) faults: Arc<FaultInjector>,
    /// Creates the environment of a function instance with an empty memory.
    pub(super) instance: Box<dyn Fn() -> Env + Send + Sync>,
}

impl SimFunctions {
    /// Has no environment yet.
    pub fn new(runtime: SimRuntime, table: Arc<SimTable>) -> Self {
        Self {
            runtime,
            table,
            env: Mutex::default(),
            faults: Mutex::default(),
            broken: Mutex::default(),
            invocations: AtomicU64::new(0),
        }
    }

    /// Sets the environment, or removes it, which ends the reference cycle between them.
    pub fn set_env(&self, env: Option<Env>) {
        if env.is_none() {
            *self.faults.lock().expect("no panic while it is held") = None;
        }
        *self.env.lock().expect("no panic while it is held") = env.map(Arc::new);
    }

    /// Sets the environment, ends invocations that take too long, and lets invocations begin in new instances.
    pub(super) fn inject_faults(&self, hardship: FunctionFaults) {
        self.set_env(Some((hardship.instance)()));
        *self.faults.lock().expect("no panic while it is held") = Some(hardship);
    }

    /// How many invocations there were.
    pub fn invocations(&self) -> u64 {
        self.invocations.load(Ordering::Relaxed)
    }

    /// Errors that no repetition mends.
    pub fn broken(&self) -> Vec<String> {
        self.broken.lock().expect("no panic while it is held").clone()
    }

    fn env(&self) -> Result<Arc<Env>, InvocationFailure> {
        self.invocations.fetch_add(1, Ordering::Relaxed);
        let hardship = self.faults.lock().expect("no panic while it is held");
        if let Some(hardship) = hardship.as_ref()
            && hardship.faults.should_inject(FaultKind::ColdStart)
        {
            return Ok(Arc::new((hardship.instance)()));
        }
        self.env.lock().expect("no panic while it is held").clone().ok_or(InvocationFailure)
    }

    async fn invoke<T, F, Fut>(&self, name: &'static str, body: F) -> Result<T, InvocationFailure>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Env>, Arc<SimTable>) -> Fut,
        Fut: Future<Output = Result<T, FlowError>> + Send + 'static,
    {
        let task = self.runtime.spawn(body(self.env()?, Arc::clone(&self.table)));
        let timeout = self.faults.lock().expect("no panic while it is held").as_ref().map(|hard| hard.timeout);
        let ended = match timeout {
            Some(timeout) => self.runtime.within(task, timeout).await,
            None => task.await,
        };
        match ended {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                if !error.is_retryable() {
                    let mut broken = self.broken.lock().expect("no panic while it is held");
                    broken.push(format!("{name}: {error}"));
                }
                Err(InvocationFailure)
            }
            None => Err(InvocationFailure),
        }
    }

    /// A lifecycle webhook.
    ///
    /// # Errors
    /// [`InvocationFailure`]: come again.
    pub async fn lifecycle(
        &self,
        asked: LifecycleType,
        event: LifecycleData,
    ) -> Result<Result<LifecycleResponse, LifecycleRejection>, InvocationFailure> {
        self.invoke("receive", |env, table| async move {
            match lifecycle::receive(&env, table.as_ref(), asked, &event).await {
                Ok(response) => Ok(Ok(response)),
                Err(RequestError::Rejected(rejection)) => Ok(Err(rejection)),
                Err(RequestError::Failed(error)) => Err(error),
            }
        })
        .await
    }

    /// A callback.
    ///
    /// # Errors
    /// [`InvocationFailure`]: come again.
    pub async fn callback(&self, token: String, body: Vec<u8>) -> Result<CallbackOutcome, InvocationFailure> {
        self.invoke("complete", |env, _| async move { ebb_flow::run::callback::complete(&env, &token, &body).await })
            .await
    }

    /// An operator's `retry` of the target.
    ///
    /// # Errors
    /// [`InvocationFailure`]: come again.
    pub async fn retry(&self, kind: &str, name: &str) -> Result<(), InvocationFailure> {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        self.invoke("retry", move |env, _| async move {
            ebb_flow::operator::retry::retry(&env, &kind, &name).await.map(drop)
        })
        .await
    }

    /// An operator's force-complete of a unit of the target. False: it is not taken.
    ///
    /// # Errors
    /// [`InvocationFailure`]: come again.
    pub async fn force_complete(&self, kind: &str, name: &str, unit: &str) -> Result<bool, InvocationFailure> {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        let asked = ForceCompleteUnit { unit: unit.to_owned(), reason: "as planned".to_owned(), by: None };
        self.invoke("force-complete", move |env, _| async move {
            let answer = overrides::force_complete(&env, &kind, &name, &asked).await?;
            Ok(matches!(answer, overrides::OverrideOutcome::Overridden(_)))
        })
        .await
    }

    /// An operator's force delete of the target. False: it is not taken.
    ///
    /// # Errors
    /// [`InvocationFailure`]: come again.
    pub async fn force_delete(&self, kind: &str, name: &str) -> Result<bool, InvocationFailure> {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        let asked = ForceDeleteTarget { reason: "as planned".to_owned(), by: None };
        self.invoke("force-delete", move |env, _| async move {
            let answer = overrides::force_delete(&env, &kind, &name, &asked).await?;
            Ok(matches!(answer, overrides::OverrideOutcome::Overridden(_)))
        })
        .await
    }

    /// What may exist of a target, as its operator is told.
    ///
    /// # Errors
    /// [`InvocationFailure`]: come again.
    pub async fn existing(&self, kind: &str, name: &str) -> Result<Vec<String>, InvocationFailure> {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        self.invoke("why", move |env, _| async move {
            let Some(target) = env.store.read_target(&kind, &name).await? else { return Ok(vec![]) };
            let loaded = env.plan_of(&target).await?;
            let exists = ebb_flow::run::possible_resources::possible_resources(&env, &target, &loaded).await?;
            Ok(exists.into_iter().map(|existing| existing.unit).collect())
        })
        .await
    }

    /// The schedule.
    ///
    /// # Errors
    /// [`InvocationFailure`]: the next one comes anyway.
    pub async fn sweep(&self) -> Result<(), InvocationFailure> {
        let end = self.runtime.sleep(GIVEN_UP_MS);
        self.invoke("sweep", |env, table| async move {
            ebb_flow::sweep::sweep_until(&env, table.as_ref(), end).await.map(drop)
        })
        .await
    }

    /// A message of the queue.
    ///
    /// # Errors
    /// [`InvocationFailure`]: the message is delivered again.
    pub async fn message(&self, message: QueueMessage) -> Result<(), InvocationFailure> {
        self.invoke("message", |env, _| async move { ebb_flow::sweep::receive_message(&env, &message).await }).await
    }
}
