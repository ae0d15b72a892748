//! The platform's side: signed lifecycle webhooks, many at a time.

use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use ebb_protocol::api::{TargetDetail, TargetState};
use ebb_protocol::cloudevents::{self, LifecycleType};
use ebb_protocol::engine::Timestamp;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::sign::{self, MessageId, WebhookSecret};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::StatusCode;

use crate::server::DevServer;

/// Webhooks that are under way at a time.
const AT_ONCE: usize = 64;

pub(crate) struct BenchPlatform<'a> {
    server: &'a DevServer,
    secret: WebhookSecret,
    http: reqwest::Client,
}

impl<'a> BenchPlatform<'a> {
    pub(crate) fn new(server: &'a DevServer) -> anyhow::Result<Self> {
        let secret = WebhookSecret::parse(&server.connection.webhook_secret).context("the server's secret")?;
        Ok(Self { server, secret, http: reqwest::Client::builder().no_proxy().build()? })
    }

    /// Asks for all of them.
    pub(crate) async fn create(&self, names: &[String], documents: &[String]) -> anyhow::Result<()> {
        let asked = names.iter().zip(documents);
        let posts = asked.map(|(name, document)| self.post(name, LifecycleType::Created, Some(document.clone())));
        futures::stream::iter(posts).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Asks for the end of all of them.
    pub(crate) async fn delete(&self, names: &[String]) -> anyhow::Result<()> {
        let posts = names.iter().map(|name| self.post(name, LifecycleType::Deleted, None));
        futures::stream::iter(posts).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// That the server says so of all.
    pub(crate) async fn all_are_gone(&self, names: &[String]) -> anyhow::Result<()> {
        let looks = names.iter().map(|name| self.look(name));
        futures::stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn look(&self, name: &str) -> anyhow::Result<()> {
        let connection = &self.server.connection;
        let url = format!("{}/v1/targets/sandbox/{name}", connection.url);
        let answer = self.http.get(url).bearer_auth(&connection.token).send().await?;
        let seen: TargetDetail = answer.error_for_status()?.json().await?;
        ensure!(seen.info.phase == TargetState::Gone, "{name} is {:?}", seen.info.phase);
        Ok(())
    }

    async fn post(&self, name: &str, asked: LifecycleType, document: Option<String>) -> anyhow::Result<()> {
        let data = LifecycleData {
            kind: "sandbox".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            generation: 1,
            document,
            routing_key: None,
        };
        let id = format!("msg_{name}_{asked:?}");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let now = Timestamp(u64::try_from(now.as_millis())?);
        let (content_type, body) = cloudevents::lifecycle(&id, "many-targets", asked, now, &data);
        let url = format!("{}/v1/events", self.server.connection.url);
        let mut request = self.http.post(url).header("content-type", content_type);
        for (name, value) in sign::sign(&self.secret, &MessageId::parse(&id)?, now, &body) {
            request = request.header(name, value);
        }
        let answer = request.body(body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status == StatusCode::ACCEPTED, "{asked:?} of {name}: {status} {text}");
        Ok(())
    }
}
