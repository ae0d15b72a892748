//! A sandbox platform that asks for one instance of one sandbox, as persistently as platforms do.

use std::time::Instant;

use ebb_protocol::api::{TargetDetail, TargetState};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::sign::WebhookSecret;
use reqwest::StatusCode;

use crate::platform::{SignedRequest, http, sandbox};
use crate::workdir::{DevProcess, POLL_INTERVAL, WAIT_TIMEOUT};

/// What the platform does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlatformStep {
    Create,
    AwaitReady,
    Delete,
    AwaitGone,
    Over,
}

/// The platform's side of one instance.
pub(crate) struct PersistentPlatform {
    pub(crate) step: PlatformStep,
    pub(crate) uid: String,
    name: String,
    document: String,
    http: reqwest::Client,
}

impl PersistentPlatform {
    pub(crate) fn new(name: &str, uid: &str, document: String) -> Self {
        Self { step: PlatformStep::Create, uid: uid.to_owned(), name: name.to_owned(), document, http: http() }
    }

    /// Does the next step. May be dropped at any moment and then does the step once more, as a platform that got no
    /// answer.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn advance(&mut self, dev: &DevProcess) -> Result<(), reqwest::Error> {
        let next = match self.step {
            PlatformStep::Create => (self.post(dev, LifecycleType::Created).await?, PlatformStep::AwaitReady),
            PlatformStep::AwaitReady => (self.reach(dev, TargetState::Ready).await?, PlatformStep::Delete),
            PlatformStep::Delete => (self.post(dev, LifecycleType::Deleted).await?, PlatformStep::AwaitGone),
            PlatformStep::AwaitGone => (self.reach(dev, TargetState::Gone).await?, PlatformStep::Over),
            PlatformStep::Over => ((), PlatformStep::Over),
        };
        self.step = next.1;
        Ok(())
    }

    async fn post(&self, dev: &DevProcess, asked: LifecycleType) -> Result<(), reqwest::Error> {
        let document = (asked == LifecycleType::Created).then(|| self.document.clone());
        let data = LifecycleData { document, ..sandbox(&self.name, &self.uid, "") };
        let event = SignedRequest::lifecycle(&WebhookSecret::parse(&dev.secret).unwrap(), asked, &data);
        let answer = event.post(&self.http, &format!("{}/v1/events", dev.url)).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        assert_eq!(status, StatusCode::ACCEPTED, "{asked:?}: {text}");
        Ok(())
    }

    /// Waits for the phase and its notification. After an earlier deletion only the notification `gone` comes.
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
            assert!(!is_stuck && waited < WAIT_TIMEOUT, "{phase:?} is awaited for {waited:?}: {seen:#?}");
            tokio::time::sleep(POLL_INTERVAL).await;
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
