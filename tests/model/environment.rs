//! The environment: a relay, the servers of webhook units, the platform and the queue. The explorer decides each of its
//! steps.

use std::collections::BTreeSet;

use ebb_protocol::{Callback, CallbackStatus};

use super::*;

/// Number of requests to an unreachable cluster after which the target is deleted.
const IN_VAIN: u32 = 3;

/// The response to a request: the state of its task, or the status of a gateway. `None`: there is none.
type UnitReply = Option<Result<ModelTaskState, u16>>;

pub(super) struct InFlightRequest {
    pub(super) request: UnitRequest,
    pub(super) by: SimTaskId,
    /// The time after which the request cannot arrive.
    pub(super) until: u64,
    /// Passes the response to the sender. `None` after it.
    sender: Option<oneshot::Sender<UnitReply>>,
}

impl InFlightRequest {
    pub(super) fn is_awaited(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_canceled())
    }

    pub(super) fn answer(&mut self, answer: UnitReply) {
        if let Some(sender) = self.sender.take() {
            sender.send(answer).ok();
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct UnitRequest {
    pub(super) unit: String,
    pub(super) attempt: u32,
    /// The name of the attempt at its receiver.
    pub(super) name: String,
    pub(super) token: String,
    /// The outputs that it reads, by unit.
    pub(super) inputs: BTreeMap<String, String>,
    /// The idempotency key, which identifies the object that a unit creates once.
    pub(super) key: String,
    pub(super) undoes: String,
    pub(super) by_relay: bool,
    pub(super) later: bool,
    /// True if the request is not idempotent.
    pub(super) once: bool,
    pub(super) has_output: bool,
}

impl std::fmt::Display for UnitRequest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.unit, self.attempt)?;
        match self.update() {
            "" => Ok(()),
            number => write!(out, " of update {number}"),
        }
    }
}

