//! Telling the control plane how work has ended.

use crate::error::ClusterError;
use crate::relay::Reconciler;
use crate::store::VersionedRecord;

/// What a try to tell has come to.
pub(crate) enum CallbackDelivery {
    /// It is known, or nobody wants to know.
    Accepted,
    Retry(String),
}

impl Reconciler {
    /// Sends the result once.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn send_callback(
        &self,
        held: &VersionedRecord,
    ) -> Result<CallbackDelivery, ClusterError> {
        let Some(work) = &held.record.spec else { return Ok(CallbackDelivery::Accepted) };
        held.result()?;
        let to = &work.callback;
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
        Ok(match sent.map(|answer| answer.status().as_u16()) {
            Ok(200..=299 | 410) => CallbackDelivery::Accepted,
            Ok(status) => CallbackDelivery::Retry(format!("status {status}")),
            Err(error) => CallbackDelivery::Retry(error.without_url().to_string()),
        })
    }
}
