//! Sends heartbeats of scripts to the control plane. A lost one has no effect, so none is repeated.

use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::callback::{Callback, CallbackStatus};
use ebb_protocol::relay::TaskId;

use crate::reconciler::Reconciler;
use crate::task::record::TaskSpec;

const TIMEOUT: Duration = Duration::from_secs(10);

impl Reconciler {
    /// Records the progress of a script that runs. At most once a minute, the control plane gets it with a heartbeat.
    pub(crate) fn accept_progress(self: &Arc<Self>, name: &TaskId, spec: &TaskSpec, progress: Option<String>) {
        if !self.registry.record_progress(name, progress) {
            return;
        }
        let callback = Callback { progress: self.registry.progress(name), ..Callback::new(CallbackStatus::Heartbeat) };
        if self.may_call(&spec.callback.url).is_err() {
            return;
        }
        let request = self.http.post(&spec.callback.url).bearer_auth(&spec.callback.token).timeout(TIMEOUT);
        let request = request.json(&callback);
        let (inner, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            // Results take precedence.
            let Ok(_permit) = inner.callbacks.try_acquire() else { return };
            if let Err(error) = request.send().await.and_then(reqwest::Response::error_for_status) {
                let error = error.without_url();
                tracing::debug!(unit = name.unit, attempt = name.attempt, %error, "a heartbeat was not accepted");
            }
        });
    }
}
