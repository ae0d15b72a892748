//! Delivery of a result to the control plane.

use crate::error::ReconcileError;
use crate::reconciler::Reconciler;
use crate::store::VersionedRecord;

pub(crate) enum CallbackDelivery {
    /// The control plane has the result, or rejected it for good.
    Accepted,
    Retry(String),
}

impl Reconciler {
    /// Sends the result once.
    pub(crate) async fn send_callback(&self, held: &VersionedRecord) -> Result<CallbackDelivery, ReconcileError> {
        let Some(spec) = &held.record.spec else { return Ok(CallbackDelivery::Accepted) };
        held.result()?;
        let to = &spec.callback;
        if let Err(why) = self.may_call(&to.url) {
            return Ok(CallbackDelivery::Retry(why));
        }
        let sent = self
            .http
            .post(&to.url)
            .bearer_auth(&to.token)
            .header("content-type", "application/json")
            .body(held.result.clone().unwrap_or_default())
            .send()
            .await;
        Ok(match sent.map(|response| response.status().as_u16()) {
            Ok(200..=299 | 410) => CallbackDelivery::Accepted,
            Ok(status) => CallbackDelivery::Retry(format!("status {status}")),
            Err(error) => CallbackDelivery::Retry(error.without_url().to_string()),
        })
    }
}
