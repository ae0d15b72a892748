//! Foreign servers: those of webhook units, and the platform's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use ebb_egress::{CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_protocol::sign::WEBHOOK_ID;
use ebb_protocol::unit::{ATTEMPT, CALLBACK_TOKEN, IDEMPOTENCY_KEY};

use super::super::{FaultInjector, FaultKind, SimRuntime};
use super::executor::{SimExecutor, SimOutputs, callback_of, run_of};
use super::ledger::{AttemptReceiver, NotificationEntry, PendingPost, SimActivity, SimLedger};
use super::registry::UnitEffect;
use super::scenario::UnitAction;

#[derive(Clone)]
enum ServerAttempt {
    Running(usize),
    Ended(SimOutputs, usize),
}

/// What the servers of webhook units remember. They know an attempt by its `webhook-id` and do its work once.
#[derive(Clone, Default)]
pub(super) struct ServerMemory(Arc<Mutex<BTreeMap<String, ServerAttempt>>>);

/// The servers of webhook units.
pub(super) struct SimServers {
    executor: Arc<SimExecutor>,
    memory: ServerMemory,
}

/// A repeated request for work that runs looks for its end this often.
const POLL_MS: u64 = 50;
/// What gateways answer that have no answer of the server behind them.
const GATEWAY: [u16; 3] = [502, 503, 504];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

fn header(request: &HttpRequest, name: &str) -> String {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

fn response(status: u16, json: &serde_json::Value) -> HttpResponse {
    HttpResponse { status, headers: vec![], body: json.to_string().into_bytes() }
}

/// An answer's body has the same value under every name that a document may look for.
fn answer(ended: &SimOutputs) -> HttpResponse {
    match ended {
        Ok(outputs) => {
            let id = outputs.values().next().cloned().unwrap_or_default();
            response(200, &serde_json::json!({ "id": id, "endpoint": id }))
        }
        Err(reason) => response(503, &reason.clone().into()),
    }
}

impl SimServers {
    pub(super) fn new(executor: Arc<SimExecutor>, stands: &ServerMemory) -> Self {
        Self { executor, memory: stands.clone() }
    }

    fn stand(&self, id: &str) -> Option<ServerAttempt> {
        lock(&self.memory.0).get(id).cloned()
    }

    async fn end_of(&self, id: &str, until: u64) -> Option<SimOutputs> {
        while self.executor.runtime.elapsed() < until {
            if let Some(ServerAttempt::Ended(ended, _)) = self.stand(id) {
                return Some(ended);
            }
            self.executor.runtime.sleep(POLL_MS).await;
        }
        None
    }

    /// Begins the work of an attempt that is not known yet; gives its number.
    fn begin(&self, request: &HttpRequest, id: &str, way: UnitAction) -> Option<usize> {
        let part = self.executor.ledger.unit(&header(request, IDEMPOTENCY_KEY))?;
        let attempt = header(request, ATTEMPT).parse().ok()?;
        let body: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&request.body).unwrap_or_default();
        let reads = body.values().filter_map(|value| value.as_str().map(str::to_owned)).collect();
        let run = run_of(id.rsplit_once('-')?.0)?;
        // Whoever makes a new thing with each attempt has to say so in the end.
        let forgets =
            part.effect != UnitEffect::PerAttempt && self.executor.faults.should_inject(FaultKind::CallbackForgotten);
        let tells = way == UnitAction::Later && !forgets;
        let running = self.executor.begin(&part, run, attempt, AttemptReceiver::Server, tells, reads);
        let number = running.number();
        lock(&self.memory.0).insert(id.to_owned(), ServerAttempt::Running(number));
        let (work, stands, id) = (Arc::clone(&self.executor), self.memory.clone(), id.to_owned());
        let token = header(request, CALLBACK_TOKEN);
        self.executor.runtime.spawn(async move {
            let _active = SimActivity::new(&work.ledger);
            let ended = work.execute(running).await;
            lock(&stands.0).insert(id, ServerAttempt::Ended(ended.clone(), number));
            if tells {
                Arc::clone(&work).call_back(token.clone(), callback_of(&ended)).await;
                let makes = part.effect != UnitEffect::Nothing && !part.outputs.is_empty();
                if makes && ended.is_ok() && work.faults.should_inject(FaultKind::ResultsFlooded) {
                    work.flood(number, token).await;
                }
            }
        });
        Some(number)
    }

    /// Returns the number of the attempt that a request asks for. It begins here if it is not known yet.
    fn number(&self, request: &HttpRequest) -> Result<usize, CallError> {
        let id = header(request, WEBHOOK_ID);
        let unknown = || CallError::Refused(format!("no such unit: {}", request.url));
        match self.stand(&id) {
            Some(ServerAttempt::Running(number) | ServerAttempt::Ended(_, number)) => Ok(number),
            None => self.begin(request, &id, UnitAction::of_url(&request.url)).ok_or_else(unknown),
        }
    }

    /// Notes that the sender of an attempt's request gets no answer from its server.
    fn give_up(&self, number: usize) {
        self.executor.ledger.state().attempts[number].given_up = Some(self.executor.runtime.elapsed());
    }

    async fn take(&self, request: &HttpRequest) -> Result<(HttpResponse, usize), CallError> {
        let id = header(request, WEBHOOK_ID);
        let way = UnitAction::of_url(&request.url);
        let number = self.number(request)?;
        let again =
            || HttpResponse { headers: vec![("retry-after".to_owned(), "2".to_owned())], ..response(202, &"".into()) };
        let timeout = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        let response = match (way, self.stand(&id)) {
            (_, Some(ServerAttempt::Ended(ended, _))) => answer(&ended),
            (UnitAction::Later, _) => response(202, &"".into()),
            (UnitAction::Again, _) => again(),
            (UnitAction::Once | UnitAction::Pod, _) => {
                match self.end_of(&id, self.executor.runtime.elapsed() + timeout).await {
                    Some(ended) => answer(&ended),
                    None => {
                        self.give_up(number);
                        return Err(CallError::Timeout(request.timeout));
                    }
                }
            }
        };
        Ok((response, number))
    }
}

