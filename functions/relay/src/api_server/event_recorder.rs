//! Sends Kubernetes Events about objects.
//!
//! An event is sent in the background and at most once. It never delays a task, and its failure has no effect.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::Semaphore;

use crate::task::record::AppliedObject;

/// Events that are sent at the same time. Further ones are dropped, so that they do not displace other requests.
const AT_ONCE: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(5);
/// The reporting controller of events.
pub(crate) const CONTROLLER: &str = "ebb.dev/relay";

pub(crate) struct EventRecorder {
    client: Client,
    reporter: Reporter,
    permits: Arc<Semaphore>,
}

impl EventRecorder {
    pub(crate) fn new(client: &Client) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        Self { client: client.clone(), reporter: CONTROLLER.into(), permits }
    }

    /// Publishes an event about an object. The relay has no right to events about objects outside of a namespace.
    pub(crate) fn publish(&self, object: &AppliedObject, event: Event) {
        let AppliedObject { object_ref, uid, .. } = object;
        if object_ref.namespace.is_none() {
            return;
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else { return };
        let regarding = ObjectReference {
            api_version: Some(object_ref.api_version.clone()),
            kind: Some(object_ref.kind.clone()),
            namespace: object_ref.namespace.clone(),
            name: Some(object_ref.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        // One recorder for all events would keep those of six minutes, to count equal ones.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(TIMEOUT, recorder.publish(&event, &regarding)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an event was not published"),
                Err(_) => tracing::debug!("an event was not published in time"),
            }
        });
    }
}
