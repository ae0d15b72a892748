//! A provider: an API that creates and deletes things asynchronously, and knows nothing of Ebb.
//!
//! The answers of a provider are all that a client can know. This one keeps these rules, so that they suffice:
//!
//! 1. A thing exists from the arrival of the request that creates it. 4xx means that the request has created nothing.
//! 2. A list shows a thing less than [`LISTED_MS`] after its creation, and from the first request that finds it for its deletion
//!    on. Until then, requests may find nothing. Plugins name this time as `maxProcessingTime`.
//! 3. The answer 204 to a `DELETE` means that the thing is gone, 202 that it will be gone. Until then, each question
//!    shows it. An answer with an error says nothing, even with the status 200.
//! 4. A thing is hidden only until a unit of the teardown has got an answer other than 404 for it. Things of one name are
//!    hidden together. A list shows also what is hidden.
//! 5. A request with an access token that is over is answered 401, one beyond a limit 429 or 403. It changes nothing.

use serde_json::Map;

use super::*;

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
/// The longest time for which requests are limited: 4 attempts take longer.
const LIMITED_MS: u64 = 60_000;
/// The most requests of an attempt: these, and so many in a minute of its wait. Plugins let the pause between two
/// questions grow to a minute. Faults repeat some of them.
const REQUESTS: u64 = 24;
const REQUESTS_PER_MINUTE: u64 = 4;
/// The most questions that follow from a message that is delivered twice, until the next sweep.
const REQUESTS_PER_DUPLICATE: u64 = 10;
/// Two requests of one attempt by one invocation with this distance mean that it has slept.
const SLEEP_MS: u64 = 1_000;

/// Returns true if a request has the credential of a connection, and so a plugin that knows answers with errors.
fn is_connected(request: &HttpRequest) -> bool {
    !header(request, "authorization").is_empty()
}

/// Returns the connection to the provider for the plugins with these names, if there are any. A fault decides about its
/// scheme.
pub(super) fn connection(plugins: &[String], scheme: Option<FaultKind>, slots: Option<usize>) -> Option<NamedDocument> {
    let auth = match scheme {
        Some(FaultKind::TokenExpires) => {
            format!("oauth: {{tokenUrl: {TOKENS}, method: post, clientId: {USER}, secret: {TOKEN}}}")
        }
        Some(FaultKind::DigestChallenged) => format!("digest: {{username: {USER}, secret: {TOKEN}}}"),
        Some(_) => format!("sigv4: {{accessKeyId: {USER}, secret: {TOKEN}, region: {USER}, service: {USER}}}"),
        None => format!("bearer: {{secret: {TOKEN}}}"),
    };
    let slots = slots.map(|slots| format!("maxConcurrent: {slots}\n")).unwrap_or_default();
    let rest = format!("origin: {ORIGIN}\nauth: {{{auth}}}\n{slots}plugins: [{}]\n", plugins.join(", "));
    (!plugins.is_empty()).then(|| receivers::stored_document("Connection", CONNECTION, &rest))
}

#[derive(Clone, Debug)]
pub(super) struct SimThing {
    pub(super) unit: Arc<SimUnit>,
    /// The attempt that has made it.
    pub(super) attempt: u32,
    name: String,
    /// Rises with each thing.
    number: u64,
    ready_at: u64,
    listed_at: u64,
    /// False if requests for the thing do not find it before it is listed.
    is_found: bool,
    hidden_until: u64,
    /// True if a unit of the teardown has got an answer that shows it.
    is_seen: bool,
    /// The number of its parts, if its plugin deletes them.
    parts: Option<u64>,
    /// The end of its deletion, which has begun.
    pub(super) gone_at: Option<u64>,
}

/// What lasts until a response has arrived.
type OpenRequest = (Option<SimGuard>, Option<AttemptGuard>);

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
pub(super) struct ProviderState {
    created: u64,
    /// The attempts that have sent a request other than a question, by idempotency key and number.
    attempts: BTreeMap<(String, u32), usize>,
    requests: BTreeMap<(String, u32), AttemptRequests>,
    limited_until: u64,
    tokens: SimAccessTokens,
    challenges: SimChallenges,
}

pub(super) struct SimProvider {
    pub(super) executor: Arc<SimExecutor>,
    pub(super) state: Mutex<ProviderState>,
}

impl SimProvider {
    /// Returns the response to a request for `path`, which has arrived.
    pub(super) async fn respond(&self, path: &str, mut request: HttpRequest) -> CallResult<HttpResponse> {
        let (response, _running) = match self.before(path, &mut request) {
            Some(response) => (response, None),
            None => self.act(path, &request).map(|(response, running)| (response, Some(running)))?,
        };
        self.executor.runtime.sleep(RESPONSE_MS).await;
        let response = gateway_status(&self.executor).map_or(response, |status| HttpResponse::new(status, ""));
        self.executor.answer(FaultKind::ResponseLost, response).await
    }

