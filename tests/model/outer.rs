//! The outside: a relay, the servers of webhook units, the platform, the queue. Nothing happens in it by itself; the
//! explorer decides.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::{Message, RelayError};
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::relay::{Ensure, WorkName, WorkState};
use ebb_wire::sign::WEBHOOK_ID;
use ebb_wire::unit::{ATTEMPT, CALLBACK_TOKEN, IDEMPOTENCY_KEY, UNDOES_IDEMPOTENCY_KEY};
use ebb_wire::value::Value;

use super::gates::{Gates, Kind};
use super::place::Graph;
use crate::sim::{Blow, Runtime, TaskId};

/// A target that waits for a cluster without an answer is deleted after so many requests to it.
const IN_VAIN: u32 = 3;

/// What an answer is to a caller that still waits for it.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Relay(Result<WorkState, RelayError>),
    Server(Result<Response, CallError>),
}

#[derive(Default)]
struct Slot {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// A request on its way.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) what: Parcel,
    pub(super) by: TaskId,
    /// After this it does not arrive any more.
    pub(super) until: u64,
    slot: Arc<Mutex<Slot>>,
}

/// What a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) unit: String,
    pub(super) attempt: u32,
    /// What its receiver knows it by.
    pub(super) name: String,
    pub(super) token: String,
    /// The output that it read, by the unit that made it.
    pub(super) inputs: BTreeMap<String, String>,
    /// What a script creates once, and what an undo takes away, known or not.
    pub(super) key: String,
    pub(super) undoes: String,
    pub(super) by_relay: bool,
    pub(super) later: bool,
    /// True if it may be sent only once.
    pub(super) once: bool,
    pub(super) says: bool,
}

impl std::fmt::Display for Parcel {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.unit, self.attempt)
    }
}

/// Where work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stand {
    /// In the queue of its relay.
    Waiting,
    Running,
    Succeeded,
    Failed,
    Tombstoned,
}

/// Work that a receiver knows.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) stand: Stand,
    pub(super) parcel: Parcel,
}

/// Something that comes to a function when the explorer says so.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    /// A callback of a unit; `well`: it says that it succeeded.
    Callback {
        token: String,
        body: Vec<u8>,
        of: String,
        well: bool,
    },
    Message {
        message: Message,
        not_before: u64,
    },
}

/// The state of the outside.
#[derive(Default)]
pub(super) struct State {
    pub(super) flights: BTreeMap<u64, Flight>,
    pub(super) works: BTreeMap<String, Work>,
    pub(super) mail: BTreeMap<u64, Mail>,
    pub(super) next: u64,
    pub(super) things: BTreeSet<String>,
    pub(super) told: BTreeSet<String>,
    /// Invocations that began before a stop was answered; later ones may start nothing of the setup.
    pub(super) stopped_by: Option<TaskId>,
    /// True if a stop was requested.
    pub(super) stop_begun: bool,
    /// Requests that were answered with 202, and to whom.
    accepted: BTreeMap<String, TaskId>,
    /// Those of them whose asker lived to note it, and the newest invocation at that time.
    promised: BTreeMap<String, TaskId>,
    /// Requests to a cluster that gives no answer.
    pub(super) asked_in_vain: u32,
    /// Requests that may be sent only once, and were.
    pub(super) posted: BTreeSet<String>,
    /// What was sent twice by who did not know better, which takes that something has gone wrong before.
    pub(super) overtaken: Vec<String>,
    pub(super) wrong: Vec<String>,
}

impl State {
    /// What was promised, and what is being promised to who still runs.
    pub(super) fn promises(&self, runs: impl Fn(TaskId) -> bool) -> (Vec<&String>, Vec<&String>) {
        let open = self.accepted.iter().filter(|(_, by)| runs(**by)).map(|(name, _)| name);
        (open.collect(), self.promised.keys().collect())
    }

