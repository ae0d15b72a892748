//! A provider: an API that creates and deletes things asynchronously, and knows nothing of Ebb.
//!
//! The answers of a provider are all that a client can know. This one keeps these rules, so that they suffice:
//!
//! 1. A thing exists from the arrival of the request that creates it. 4xx means that the request has created nothing.
//! 2. A list shows a thing less than [`LISTED_MS`] after its creation, and from the first request for its deletion on.
//!    Plugins name this time as `maxProcessingTime`.
//! 3. The answer 204 to a `DELETE` means that the thing is gone, 202 that it will be gone. Until then, each question
//!    shows it.
//! 4. A thing is hidden only until a unit of the teardown has got an answer other than 404 for it. Things of one name are
//!    hidden together. A list shows also what is hidden.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ebb_egress::{CallError, CallResult, HttpRequest, HttpResponse};
use ebb_protocol::unit::{ATTEMPT, IDEMPOTENCY_KEY};
use ebb_store::NamedDocument;
use serde_json::{Map, Value, json};

use super::executor::SimExecutor;
use super::ledger::{AttemptGuard, AttemptReceiver, Ledger, SimObject};
use super::provider_documents::{CONNECTION, PLAIN};
use super::provider_token::{self, TOKEN};
use super::registry::{SimUnit, UnitEffect};
use super::runtime::lock;
use super::servers::{gateway_status, header};
use super::{FaultKind, SimRuntime, SimTaskId};

pub(super) const ORIGIN: &str = "https://provider.test";
const RESPONSE_MS: u64 = 20;
/// The time until a list shows a new thing is less than this.
const LISTED_MS: u64 = 60_000;
/// A creation or deletion takes so many times the duration of its unit. A deletion by a unit that takes at most
/// [`QUICK_MS`] ends at once.
const SLOWNESS: u64 = 10;
const QUICK_MS: u64 = 50;
/// The longest duration of a late deletion.
const DELETION_MS: u64 = 1_200_000;
/// The longest time for which a thing is hidden.
const HIDDEN_MS: u64 = 240_000;
/// The most requests of an attempt: these, and so many in a minute of its wait. Plugins let the pause between two
/// questions grow to a minute. Faults repeat some of them.
const REQUESTS: u64 = 24;
const REQUESTS_PER_MINUTE: u64 = 4;
/// The most questions that follow from a message that is delivered twice, until the next sweep.
const REQUESTS_PER_DUPLICATE: u64 = 10;
/// Two requests of one attempt by one invocation with this distance mean that it has slept.
const SLEEP_MS: u64 = 1_000;

/// Returns the connection to the provider for the plugins with these names, if there are any.
pub(super) fn connection(plugins: &[String]) -> Option<NamedDocument> {
    let document = format!(
        "apiVersion: ebb.dev/v1\nkind: Connection\nname: {CONNECTION}\norigin: {ORIGIN}\n\
         auth: {{bearer: {{secret: {TOKEN}}}}}\nplugins: [{}]\n",
        plugins.join(", ")
    );
    let connection = NamedDocument { name: CONNECTION.to_owned(), document, changed: SimRuntime::default().now() };
    (!plugins.is_empty()).then_some(connection)
}

#[derive(Clone, Debug)]
pub(super) struct SimThing {
    unit: Arc<SimUnit>,
    name: String,
    /// Rises with each thing.
    number: u64,
    ready_at: u64,
    listed_at: u64,
    hidden_until: u64,
    /// True if a unit of the teardown has got an answer that shows it.
    is_seen: bool,
    /// The end of its deletion, which has begun.
    pub(super) gone_at: Option<u64>,
}

impl SimThing {
    /// Returns the name under which the ledger knows that the deletion of a thing does not end.
    pub(super) fn stays(id: &str) -> String {
        format!("{id} stays")
    }

    fn state(&self, ledger: &Ledger, id: &str, now: u64) -> &'static str {
        let is_broken = |what: &str| ledger.is_broken(&format!("{id} {what}"), || false);
        match self.gone_at {
            Some(_) => "deleting",
            None if now < self.ready_at || is_broken(HANGS) => "creating",
            None if is_broken(FAILS) => "failed",
            None => "ready",
        }
    }
}