    /// Returns the response to a request for an access token, and to one that the provider does not process. Any other one
    /// then names its project.
    fn before(&self, path: &str, request: &mut HttpRequest) -> Option<HttpResponse> {
        let runtime = &self.executor.runtime;
        let mut state = lock(&self.state);
        if path == TOKENS {
            return Some(state.tokens.grant(&self.executor, request));
        }
        if self.executor.is_away(FaultKind::RequestsLimited, &mut state.limited_until, LIMITED_MS) {
            let wait = (state.limited_until - runtime.elapsed()).div_ceil(1_000);
            // The statement differs from time to time.
            let (status, stated) = match runtime.elapsed() / RESPONSE_MS % 3 {
                0 => (429, vec![]),
                1 => (429, vec![("retry-after", wait)]),
                _ => {
                    let reset = runtime.now().0.div_ceil(1_000) + wait;
                    (403, vec![("x-ratelimit-remaining", 0), ("x-ratelimit-reset", reset)])
                }
            };
            let headers = stated.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
            return Some(HttpResponse { headers, ..HttpResponse::new(status, "") });
        }
        let is_over = state.tokens.is_over(&self.executor, request).then(|| HttpResponse::new(401, ""));
        is_over.or_else(|| state.challenges.authenticate(&self.executor, path, request))
    }

