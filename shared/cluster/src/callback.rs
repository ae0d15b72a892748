//! Telling the control plane how work has ended.

use crate::error::Error;
use crate::relay::Inner;
use crate::store::Held;

/// What a try to tell has come to.
pub(crate) enum Delivery {
    /// It is known, or nobody wants to know.
    Taken,
    Later(String),
}

impl Inner {
    /// Sends the result once.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn call_back(&self, held: &Held) -> Result<Delivery, Error> {
        let Some(work) = &held.record.work else { return Ok(Delivery::Taken) };
        held.result()?;
        let to = &work.callback;
        if let Err(why) = self.may_call(&to.url) {
            return Ok(Delivery::Later(why));
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
            Ok(200..=299 | 410) => Delivery::Taken,
            Ok(status) => Delivery::Later(format!("status {status}")),
            Err(error) => Delivery::Later(error.without_url().to_string()),
        })
    }
}
