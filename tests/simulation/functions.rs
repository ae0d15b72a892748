//! The real functions with simulated parts. An invocation returns a result, or dies without one.

use ebb_api::queries::{runs, target_changes};
use ebb_flow::advance::early_start;
use ebb_flow::advance::retry::RetryOutcome;
use ebb_flow::instance::history::Decision;
use ebb_flow::instance::retention;
use ebb_flow::lifecycle::Protection;
use ebb_flow::operator::overrides::OverrideOutcome;
use ebb_flow::operator::repair::{RepairMode, RepairSource};
use ebb_flow::operator::{overrides, repair, target_request};
use ebb_flow::run::removal::{evidence, possible_resources};
use ebb_flow::source::{reconcile, record};
use ebb_flow::sweep::{self, SweepSummary};
use ebb_flow::{FlowResult, FollowUp, RequestError};
use ebb_protocol::{RemovalGrade, ResourceRemoval, RetryResponse, SourceResponse, TargetKey};

use super::*;
use crate::invocations;

/// An invocation died or failed. The caller repeats its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvocationFailure;

type Invoked<T> = Result<T, InvocationFailure>;

/// Units of a target that its operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedUnits {
    /// Those whose resources may exist.
    Possible,
    /// Those whose removal is unconfirmed.
    Unconfirmed,
}

/// The time after which a sweep abandons its requests.
const SWEEP_BUDGET_MS: u64 = 25_000;
/// The timeout of an invocation. It is shorter than the in-flight limit of a deployment.
const TIMEOUT_MS: u64 = 28_000;

const DECISION: Decision<'static> =
    Decision { change: HistoryChange::Retried, by: Some("role operator"), reason: None };

/// Creates the environment of a function instance, whose cache is empty.
type NewInstance = Box<dyn Fn() -> Env + Send + Sync>;

pub struct SimFunctions {
    runtime: SimRuntime,
    table: Arc<SimTable>,
    faults: Arc<FaultInjector>,
    instances: Mutex<Option<(NewInstance, Arc<Env>)>>,
    /// The function instance that reads for persons. It shares no cache with the others.
    reader: Mutex<Option<Arc<Env>>>,
    broken: Mutex<Vec<String>>,
    invocations: AtomicU64,
}

impl SimFunctions {
    /// Returns functions without an environment.
    pub fn new(runtime: SimRuntime, table: Arc<SimTable>, faults: Arc<FaultInjector>) -> Self {
        let (instances, broken, invocations) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self { runtime, table, faults, instances, reader: Mutex::default(), broken, invocations }
    }

    /// Sets the environment.
    pub fn start(&self, instance: NewInstance) {
        let warm = Arc::new(instance());
        *lock(&self.instances) = Some((instance, warm));
    }

    /// Removes the environment, which refers to the functions.
    pub fn stop(&self) {
        *lock(&self.instances) = None;
        *lock(&self.reader) = None;
    }

    pub fn invocations(&self) -> u64 {
        self.invocations.load(Ordering::Relaxed)
    }

    /// Returns the errors that a repetition does not correct.
    pub fn broken(&self) -> Vec<String> {
        lock(&self.broken).clone()
    }

    /// Returns the environment of another function instance, unless the functions were stopped.
    pub(super) fn new_instance(&self) -> Option<Env> {
        lock(&self.instances).as_ref().map(|(new, _)| new())
    }

    fn env(&self) -> Invoked<Arc<Env>> {
        self.invocations.fetch_add(1, Ordering::Relaxed);
        let instances = lock(&self.instances);
        let (new, warm) = instances.as_ref().ok_or(InvocationFailure)?;
        Ok(if self.faults.should_inject(FaultKind::ColdStart) { Arc::new(new()) } else { Arc::clone(warm) })
    }

