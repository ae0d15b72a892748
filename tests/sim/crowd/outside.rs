//! Foreign servers: those of webhook units, and the platform's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_wire::sign::WEBHOOK_ID;
use ebb_wire::unit::{ATTEMPT, CALLBACK_TOKEN, IDEMPOTENCY_KEY};

use super::super::{Mishap, Mishaps, Runtime};
use super::books::{Active, Books, Posted, Receiver, Told};
use super::cast::Makes;
use super::design::Way;
use super::work::{Ended, Work, callback_of, run_of};

#[derive(Clone)]
enum Stand {
    Running(usize),
    Ended(Ended, usize),
}

/// What the servers of webhook units remember. They know a try by its `webhook-id` and do its work once.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<BTreeMap<String, Stand>>>);

/// The servers of webhook units.
pub(super) struct Outside {
    work: Arc<Work>,
    stands: Shared,
}

/// A repeated request for work that runs looks for its end this often.
const LOOK_MS: u64 = 50;
/// What gateways answer that have no answer of the server behind them.
const GATEWAY: [u16; 3] = [502, 503, 504];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

fn header(request: &Request, name: &str) -> String {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

fn response(status: u16, json: &serde_json::Value) -> Response {
    Response { status, headers: vec![], body: json.to_string().into_bytes() }
}

/// An answer's body has the same value under every name that a document may look for.
fn answer(ended: &Ended) -> Response {
    match ended {
        Ok(outputs) => {
            let id = outputs.values().next().cloned().unwrap_or_default();
            response(200, &serde_json::json!({ "id": id, "endpoint": id }))
        }
        Err(reason) => response(503, &reason.clone().into()),
    }
}

impl Outside {
    pub(super) fn new(work: Arc<Work>, stands: &Shared) -> Self {
        Self { work, stands: stands.clone() }
    }

    fn stand(&self, id: &str) -> Option<Stand> {
        lock(&self.stands.0).get(id).cloned()
    }

    async fn end_of(&self, id: &str, until: u64) -> Option<Ended> {
        while self.work.runtime.elapsed() < until {
            if let Some(Stand::Ended(ended, _)) = self.stand(id) {
                return Some(ended);
            }
            self.work.runtime.sleep(LOOK_MS).await;
        }
        None
    }

    /// Begins the work of a try that is not known yet; gives its number.
    fn begin(&self, request: &Request, id: &str, way: Way) -> Option<usize> {
        let part = self.work.books.part(&header(request, IDEMPOTENCY_KEY))?;
        let attempt = header(request, ATTEMPT).parse().ok()?;
        let body: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&request.body).unwrap_or_default();
        let reads = body.values().filter_map(|value| value.as_str().map(str::to_owned)).collect();
        let run = run_of(id.rsplit_once('-')?.0)?;
        // Whoever makes a new thing with each try has to say so in the end.
        let forgets = part.makes != Makes::PerTry && self.work.mishaps.strikes(Mishap::CallbackForgotten);
        let tells = way == Way::Later && !forgets;
        let running = self.work.begin(&part, run, attempt, Receiver::Server, tells, reads);
        let number = running.number();
        lock(&self.stands.0).insert(id.to_owned(), Stand::Running(number));
        let (work, stands, id) = (Arc::clone(&self.work), self.stands.clone(), id.to_owned());
        let token = header(request, CALLBACK_TOKEN);
        self.work.runtime.spawn(async move {
            let _active = Active::new(&work.books);
            let ended = work.perform(running).await;
            lock(&stands.0).insert(id, Stand::Ended(ended.clone(), number));
            if tells {
                Arc::clone(&work).call_back(token.clone(), callback_of(&ended)).await;
                let makes = part.makes != Makes::Nothing && !part.outputs.is_empty();
                if makes && ended.is_ok() && work.mishaps.strikes(Mishap::ResultsFlooded) {
                    work.flood(number, token).await;
                }
            }
        });
        Some(number)
    }

    /// Returns the number of the try that a request asks for. It begins here if it is not known yet.
    fn number(&self, request: &Request) -> Result<usize, CallError> {
        let id = header(request, WEBHOOK_ID);
        let unknown = || CallError::Refused(format!("no such unit: {}", request.url));
        match self.stand(&id) {
            Some(Stand::Running(number) | Stand::Ended(_, number)) => Ok(number),
            None => self.begin(request, &id, Way::of_url(&request.url)).ok_or_else(unknown),
        }
    }

    /// Notes that the sender of a try's request gets no answer from its server.
    fn give_up(&self, number: usize) {
        self.work.books.state().tries[number].given_up = Some(self.work.runtime.elapsed());
    }

    async fn take(&self, request: &Request) -> Result<(Response, usize), CallError> {
        let id = header(request, WEBHOOK_ID);
        let way = Way::of_url(&request.url);
        let number = self.number(request)?;
        let again = || Response {
            headers: vec![("retry-after".to_owned(), "2".to_owned())],
            ..response(202, &"".into())
        };
        let timeout = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        let response = match (way, self.stand(&id)) {
            (_, Some(Stand::Ended(ended, _))) => answer(&ended),
            (Way::Later, _) => response(202, &"".into()),
            (Way::Again, _) => again(),
            (Way::Once | Way::Pod, _) => {
                match self.end_of(&id, self.work.runtime.elapsed() + timeout).await {
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
impl Call for Outside {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let mishaps = &self.work.mishaps;
        if mishaps.strikes(Mishap::DeathBeforeCall) {
            self.work.runtime.die().await;
        }
        if mishaps.strikes(Mishap::RequestLost) {
            return Err(CallError::Connect("as planned".to_owned()));
        }
        if mishaps.strikes(Mishap::ServerBusy) {
            let after = mishaps.below(Mishap::ServerBusy, 5);
            let headers = vec![("retry-after".to_owned(), after.to_string())];
            return Ok(Response { headers, ..response(429, &"".into()) });
        }
        let _posted = Posted::new(&self.work.books, header(&request, WEBHOOK_ID));
        if mishaps.strikes(Mishap::GatewayGivesUp) {
            let status = GATEWAY[mishaps.below(Mishap::GatewayGivesUp, GATEWAY.len() as u64) as usize];
            let number = self.number(&request)?;
            self.work.books.tell(|| format!("{status} for {}", header(&request, WEBHOOK_ID)));
            self.give_up(number);
            return Ok(response(status, &"".into()));
        }
        let (response, number) = self.take(&request).await?;
        if mishaps.strikes(Mishap::DeathAfterCall) {
            self.work.runtime.die().await;
        }
        let per_try = self.work.books.state().tries[number].part.makes == Makes::PerTry;
        if mishaps.strikes(Mishap::ResponseLost) {
            self.work.books.tell(|| format!("the answer of {} is lost", header(&request, WEBHOOK_ID)));
            self.give_up(number);
            return Err(CallError::Connect(format!("the answer was lost as planned {per_try}")));
        }
        Ok(response)
    }
}

/// The platform's server: takes outcomes.
pub(super) struct Platform {
    runtime: Runtime,
    books: Arc<Books>,
    mishaps: Arc<Mishaps>,
    away_until: Arc<Mutex<u64>>,
}

/// How long it may be away, in milliseconds.
const AWAY_MS: u64 = 300_000;

impl Platform {
    pub(super) fn new(work: &Work, away_until: &Arc<Mutex<u64>>) -> Self {
        Self {
            runtime: work.runtime.clone(),
            books: Arc::clone(&work.books),
            mishaps: Arc::clone(&work.mishaps),
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

fn told(request: &Request, at: u64) -> Option<Told> {
    let event: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let (time, kind) = (padded(&text(event.get("time")?)?), text(event.get("type")?)?);
    Some(Told { at, time, kind, uid: text(event.get("data")?.get("uid")?)? })
}

#[async_trait]
impl Call for Platform {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        if self.mishaps.strikes(Mishap::DeathBeforeCall) {
            self.runtime.die().await;
        }
        let now = self.runtime.elapsed();
        let away = {
            let mut away_until = lock(&self.away_until);
            if now >= *away_until && self.mishaps.strikes(Mishap::PlatformAway) {
                *away_until = now + self.mishaps.below(Mishap::PlatformAway, AWAY_MS);
            }
            now < *away_until
        };
        if away || self.mishaps.strikes(Mishap::PlatformRefuses) {
            return Ok(response(503, &"".into()));
        }
        match told(&request, now) {
            Some(told) => {
                self.books.tell(|| format!("told {told:?}"));
                self.books.state().told.push(told);
            }
            None => self
                .books
                .blame(format!("the platform cannot read {}", String::from_utf8_lossy(&request.body))),
        }
        if self.mishaps.strikes(Mishap::DeathAfterCall) {
            self.runtime.die().await;
        }
        if self.mishaps.strikes(Mishap::PlatformAnswerLost) {
            return Err(CallError::Connect("the answer was lost as planned".to_owned()));
        }
        Ok(Response { status: 204, headers: vec![], body: vec![] })
    }
}
