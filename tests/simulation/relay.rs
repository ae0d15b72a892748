//! The relays of clusters.

use std::collections::VecDeque;

use ebb_documents::ClusterPolicy;
use ebb_egress::HttpCall as _;
use ebb_flow::{RelayError, UnitCluster};
use ebb_protocol::relay::{CallbackEndpoint, EnsureTask, ScriptTask, ServiceRequest, ServiceResponse, TaskBody};
use ebb_protocol::{ObjectRemoval, RunningTask, SecretRef, TaskState};

use super::*;

/// The cluster whose relay does not respond until `SimRelay::connect`.
pub const UNREACHABLE: &str = "unreachable";
/// The cluster whose relay refuses connections.
pub const REFUSING: &str = "refusing";
/// The cluster whose relay responds late that it is busy.
pub const BUSY: &str = "busy";

/// The timeout of a request to an unreachable relay.
const RESPONSE_MS: u64 = 15_000;
/// The time after which a busy relay responds.
const BUSY_MS: u64 = 13_000;
/// The pause between two lists of objects without a record.
const LIST_MS: u64 = 5_000;
/// The time for which a cluster has a name that two clusters have in turn.
const REPLACED_MS: u64 = 15 * 60_000;
const OUTAGE_MS: u64 = 300_000;
/// The longest delay of a duplicated request; less than the in-flight limit.
const DUPLICATE_MS: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// The number of scripts that run at one time.
    pub slots: usize,
    /// No slot is free before this time.
    pub free_from: u64,
    /// No cluster is reachable from this time on.
    pub reachable_until: u64,
    /// True if two clusters have each name in turn. Both keep their tasks.
    pub is_replaced: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { slots: usize::MAX, free_from: 0, reachable_until: u64::MAX, is_replaced: false }
    }
}

enum SimTaskState {
    /// A script with its start and the end of its timeout.
    Running {
        task: SimTaskId,
        run: RunId,
        since: u64,
        until: u64,
    },
    Queued(Box<EnsureTask>),
    Ended(Box<Callback>, CallbackEndpoint),
    /// `false` means that it was prevented before its request arrived, and that its record may have been lost.
    Tombstoned(bool),
}

impl SimTaskState {
    fn names_objects(&self) -> bool {
        !matches!(self, Self::Tombstoned(false))
    }
}

#[derive(Default)]
struct SimRelayState {
    tasks: BTreeMap<TaskId, SimTaskState>,
    queue: VecDeque<TaskId>,
    running: usize,
    outage_until: u64,
    is_connected: bool,
    /// The times of requests without a useful response.
    unanswered: Vec<u64>,
}

/// The relays of all clusters. They keep all tasks.
#[derive(Clone)]
pub struct SimRelay {
    executor: Arc<SimExecutor>,
    pub(super) options: ClusterOptions,
    state: Arc<Mutex<SimRelayState>>,
    plugin: SimPlugin,
    /// The Services of all clusters are the servers of webhook units.
    servers: Arc<SimServers>,
}

/// Returns the script of a request, or `None` if the task applies objects.
pub fn script_of(request: &EnsureTask) -> Option<&ScriptTask> {
    match &request.body {
        TaskBody::Script(script) => Some(script),
        TaskBody::Objects(_) => None,
    }
}

/// Returns the texts that a script reads, by input, also those of lists. The key of a reference is the value that the relay
/// has kept.
pub fn texts(request: &EnsureTask) -> impl Iterator<Item = (String, String)> {
    script_of(request).into_iter().flat_map(|script| &script.inputs).flat_map(|input| {
        let texts = match &input.value {
            Some(UnitValue::Json(value)) => texts_of(value),
            Some(UnitValue::Secret(kept)) => vec![kept.key.clone()],
            _ => Vec::new(),
        };
        texts.into_iter().map(move |text| (input.name.clone(), text))
    })
}

fn unit_of(work: &SimExecutor, request: &EnsureTask) -> Option<Arc<SimUnit>> {
    let Some(script) = script_of(request) else {
        // A task of objects has no environment. An update can give the position of a teardown unit to another one.
        let is_own = |unit: &SimUnit| TaskId::unit_of(&unit.run(), Unit(unit.unit)) == request.task.unit;
        return work.ledger.state().units.values().filter(|unit| is_own(unit)).max_by_key(|unit| unit.planned).cloned();
    };
    let key = script.env.iter().find(|(name, _)| name == "EBB_IDEMPOTENCY_KEY")?;
    work.ledger.unit(&key.1)
}

