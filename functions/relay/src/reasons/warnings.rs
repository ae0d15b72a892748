//! Lists the warnings of a namespace: events of controllers, of the scheduler and of kubelets.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::names::CONTROLLER;
use crate::observe::blockers::warning;
use crate::reconciler::Reconciler;

/// The age at which a list is renewed. It is shorter than the shortest pause between two checks of a task, so that a
/// task in its first 40 seconds sees a new warning within ten seconds.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(2);
/// A task must not wait longer for an explanation.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Kubernetes deletes events after an hour, so a namespace rarely has more.
const MAX_EVENTS: u32 = 2_000;

impl Reconciler {
    /// Returns the warnings of a namespace, as of [`MAX_AGE`] ago. Without the right to list them, there are none.
    pub(crate) async fn warnings(&self, namespace: &str) -> Arc<Vec<Value>> {
        let read = async {
            let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
            let wanted = ListParams::default().fields("type=Warning").limit(MAX_EVENTS);
            // An event of this relay tells of a former attempt.
            let foreign = |event: Event| {
                let is_own = event.reporting_component.as_deref() == Some(CONTROLLER);
                serde_json::to_value(event).ok().filter(|_| !is_own).as_ref().map(warning)
            };
            match tokio::time::timeout(TIMEOUT, events.list(&wanted)).await {
                Ok(Ok(list)) => list.items.into_iter().filter_map(foreign).collect(),
                failed => {
                    tracing::debug!(namespace, ?failed, "cannot list the events");
                    Vec::new()
                }
            }
        };
        self.warnings.get(namespace, MAX_AGE, read).await
    }
}