#[async_trait]
impl HttpCall for SimServers {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let faults = &self.executor.faults;
        if faults.should_inject(FaultKind::DeathBeforeCall) {
            self.executor.runtime.die().await;
        }
        if faults.should_inject(FaultKind::RequestLost) {
            return Err(CallError::Connect("as planned".to_owned()));
        }
        if faults.should_inject(FaultKind::ServerBusy) {
            let after = faults.random_below(FaultKind::ServerBusy, 5);
            let headers = vec![("retry-after".to_owned(), after.to_string())];
            return Ok(HttpResponse { headers, ..response(429, &"".into()) });
        }
        let _posted = PendingPost::new(&self.executor.ledger, header(&request, WEBHOOK_ID));
        if faults.should_inject(FaultKind::GatewayGivesUp) {
            let status = GATEWAY[faults.random_below(FaultKind::GatewayGivesUp, GATEWAY.len() as u64) as usize];
            let number = self.number(&request)?;
            self.executor.ledger.trace(|| format!("{status} for {}", header(&request, WEBHOOK_ID)));
            self.give_up(number);
            return Ok(response(status, &"".into()));
        }
        let (response, number) = self.take(&request).await?;
        if faults.should_inject(FaultKind::DeathAfterCall) {
            self.executor.runtime.die().await;
        }
        let per_try = self.executor.ledger.state().attempts[number].unit.effect == UnitEffect::PerAttempt;
        if faults.should_inject(FaultKind::ResponseLost) {
            self.executor.ledger.trace(|| format!("the answer of {} is lost", header(&request, WEBHOOK_ID)));
            self.give_up(number);
            return Err(CallError::Connect(format!("the answer was lost as planned {per_try}")));
        }
        Ok(response)
    }
}

/// The platform's server: takes notifications.
pub(super) struct SimPlatform {
    runtime: SimRuntime,
    ledger: Arc<SimLedger>,
    faults: Arc<FaultInjector>,
    away_until: Arc<Mutex<u64>>,
}

/// How long it may be away, in milliseconds.
const AWAY_MS: u64 = 300_000;

impl SimPlatform {
    pub(super) fn new(work: &SimExecutor, away_until: &Arc<Mutex<u64>>) -> Self {
        Self {
            runtime: work.runtime.clone(),
            ledger: Arc::clone(&work.ledger),
            faults: Arc::clone(&work.faults),
            away_until: Arc::clone(away_until),
        }
    }
}

/// A time of RFC 3339 with all its milliseconds, so that times can be compared as text.
fn padded(time: &str) -> String {
    let time = time.trim_end_matches('Z');
    let (seconds, millis) = time.split_once('.').unwrap_or((time, ""));
    format!("{seconds}.{millis:0<3}")
}

fn told(request: &HttpRequest, at: u64) -> Option<NotificationEntry> {
    let event: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let (time, kind) = (padded(&text(event.get("time")?)?), text(event.get("type")?)?);
    Some(NotificationEntry { at, time, kind, uid: text(event.get("data")?.get("uid")?)? })
}

#[async_trait]
impl HttpCall for SimPlatform {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        if self.faults.should_inject(FaultKind::DeathBeforeCall) {
            self.runtime.die().await;
        }
        let now = self.runtime.elapsed();
        let away = {
            let mut away_until = lock(&self.away_until);
            if now >= *away_until && self.faults.should_inject(FaultKind::PlatformAway) {
                *away_until = now + self.faults.random_below(FaultKind::PlatformAway, AWAY_MS);
            }
            now < *away_until
        };
        if away || self.faults.should_inject(FaultKind::PlatformRefuses) {
            return Ok(response(503, &"".into()));
        }
        match told(&request, now) {
            Some(told) => {
                self.ledger.trace(|| format!("told {told:?}"));
                self.ledger.state().notifications.push(told);
            }
            None => self
                .ledger
                .report_violation(format!("the platform cannot read {}", String::from_utf8_lossy(&request.body))),
        }
        if self.faults.should_inject(FaultKind::DeathAfterCall) {
            self.runtime.die().await;
        }
        if self.faults.should_inject(FaultKind::PlatformAnswerLost) {
            return Err(CallError::Connect("the answer was lost as planned".to_owned()));
        }
        Ok(HttpResponse { status: 204, headers: vec![], body: vec![] })
    }
}
