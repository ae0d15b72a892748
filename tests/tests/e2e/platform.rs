//! A sandbox platform that asks for one life of one sandbox, as persistently as platforms do.

use std::time::{Instant, SystemTime};

use ebb_protocol::api::{TargetDetail, TargetState};
use ebb_protocol::cloudevents::{self, LifecycleType};
use ebb_protocol::engine::Timestamp;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::sign::{self, MessageId, WebhookSecret};
use reqwest::StatusCode;

use crate::workdir::{DevProcess, LOOK, PATIENCE};

/// What the platform does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlatformStep {
    Create,
    AwaitReady,
    Delete,
    AwaitGone,
    Over,
}

/// The platform's side of one life.
pub(crate) struct E2ePlatform {
    pub(crate) step: PlatformStep,
    pub(crate) uid: String,
    name: String,
    document: String,
    http: reqwest::Client,
}

impl E2ePlatform {
    pub(crate) fn new(name: &str, uid: &str, document: String) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { step: PlatformStep::Create, uid: uid.to_owned(), name: name.to_owned(), document, http }
    }

    /// Does the next step. May be dropped at any moment and then does the step once more, as a platform that got no
    /// answer.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn advance(&mut self, dev: &DevProcess) -> Result<(), reqwest::Error> {
        self.step = match self.step {
            PlatformStep::Create => {
                self.post(dev, LifecycleType::Created).await?;
                PlatformStep::AwaitReady
            }
            PlatformStep::AwaitReady => {
                self.reach(dev, TargetState::Ready).await?;
                PlatformStep::Delete
            }
            PlatformStep::Delete => {
                self.post(dev, LifecycleType::Deleted).await?;
                PlatformStep::AwaitGone
            }
            PlatformStep::AwaitGone => {
                self.reach(dev, TargetState::Gone).await?;
                PlatformStep::Over
            }
            PlatformStep::Over => PlatformStep::Over,
        };
        Ok(())
    }

    async fn post(&self, dev: &DevProcess, asked: LifecycleType) -> Result<(), reqwest::Error> {
        let data = LifecycleData {
            kind: "sandbox".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            generation: 1,
            document: (asked == LifecycleType::Created).then(|| self.document.clone()),
            routing_key: None,
        };
        let id = format!("msg_{}_{asked:?}", self.uid);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = Timestamp(u64::try_from(since.as_millis()).unwrap());
        let (content_type, body) = cloudevents::lifecycle(&id, "e2e", asked, now, &data);
        let secret = WebhookSecret::parse(&dev.secret).unwrap();
        let mut request = self.http.post(format!("{}/v1/events", dev.url)).header("content-type", content_type);
        for (name, value) in sign::sign(&secret, &MessageId::parse(&id).unwrap(), now, &body) {
            request = request.header(name, value);
        }
        let answer = request.body(body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        assert_eq!(status, StatusCode::ACCEPTED, "{asked:?}: {text}");
        Ok(())
    }

    /// Waits until the sandbox is there and the platform was told so: who deletes earlier is told only that it is gone.
    async fn reach(&self, dev: &DevProcess, phase: TargetState) -> Result<(), reqwest::Error> {
        let since = Instant::now();
        loop {
            let seen = self.look(dev).await?;
            let is_reached = |seen: &TargetDetail| seen.info.phase == phase && seen.pending_notification.is_none();
            if seen.as_ref().is_some_and(is_reached) {
                return Ok(());
            }
            let is_stuck =
                seen.as_ref().is_some_and(|seen| matches!(seen.info.phase, TargetState::Failed | TargetState::Stuck));
            let waited = since.elapsed();
            assert!(!is_stuck && waited < PATIENCE, "{phase:?} is awaited for {waited:?}: {seen:#?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the server knows of the sandbox.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn look(&self, dev: &DevProcess) -> Result<Option<TargetDetail>, reqwest::Error> {
        let url = format!("{}/v1/targets/sandbox/{}", dev.url, self.name);
        let answer = self.http.get(url).bearer_auth(&dev.token).send().await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let seen: TargetDetail = answer.error_for_status()?.json().await?;
        assert_eq!(seen.info.uid, self.uid);
        Ok(Some(seen))
    }
}
