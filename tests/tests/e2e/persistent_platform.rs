//! A sandbox platform that creates, changes and deletes one instance of a sandbox. It repeats requests without a response.

use std::time::Instant;

use ebb_protocol::api::{TargetDetail, TargetPhase};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::sign::WebhookSecret;

use crate::api_client::{ApiClient, ApiReply};
use crate::platform::{SignedRequest, http, sandbox};
use crate::workdir::{DevProcess, POLL_INTERVAL, WAIT_TIMEOUT};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlatformStep {
    Create,
    AwaitReady,
    /// Skipped without another document.
    Change,
    AwaitChanged,
    Delete,
    AwaitGone,
    Over,
}

pub(crate) struct PersistentPlatform {
    pub(crate) step: PlatformStep,
    uid: String,
    name: String,
    /// The document of the creation, and that of the change.
    documents: [Option<String>; 2],
    http: reqwest::Client,
}

impl PersistentPlatform {
    pub(crate) fn new(name: &str, uid: &str, document: String, changed: Option<String>) -> Self {
        let (uid, name, documents) = (uid.to_owned(), name.to_owned(), [Some(document), changed]);
        Self { step: PlatformStep::Create, uid, name, documents, http: http() }
    }

    /// Executes the next step. If the future is dropped, the next call repeats the step, like a platform without a response.
    pub(crate) async fn advance(&mut self, dev: &DevProcess) {
        let next = match self.step {
            PlatformStep::Create => (self.post(dev, LifecycleType::Created).await, PlatformStep::AwaitReady),
            PlatformStep::AwaitReady if self.documents[1].is_some() => {
                (self.wait_for(dev, TargetPhase::Ready).await, PlatformStep::Change)
            }
            PlatformStep::Change => (self.post(dev, LifecycleType::Updated).await, PlatformStep::AwaitChanged),
            PlatformStep::AwaitReady | PlatformStep::AwaitChanged => {
                (self.wait_for(dev, TargetPhase::Ready).await, PlatformStep::Delete)
            }
            PlatformStep::Delete => (self.post(dev, LifecycleType::Deleted).await, PlatformStep::AwaitGone),
            PlatformStep::AwaitGone => (self.wait_for(dev, TargetPhase::Gone).await, PlatformStep::Over),
            PlatformStep::Over => ((), PlatformStep::Over),
        };
        self.step = next.1;
    }

    async fn post(&self, dev: &DevProcess, kind: LifecycleType) {
        let [created, changed] = self.documents.clone();
        let (document, generation) = match kind {
            LifecycleType::Created => (created, 1),
            LifecycleType::Updated => (changed, 2),
            LifecycleType::Deleted | LifecycleType::Event => (None, 2),
        };
        let data = LifecycleData { document, generation, ..sandbox(&self.name, &self.uid, "") };
        let event = SignedRequest::lifecycle(&WebhookSecret::parse(&dev.secret).unwrap(), kind, &data);
        ApiReply::to(event.post(&self.http, &format!("{}/v1/events", dev.url))).await.is(202);
    }

    /// Waits for the phase and its notification. After an earlier deletion there is only the notification `gone`.
    async fn wait_for(&self, dev: &DevProcess, phase: TargetPhase) {
        let since = Instant::now();
        loop {
            let target = self.get(dev).await;
            let is_reached =
                |target: &TargetDetail| target.info.phase == phase && target.pending_notification.is_none();
            if target.as_ref().is_some_and(is_reached) {
                return;
            }
            let seen = target.as_ref().map(|target| target.info.phase);
            let is_stuck = matches!(seen, Some(TargetPhase::Failed | TargetPhase::Stuck));
            let waited = since.elapsed();
            assert!(!is_stuck && waited < WAIT_TIMEOUT, "waited for {phase:?} for {waited:?}: {target:#?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the target, or `None` if the server does not have this instance yet.
    pub(crate) async fn get(&self, dev: &DevProcess) -> Option<TargetDetail> {
        let target = ApiClient::new(&self.http, &dev.url, &dev.token).target(&format!("sandbox/{}", self.name)).await;
        target.filter(|target| target.info.uid == self.uid)
    }
}