    async fn invoke<T, F, Fut>(&self, name: &'static str, body: F) -> Invoked<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Env>) -> Fut,
        Fut: Future<Output = FlowResult<T>> + Send + 'static,
    {
        let task = self.runtime.spawn(body(self.env()?));
        let result = self.runtime.within(task, TIMEOUT_MS).await.ok_or(InvocationFailure)?;
        result.map_err(|error| {
            if !error.is_retryable() {
                lock(&self.broken).push(format!("{name}: {error}"));
            }
            InvocationFailure
        })
    }

    /// Reads plans at the same time, each by instance and digest, in an environment without caches. Returns the digests of
    /// the plans.
    pub async fn read_plans(&self, wanted: &[(String, String)]) -> Vec<Option<String>> {
        let Some(env) = self.new_instance() else { return Vec::new() };
        let reads = wanted.iter().map(|(instance, digest)| env.plan(instance, digest));
        let plans = futures::future::join_all(reads).await.into_iter();
        plans.map(|plan| plan.ok().map(|plan| plan.digest.clone())).collect()
    }

    pub async fn lifecycle(
        &self,
        (event_type, id): (LifecycleType, String),
        event: LifecycleData,
    ) -> Invoked<Result<LifecycleResponse, Rejection>> {
        self.invoke("receive", |env| async move {
            response_of(invocations::receive(&env, &env.store, (event_type, &id), &event).await)
        })
        .await
    }

    /// Receives an event of a source. Returns the result if the event was applied or not stored.
    pub async fn source_event(&self, event: DesiredTarget) -> Invoked<Option<SourceResponse>> {
        self.invoke("source", |env| async move {
            if let Some(outcome) = record::record(&env, &event).await? {
                return Ok(Some(outcome));
            }
            let (outcome, follow_ups) = reconcile::apply(&env, &event.key).await?;
            finish(&env, follow_ups).await?;
            Ok(outcome)
        })
        .await
    }

    pub async fn apply(&self, request: TargetRequest) -> Invoked<Result<LifecycleResponse, Rejection>> {
        self.invoke("apply", |env| async move {
            match response_of(target_request::apply(&env, &request).await)? {
                Ok((response, follow_ups)) => finish(&env, follow_ups).await.map(|()| Ok(response)),
                Err(rejection) => Ok(Err(rejection)),
            }
        })
        .await
    }

    /// Returns the effect of a request to the API, which is then not applied.
    pub async fn preview(&self, request: TargetRequest) -> Invoked<()> {
        self.invoke("preview", |env| async move {
            match target_request::preview(&env, &request).await {
                Err(RequestError::Failed(error)) => Err(error),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Deletes every instance of a name by the API, or only that with the identity `uid`. An operator lifts protections.
    pub async fn delete_target(&self, by: &str, name: &str, uid: Option<&str>) -> Invoked<()> {
        let protection = if by == owners::OPERATOR { Protection::Lifted } else { Protection::Respected };
        let (name, uid) = (name.to_owned(), uid.map(str::to_owned));
        let access = owners::access("token a");
        self.invoke("delete", |env| async move {
            let key = TargetKey::new(KIND, &name);
            let deleted =
                response_of(target_request::delete(&env, key, (uid.as_deref(), None, protection), &access).await)?;
            finish(&env, deleted.ok().flatten().map(|(_, follow_ups)| follow_ups).unwrap_or_default()).await
        })
        .await
    }

    pub async fn callback(&self, token: String, body: Vec<u8>) -> Invoked<CallbackOutcome> {
        self.invoke("complete", |env| async move { invocations::complete(&env, &token, &body).await }).await
    }

    /// Receives a heartbeat, which writes at most once.
    pub(super) async fn heartbeat(&self, token: String, body: Vec<u8>) -> Invoked<CallbackOutcome> {
        let table = Arc::clone(&self.table);
        self.invoke("heartbeat", |env| async move {
            table.limit_writes(1);
            invocations::complete(&env, &token, &body).await
        })
        .await
    }

    /// Describes a run for a person, and writes nothing.
    pub(super) async fn describe(&self, run: RunId) -> Invoked<Option<RunDetail>> {
        let table = Arc::clone(&self.table);
        self.invoke("describe", |env| async move {
            table.limit_writes(0);
            runs::get(&env, &run).await
        })
        .await
    }

    /// Returns the changes of targets after a number, for a reader of all targets.
    pub(super) async fn changes(&self, since: Option<u64>) -> Invoked<(Option<u64>, Option<Vec<String>>)> {
        let reader = {
            let mut reader = lock(&self.reader);
            *reader = reader.take().or_else(|| self.new_instance().map(Arc::new));
            reader.clone().ok_or(InvocationFailure)?
        };
        self.invoke("changes", move |_| async move { target_changes::since(&reader, None, since).await }).await
    }

    /// Retries a target for an operator, or only its instance `uid`.
    pub async fn retry(&self, name: &str, uid: Option<&str>) -> Invoked<RetryOutcome> {
        let (name, uid) = (name.to_owned(), uid.map(str::to_owned));
        self.invoke("retry", |env| async move {
            early_start::retry_now(&env, (TargetKey::new(KIND, &name), uid.as_deref()), DECISION).await
        })
        .await
    }

    /// Force-completes a unit for an operator, or force-deletes a target without `unit`: of any instance, or only of `uid`.
    pub async fn override_units(
        &self,
        name: &str,
        uid: Option<&str>,
        unit: Option<String>,
    ) -> Invoked<OverrideOutcome> {
        let (name, uid) = (name.to_owned(), uid.map(str::to_owned));
        self.invoke("override", |env| async move {
            let instance = (TargetKey::new(KIND, &name), uid.as_deref());
            overrides::force(&env, instance, unit.as_deref(), ("as planned", None), DECISION.by).await
        })
        .await
    }

    /// Repairs the teardown of a target, or only of its instance `uid`, for an operator: with a document, or without one with
    /// the version `REPAIRED` of its first plugin.
    pub async fn repair(&self, name: &str, uid: Option<&str>, text: Option<String>) -> Invoked<Option<RetryResponse>> {
        let (name, uid) = (name.to_owned(), uid.map(str::to_owned));
        self.invoke("repair", |env| async move {
            let key = TargetKey::new(KIND, &name);
            let target = env.store.read_target(key).await?;
            let plugins = target.map(|target| target.plugins).unwrap_or_default();
            let first = plugins.first().filter(|_| text.is_none()).and_then(|plugin| plugin.split_once('@'));
            let plugin = first.map(|(plugin, _)| format!("{plugin}@{REPAIRED}"));
            let Ok(Some(source)) = RepairSource::of(plugin.as_deref(), text.as_deref()) else { return Ok(None) };
            let repaired = repair::repair(&env, (key, uid.as_deref()), (source, DECISION.by), RepairMode::Make).await;
            Ok(response_of(repaired)?.ok())
        })
        .await
    }

    pub async fn listed(&self, target: TargetHead, which: ListedUnits) -> Invoked<Vec<String>> {
        self.invoke("list", move |env| async move {
            let plan = env.plan_of(&target).await?;
            if which == ListedUnits::Possible {
                let possible = possible_resources::possible_resources(&env, &target, &plan).await?;
                return Ok(possible.into_iter().map(|resource| resource.unit).collect());
            }
            let removals = evidence::removals(&env, &target, &plan).await?;
            let is_unconfirmed = |removal: &ResourceRemoval| removal.evidence.grade == RemovalGrade::Unconfirmed;
            Ok(removals.into_iter().filter(is_unconfirmed).map(|removal| removal.unit).collect())
        })
        .await
    }

    pub async fn sweep(&self) -> Invoked<SweepSummary> {
        let end = self.runtime.sleep(SWEEP_BUDGET_MS);
        self.invoke("sweep", |env| async move { sweep::sweep(&env, &env.store, end).await }).await
    }

    /// Removes the data of instances whose retention has ended.
    pub async fn remove_expired(&self) -> Invoked<()> {
        self.invoke("remove", |env| async move { retention::remove_expired(&env, env.now()).await.map(drop) }).await
    }

    pub async fn message(&self, message: QueueMessage) -> Invoked<()> {
        self.invoke("message", |env| async move { ebb_flow::sweep::receive_message(&env, &message).await }).await
    }
}

fn response_of<T>(result: Result<T, RequestError>) -> FlowResult<Result<T, Rejection>> {
    match result {
        Ok(response) => Ok(Ok(response)),
        Err(RequestError::Rejected(rejection)) => Ok(Err(rejection)),
        Err(RequestError::Failed(error)) => Err(error),
    }
}

async fn finish(env: &Env, follow_ups: Vec<FollowUp>) -> FlowResult<()> {
    for follow_up in follow_ups {
        follow_up.finish(env).await?;
    }
    Ok(())
}