impl SimRelay {
    pub(super) fn new(executor: Arc<SimExecutor>, options: ClusterOptions, servers: Arc<SimServers>) -> Self {
        let relay = Self { executor, options, state: Arc::default(), plugin: SimPlugin::default(), servers };
        let own = relay.clone();
        relay.executor.runtime.spawn(async move {
            own.executor.runtime.sleep(own.options.free_from).await;
            own.start_queued(&mut own.state(), AttemptReceiver::Queue);
        });
        relay
    }

    /// Returns the relays of the same clusters, none of which responds.
    pub(super) fn silent(&self, executor: Arc<SimExecutor>) -> Self {
        let options = ClusterOptions { reachable_until: 0, ..self.options };
        let servers = Arc::clone(&self.servers);
        Self { executor, options, state: Arc::default(), plugin: SimPlugin::default(), servers }
    }

    /// Makes [`UNREACHABLE`] respond from now on.
    pub(super) fn connect(&self) {
        self.state().is_connected = true;
    }

    /// Returns the UID of the cluster that has the names of clusters now.
    fn uid(&self) -> &'static str {
        let is_second = self.options.is_replaced && self.executor.runtime.elapsed() / REPLACED_MS % 2 == 1;
        if is_second { "second" } else { "first" }
    }

    pub fn queued(&self) -> usize {
        self.state().queue.len()
    }

    /// Returns the times of requests without a useful response.
    pub fn unanswered(&self) -> Vec<u64> {
        self.state().unanswered.clone()
    }

    fn state(&self) -> MutexGuard<'_, SimRelayState> {
        lock(&self.state)
    }

    /// Returns an error if the request does not arrive.
    async fn request(&self, cluster: UnitCluster<'_>) -> Result<(), RelayError> {
        let SimExecutor { runtime, faults, .. } = self.executor.as_ref();
        if cluster.uid.is_some_and(|uid| uid != self.uid()) {
            return Err(RelayError::Refused("another cluster has this name now, as planned".to_owned()));
        }
        self.executor.may_die(FaultKind::DeathBeforeCall).await;
        let now = runtime.elapsed();
        let refused = || RelayError::Unreachable("as planned".to_owned());
        let (wait, error) = match cluster.name {
            _ if now >= self.options.reachable_until => (0, refused()),
            Some(UNREACHABLE) if !self.state().is_connected => (RESPONSE_MS, refused()),
            Some(BUSY) => (BUSY_MS, RelayError::Busy("as planned".to_owned())),
            Some(REFUSING) => (0, refused()),
            _ => {
                let until = &mut self.state().outage_until;
                let is_away = self.executor.is_away(FaultKind::RelayAwayLong, until, OUTAGE_MS);
                return if is_away || faults.should_inject(FaultKind::RelayAway) { Err(refused()) } else { Ok(()) };
            }
        };
        self.state().unanswered.push(now);
        runtime.sleep(wait).await;
        Err(error)
    }

    async fn respond<T>(&self, response: T) -> Result<T, RelayError> {
        self.executor.may_die(FaultKind::DeathAfterCall).await;
        if self.executor.faults.should_inject(FaultKind::RelayAnswerLost) {
            return Err(RelayError::Unreachable("the answer was lost as planned".to_owned()));
        }
        Ok(response)
    }

    /// Begins the tasks at the front of the queue while slots are free. Returns those of setup units, with their runs.
    fn start_queued(&self, known: &mut SimRelayState, receiver: AttemptReceiver) -> Vec<(RunId, TaskId)> {
        let mut begun = Vec::new();
        if self.executor.runtime.elapsed() < self.options.free_from {
            return begun;
        }
        while known.running < self.options.slots
            && let Some(name) = known.queue.pop_front()
        {
            let Some(SimTaskState::Queued(request)) = known.tasks.remove(&name) else { continue };
            let unit = unit_of(&self.executor, &request).expect("tasks of other units are refused");
            let run = run_of(&name.unit).expect("tasks of other runs are refused");
            if unit.sets_up() {
                begun.push((run.clone(), name.clone()));
            }
            let since = self.executor.runtime.elapsed();
            let until = since + request.timeout_ms;
            let task = self.begin(&unit, run.clone(), &request, receiver);
            known.running += 1;
            known.tasks.insert(name, SimTaskState::Running { task, run, since, until });
        }
        begun
    }

    fn begin(&self, unit: &Arc<SimUnit>, run: RunId, request: &EnsureTask, receiver: AttemptReceiver) -> SimTaskId {
        let reads = texts(request).map(|(_, text)| text).collect();
        let running = self.executor.begin(unit, run, request.task.attempt, receiver, true, reads);
        let (own, unit) = (self.clone(), Arc::clone(unit));
        let (name, to, timeout) = (request.task.clone(), request.callback.clone(), request.timeout_ms);
        let outputs = script_of(request).into_iter().flat_map(|script| &script.outputs);
        let sensitive: Vec<String> = outputs.filter(|it| it.sensitive).map(|it| it.name.clone()).collect();
        let body = request.body.clone();
        if script_of(request).is_some() && self.executor.faults.should_inject(FaultKind::HeartbeatsSent) {
            let heartbeats = Arc::clone(&self.executor).send_heartbeats(request.callback.token.clone());
            self.executor.runtime.spawn(heartbeats);
        }
        let task = self.executor.runtime.spawn(async move {
            let work = &own.executor;
            let vanishes = work.inject_below(FaultKind::PodLost, unit.millis + 1);
            let limit = vanishes.unwrap_or(timeout);
            let ended = Mutex::new(None);
            let performed = async {
                // A removal without a record of what it removes waits until a person has deleted it, if the relay may list it.
                while let TaskBody::Objects(task) = &body
                    && work.ledger.is_bound_unrecorded(&task.remove)
                    && !work.faults.should_inject(FaultKind::PlaceUnlisted)
                {
                    work.runtime.sleep(LIST_MS).await;
                }
                *lock(&ended) = Some(work.execute(running).await);
            };
            work.runtime.first(performed, work.runtime.sleep(limit)).await;
            let mut callback = match lock(&ended).take() {
                Some(ended) => Callback { log: Some("it ran".to_owned()), ..callback_of(&ended) },
                None if vanishes.is_some() => Callback::failed(ReasonCode::Lost, "the pod vanished as planned"),
                None => Callback::failed(ReasonCode::Timeout, "its time is up"),
            };
            for name in sensitive {
                if let Some(serde_json::Value::String(key)) = callback.outputs.remove(&name) {
                    let kept = SecretRef { cluster: None, namespace: None, name: "kept".to_owned(), key };
                    callback.secrets.insert(name, kept);
                }
            }
            if let TaskBody::Objects(task) = &body
                && !task.remove.is_empty()
            {
                callback.removal = Some(own.observed(&task.remove));
            }
            // Objects exist before they are ready, so those of a failed task remain.
            if let TaskBody::Objects(objects) = &body
                && (callback.status == CallbackStatus::Succeeded || objects.remove.is_empty())
            {
                work.ledger.apply_bound(&name.unit, objects);
            }
            {
                let mut known = own.state();
                known.tasks.insert(name, SimTaskState::Ended(Box::new(callback.clone()), to.clone()));
                known.running -= 1;
                own.start_queued(&mut known, AttemptReceiver::Queue);
            }
            Arc::clone(work).call_back(to.token, callback).await;
        });
        task.id
    }

    /// Returns the response of a Service. It can be lost after the effect of the request.
    async fn serve(&self, request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
        let ServiceRequest { method, path, headers, body, valid_for_ms, .. } = request;
        let (url, timeout) = (format!("https://outside.test{path}"), Duration::from_millis(valid_for_ms));
        let request = HttpRequest { method, url, headers, body: body.into_bytes(), timeout, largest: usize::MAX };
        let HttpResponse { status, headers, body } = self.servers.call(request).await.map_err(|error| match error {
            CallError::Refused(why) => RelayError::Refused(why),
            error => RelayError::Busy(error.to_string()),
        })?;
        Ok(ServiceResponse { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    fn observed(&self, units: &[String]) -> ObjectRemoval {
        let known = self.state();
        let has_record =
            |unit: &String| known.tasks.iter().any(|(name, task)| name.unit == *unit && task.names_objects());
        let recorded = units.iter().filter(|unit| has_record(unit));
        ObjectRemoval { objects: recorded.map(|unit| (unit.clone(), 1)).collect(), unlisted: Vec::new() }
    }

    /// Kills a task, or prevents its start.
    fn tombstone(&self, known: &mut SimRelayState, name: &TaskId) {
        known.queue.retain(|waiting| waiting != name);
        let is_lost = || self.executor.ledger.state().forgotten.contains(&name.unit);
        let names_objects = known.tasks.get(name).map_or_else(|| !is_lost(), SimTaskState::names_objects);
        let former = known.tasks.insert(name.clone(), SimTaskState::Tombstoned(names_objects));
        let Some(SimTaskState::Running { task, run: killed, until, .. }) = former else { return };
        self.executor.runtime.kill(task);
        known.running -= 1;
        // The timeout of a task may end while its run is cancelled.
        let is_early = self.executor.runtime.elapsed() < until;
        let by_cancel = is_early && self.executor.ledger.is_stopped(&killed);
        for (run, begun) in self.start_queued(known, AttemptReceiver::Queue) {
            if by_cancel && run == killed {
                let what = format!("{begun:?} begins in the slot of {name:?}, which the cancel of their run killed");
                self.executor.ledger.report_violation(what);
            }
        }
    }

    fn task_state(&self, known: &SimRelayState, name: &TaskId) -> TaskState {
        match known.tasks.get(name) {
            None => TaskState::Unknown,
            Some(SimTaskState::Running { since, .. }) => {
                let age_ms = Some(self.executor.runtime.elapsed() - since);
                TaskState::Running(RunningTask { age_ms, ..RunningTask::default() })
            }
            Some(SimTaskState::Queued(_)) => {
                let ahead = known.queue.iter().position(|waiting| waiting == name).unwrap_or(0);
                TaskState::Queued { ahead }
            }
            Some(SimTaskState::Ended(callback, _)) => TaskState::Ended(callback.clone()),
            Some(SimTaskState::Tombstoned(_)) => TaskState::Tombstoned,
        }
    }

    /// Loses the records of bound objects that are to be removed, if that fault happens. The objects stay.
    fn forget(&self, known: &mut SimRelayState, removed: &[String]) {
        let SimExecutor { ledger, faults, .. } = self.executor.as_ref();
        let has_bound = ledger.state().bound.values().any(|bound| removed.contains(&bound.owner));
        if has_bound && faults.should_inject(FaultKind::RelayForgets) {
            let is_lost = |name: &TaskId, task: &SimTaskState| {
                let is_over = matches!(task, SimTaskState::Ended(..) | SimTaskState::Tombstoned(_));
                removed.contains(&name.unit) && is_over
            };
            known.tasks.retain(|name, task| !is_lost(name, task));
            ledger.trace(|| format!("the relay loses its records of {removed:?}"));
            ledger.state().forgotten.extend(removed.iter().cloned());
        }
    }

    fn begin_or_find(&self, request: EnsureTask) -> Result<TaskState, RelayError> {
        let mut known = self.state();
        for attempt in 1..request.task.attempt {
            let name = TaskId { unit: request.task.unit.clone(), attempt };
            if !matches!(known.tasks.get(&name), Some(SimTaskState::Ended(..))) {
                self.tombstone(&mut known, &name);
            }
        }
        if let TaskBody::Objects(task) = &request.body {
            self.forget(&mut known, &task.remove);
        }
        let name = request.task.clone();
        let is_known = unit_of(&self.executor, &request).is_some() && run_of(&name.unit).is_some();
        match known.tasks.get_mut(&name) {
            None if self.executor.ledger.state().forgotten.contains(&name.unit) => return Ok(TaskState::Tombstoned),
            None if !is_known => return Err(RelayError::Refused("no such unit".to_owned())),
            None if self.executor.faults.should_inject(FaultKind::RelayRefuses) => {
                self.executor.ledger.state().refused_tasks.insert(name);
                return Err(RelayError::Refused("the policy refuses it as planned".to_owned()));
            }
            None => {
                known.tasks.insert(name.clone(), SimTaskState::Queued(Box::new(request)));
                known.queue.push_back(name.clone());
                self.start_queued(&mut known, AttemptReceiver::Relay);
                if self.executor.runtime.elapsed() < self.options.free_from {
                    // The relay reports a queued task at the next request only.
                    return Ok(TaskState::running(""));
                }
            }
            // The newest callback token is valid for the longest time.
            Some(SimTaskState::Queued(queued)) => **queued = request,
            Some(SimTaskState::Ended(callback, to)) => {
                let again = Arc::clone(&self.executor).call_back(to.token.clone(), callback.as_ref().clone());
                self.executor.runtime.spawn(again);
            }
            Some(SimTaskState::Running { .. } | SimTaskState::Tombstoned(_)) => {}
        }
        Ok(self.task_state(&known, &name))
    }

    /// Tombstones a task if `is_affected`, and returns its state.
    async fn end(
        &self,
        cluster: UnitCluster<'_>,
        name: &TaskId,
        is_affected: impl Fn(Option<&SimTaskState>) -> bool + Send,
    ) -> Result<TaskState, RelayError> {
        self.request(cluster).await?;
        let state = {
            let mut known = self.state();
            if is_affected(known.tasks.get(name)) {
                self.tombstone(&mut known, name);
            }
            self.task_state(&known, name)
        };
        self.respond(state).await
    }
}

#[async_trait]
impl ebb_flow::ports::RelayClient for SimRelay {
    async fn ensure(&self, cluster: UnitCluster<'_>, request: EnsureTask) -> Result<TaskState, RelayError> {
        let arrived = self.request(cluster).await;
        if matches!(arrived, Err(RelayError::Refused(_))) {
            self.executor.ledger.state().refused_tasks.insert(request.task.clone());
        }
        arrived?;
        if let Some(later) = self.executor.inject_below(FaultKind::RelayRequestDuplicated, DUPLICATE_MS) {
            let (own, request) = (self.clone(), request.clone());
            self.executor.runtime.spawn(async move {
                own.executor.runtime.sleep(later).await;
                own.begin_or_find(request).ok();
            });
        }
        self.respond(self.begin_or_find(request)?).await
    }

    async fn cancel(&self, cluster: UnitCluster<'_>, name: &TaskId, _: Duration) -> Result<TaskState, RelayError> {
        self.end(cluster, name, |task| !matches!(task, Some(SimTaskState::Ended(..)))).await
    }

    async fn dequeue(&self, cluster: UnitCluster<'_>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.end(cluster, name, |task| matches!(task, None | Some(SimTaskState::Queued(_)))).await
    }

    async fn get(&self, cluster: UnitCluster<'_>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.end(cluster, name, |_| false).await
    }

    async fn cluster_uid(&self, _: Option<&str>) -> StoreResult<Result<Option<String>, String>> {
        Ok(Ok(Some(self.uid().to_owned())))
    }

    async fn policy(&self, cluster: Option<&str>) -> Option<(String, ClusterPolicy)> {
        self.request(cluster.into()).await.ok()?;
        let is_strict = self.executor.faults.should_inject(FaultKind::PolicyStrict);
        let policy = is_strict.then(|| (cluster.unwrap_or_default().to_owned(), ClusterPolicy::default()));
        self.executor.ledger.state().strict_policies += usize::from(is_strict);
        self.respond(policy).await.ok()?
    }

    async fn acknowledge(&self, cluster: UnitCluster<'_>, _: &TaskId) -> Result<(), RelayError> {
        self.request(cluster).await
    }

    async fn release(&self, cluster: UnitCluster<'_>, _: &str) -> Result<(), RelayError> {
        self.request(cluster).await
    }

    async fn call(&self, cluster: UnitCluster<'_>, request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
        self.request(cluster).await?;
        if request.service.contains(".svc:") {
            return self.serve(request).await;
        }
        let body = self.plugin.respond(&self.executor, &request.body).await;
        let late = || RelayError::Busy("the plugin does not respond".to_owned());
        self.respond(ServiceResponse { status: 200, headers: Vec::new(), body: body.ok_or_else(late)? }).await
    }
}