    /// Processes a request. Returns its response, and what lasts until the response has arrived.
    fn act(&self, path: &str, request: &HttpRequest) -> CallResult<(HttpResponse, OpenRequest)> {
        let SimExecutor { runtime, ledger, .. } = self.executor.as_ref();
        let refused = || CallError::Refused(format!("no such unit: {}", request.url));
        let unit = ledger.unit(&header(request, IDEMPOTENCY_KEY)).ok_or_else(refused)?;
        let attempt: u32 = header(request, ATTEMPT).parse().map_err(|_| refused())?;
        ledger.settle_things();
        let changes = request.method != "GET";
        let posted = changes.then(|| ledger.post(format!("{}-{}-{attempt}", unit.run(), unit.unit)));
        let running = if changes { self.begin(&unit, attempt, path, request) } else { None };
        let (status, mut body) = match request.method.as_str() {
            "POST" => self.distort(request, self.create(&unit, attempt, path, request)),
            "DELETE" => self.distort(request, self.delete(&unit, path, request)),
            _ => self.show(&unit, attempt, path, request),
        };
        let headers = self.page(path, &mut body);
        ledger.trace(|| format!("{status} for {} {path} of {} #{attempt}", request.method, unit.name));
        if let Some(running) = &running {
            let is_success = status < 400 && body.get("error").is_none();
            ledger.state().attempts[running.number].result = Some((runtime.elapsed(), is_success));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Ok((HttpResponse { headers, ..HttpResponse::new(status, body) }, (posted, running)))
    }

    /// Returns the headers of a list. The first one of two pages has no thing of the own project.
    fn page(&self, path: &str, body: &mut Value) -> Vec<(String, String)> {
        let is_first = body.get("things").is_some() && !path.contains('&');
        if !is_first || !self.executor.faults.should_inject(FaultKind::ListPaged) {
            return Vec::new();
        }
        *body = json!({ "things": [{"id": "other.1", "name": "other", "state": "ready"}] });
        if path.starts_with(NAMED) {
            body["has_more"] = true.into();
            body["next_cursor"] = "2".into();
            return Vec::new();
        }
        vec![("link".to_owned(), format!("<{path}&page=2>; rel=\"next\""))]
    }

    /// Returns another answer to a change that the provider has made, by its faults.
    fn distort(&self, request: &HttpRequest, (status, mut body): (u16, Value)) -> (u16, Value) {
        let faults = &self.executor.faults;
        if status >= 300 || body.get("error").is_some() {
            return (status, body);
        }
        if faults.should_inject(FaultKind::FailsAfterChange) {
            return (500, Value::Null);
        }
        if is_connected(request) && faults.should_inject(FaultKind::ErrorAfterChange) {
            return (200, json!({ "error": "something went wrong after the change" }));
        }
        let lacks_id = request.method == "POST" && faults.should_inject(FaultKind::IdMissing);
        if let Some(body) = body.as_object_mut().filter(|_| lacks_id) {
            body.remove("id");
        }
        (status, body)
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
        let reads = body.iter().filter(|(name, _)| *name != "name").flat_map(|(_, value)| texts_of(value)).collect();
        let running = self.executor.begin(unit, unit.run(), attempt, AttemptReceiver::Server, false, reads);
        ledger.check_reads(running.number, "begins");
        lock(&self.state).attempts.insert(key, running.number);
        Some(running)
    }

    /// Returns the answer if the provider refuses a change.
    fn refuses(&self, request: &HttpRequest) -> Option<(u16, Value)> {
        let faults = &self.executor.faults;
        let conflict = faults.should_inject(FaultKind::ProviderConflicts).then_some((409, Value::Null));
        let refused =
            conflict.or_else(|| faults.should_inject(FaultKind::ProviderLocked).then_some((423, Value::Null)));
        let fails = || is_connected(request) && faults.should_inject(FaultKind::ErrorReported);
        refused.or_else(|| fails().then(|| (200, json!({ "error": "nothing was changed" }))))
    }

    fn create(&self, unit: &Arc<SimUnit>, attempt: u32, path: &str, request: &HttpRequest) -> (u16, Value) {
        let SimExecutor { runtime, faults, ledger, .. } = self.executor.as_ref();
        if let Some(before) = ledger.made_before(unit, attempt) {
            let name = &unit.name;
            ledger.report_violation(format!("{name} #{attempt} is posted, and #{} has made a thing", before.0));
        }
        if provider_token::is_foreign(request) {
            return (403, Value::Null);
        }
        if let Some(refused) = self.refuses(request) {
            return refused;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        let item = unit.plan.entry.as_ref().and_then(|entry| entry.item.as_str());
        if item.is_some_and(|item| !name.ends_with(&format!("-{item}"))) {
            ledger.report_violation(format!("{} makes {name}, which is the thing of another entry", unit.name));
        }
        let is_named = path.starts_with(NAMED);
        let known =
            self.things(|_, thing| if is_named { thing.name == name } else { thing.unit.key == unit.key }).pop();
        let ignores = || path.starts_with(PLAIN) && faults.should_inject(FaultKind::KeyIgnored);
        match known {
            Some(_) if is_named => return (409, Value::Null),
            Some(id) if !ignores() => return (200, self.description(&id)),
            _ => {}
        }
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
        let missing = |most| self.executor.inject_below(FaultKind::ThingHasParts, most);
        let parts = |most| missing(most).map_or(0, |missing| most - missing);
        let thing = SimThing {
            unit: Arc::clone(unit),
            attempt,
            name,
            number,
            ready_at: now + SLOWNESS * unit.millis,
            listed_at: now + self.executor.inject_below(FaultKind::ListedLate, LISTED_MS).unwrap_or(0),
            is_found: !faults.should_inject(FaultKind::FoundLate),
            hidden_until: 0,
            is_seen: false,
            parts: body["parts"].as_u64().map(parts),
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

    /// Deletes what an id or a name stands for: all things of a name, or a part of each and those after it.
    fn delete(&self, undo: &Arc<SimUnit>, path: &str, request: &HttpRequest) -> (u16, Value) {
        let SimExecutor { runtime, faults, ledger, .. } = self.executor.as_ref();
        ledger.check_undone(undo, "begins");
        if provider_token::is_foreign(request) {
            return (404, Value::Null);
        }
        let (path, part) = path.split_once("/parts/").map_or((path, None), |(path, part)| (path, part.parse().ok()));
        let mut ids = self.addressed(path);
        ids.retain(|id| self.is_found(id));
        for id in &ids {
            self.change(id, |thing| thing.listed_at = 0);
        }
        if ids.is_empty() || ids.iter().any(|id| self.hides(id)) {
            return (404, Value::Null);
        }
        for id in &ids {
            self.change(id, |thing| thing.is_seen = true);
        }
        if let Some(refused) = self.refuses(request) {
            return refused;
        }
        if let Some(part) = part {
            ids.iter().for_each(|id| self.change(id, |thing| thing.parts = thing.parts.min(Some(part))));
            return (204, Value::Null);
        }
        let has_parts = |_: &str, thing: &SimThing| thing.parts > Some(0);
        if self.things(has_parts).iter().any(|id| ids.contains(id)) {
            return (409, Value::Null);
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
            let name = name.split('&').next().unwrap_or_default();
            let listed = self.things(|_, thing| thing.name.starts_with(name) && thing.listed_at <= now);
            let listed: Vec<Value> = listed.iter().map(|id| self.description(id)).collect();
            return (200, json!({ "things": listed }));
        }
        self.poll(unit, attempt);
        let mut ids = self.addressed(path);
        ids.retain(|id| self.is_found(id));
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

    fn is_found(&self, id: &str) -> bool {
        let now = self.executor.runtime.elapsed();
        let state = self.executor.ledger.state();
        state.things.get(id).is_none_or(|thing| thing.is_found || thing.is_seen || thing.listed_at <= now)
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
        let endpoint = (state == "ready").then_some(id);
        let mut description = json!({"id": id, "name": thing.name, "state": state, "endpoint": endpoint});
        if let Some(parts) = thing.parts {
            description["parts"] = (0..parts).rev().collect();
        }
        description
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