    /// What was promised before the invocation began.
    pub(super) fn promised_before(&self, task: TaskId) -> Vec<&String> {
        self.promised.iter().filter(|(_, newest)| task > **newest).map(|(name, _)| name).collect()
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The outside.
#[derive(Clone)]
pub(super) struct Outer {
    pub(super) runtime: Runtime,
    pub(super) gates: Gates,
    pub(super) landing: u64,
    /// Whether a message may get lost, or its sender die before it sends it.
    loses_messages: bool,
    graph: Graph,
    state: Arc<Mutex<State>>,
}

struct Answered(Arc<Mutex<Slot>>);

impl Future for Answered {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut slot = self.0.lock().expect("no panic while it is held");
        if let Some(answer) = slot.answer.take() {
            return Poll::Ready(answer);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

fn is_setup(unit: &str) -> bool {
    unit.starts_with('u')
}

impl Outer {
    pub(super) fn new(
        runtime: Runtime,
        gates: Gates,
        landing: u64,
        loses_messages: bool,
        graph: Graph,
    ) -> Self {
        Self { runtime, gates, landing, loses_messages, graph, state: Arc::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    async fn send(&self, what: Parcel) -> Answer {
        let fate = self.gates.wait(Kind::Send, what.to_string()).await;
        if fate == Blow::Die {
            return unanswered(&what);
        }
        if self.is_silent(&what.unit) {
            self.state().asked_in_vain += 1;
            let answer = unanswered(&what);
            self.gates.learn(&answer);
            return answer;
        }
        let slot = Arc::new(Mutex::new(Slot::default()));
        {
            let by = self.runtime.current();
            let until = self.runtime.elapsed() + self.landing;
            let mut state = self.state();
            if is_setup(&what.unit) && state.stopped_by.is_some_and(|newest| by > newest) {
                state.wrong.push(format!("{} is sent by who began after the stop", what.unit));
            }
            if let Some(newest) = state.promised.get(&what.name) {
                let again =
                    format!("{} is sent again, though its receiver said that it will call back", what.unit);
                // Who decided before it was known may be slow.
                if by > *newest { state.wrong.push(again) } else { state.overtaken.push(again) }
            }
            if what.once && !state.posted.insert(what.name.clone()) {
                state.wrong.push(format!("{what} is posted twice, and is not idempotent"));
            }
            let same = |flight: &Flight| flight.what.name == what.name && flight.by != by;
            let mut flights = state.flights.values().filter(|flight| same(flight) && !what.by_relay);
            if flights.any(Self::is_awaited) {
                let twice = format!("{what} is posted while another invocation waits for its answer");
                state.wrong.push(twice);
            }
            let number = state.number();
            state.flights.insert(number, Flight { what, by, until, slot: Arc::clone(&slot) });
        }
        let answer = Answered(slot).await;
        self.gates.learn(&answer);
        answer
    }

    /// An invocation has ended well: what it was told is noted.
    pub(super) fn promised(&self, task: TaskId) {
        let mut state = self.state();
        let names: Vec<String> =
            state.accepted.iter().filter(|(_, by)| **by == task).map(|(name, _)| name.clone()).collect();
        let newest = self.runtime.newest();
        for name in names {
            state.promised.entry(name).or_insert(newest);
        }
    }

    /// Returns what a sender is told of a request that may still arrive: by its gateway, if there is one.
    pub(super) fn no_answer(&self, what: &Parcel) -> Answer {
        match self.graph.gateway {
            Some(status) if !what.by_relay => {
                Answer::Server(Ok(Response { status, headers: Vec::new(), body: Vec::new() }))
            }
            _ => unanswered(what),
        }
    }

    /// Returns whether the cluster of a unit of the setup gives no answer at first.
    pub(super) fn begins_silent(&self, position: u32) -> bool {
        self.graph.silent.is_some_and(|silent| u32::try_from(silent) == Ok(position))
    }

    /// Returns whether only a deletion ends the life: a cluster that gives no answer was asked again and again.
    pub(super) fn is_hopeless(&self) -> bool {
        self.graph.silent.is_some() && self.state().asked_in_vain >= IN_VAIN
    }

    /// Returns whether the cluster of a unit gives no answer: until the target is deleted.
    fn is_silent(&self, unit: &str) -> bool {
        let silent = self.graph.silent.map(|position| format!("u{position}"));
        silent.as_deref() == Some(unit) && !self.state().stop_begun
    }

    /// Whether somebody waits for the answer.
    pub(super) fn is_awaited(flight: &Flight) -> bool {
        Arc::strong_count(&flight.slot) > 1
    }

    /// Gives the answer to whoever still waits for it.
    pub(super) fn answer(flight: &Flight, answer: Answer) {
        let mut slot = flight.slot.lock().expect("no panic while it is held");
        slot.answer = Some(answer);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    /// A request arrives. `well`: how work ends that ends at once.
    pub(super) fn arrive(&self, number: u64, well: bool) {
        let mut state = self.state();
        let Some(flight) = state.flights.remove(&number) else { return };
        let parcel = flight.what.clone();
        let known = state.works.get(&parcel.name).map(|work| work.stand);
        if parcel.by_relay {
            let unit = parcel.name.rsplit_once('.').map_or("", |(unit, _)| unit).to_owned();
            for attempt in 1..parcel.attempt {
                bury(&mut state, &format!("{unit}.{attempt}"), &parcel);
            }
            self.hand_out(&mut state);
        }
        let stand = match known {
            Some(stand) => stand,
            None if parcel.by_relay && !self.has_place(&state) => {
                let waiting = Work { stand: Stand::Waiting, parcel: parcel.clone() };
                state.works.insert(parcel.name.clone(), waiting);
                Stand::Waiting
            }
            None => {
                self.start(&mut state, &parcel);
                Stand::Running
            }
        };
        let stand = match (stand, parcel.by_relay || parcel.later) {
            (Stand::Running, false) => end(&mut state, &parcel.name, well),
            (stand, _) => stand,
        };
        let answer = match (parcel.by_relay, stand) {
            (true, Stand::Running) => Answer::Relay(Ok(WorkState::running(""))),
            (true, Stand::Waiting) => Answer::Relay(Ok(WorkState::Waiting { before: 0 })),
            (true, Stand::Tombstoned) => Answer::Relay(Ok(WorkState::Tombstoned)),
            (true, stand) => {
                let callback = callback(&parcel, stand);
                call_back(&mut state, &parcel, &callback);
                Answer::Relay(Ok(WorkState::Ended(Box::new(callback))))
            }
            (false, Stand::Running | Stand::Waiting) => {
                if Self::is_awaited(&flight) {
                    state.accepted.insert(parcel.name.clone(), flight.by);
                }
                Answer::Server(Ok(response(202, &parcel)))
            }
            (false, Stand::Succeeded) => Answer::Server(Ok(response(200, &parcel))),
            (false, Stand::Failed | Stand::Tombstoned) => Answer::Server(Ok(response(503, &parcel))),
        };
        drop(state);
        Self::answer(&flight, answer);
    }

    fn start(&self, state: &mut State, parcel: &Parcel) {
        if let Some(position) = parcel.unit.strip_prefix('x') {
            let undone = format!("u{position}");
            // Nobody can kill what runs at a foreign server: it gets its time, and a late success is undone later.
            let runs = state.works.values().any(|work| {
                work.stand == Stand::Running && work.parcel.by_relay && work.parcel.unit == undone
            });
            let now = self.runtime.elapsed();
            let lands = state.flights.values().any(|flight| {
                let known = state.works.contains_key(&flight.what.name);
                flight.what.unit == undone && !known && flight.until >= now
            });
            if runs || lands {
                state.wrong.push(format!("{} begins while {undone} may run", parcel.unit));
            }
        } else {
            state.things.insert(format!("key {}", parcel.key));
        }
        state.works.insert(parcel.name.clone(), Work { stand: Stand::Running, parcel: parcel.clone() });
    }

    /// Returns whether the relay would begin another work now.
    fn has_place(&self, state: &State) -> bool {
        let running = |work: &&Work| work.parcel.by_relay && work.stand == Stand::Running;
        self.graph.places.is_none_or(|places| state.works.values().filter(running).count() < places)
    }

    /// Begins works that wait, as many as there are places. Gives their units.
    fn hand_out(&self, state: &mut State) -> Vec<String> {
        let mut begun = Vec::new();
        while self.has_place(state)
            && let Some(next) = state.works.values().find(|work| work.stand == Stand::Waiting)
        {
            let parcel = next.parcel.clone();
            self.start(state, &parcel);
            begun.push(parcel.unit);
        }
        begun
    }

    /// Whether mail is the success of a webhook unit that names what it has made.
    pub(super) fn may_contradict(&self, mail: &Mail) -> bool {
        let Mail::Callback { of, well: true, .. } = mail else { return false };
        let state = self.state();
        state.works.get(of).is_some_and(|work| !work.parcel.by_relay && is_setup(&work.parcel.unit))
    }

    /// A server makes one more thing than it should, and reports it as the result of the same attempt.
    pub(super) fn contradict(&self, number: u64) {
        let mut state = self.state();
        let Some(Mail::Callback { token, of, .. }) = state.mail.get(&number).cloned() else { return };
        let made = format!("{}'{}", made(&state.works[&of].parcel), state.things.len());
        let outputs = BTreeMap::from([("id".to_owned(), made.clone().into())]);
        let callback = Callback { outputs, ..Callback::new(CallbackStatus::Succeeded) };
        let body = serde_json::to_vec(&callback).expect("a callback is JSON");
        state.things.insert(made);
        let next = state.number();
        state.mail.insert(next, Mail::Callback { token, body, of, well: true });
    }

    /// Work of a relay, or of a server that said that it would call back, ends.
    pub(super) fn finish(&self, name: &str, well: bool) {
        let mut state = self.state();
        let stand = end(&mut state, name, well);
        self.hand_out(&mut state);
        let parcel = state.works[name].parcel.clone();
        let callback = callback(&parcel, stand);
        call_back(&mut state, &parcel, &callback);
    }
}

/// What a sender is told that gets no answer.
pub(super) fn unanswered(what: &Parcel) -> Answer {
    let reason = "as planned".to_owned();
    match what.by_relay {
        true => Answer::Relay(Err(RelayError::Unreachable(reason))),
        false => Answer::Server(Err(CallError::Connect(reason))),
    }
}

/// Ends work that runs, with what it makes or takes away.
fn end(state: &mut State, name: &str, well: bool) -> Stand {
    let stand = if well { Stand::Succeeded } else { Stand::Failed };
    let work = state.works.get_mut(name).expect("only known work ends");
    work.stand = stand;
    let parcel = work.parcel.clone();
    if well && is_setup(&parcel.unit) {
        // Where the answer is all that tells, a lost one leaves only the stable key to find the thing by.
        if parcel.later && parcel.says {
            state.things.insert(made(&parcel));
        }
    } else if well {
        state.things.remove(&format!("key {}", parcel.undoes));
        for input in parcel.inputs.values() {
            state.things.remove(input);
        }
    }
    stand
}

/// What a try of a setup unit makes when it succeeds: each try another thing.
fn made(parcel: &Parcel) -> String {
    format!("{}#{}", parcel.unit, parcel.attempt)
}

/// Kills work, and keeps it from ever running.
fn bury(state: &mut State, name: &str, of: &Parcel) {
    let ended = |work: &Work| matches!(work.stand, Stand::Succeeded | Stand::Failed);
    if !state.works.get(name).is_some_and(ended) {
        let parcel = state.works.get(name).map_or_else(|| of.clone(), |work| work.parcel.clone());
        state.works.insert(name.to_owned(), Work { stand: Stand::Tombstoned, parcel });
    }
}

fn outputs(parcel: &Parcel) -> BTreeMap<String, serde_json::Value> {
    match is_setup(&parcel.unit) && parcel.says {
        true => BTreeMap::from([("id".to_owned(), made(parcel).into())]),
        false => BTreeMap::new(),
    }
}

fn callback(parcel: &Parcel, stand: Stand) -> Callback {
    match stand {
        Stand::Succeeded => Callback { outputs: outputs(parcel), ..Callback::new(CallbackStatus::Succeeded) },
        _ => Callback::failed(ReasonCode::Failed, "as planned"),
    }
}

fn call_back(state: &mut State, parcel: &Parcel, callback: &Callback) {
    let body = serde_json::to_vec(callback).expect("a callback is JSON");
    let of = parcel.name.clone();
    let well = callback.status == CallbackStatus::Succeeded;
    let waits = |mail: &Mail| matches!(mail, Mail::Callback { of: waiting, .. } if *waiting == of);
    if !state.mail.values().any(waits) {
        let number = state.number();
        state.mail.insert(number, Mail::Callback { token: parcel.token.clone(), body, of, well });
    }
}

fn response(status: u16, parcel: &Parcel) -> Response {
    let body = serde_json::to_vec(&outputs(parcel)).expect("outputs are JSON");
    Response { status, headers: Vec::new(), body }
}

fn name_of(name: &WorkName) -> String {
    format!("{}.{}", name.unit, name.attempt)
}

#[async_trait]
impl ebb_flow::ports::Relay for Outer {
    async fn ensure(&self, _: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        let script = request.script().expect("the model's units are scripts");
        let env = |wanted: &str| {
            let found = script.env.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let inputs = script.inputs.iter().filter_map(|input| match &input.value {
            Some(Value::Json(serde_json::Value::String(text))) => Some((input.name.clone(), text.clone())),
            _ => None,
        });
        let parcel = Parcel {
            unit: env("EBB_UNIT"),
            attempt: request.name.attempt,
            name: name_of(&request.name),
            token: request.callback.token.clone(),
            inputs: inputs.collect(),
            key: env("EBB_IDEMPOTENCY_KEY"),
            undoes: env("EBB_UNDOES_IDEMPOTENCY_KEY"),
            by_relay: true,
            later: true,
            once: false,
            says: !script.outputs.is_empty(),
        };
        match self.send(parcel).await {
            Answer::Relay(answer) => answer,
            Answer::Server(_) => unreachable!("a relay answers as a relay"),
        }
    }

    async fn cancel(&self, _: Option<&str>, name: &WorkName, _: Duration) -> Result<WorkState, RelayError> {
        self.end_work("cancel", name_of(name)).await
    }

    async fn dequeue(&self, _: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        match self.graph.places {
            // There is no queue.
            None => Ok(WorkState::Unknown),
            Some(_) => self.end_work("dequeue", name_of(name)).await,
        }
    }

    async fn get(&self, _: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        Err(RelayError::Unreachable(format!("no request is open for {}", name.unit)))
    }

    async fn acknowledge(&self, _: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        Ok(())
    }

    async fn release(&self, _: Option<&str>, _: &str) -> Result<(), RelayError> {
        Ok(())
    }
}

impl Outer {
    /// `cancel` or `dequeue` of a work.
    async fn end_work(&self, verb: &str, name: String) -> Result<WorkState, RelayError> {
        let fate = self.gates.wait(Kind::Send, format!("{verb} {name}")).await;
        if fate == Blow::Die {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        let answer = {
            let mut state = self.state();
            match state.works.get(&name).map(|work| (work.stand, work.parcel.clone())) {
                Some((stand @ (Stand::Succeeded | Stand::Failed), parcel)) => {
                    WorkState::Ended(Box::new(callback(&parcel, stand)))
                }
                Some((Stand::Running, _)) if verb == "dequeue" => WorkState::running(""),
                Some((Stand::Running, parcel)) => {
                    bury(&mut state, &name, &parcel);
                    let begun = self.hand_out(&mut state);
                    let stop = state.stop_begun;
                    for unit in begun.into_iter().filter(|unit| stop && is_setup(unit)) {
                        let killed = &parcel.unit;
                        state
                            .wrong
                            .push(format!("{unit} begins in the place of {killed}, which the stop killed"));
                    }
                    WorkState::Tombstoned
                }
                Some((_, parcel)) => {
                    bury(&mut state, &name, &parcel);
                    WorkState::Tombstoned
                }
                None => {
                    let parcel = Parcel {
                        unit: String::new(),
                        attempt: 0,
                        name: name.clone(),
                        token: String::new(),
                        inputs: BTreeMap::new(),
                        key: String::new(),
                        undoes: String::new(),
                        by_relay: true,
                        later: true,
                        once: false,
                        says: false,
                    };
                    bury(&mut state, &name, &parcel);
                    WorkState::Tombstoned
                }
            }
        };
        let answer = match fate {
            Blow::Go => Ok(answer),
            Blow::Die | Blow::Lose => Err(RelayError::Unreachable("as planned".to_owned())),
        };
        self.gates.learn(&answer);
        answer
    }
}

#[async_trait]
impl Call for Outer {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let path = request.url.rsplit('/').next().unwrap_or_default();
        let (unit, later, once) = match (path.strip_suffix("-later"), path.strip_suffix("-once")) {
            (Some(unit), _) => (unit, true, false),
            (None, Some(unit)) => (unit, false, true),
            (None, None) => (path, false, false),
        };
        let unit = unit.to_owned();
        let body: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&request.body).unwrap_or_default();
        let texts = body.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        let parcel = Parcel {
            unit,
            attempt: header(ATTEMPT).parse().unwrap_or(0),
            name: header(WEBHOOK_ID),
            token: header(CALLBACK_TOKEN),
            inputs: texts.collect(),
            key: header(IDEMPOTENCY_KEY),
            undoes: header(UNDOES_IDEMPOTENCY_KEY),
            by_relay: false,
            later,
            once,
            says: true,
        };
        match self.send(parcel).await {
            Answer::Server(answer) => answer,
            Answer::Relay(_) => unreachable!("a server answers as a server"),
        }
    }
}

/// The platform's server.
pub(super) struct Platform(pub(super) Outer);

#[async_trait]
impl Call for Platform {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let event: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kind = event.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
        let fate = self.0.gates.wait(Kind::Send, "tell".to_owned()).await;
        if fate != Blow::Die {
            self.0.state().told.insert(kind);
        }
        let answer = match fate {
            Blow::Go => Ok(Response { status: 204, headers: vec![], body: vec![] }),
            Blow::Die | Blow::Lose => Err(CallError::Connect("as planned".to_owned())),
        };
        self.0.gates.learn(&answer);
        answer
    }
}

#[async_trait]
impl ebb_flow::ports::Queue for Outer {
    async fn send(&self, message: Message, delay: Duration) {
        // Where nothing can keep a message from the queue, when it is delivered is all that counts.
        if self.loses_messages && self.gates.wait(Kind::Queue, format!("{message:?}")).await == Blow::Lose {
            return;
        }
        let not_before =
            self.runtime.elapsed() + u64::try_from(delay.as_millis()).expect("at most 15 minutes");
        let mut state = self.state();
        let number = state.number();
        state.mail.insert(number, Mail::Message { message, not_before });
    }

    async fn check(&self) -> Result<(), String> {
        ebb_flow::ports::Queue::send(self, Message::Mark, Duration::ZERO).await;
        Ok(())
    }
}