const FAILS: &str = "fails";
const HANGS: &str = "hangs";

struct AttemptRequests {
    since: u64,
    count: u64,
    /// The invocation that has sent the last one, and its time.
    last: (SimTaskId, u64),
}

#[derive(Default)]
struct ProviderState {
    created: u64,
    /// The attempts that have sent a request other than a question, by idempotency key and number.
    attempts: BTreeMap<(String, u32), usize>,
    requests: BTreeMap<(String, u32), AttemptRequests>,
}

pub(super) struct SimProvider {
    executor: Arc<SimExecutor>,
    state: Mutex<ProviderState>,
}

impl SimProvider {
    pub(super) fn new(executor: Arc<SimExecutor>) -> Self {
        Self { executor, state: Mutex::default() }
    }

    /// Returns the response to a request for `path`, which has arrived.
    pub(super) async fn respond(&self, path: &str, request: &HttpRequest) -> CallResult<HttpResponse> {
        let SimExecutor { runtime, ledger, .. } = self.executor.as_ref();
        let refused = || CallError::Refused(format!("no such unit: {}", request.url));
        let unit = ledger.unit(&header(request, IDEMPOTENCY_KEY)).ok_or_else(refused)?;
        let attempt: u32 = header(request, ATTEMPT).parse().map_err(|_| refused())?;
        ledger.settle_things();
        let changes = request.method != "GET";
        let _posted = changes.then(|| ledger.post(format!("{}-{}-{attempt}", unit.run(), unit.unit)));
        let running = if changes { self.begin(&unit, attempt, path, request) } else { None };
        let (status, body) = match request.method.as_str() {
            "POST" => self.create(&unit, attempt, path, request),
            "DELETE" => self.delete(&unit, path, request),
            _ => self.show(&unit, attempt, path, request),
        };
        ledger.trace(|| format!("{status} for {} {path} of {} #{attempt}", request.method, unit.name));
        if let Some(running) = &running {
            ledger.state().attempts[running.number].result = Some((runtime.elapsed(), status < 400));
        }
        runtime.sleep(RESPONSE_MS).await;
        let gateway = gateway_status(&self.executor);
        let body = if gateway.is_some() || body.is_null() { String::new() } else { body.to_string() };
        self.executor.answer(FaultKind::ResponseLost, HttpResponse::new(gateway.unwrap_or(status), body)).await
    }

    /// Records a request that changes something. The first one of an attempt begins it.
    fn begin(&self, unit: &Arc<SimUnit>, attempt: u32, path: &str, request: &HttpRequest) -> Option<AttemptGuard> {
        let ledger = &self.executor.ledger;
        let key = (unit.key.clone(), attempt);
        self.count(&key);
        let known = lock(&self.state).attempts.get(&key).copied();
        if let Some(number) = known {
            ledger.state().attempts[number].requests += 1;
            if request.method == "POST" && path.starts_with(PLAIN) {
                ledger.report_violation(format!("{} #{attempt} is posted twice", unit.name));
            }
            return None;
        }
        let body: Map<String, Value> = serde_json::from_slice(&request.body).unwrap_or_default();
        let read = body.iter().filter(|(name, _)| *name != "name");
        let reads = read.filter_map(|(_, value)| value.as_str().map(str::to_owned)).collect();
        let running = self.executor.begin(unit, unit.run(), attempt, AttemptReceiver::Server, false, reads);
        ledger.check_reads(running.number, "begins");
        lock(&self.state).attempts.insert(key, running.number);
        Some(running)
    }

    /// Returns the status if the provider refuses a change.
    fn refuses(&self) -> Option<u16> {
        let faults = &self.executor.faults;
        let conflict = faults.should_inject(FaultKind::ProviderConflicts).then_some(409);
        conflict.or_else(|| faults.should_inject(FaultKind::ProviderLocked).then_some(423))
    }

