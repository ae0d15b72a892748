//! A life of the example with webhooks, each step of which is an event for one of the four functions.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ebb_engine::Moment;
use ebb_flow::ports::Message;
use ebb_wire::cloudevents::Asked;
use ebb_wire::id::{self, RunId};
use ebb_wire::lifecycle::Lifecycle;
use ebb_wire::sign::Secret;
use serde_json::{Value, json};

use super::emulator::Function;
use super::events::{self, Body};
use super::surroundings::Surroundings;
use crate::cloud::{KEY, TOKEN};
use crate::receiver::Receiver;
use crate::steps::{say, step};

const KIND: &str = "sandbox";
const NAME: &str = "search-pr-9";
const UID: &str = "uid-1";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The functions of one life.
pub(crate) struct Life<'a> {
    pub(crate) functions: &'a BTreeMap<&'static str, Function>,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) receiver: &'a Receiver,
    pub(crate) examples: &'a Path,
    /// Messages that came through the queue.
    pub(crate) messages: Cell<usize>,
}

impl Life<'_> {
    /// Everything.
    pub(crate) async fn all(&self) -> anyhow::Result<()> {
        let secret = Secret::parse(&format!("whsec_{KEY}")).map_err(|error| anyhow::anyhow!("{error}"))?;
        let place = |text: &str| text.replace("@{receiver}", self.receiver.url());
        let document = |name: &str| std::fs::read_to_string(self.examples.join("webhooks").join(name));
        let plugin = json!({ "document": place(&document("plugin.yaml")?) });
        let publish = events::with_token("POST", "/v1/plugins", TOKEN, &plugin, Body::Base64);
        step("api: a plugin is published, its body in base64", self.http("api", &publish, 201)).await?;
        let data = Lifecycle {
            kind: KIND.to_owned(),
            name: NAME.to_owned(),
            uid: UID.to_owned(),
            generation: 1,
            document: Some(document("sandbox.yaml")?),
            routing_key: None,
        };
        let mut foreign = events::structured(&secret, Asked::Created, &data, Body::Text)?;
        foreign["headers"]["webhook-signature"] = json!("v1,AAAA");
        step("receive: a signature of nobody is refused", self.http("receive", &foreign, 401)).await?;
        let create = events::structured(&secret, Asked::Created, &data, Body::Text)?;
        step("receive: a sandbox is created, structured mode", self.http("receive", &create, 202)).await?;
        step("a unit was asked and will call back", self.receiver.wait("POST /indexes")).await?;
        let (_, token) = self.receiver.accepted().context("it was told where to call back")?;
        let result = json!({"status": "succeeded", "outputs": {"endpoint": "index:9200"}});
        let result = events::with_token("POST", "/v1/callbacks", &token, &result, Body::Base64);
        step("complete: it calls back, its body in base64", self.http("complete", &result, 204)).await?;
        step("sweep: the queue wakes the run until it is ready", self.until("ready")).await?;
        ensure!(self.messages.get() > 0, "nothing came through the queue");
        step("complete: the same once more", self.http("complete", &result, 204)).await?;
        let path = format!("/v1/targets/{KIND}/{NAME}");
        let get = events::with_token("GET", &path, TOKEN, &Value::Null, Body::Text);
        let target = step("api: the sandbox is read", self.http("api", &get, 200)).await?;
        let outputs = &target["resources"]["services"]["outputs"];
        for (name, expected) in
            [("tenant", "tenant"), ("search", "index:9200"), ("certificate", "certificate")]
        {
            ensure!(outputs[name]["value"] == expected, "{name} of {outputs}");
        }
        step("sweep: a batch of which one message is none of ours", self.partial_failure()).await?;
        step("sweep: a minute of the schedule", async {
            let swept = self.functions["sweep"].invoke(&events::minute()).await?;
            ensure!(swept["looked"].is_u64() && swept["failed"] == 0, "{swept}");
            Ok(())
        })
        .await?;
        let gone = Lifecycle { document: None, ..data };
        let delete = events::binary(&secret, Asked::Deleted, &gone, Body::Base64)?;
        step("receive: it is deleted, binary mode in base64", self.http("receive", &delete, 202)).await?;
        step("sweep: until it is gone", self.until("gone")).await?;
        for made in ["tenants", "indexes", "certificates"] {
            ensure!(self.receiver.came(&format!("DELETE /{made}/")) == 1, "{made} were not deleted once");
        }
        for (name, function) in self.functions {
            let mut events = function.durations()?.events;
            events.sort_by(f64::total_cmp);
            let (number, middle) = (events.len(), events[events.len() / 2]);
            say(&format!("  {name}: {number} events, half of them within {middle:.1} ms"));
        }
        Ok(())
    }

    /// Sends a request to a function and gives the body of its answer.
    async fn http(&self, function: &str, event: &Value, status: u64) -> anyhow::Result<Value> {
        let answer = self.functions[function].invoke(event).await?;
        ensure!(answer["statusCode"] == status, "{status} was expected: {answer}");
        let body = answer["body"].as_str().unwrap_or_default();
        Ok(serde_json::from_str(body).unwrap_or_default())
    }

    /// Gives `sweep` what comes through the queue until the platform has been told of an outcome.
    async fn until(&self, outcome: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while !self.receiver.was_told(NAME, outcome) {
            if began.elapsed() > PATIENCE {
                bail!("the platform was not told of {outcome}");
            }
            let messages = self.surroundings.messages().await?;
            if messages.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            self.messages.set(self.messages.get() + messages.len());
            let answer = self.functions["sweep"].invoke(&events::batch(&messages)).await?;
            ensure!(answer == json!({"batchItemFailures": []}), "{answer}");
        }
        Ok(())
    }

    async fn partial_failure(&self) -> anyhow::Result<()> {
        let run = RunId::new(&id::life(KIND, NAME, UID), 1, Moment::BeforeReady);
        let ours = serde_json::to_string(&Message::Run(run))?;
        let messages = [("ours", ours.as_str()), ("other", "nonsense"), ("again", ours.as_str())];
        let messages = messages.map(|(id, body)| (id.to_owned(), body.to_owned()));
        let answer = self.functions["sweep"].invoke(&events::batch(&messages)).await?;
        ensure!(answer == json!({"batchItemFailures": [{"itemIdentifier": "other"}]}), "{answer}");
        Ok(())
    }
}
