//! Who is not part of what is stored: the units' server, the platform, a cluster's relay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::Timestamp;
use ebb_flow::cluster::PostOffice;
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_wire::mail::{Mail, Outcome, Poll, Reply};
use ebb_wire::relay::{Answer, Answers, Batch, Request as Verb, WorkState};
use ebb_wire::seal;
use ebb_wire::sign::{self, Keys, MessageId, Secret};
use ebb_wire::unit::{ATTEMPT, CALLBACK_TOKEN};
use serde_json::{Value, json};

/// A request to a unit's server.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) body: Value,
    pub(crate) attempt: String,
    token: String,
}

#[derive(Default)]
struct Seen {
    /// What is answered instead of 200, by target and unit.
    answers: BTreeMap<String, u16>,
    /// After how many seconds that is to be asked again.
    again: BTreeMap<String, u64>,
    asked: BTreeMap<String, Vec<Asked>>,
    told: Vec<String>,
    /// What the relay was asked for.
    verbs: Vec<String>,
    /// Works that it was to begin, whole.
    works: Vec<(String, String)>,
    tokens: BTreeMap<String, String>,
}

/// The units' server, the platform and the relay.
#[derive(Clone, Default)]
pub(crate) struct Outside(Arc<Mutex<Seen>>);

impl Outside {
    /// From now on `what` (`TARGET UNIT`, or `TARGET` for the platform) is answered so.
    pub(crate) fn answer(&self, what: &str, status: u16) {
        self.0.lock().unwrap().answers.insert(what.to_owned(), status);
    }

    /// From now on `what` is answered 202, to be asked again in so many seconds.
    pub(crate) fn again(&self, what: &str, seconds: u64) {
        self.answer(what, 202);
        self.0.lock().unwrap().again.insert(what.to_owned(), seconds);
    }

    /// The requests for a unit of a target.
    pub(crate) fn asked(&self, what: &str) -> Vec<Asked> {
        self.0.lock().unwrap().asked.get(what).cloned().unwrap_or_default()
    }

    /// `TARGET TYPE`, in order.
    pub(crate) fn told(&self) -> Vec<String> {
        self.0.lock().unwrap().told.clone()
    }

    /// What the relay was asked for, in order.
    pub(crate) fn verbs(&self) -> Vec<String> {
        self.0.lock().unwrap().verbs.clone()
    }

    /// Whether it was to begin a work with all these texts in it.
    pub(crate) fn works(&self, work: &str, texts: &[&str]) -> bool {
        let works = &self.0.lock().unwrap().works;
        works.iter().any(|(name, whole)| name == work && texts.iter().all(|text| whole.contains(text)))
    }

    /// Tokens of the last requests that were answered 202, and those in mail.
    pub(crate) fn tokens(&self) -> BTreeMap<String, String> {
        let seen = self.0.lock().unwrap();
        let last = seen.asked.iter().filter(|(what, _)| seen.answers.get(*what) == Some(&202));
        let last = last.filter_map(|(what, asked)| Some((what.clone(), asked.last()?.token.clone())));
        last.chain(seen.tokens.clone()).collect()
    }

    /// The relay of `cluster`: takes all mail that waits, and answers.
    pub(crate) async fn polls(
        &self,
        office: &PostOffice,
        cluster: &str,
        secret: &Secret,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let mut answers = Vec::new();
        loop {
            let done = answers.is_empty();
            let wait_ms = Some(0);
            let poll = Poll { v: 1, cluster: "uid-of-far".to_owned(), wait_ms, held: vec![], answers };
            let body = serde_json::to_vec(&poll)?;
            let mut headers = axum::http::HeaderMap::new();
            for (name, value) in sign::sign(secret, &MessageId::parse("poll-1")?, now, &body) {
                headers.insert(name, value.parse()?);
            }
            let refused = |error| anyhow::anyhow!("{error:?}");
            let proven = office.prove(cluster, &headers, &body).map_err(refused)?;
            let post = office.poll(proven, &body).await.map_err(refused)?;
            answers = post
                .mail
                .iter()
                .map(|mail| self.mail(mail, cluster, secret))
                .collect::<anyhow::Result<_>>()?;
            if done && answers.is_empty() {
                return Ok(());
            }
        }
    }

    fn mail(&self, mail: &Mail, cluster: &str, secret: &Secret) -> anyhow::Result<Reply> {
        let sealed = STANDARD.decode(&mail.sealed)?;
        let opened = seal::open(&Keys::from(secret.clone()), &Mail::about(cluster, &mail.id), &sealed);
        let opened = opened.ok_or_else(|| anyhow::anyhow!("mail cannot be opened"))?;
        let batch: Batch = serde_json::from_slice(&opened)?;
        let mut seen = self.0.lock().unwrap();
        let answers = batch.requests.into_iter().map(|verb| match verb {
            Verb::Ensure(request) => {
                let text = serde_json::to_string(&request).unwrap_or_default();
                // One has printed so much already that the answer is too large for the table.
                let log = if text.contains("key-of-wordy") { "x".repeat(2_000) } else { String::new() };
                seen.verbs.push(format!("ensure {}", request.name.unit));
                seen.works.push((request.name.unit.clone(), text));
                seen.tokens.insert(request.name.unit, request.callback.token);
                Answer::State(WorkState::running(log))
            }
            Verb::Acknowledge(name) => {
                seen.verbs.push(format!("acknowledge {}", name.unit));
                Answer::Done
            }
            Verb::Release { life } => {
                seen.verbs.push(format!("release {life}"));
                Answer::Done
            }
            _ => Answer::Done,
        });
        let outcome =
            Outcome::Answers(Answers { v: 1, cluster: "uid-of-far".to_owned(), answers: answers.collect() });
        Ok(Reply { id: mail.id.clone(), outcome })
    }
}

fn header(request: &Request, name: &str) -> String {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

#[async_trait]
impl Call for Outside {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let mut seen = self.0.lock().unwrap();
        if request.url.starts_with("https://platform.test") {
            let name = body["data"]["name"].as_str().unwrap_or_default().to_owned();
            let status = seen.answers.get(&name).copied().unwrap_or(204);
            if status == 204 {
                seen.told.push(format!("{name} {}", body["type"].as_str().unwrap_or_default()));
            }
            return Ok(Response { status, headers: vec![], body: vec![] });
        }
        let unit = request.url.rsplit('/').next().unwrap_or_default();
        let target = body["target"].as_str().unwrap_or_default().to_owned();
        let what = format!("{target} {unit}");
        let asked =
            Asked { attempt: header(&request, ATTEMPT), token: header(&request, CALLBACK_TOKEN), body };
        seen.asked.entry(what.clone()).or_default().push(asked);
        let status = seen.answers.get(&what).copied().unwrap_or(200);
        // One life has outputs that are too large for the table.
        let text = "x".repeat(if target == "ready" { 4_000 } else { 4 });
        let made =
            json!({"id": format!("id-of-{target}"), "text": text, "code": format!("code-of-{target}")});
        let body = if status == 200 { made.to_string().into_bytes() } else { vec![] };
        let again = seen.again.get(&what).map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
        Ok(Response { status, headers: again.into_iter().collect(), body })
    }
}