impl UnitRequest {
    /// Returns the number of the update in whose run the unit is, or an empty text.
    fn update(&self) -> &str {
        self.name.split_once(Hook::UPDATE).map_or("", |(_, after)| after).split('-').next().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ModelTaskState {
    /// The task is in the queue of its relay.
    Waiting,
    Running,
    Succeeded,
    Failed,
    Tombstoned,
}

#[derive(Clone, Debug)]
pub(super) struct ModelTask {
    pub(super) state: ModelTaskState,
    /// The time at which it began to run, or 0.
    pub(super) begun: u64,
    pub(super) request: UnitRequest,
}

#[derive(Clone, Debug)]
pub(super) enum PendingDelivery {
    Callback { token: String, body: Vec<u8>, of: String, succeeded: bool },
    Message { message: QueueMessage, not_before: u64 },
}

impl PendingDelivery {
    pub(super) fn not_before(&self) -> u64 {
        match self {
            Self::Callback { .. } => 0,
            Self::Message { not_before, .. } => *not_before,
        }
    }
}

#[derive(Default)]
pub(super) struct EnvironmentState {
    pub(super) in_flight: BTreeMap<u64, InFlightRequest>,
    pub(super) tasks: BTreeMap<String, ModelTask>,
    pub(super) deliveries: BTreeMap<u64, PendingDelivery>,
    pub(super) next: u64,
    pub(super) objects: BTreeSet<String>,
    /// The types of the notifications, with the generations of the target.
    pub(super) notifications: BTreeSet<(String, u64)>,
    /// The newest invocation when the deletion had its response. Later ones must not start setup units.
    pub(super) stopped_by: Option<SimTaskId>,
    pub(super) stop_begun: bool,
    /// Requests with the response 202: the invocation that got it, and the newest one when that one completed.
    accepted: BTreeMap<String, (SimTaskId, Option<SimTaskId>)>,
    pub(super) asked_in_vain: u32,
    /// Requests that are not idempotent and were sent.
    pub(super) posted: BTreeSet<String>,
    /// Repeated requests of invocations that started before the acceptance. They need a fault.
    pub(super) overtaken: Vec<String>,
    pub(super) violations: Vec<String>,
}

impl EnvironmentState {
    /// Returns the accepted requests of running invocations, and those of completed ones.
    pub(super) fn promises(&self, runs: impl Fn(SimTaskId) -> bool) -> (Vec<&String>, Vec<&String>) {
        let accepted = self.accepted.iter();
        let open = accepted.clone().filter(|(_, (by, _))| runs(*by)).map(|(name, _)| name);
        let promised = accepted.filter(|(_, (_, newest))| newest.is_some()).map(|(name, _)| name);
        (open.collect(), promised.collect())
    }

    /// Returns the requests that were accepted before the invocation started.
    pub(super) fn promised_before(&self, task: SimTaskId) -> Vec<&String> {
        let is_before = |newest: SimTaskId| task > newest;
        self.accepted.iter().filter(|(_, (_, newest))| newest.is_some_and(is_before)).map(|(name, _)| name).collect()
    }

    /// Returns true if a relay or a server has got a request for an attempt.
    pub(super) fn has_task(&self, run: &RunId, unit: Unit, attempt: Attempt) -> bool {
        let names = ['.', '-'].map(|separator| format!("{run}-{}{separator}{}", unit.0, attempt.0));
        names.iter().any(|name| self.tasks.contains_key(name))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[derive(Clone)]
pub(super) struct ModelEnvironment {
    pub(super) runtime: SimRuntime,
    pub(super) gates: StepGates,
    /// True if a message may be lost, or its sender may die before sending it.
    pub(super) loses_messages: bool,
    pub(super) graph: ModelGraph,
    state: Arc<Mutex<EnvironmentState>>,
}

pub(super) fn is_setup(unit: &str) -> bool {
    unit.starts_with('u')
}

impl ModelEnvironment {
    pub(super) fn new(runtime: SimRuntime, loses_messages: bool, graph: ModelGraph) -> Self {
        let gates = StepGates::new(runtime.clone());
        Self { runtime, gates, loses_messages, graph, state: Arc::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, EnvironmentState> {
        lock(&self.state)
    }

    pub(super) async fn send(&self, what: UnitRequest) -> UnitReply {
        if self.gates.wait(GateKind::Send, what.to_string()).await == WriteFate::Die {
            return None;
        }
        if self.is_silent(&what.unit) {
            self.state().asked_in_vain += 1;
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        {
            let by = self.runtime.current();
            let until = self.runtime.elapsed() + MAX_IN_FLIGHT_MS;
            let mut state = self.state();
            if is_setup(&what.unit) && state.stopped_by.is_some_and(|newest| by > newest) {
                state.violations.push(format!("{} is sent by who began after the stop", what.unit));
            }
            if let Some((_, Some(newest))) = state.accepted.get(&what.name) {
                let again = format!("{} is sent again, though its receiver said that it will call back", what.unit);
                // An older invocation may have decided before the acceptance.
                if by > *newest { state.violations.push(again) } else { state.overtaken.push(again) }
            }
            if what.once && !state.posted.insert(what.name.clone()) {
                state.violations.push(format!("{what} is posted twice, and is not idempotent"));
            }
            let same = |flight: &InFlightRequest| flight.request.name == what.name && flight.by != by;
            let mut flights = state.in_flight.values().filter(|flight| same(flight) && !what.by_relay);
            if flights.any(InFlightRequest::is_awaited) {
                state.violations.push(format!("{what} is posted while another invocation waits for its answer"));
            }
            let number = state.number();
            state.in_flight.insert(number, InFlightRequest { request: what, by, until, sender: Some(sender) });
        }
        receiver.await.expect("every request is answered")
    }

    /// Returns a response, which identifies the state of its receiver.
    pub(super) fn learned<T: Debug>(&self, answer: T) -> T {
        self.gates.learn(&answer);
        answer
    }

    /// Records the acceptances of a completed invocation.
    pub(super) fn promised(&self, task: SimTaskId) {
        let newest = self.runtime.newest();
        for (_, completed) in self.state().accepted.values_mut().filter(|(by, _)| *by == task) {
            completed.get_or_insert(newest);
        }
    }

    /// Responds to a request that may still arrive: as the gateway, or by an error.
    pub(super) fn leave_unanswered(&self, number: u64) {
        let mut state = self.state();
        let flight = state.in_flight.get_mut(&number).expect("it is on its way");
        let by_server = !flight.request.by_relay;
        flight.answer(self.graph.gateway.filter(|_| by_server).map(Err));
    }

    /// Returns true if the unreachable cluster got enough requests, so that the instance is deleted.
    pub(super) fn is_hopeless(&self) -> bool {
        self.graph.unreachable.is_some() && self.state().asked_in_vain >= IN_VAIN
    }

    /// Returns true if the cluster of a unit is unreachable, which ends with the deletion.
    fn is_silent(&self, unit: &str) -> bool {
        let silent = self.graph.unreachable.map(|position| format!("u{position}"));
        silent.as_deref() == Some(unit) && !self.state().stop_begun
    }

    /// Delivers a request. `well` is false if the attempt fails at once.
    pub(super) fn arrive(&self, number: u64, well: bool) {
        let mut state = self.state();
        let Some(mut flight) = state.in_flight.remove(&number) else { return };
        let parcel = flight.request.clone();
        let known = state.tasks.get(&parcel.name).map(|work| work.state);
        if parcel.by_relay {
            let unit = parcel.name.rsplit_once('.').map_or("", |(unit, _)| unit).to_owned();
            for attempt in 1..parcel.attempt {
                tombstone(&mut state, &format!("{unit}.{attempt}"), &parcel);
            }
            self.start_waiting(&mut state);
        }
        let stand = match known {
            Some(stand) => stand,
            None if parcel.by_relay && !self.has_free_slot(&state) => {
                let waiting = ModelTask { state: ModelTaskState::Waiting, begun: 0, request: parcel.clone() };
                state.tasks.insert(parcel.name.clone(), waiting);
                ModelTaskState::Waiting
            }
            None => {
                self.start(&mut state, &parcel);
                ModelTaskState::Running
            }
        };
        let stand = match (stand, parcel.by_relay || parcel.later) {
            (ModelTaskState::Running, false) => end(&mut state, &parcel.name, well),
            (stand, _) => stand,
        };
        let has_ended = matches!(stand, ModelTaskState::Succeeded | ModelTaskState::Failed);
        if parcel.by_relay && has_ended {
            call_back(&mut state, &parcel, stand);
        } else if !parcel.by_relay && !has_ended && flight.is_awaited() {
            state.accepted.entry(parcel.name.clone()).or_insert((flight.by, None)).0 = flight.by;
        }
        drop(state);
        flight.answer(Some(Ok(stand)));
    }

    fn start(&self, state: &mut EnvironmentState, parcel: &UnitRequest) {
        if is_setup(&parcel.unit) {
            let is_same_key = |work: &&ModelTask| is_setup(&work.request.unit) && work.request.key == parcel.key;
            let former = state.tasks.values().filter(is_same_key).find(|work| work.request.update() != parcel.update());
            let same_key = former.map(|work| format!("{parcel} has the key of {}", work.request));
            // Only a relay and a callback tell what a unit has made.
            let missing = parcel.inputs.values().find(|input| parcel.later && !state.objects.contains(*input));
            let missing = missing.map(|input| format!("{parcel} begins without {input}"));
            state.violations.extend(same_key.into_iter().chain(missing));
            state.objects.insert(format!("key {}", parcel.key));
        } else {
            let undone = |request: &UnitRequest| is_setup(&request.unit) && request.key == parcel.undoes;
            // An attempt of a server cannot be killed. Its late success is undone later.
            let relayed = |work: &&ModelTask| work.request.by_relay;
            let running = |work: &&ModelTask| work.state == ModelTaskState::Running;
            let runs = state.tasks.values().filter(relayed).filter(running).find(|work| undone(&work.request));
            let now = self.runtime.elapsed();
            let lands = state.in_flight.values().find(|flight| {
                let known = state.tasks.contains_key(&flight.request.name);
                undone(&flight.request) && !known && flight.until >= now
            });
            let may_run = runs.map(|work| &work.request).or(lands.map(|flight| &flight.request));
            let may_run = may_run.map(|undone| format!("{parcel} begins while {undone} may run"));
            let uses = state.tasks.values().filter(relayed).find(|work| {
                let reads = work.request.inputs.values().any(|input| parcel.inputs.values().any(|own| own == input));
                let lives = work.state == ModelTaskState::Running || state.objects.contains(&made(&work.request));
                is_setup(&work.request.unit) && reads && lives
            });
            let uses = uses.map(|user| format!("{parcel} begins while {} uses what it removes", user.request));
            state.violations.extend(may_run.into_iter().chain(uses));
        }
        let begun = self.runtime.elapsed();
        let task = ModelTask { state: ModelTaskState::Running, begun, request: parcel.clone() };
        state.tasks.insert(parcel.name.clone(), task);
    }

    fn has_free_slot(&self, state: &EnvironmentState) -> bool {
        let running = |work: &&ModelTask| work.request.by_relay && work.state == ModelTaskState::Running;
        self.graph.slots.is_none_or(|places| state.tasks.values().filter(running).count() < places)
    }

    /// Starts queued tasks in free slots. Returns their units.
    pub(super) fn start_waiting(&self, state: &mut EnvironmentState) -> Vec<String> {
        let mut begun = Vec::new();
        while self.has_free_slot(state)
            && let Some(next) = state.tasks.values().find(|work| work.state == ModelTaskState::Waiting)
        {
            let parcel = next.request.clone();
            self.start(state, &parcel);
            begun.push(parcel.unit);
        }
        begun
    }

    /// Returns true if a delivery is the success of a webhook setup unit.
    pub(super) fn may_contradict(&self, mail: &PendingDelivery) -> bool {
        let PendingDelivery::Callback { of, succeeded: true, .. } = mail else { return false };
        self.state().tasks.get(of).is_some_and(|work| !work.request.by_relay && is_setup(&work.request.unit))
    }

    /// Creates another object at a server, and reports it as a result of the same attempt.
    pub(super) fn contradict(&self, number: u64) {
        let mut state = self.state();
        let Some(PendingDelivery::Callback { token, of, .. }) = state.deliveries.get(&number).cloned() else { return };
        let made = format!("{}'{}", made(&state.tasks[&of].request), state.objects.len());
        let outputs = BTreeMap::from([("id".to_owned(), made.clone().into())]);
        let callback = Callback { outputs, ..Callback::new(CallbackStatus::Succeeded) };
        let body = serde_json::to_vec(&callback).expect("a callback is JSON");
        state.objects.insert(made);
        let next = state.number();
        state.deliveries.insert(next, PendingDelivery::Callback { token, body, of, succeeded: true });
    }

    /// Ends a task of a relay, or of a server that calls back.
    pub(super) fn finish(&self, name: &str, well: bool) {
        let mut state = self.state();
        let stand = end(&mut state, name, well);
        self.start_waiting(&mut state);
        let parcel = state.tasks[name].request.clone();
        call_back(&mut state, &parcel, stand);
    }
}

/// Ends a running task, and creates or deletes its objects.
fn end(state: &mut EnvironmentState, name: &str, well: bool) -> ModelTaskState {
    let stand = if well { ModelTaskState::Succeeded } else { ModelTaskState::Failed };
    let work = state.tasks.get_mut(name).expect("only known work ends");
    (work.state, work.begun) = (stand, 0);
    let parcel = work.request.clone();
    if well && is_setup(&parcel.unit) {
        // With a response in place of a callback, only the idempotency key identifies the object.
        if parcel.later && parcel.has_output {
            state.objects.insert(made(&parcel));
        }
    } else if well {
        state.objects.remove(&format!("key {}", parcel.undoes));
        for input in parcel.inputs.values() {
            state.objects.remove(input);
        }
    }
    stand
}

/// Returns the object that a successful attempt of a setup unit creates. Each attempt creates another one.
fn made(parcel: &UnitRequest) -> String {
    let update = parcel.update();
    let scope = if update.is_empty() { String::new() } else { format!("~{update}") };
    format!("{}{scope}#{}", parcel.unit, parcel.attempt)
}

/// Kills a task, or prevents its start.
pub(super) fn tombstone(state: &mut EnvironmentState, name: &str, of: &UnitRequest) {
    let ended = |work: &ModelTask| matches!(work.state, ModelTaskState::Succeeded | ModelTaskState::Failed);
    if !state.tasks.get(name).is_some_and(ended) {
        let parcel = state.tasks.get(name).map_or_else(|| of.clone(), |work| work.request.clone());
        state.tasks.insert(name.to_owned(), ModelTask { state: ModelTaskState::Tombstoned, begun: 0, request: parcel });
    }
}

pub(super) fn outputs(parcel: &UnitRequest) -> BTreeMap<String, serde_json::Value> {
    match is_setup(&parcel.unit) && parcel.has_output {
        true => BTreeMap::from([("id".to_owned(), made(parcel).into())]),
        false => BTreeMap::new(),
    }
}

pub(super) fn callback(parcel: &UnitRequest, stand: ModelTaskState) -> Callback {
    match stand {
        ModelTaskState::Succeeded => Callback { outputs: outputs(parcel), ..Callback::new(CallbackStatus::Succeeded) },
        _ => Callback::failed(ReasonCode::Failed, "as planned"),
    }
}

/// Sends the callback of an ended task, unless one of it waits.
fn call_back(state: &mut EnvironmentState, parcel: &UnitRequest, stand: ModelTaskState) {
    let waits = |mail: &PendingDelivery| matches!(mail, PendingDelivery::Callback { of, .. } if *of == parcel.name);
    if !state.deliveries.values().any(waits) {
        let (token, of) = (parcel.token.clone(), parcel.name.clone());
        let body = serde_json::to_vec(&callback(parcel, stand)).expect("a callback is JSON");
        let succeeded = stand == ModelTaskState::Succeeded;
        let number = state.number();
        state.deliveries.insert(number, PendingDelivery::Callback { token, body, of, succeeded });
    }
}
