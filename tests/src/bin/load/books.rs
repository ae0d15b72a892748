//! The other end: the server of the units, which answers 202 and calls back, and the platform. Both keep books.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_wire::sign::WEBHOOK_ID;
use ebb_wire::unit::{CALLBACK_TOKEN, IDEMPOTENCY_KEY};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::documents;

/// What a caller does.
pub(crate) enum Work {
    /// The platform creates a target.
    Create(usize),
    /// A unit has ended.
    CallBack { token: String, outputs: Value },
}

/// What one unit was asked for under.
#[derive(Debug, Default)]
struct Asked {
    ids: BTreeSet<String>,
    keys: BTreeSet<String>,
    times: u64,
}

#[derive(Default)]
struct Kept {
    asked: BTreeMap<(String, String), Asked>,
    ready: BTreeSet<String>,
    wrong: Vec<String>,
}

/// The units' server and the platform.
#[derive(Clone)]
pub(crate) struct Books {
    kept: Arc<Mutex<Kept>>,
    work: UnboundedSender<Work>,
}

impl Books {
    /// What is to be done goes to `work`.
    pub(crate) fn new(work: UnboundedSender<Work>) -> Self {
        Self { kept: Arc::default(), work }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Targets that the platform knows to be ready.
    pub(crate) fn ready(&self) -> usize {
        self.kept().ready.len()
    }

    /// Callbacks that are to be taken, each once.
    pub(crate) fn callbacks(&self) -> u64 {
        self.kept().asked.values().map(|asked| asked.ids.len() as u64).sum()
    }

    /// Requests to units' servers.
    pub(crate) fn requests(&self) -> u64 {
        self.kept().asked.values().map(|asked| asked.times).sum()
    }

    /// What is wrong with the books of so many targets.
    pub(crate) fn wrong(&self, targets: usize) -> Vec<String> {
        let kept = self.kept();
        let mut wrong = kept.wrong.clone();
        for target in (0..targets).map(documents::target) {
            if !kept.ready.contains(&target) {
                wrong.push(format!("{target}: the platform was not told that it is ready"));
            }
            for unit in documents::units() {
                let asked = kept.asked.get(&(target.clone(), unit.clone()));
                let found = asked.map_or((0, 0), |asked| (asked.ids.len(), asked.keys.len()));
                if found != (1, 1) {
                    wrong.push(format!(
                        "{target}: {unit} was asked for under {found:?} ids and keys: {asked:?}"
                    ));
                }
            }
        }
        wrong
    }

    fn unit(&self, request: &Request) -> u16 {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let unit = request.url.rsplit('/').next().unwrap_or_default();
        let target = body["target"].as_str().unwrap_or_default();
        let expected: Vec<String> =
            documents::read(unit).iter().map(|unit| documents::made(target, unit)).collect();
        let mut kept = self.kept();
        if body["read"] != json!(expected) {
            kept.wrong.push(format!("{target}: {unit} has read {}", body["read"]));
        }
        let asked = kept.asked.entry((target.to_owned(), unit.to_owned())).or_default();
        asked.times += 1;
        asked.keys.insert(header(request, IDEMPOTENCY_KEY));
        if asked.ids.insert(header(request, WEBHOOK_ID)) {
            let (token, outputs) =
                (header(request, CALLBACK_TOKEN), json!({"id": documents::made(target, unit)}));
            if self.work.send(Work::CallBack { token, outputs }).is_err() {
                kept.wrong.push(format!("{target}: {unit} was asked for when all was over"));
            }
        }
        202
    }

    fn outcome(&self, request: &Request) -> u16 {
        let event: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let name = event["data"]["name"].as_str().unwrap_or_default().to_owned();
        let mut kept = self.kept();
        match event["type"].as_str() {
            Some(ebb_wire::lifecycle::READY) => {
                kept.ready.insert(name);
            }
            other => kept.wrong.push(format!("{name}: the platform was told {other:?}")),
        }
        204
    }
}

fn header(request: &Request, name: &str) -> String {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

#[async_trait]
impl Call for Books {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let status = match request.url.contains("units.test") {
            true => self.unit(&request),
            false => self.outcome(&request),
        };
        Ok(Response { status, headers: Vec::new(), body: Vec::new() })
    }
}
