//! `ebb dev` with the plugins of the comparison. A platform creates targets, and gets a notification for each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use ebb_protocol::lifecycle::READY;
use ebb_protocol::{LifecycleType, WebhookSecret};
use ebb_tests::platform::{SignedRequest, http, sandbox};
use ebb_tests::receiver::{CannedReply, TestReceiver};
use ebb_tests::simulation::lock;
use ebb_tests::workdir::{DevProcess, Workdir};
use reqwest::Client;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::shapes::{RunGraph, RunShape};

/// A running `ebb dev`. It is killed when this is dropped.
pub(crate) struct EbbServer {
    pub(crate) dev: DevProcess,
    pub(crate) place: Workdir,
    secret: WebhookSecret,
    http: Client,
    /// What waits for the type of the next notification of a target.
    outcomes: Arc<Mutex<HashMap<String, oneshot::Sender<String>>>>,
    targets: AtomicU64,
}

impl EbbServer {
    pub(crate) async fn start(receiver: &TestReceiver, place: Workdir, graphs: &[RunGraph]) -> anyhow::Result<Self> {
        let place = place.and(&["--platform-url", &format!("{}/outcomes", receiver.url())]);
        let dev = place.dev().await;
        for &graph in graphs {
            place.apply("plugin", &graph.plugin(&plugin_name(graph), &format!("{}/units", receiver.url()))).await;
        }
        let secret = WebhookSecret::parse(&dev.secret)?;
        let outcomes = Arc::<Mutex<HashMap<String, oneshot::Sender<String>>>>::default();
        let waiting = Arc::clone(&outcomes);
        receiver.on("POST /outcomes", move |call, _| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if let Some(waiting) = lock(&waiting).remove(&text(&call.body["data"]["name"])) {
                // The run may have timed out.
                waiting.send(text(&call.body["type"])).ok();
            }
            CannedReply::status(204)
        });
        Ok(Self { dev, place, secret, http: http(), outcomes, targets: AtomicU64::new(0) })
    }

    /// Creates a target with this number of resources and waits for its notification.
    pub(crate) async fn run(&self, graph: RunGraph, resources: usize) -> anyhow::Result<()> {
        let name = format!("run-{}", self.targets.fetch_add(1, Ordering::Relaxed));
        let (sender, outcome) = oneshot::channel();
        lock(&self.outcomes).insert(name.clone(), sender);
        let plugin = plugin_name(graph);
        let resources: String =
            (0..resources).map(|resource| format!("  r{resource}: {{plugin: {plugin}}}\n")).collect();
        let event = sandbox(&name, &name, &format!("cluster: local\nresources:\n{resources}"));
        let request = SignedRequest::lifecycle(&self.secret, LifecycleType::Created, &event);
        let response = request.post(&self.http, &format!("{}/v1/events", self.dev.url)).send().await?;
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status == 202, "the webhook of {name} was answered with {status} {text}");
        let outcome = outcome.await.context("the receiver has ended")?;
        ensure!(outcome == READY, "the outcome of {name} is {outcome}");
        Ok(())
    }
}

fn plugin_name(RunGraph { shape, units, .. }: RunGraph) -> String {
    format!("{}-{units}@1.0.0", if shape == RunShape::Chain { "chain" } else { "fan" })
}