    fn create(&self, unit: &Arc<SimUnit>, attempt: u32, path: &str, request: &HttpRequest) -> (u16, Value) {
        let SimExecutor { runtime, faults, ledger, .. } = self.executor.as_ref();
        if let Some(before) = ledger.waited_before(unit, attempt) {
            let name = &unit.name;
            ledger.report_violation(format!("{name} #{attempt} is posted, and #{} was answered", before.0));
        }
        if provider_token::is_foreign(request) {
            return (403, Value::Null);
        }
        if let Some(status) = self.refuses() {
            return (status, Value::Null);
        }
        let known = self.things(|_, thing| thing.unit.key == unit.key).pop();
        let ignores = || path.starts_with(PLAIN) && faults.should_inject(FaultKind::KeyIgnored);
        if let Some(id) = known.filter(|_| !ignores()) {
            return (200, self.description(&id));
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let number = {
            let mut state = lock(&self.state);
            state.created += 1;
            state.created
        };
        let (id, now) = (format!("{}.{number}", unit.key), runtime.elapsed());
        for (what, kind) in [(FAILS, FaultKind::CreationFails), (HANGS, FaultKind::CreationHangs)] {
            ledger.is_broken(&format!("{id} {what}"), || faults.should_inject(kind));
        }
        ledger.trace(|| format!("{} makes {id}", unit.name));
        let thing = SimThing {
            unit: Arc::clone(unit),
            name: body["name"].as_str().unwrap_or_default().to_owned(),
            number,
            ready_at: now + SLOWNESS * unit.millis,
            listed_at: now + self.executor.inject_below(FaultKind::ListedLate, LISTED_MS).unwrap_or(0),
            hidden_until: 0,
            is_seen: false,
            gone_at: None,
        };
        {
            let mut state = ledger.state();
            if unit.effect != UnitEffect::Nothing {
                state.objects.insert(id.clone(), SimObject { unit: Arc::clone(unit), unreported: false });
            }
            state.things.insert(id.clone(), thing);
        }
        (201, self.description(&id))
    }

    /// Deletes what an id or a name stands for: all things of a name.
    fn delete(&self, undo: &Arc<SimUnit>, path: &str, request: &HttpRequest) -> (u16, Value) {
        let SimExecutor { runtime, faults, ledger, .. } = self.executor.as_ref();
        ledger.check_undone(undo, "begins");
        if provider_token::is_foreign(request) {
            return (404, Value::Null);
        }
        let ids = self.addressed(path);
        for id in &ids {
            self.change(id, |thing| thing.listed_at = 0);
        }
        if ids.is_empty() || ids.iter().any(|id| self.hides(id)) {
            return (404, Value::Null);
        }
        for id in &ids {
            self.change(id, |thing| thing.is_seen = true);
        }
        if let Some(status) = self.refuses() {
            return (status, Value::Null);
        }
        for id in &ids {
            let Some(thing) = ledger.state().things.get(id).cloned() else { continue };
            if path.ends_with(id) && !undo.undoes.contains(&thing.unit.key) {
                ledger.report_violation(format!("{} deletes {id} of {}", undo.name, thing.unit.name));
            }
            if thing.gone_at.is_some() {
                continue;
            }
            ledger.is_broken(&SimThing::stays(id), || faults.should_inject(FaultKind::DeletionHangs));
            let usual = if undo.millis <= QUICK_MS { 0 } else { SLOWNESS * undo.millis };
            let time = self.executor.inject_below(FaultKind::DeletionLate, DELETION_MS).unwrap_or(usual);
            self.change(id, |thing| thing.gone_at = Some(runtime.elapsed() + time));
        }
        ledger.settle_things();
        let is_gone = self.addressed(path).is_empty();
        (if is_gone { 204 } else { 202 }, Value::Null)
    }

    /// Answers a question: for the things whose names begin with a text, or for one thing.
    fn show(&self, unit: &SimUnit, attempt: u32, path: &str, request: &HttpRequest) -> (u16, Value) {
        let now = self.executor.runtime.elapsed();
        if provider_token::is_foreign(request) {
            return match path.contains("?name=") {
                true => (200, json!({ "things": [] })),
                false => {
                    self.poll(unit, attempt);
                    (404, Value::Null)
                }
            };
        }
        if let Some((_, name)) = path.split_once("?name=") {
            let listed = self.things(|_, thing| thing.name.starts_with(name) && thing.listed_at <= now);
            let listed: Vec<Value> = listed.iter().map(|id| self.description(id)).collect();
            return (200, json!({ "things": listed }));
        }
        self.poll(unit, attempt);
        let mut ids = self.addressed(path);
        if ids.iter().any(|id| self.hides(id)) {
            return (404, Value::Null);
        }
        // The newest thing of a name.
        let Some(id) = ids.pop() else { return (404, Value::Null) };
        if !unit.sets_up() {
            self.change(&id, |thing| thing.is_seen = true);
        }
        let description = self.description(&id);
        if description["state"] == "ready" {
            self.executor.ledger.state().ready.insert(id);
        }
        (200, description)
    }

    /// Returns true if the provider answers now as if a thing did not exist.
    fn hides(&self, id: &str) -> bool {
        let thing = self.executor.ledger.state().things.get(id).cloned();
        let Some(SimThing { hidden_until: mut until, .. }) = thing.filter(|thing| !thing.is_seen) else { return false };
        let hides = self.executor.is_away(FaultKind::ThingHidden, &mut until, HIDDEN_MS);
        self.change(id, |thing| thing.hidden_until = until);
        hides
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut SimThing)) {
        if let Some(thing) = self.executor.ledger.state().things.get_mut(id) {
            change(thing);
        }
    }

