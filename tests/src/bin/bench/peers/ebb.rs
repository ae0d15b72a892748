//! `ebb dev` with the plugins of the comparison. A platform creates targets, and gets a notification for each.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::READY;
use ebb_protocol::sign::WebhookSecret;
use ebb_tests::platform::{SignedRequest, http, sandbox};
use ebb_tests::workdir::{DevProcess, Workdir};
use reqwest::Client;

use super::unit_receiver::UnitReceiver;
use crate::shapes::{RunGraph, RunShape};

/// A running `ebb dev`. It is killed when this is dropped.
pub(crate) struct EbbServer {
    pub(crate) dev: DevProcess,
    pub(crate) place: Workdir,
    secret: WebhookSecret,
    http: Client,
    receiver: UnitReceiver,
    targets: AtomicU64,
}

impl EbbServer {
    pub(crate) async fn start(receiver: &UnitReceiver, place: Workdir, graphs: &[RunGraph]) -> anyhow::Result<Self> {
        let place = place.and(&["--platform-url", &format!("{}/outcomes", receiver.url)]);
        let dev = place.dev().await;
        for &graph in graphs {
            place.apply("plugin", &graph.plugin(&plugin_name(graph), &format!("{}/units", receiver.url))).await;
        }
        let secret = WebhookSecret::parse(&dev.secret)?;
        Ok(Self { dev, place, secret, http: http(), receiver: receiver.clone(), targets: AtomicU64::new(0) })
    }

    pub(crate) async fn stop(self) -> Workdir {
        self.dev.stop().await;
        self.place
    }

    /// Creates a target with this number of resources and waits for its notification.
    pub(crate) async fn run(&self, graph: RunGraph, resources: usize) -> anyhow::Result<()> {
        let name = format!("run-{}", self.targets.fetch_add(1, Ordering::Relaxed));
        let outcome = self.receiver.next_outcome(&name).await;
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
