//! Foreign servers: those of webhook units, and the platform's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_wire::sign::WEBHOOK_ID;
use ebb_wire::unit::{ATTEMPT, CALLBACK_TOKEN};

use super::scenario::Kind;
use super::work::{Result as Ended, Work, callback_of};
use super::{Ledger, Random, Runtime};

#[derive(Clone)]
enum Stand {
    Running,
    Ended(Ended),
}

/// The server of webhook units. It knows a try by its `webhook-id` and does its work once.
pub struct Outside {
    work: Arc<Work>,
    stands: Arc<Mutex<BTreeMap<String, Stand>>>,
    random: Random,
    lost: u8,
}

/// A repeated request for work that runs looks for its end this often.
const LOOK_MS: u64 = 10;

impl Outside {
    pub(super) fn new(work: Arc<Work>, lost: u8) -> Self {
        let random = Random::new(work.scenario.seed ^ 0x0751);
        Self { work, stands: Arc::default(), random, lost }
    }

    fn stand(&self, id: &str) -> Option<Stand> {
        self.stands.lock().expect("no panic while it is held").get(id).cloned()
    }

    async fn end_of(&self, id: &str) -> Ended {
        loop {
            if let Some(Stand::Ended(ended)) = self.stand(id) {
                return ended;
            }
            self.work.runtime.sleep(LOOK_MS).await;
        }
    }

    fn begin(
        &self,
        name: &str,
        attempt: u32,
        id: &str,
        inputs: BTreeMap<String, String>,
    ) -> super::Task<Ended> {
        self.stands.lock().expect("no panic while it is held").insert(id.to_owned(), Stand::Running);
        let (work, stands) = (Arc::clone(&self.work), Arc::clone(&self.stands));
        let (name, id) = (name.to_owned(), id.to_owned());
        self.work.runtime.spawn(async move {
            let ended = work.perform(name, attempt, inputs).await;
            stands.lock().expect("no panic while it is held").insert(id, Stand::Ended(ended.clone()));
            ended
        })
    }
}

fn header(request: &Request, name: &str) -> String {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

fn response(status: u16, json: &serde_json::Value) -> Response {
    Response { status, headers: vec![], body: json.to_string().into_bytes() }
}

fn answer(ended: Ended) -> Response {
    match ended {
        Ok(outputs) => response(200, &outputs.into_iter().collect::<serde_json::Map<_, _>>().into()),
        Err(reason) => response(503, &reason.into()),
    }
}

#[async_trait]
impl Call for Outside {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let id = header(&request, WEBHOOK_ID);
        let attempt = header(&request, ATTEMPT).parse().unwrap_or(0);
        let token = header(&request, CALLBACK_TOKEN);
        let name = request.url.rsplit('/').next().unwrap_or_default().to_owned();
        if self.random.in_percent(self.lost) {
            return Err(CallError::Connect("as planned".to_owned()));
        }
        let body: BTreeMap<String, String> = serde_json::from_slice(&request.body).unwrap_or_default();
        let (kind, millis) = (self.work.part(&name).kind(), self.work.part(&name).millis());
        let seen = self.stand(&id);
        self.work.note_sent(&name, attempt, &body, seen.is_none());
        let timeout = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        match (kind, seen) {
            (_, Some(Stand::Ended(ended))) => Ok(answer(ended)),
            (Kind::Later, Some(Stand::Running)) => Ok(response(202, &"".into())),
            (Kind::Later, None) => {
                let (task, work) = (self.begin(&name, attempt, &id, body), Arc::clone(&self.work));
                self.work.runtime.spawn(async move {
                    let _active = super::ledger::Active::new(&work.ledger);
                    if let Some(ended) = task.await {
                        Arc::clone(&work).call_back(token, callback_of(&ended)).await;
                    }
                });
                Ok(response(202, &"".into()))
            }
            (Kind::AtOnce | Kind::Pod, Some(Stand::Running)) => Ok(answer(self.end_of(&id).await)),
            (Kind::AtOnce | Kind::Pod, None) => {
                let task = self.begin(&name, attempt, &id, body);
                if millis > timeout {
                    self.work.runtime.sleep(timeout).await;
                    return Err(CallError::Timeout(request.timeout));
                }
                match task.await {
                    Some(ended) => Ok(answer(ended)),
                    None => Err(CallError::Connect("the server died".to_owned())),
                }
            }
        }
    }
}

/// The platform's server: takes outcomes.
pub struct Platform {
    runtime: Runtime,
    ledger: Arc<Ledger>,
}

impl Platform {
    pub(super) fn new(runtime: Runtime, ledger: Arc<Ledger>) -> Self {
        Self { runtime, ledger }
    }
}

#[async_trait]
impl Call for Platform {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let event: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kind = event.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
        self.ledger.state().told.push((self.runtime.elapsed(), kind));
        Ok(Response { status: 204, headers: vec![], body: vec![] })
    }
}