    /// Returns the ids of some things, the newest last.
    fn things(&self, is_wanted: impl Fn(&str, &SimThing) -> bool) -> Vec<String> {
        let state = self.executor.ledger.state();
        let wanted = state.things.iter().filter(|(id, thing)| is_wanted(id.as_str(), thing));
        let mut wanted: Vec<_> = wanted.map(|(id, thing)| (thing.number, id.clone())).collect();
        wanted.sort();
        wanted.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the ids of the things whose id or name is the last part of a path.
    fn addressed(&self, path: &str) -> Vec<String> {
        let address = path.rsplit('/').next().unwrap_or_default();
        self.things(|id, thing| id == address || thing.name == address)
    }

    fn description(&self, id: &str) -> Value {
        let SimExecutor { runtime, ledger, .. } = self.executor.as_ref();
        let Some(thing) = ledger.state().things.get(id).cloned() else { return Value::Null };
        let state = thing.state(ledger, id, runtime.elapsed());
        json!({"id": id, "name": thing.name, "state": state, "endpoint": (state == "ready").then_some(id)})
    }

    /// Counts a question for the state of a thing.
    fn poll(&self, unit: &SimUnit, attempt: u32) {
        let SimExecutor { runtime, faults, ledger, .. } = self.executor.as_ref();
        ledger.state().polls += 1;
        let (since, count, slept) = self.count(&(unit.key.clone(), attempt));
        let duplicates = faults.injected()[FaultKind::MessageDuplicated as usize];
        let minutes = (runtime.elapsed() - since).div_ceil(60_000);
        let most = REQUESTS + REQUESTS_PER_MINUTE * minutes + REQUESTS_PER_DUPLICATE * duplicates;
        if count == most + 1 {
            ledger.report_violation(format!("{} #{attempt} sends {count} requests since {since}", unit.name));
        }
        // A slow operation looks the same.
        if slept >= SLEEP_MS && !faults.has(FaultKind::SlowOperation) {
            ledger.report_violation(format!("an invocation waits {slept} ms for the state of {}", unit.name));
        }
    }

    /// Counts a request of an attempt. Returns the time of the first one, the number of requests, and the time since the
    /// last one if the same invocation has sent it.
    fn count(&self, key: &(String, u32)) -> (u64, u64, u64) {
        let (now, by) = (self.executor.runtime.elapsed(), self.executor.runtime.current());
        let mut state = lock(&self.state);
        let first = AttemptRequests { since: now, count: 0, last: (by, now) };
        let requests = state.requests.entry(key.clone()).or_insert(first);
        requests.count += 1;
        let (last, at) = std::mem::replace(&mut requests.last, (by, now));
        (requests.since, requests.count, if last == by { now - at } else { 0 })
    }
}
