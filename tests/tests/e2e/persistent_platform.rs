//! A sandbox platform that creates, changes and deletes one instance of a sandbox. It repeats requests without a response.

use ebb_protocol::{LifecycleData, LifecycleType, TargetDetail, TargetPhase, WebhookSecret};

use crate::api_client::{ApiClient, ApiReply};
use crate::platform::{SignedRequest, http, sandbox};
use crate::workdir::{DevProcess, until};

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
        until(&format!("{} to be {phase:?}", self.name), async || {
            let target = self.get(dev).await?;
            let seen = target.info.phase;
            assert!(!matches!(seen, TargetPhase::Failed | TargetPhase::Stuck), "it is not {phase:?}: {target:#?}");
            (seen == phase && target.pending_notification.is_none()).then_some(())
        })
        .await;
    }

    /// Returns the target, or `None` if the server does not have this instance yet.
    pub(crate) async fn get(&self, dev: &DevProcess) -> Option<TargetDetail> {
        let target = ApiClient::new(&self.http, &dev.url, &dev.token).target(&format!("sandbox/{}", self.name)).await;
        target.filter(|target| target.info.uid == self.uid)
    }
}
