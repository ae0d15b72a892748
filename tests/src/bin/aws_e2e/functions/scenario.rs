//! A life of the example with webhooks, each step of which is an event for one of the four functions.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ebb_engine::Hook;
use ebb_flow::ports::QueueMessage;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::id::{self, RunId};
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::sign::WebhookSecret;
use ebb_tests::platform::sandbox;
use ebb_tests::wait::PATIENCE;
use serde_json::{Value, json};

use super::emulator::EmulatedFunction;
use super::events::{self, BodyEncoding};
use super::measures;
use super::parts::FunctionBackends;
use crate::keys::{SignedMessage, TOKEN};
use crate::servers::{INDEX, OutsideServers, SERVICES as NAME, are_of_services};
use crate::steps::{say, step};

const KIND: &str = "sandbox";
const UID: &str = "uid-1";

/// How a lifecycle webhook may reach `receive`.
const WAYS: [(&str, BodyEncoding); 2] = [("in base64", BodyEncoding::Base64), ("as text", BodyEncoding::Text)];

/// The functions, and who they deal with.
pub(crate) struct FunctionScenario<'a> {
    pub(crate) functions: &'a BTreeMap<&'static str, EmulatedFunction>,
    pub(crate) parts: &'a FunctionBackends,
    pub(crate) servers: &'a OutsideServers,
    pub(crate) examples: &'a Path,
    /// Messages that came through the queue.
    pub(crate) messages: Cell<usize>,
}

impl FunctionScenario<'_> {
    /// Everything.
    pub(crate) async fn all(&self) -> anyhow::Result<()> {
        let secret = SignedMessage::Lifecycle.secret()?;
        let place = |text: &str| text.replace("@{receiver}", self.servers.url());
        let document = |name: &str| std::fs::read_to_string(self.examples.join("webhooks").join(name));
        let plugin = json!({ "document": place(&document("plugin.yaml")?) });
        let publish = events::with_token("POST", "/v1/plugins", TOKEN, &plugin, BodyEncoding::Base64);
        step("api: a plugin is published, its body in base64", self.http("api", &publish, 201)).await?;
        let data = LifecycleData { document: Some(document("sandbox.yaml")?), ..sandbox(NAME, UID, "") };
        let mut foreign = events::lifecycle(&secret, LifecycleType::Created, &data, BodyEncoding::Text);
        foreign["headers"]["webhook-signature"] = json!("v1,AAAA");
        step("receive: a wrong signature is refused", self.http("receive", &foreign, 401)).await?;
        self.receive("a sandbox is created", &secret, LifecycleType::Created, &data).await?;
        step("a unit was asked and will call back", self.servers.wait("POST /indexes")).await?;
        let token = self.servers.accepted().context("it was told where to call back")?;
        let result = json!({"status": "succeeded", "outputs": {"endpoint": INDEX}});
        let called = |how| events::with_token("POST", "/v1/callbacks", &token, &result, how);
        step("complete: it calls back", self.http("complete", &called(BodyEncoding::Text), 204)).await?;
        step("sweep: the queue wakes the run until it is ready", self.until("ready")).await?;
        ensure!(self.messages.get() > 0, "nothing came through the queue");
        let again = called(BodyEncoding::Base64);
        step("complete: the same once more, its body in base64", self.http("complete", &again, 204)).await?;
        let path = format!("/v1/targets/{KIND}/{NAME}");
        let get = events::with_token("GET", &path, TOKEN, &Value::Null, BodyEncoding::Text);
        let target = step("api: the sandbox is read", self.http("api", &get, 200)).await?;
        are_of_services(&target["resources"]["services"]["outputs"])?;
        step("sweep: a batch of which one message is none of ours", self.partial_failure()).await?;
        step("sweep: a minute of the schedule", async {
            let swept = self.functions["sweep"].invoke(&events::minute()).await?;
            ensure!(swept["looked"].is_u64() && swept["failed"] == 0, "{swept}");
            Ok(())
        })
        .await?;
        let gone = LifecycleData { document: None, ..data };
        self.receive("it is deleted", &secret, LifecycleType::Deleted, &gone).await?;
        step("sweep: until it is gone", self.until("gone")).await?;
        for made in ["tenants", "indexes", "certificates"] {
            ensure!(self.servers.came(&format!("DELETE /{made}/")) == 1, "{made} were not deleted once");
        }
        for (name, function) in self.functions {
            let events = function.durations()?.events;
            let middle = measures::median(&events).with_context(|| format!("no event of {name}"))?;
            say(&format!("  {name}: {} events, half of them within {middle:.1} ms", events.len()));
        }
        Ok(())
    }

    /// Gives `receive` a webhook in each of the ways; every one but the first is a repetition, and answered alike.
    async fn receive(
        &self,
        what: &str,
        secret: &WebhookSecret,
        asked: LifecycleType,
        data: &LifecycleData,
    ) -> anyhow::Result<()> {
        let mut first = None;
        for (how, body) in WAYS {
            let event = events::lifecycle(secret, asked, data, body);
            let name = format!("receive: {what}, {how}");
            let answer = step(&name, self.http("receive", &event, 202)).await?;
            let first = first.get_or_insert_with(|| answer.clone());
            ensure!(answer.is_object() && answer == *first, "{name}: {first}, and then {answer}");
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

    /// Gives `sweep` what comes through the queue until the platform was told an outcome.
    async fn until(&self, outcome: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while !self.servers.has_outcome(NAME, outcome)? {
            ensure!(began.elapsed() < PATIENCE, "the platform was not told of {outcome}");
            let messages = self.parts.messages().await?;
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
        let run = RunId::new(&id::instance_key(KIND, NAME, UID), 1, Hook::PreStart);
        let ours = serde_json::to_string(&QueueMessage::Run(run))?;
        let messages = [("ours", ours.as_str()), ("other", "nonsense"), ("again", ours.as_str())];
        let messages = messages.map(|(id, body)| (id.to_owned(), body.to_owned()));
        let answer = self.functions["sweep"].invoke(&events::batch(&messages)).await?;
        ensure!(answer == json!({"batchItemFailures": [{"itemIdentifier": "other"}]}), "{answer}");
        Ok(())
    }
}
