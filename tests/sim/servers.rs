//! Foreign servers: those of webhook units, and the platform's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_egress::{CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_protocol::sign::WEBHOOK_ID;
use ebb_protocol::unit::{ATTEMPT, CALLBACK_TOKEN};

use super::executor::{ScenarioExecutor, ScenarioOutputs as Ended, callback_of};
use super::scenario::ScenarioAction;
use super::{Ledger, SimRandom, SimRuntime};

#[derive(Clone)]
enum ScenarioAttempt {
    Running,
    Ended(Ended),
}

/// The server of webhook units. It knows an attempt by its `webhook-id` and does its work once.
pub struct ScenarioServer {
    executor: Arc<ScenarioExecutor>,
    attempts: Arc<Mutex<BTreeMap<String, ScenarioAttempt>>>,
    random: SimRandom,
    lost: u8,
}

/// A repeated request for work that runs looks for its end this often.
const POLL_MS: u64 = 10;

impl ScenarioServer {
    pub(super) fn new(executor: Arc<ScenarioExecutor>, lost: u8) -> Self {
        let random = SimRandom::new(executor.scenario.seed ^ 0x0751);
        Self { executor, attempts: Arc::default(), random, lost }
    }

    fn stand(&self, id: &str) -> Option<ScenarioAttempt> {
        self.attempts.lock().expect("no panic while it is held").get(id).cloned()
    }

    async fn end_of(&self, id: &str) -> Ended {
        loop {
            if let Some(ScenarioAttempt::Ended(ended)) = self.stand(id) {
                return ended;
            }
            self.executor.runtime.sleep(POLL_MS).await;
        }
    }

    fn begin(&self, name: &str, attempt: u32, id: &str, inputs: BTreeMap<String, String>) -> super::SimTask<Ended> {
        self.attempts.lock().expect("no panic while it is held").insert(id.to_owned(), ScenarioAttempt::Running);
        let (work, stands) = (Arc::clone(&self.executor), Arc::clone(&self.attempts));
        let (name, id) = (name.to_owned(), id.to_owned());
        self.executor.runtime.spawn(async move {
            let ended = work.execute(name, attempt, inputs).await;
            stands.lock().expect("no panic while it is held").insert(id, ScenarioAttempt::Ended(ended.clone()));
            ended
        })
    }
}

fn header(request: &HttpRequest, name: &str) -> String {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

fn response(status: u16, json: &serde_json::Value) -> HttpResponse {
    HttpResponse { status, headers: vec![], body: json.to_string().into_bytes() }
}

fn answer(ended: Ended) -> HttpResponse {
    match ended {
        Ok(outputs) => response(200, &outputs.into_iter().collect::<serde_json::Map<_, _>>().into()),
        Err(reason) => response(503, &reason.into()),
    }
}

#[async_trait]
impl HttpCall for ScenarioServer {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let id = header(&request, WEBHOOK_ID);
        let attempt = header(&request, ATTEMPT).parse().unwrap_or(0);
        let token = header(&request, CALLBACK_TOKEN);
        let name = request.url.rsplit('/').next().unwrap_or_default().to_owned();
        if self.random.in_percent(self.lost) {
            return Err(CallError::Connect("as planned".to_owned()));
        }
        let body: BTreeMap<String, String> = serde_json::from_slice(&request.body).unwrap_or_default();
        let (kind, millis) = (self.executor.unit(&name).kind(), self.executor.unit(&name).millis());
        let seen = self.stand(&id);
        self.executor.note_sent(&name, attempt, &body, seen.is_none());
        let timeout = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        match (kind, seen) {
            (_, Some(ScenarioAttempt::Ended(ended))) => Ok(answer(ended)),
            (ScenarioAction::Later, Some(ScenarioAttempt::Running)) => Ok(response(202, &"".into())),
            (ScenarioAction::Later, None) => {
                let (task, work) = (self.begin(&name, attempt, &id, body), Arc::clone(&self.executor));
                self.executor.runtime.spawn(async move {
                    let _active = super::ledger::ActiveGuard::new(&work.ledger);
                    if let Some(ended) = task.await {
                        Arc::clone(&work).call_back(token, callback_of(&ended)).await;
                    }
                });
                Ok(response(202, &"".into()))
            }
            (ScenarioAction::AtOnce | ScenarioAction::Pod, Some(ScenarioAttempt::Running)) => {
                Ok(answer(self.end_of(&id).await))
            }
            (ScenarioAction::AtOnce | ScenarioAction::Pod, None) => {
                let task = self.begin(&name, attempt, &id, body);
                if millis > timeout {
                    self.executor.runtime.sleep(timeout).await;
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

/// The platform's server: takes notifications.
pub struct ScenarioPlatform {
    runtime: SimRuntime,
    ledger: Arc<Ledger>,
}

impl ScenarioPlatform {
    pub(super) fn new(runtime: SimRuntime, ledger: Arc<Ledger>) -> Self {
        Self { runtime, ledger }
    }
}

#[async_trait]
impl HttpCall for ScenarioPlatform {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let event: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kind = event.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
        self.ledger.state().notifications.push((self.runtime.elapsed(), kind));
        Ok(HttpResponse { status: 204, headers: vec![], body: vec![] })
    }
}
