//! Requests to the control plane: their client, their responses, and the pauses between attempts.

use std::time::Duration;

use backon::ExponentialBuilder;
use ebb_protocol::limits::message;
use reqwest::RequestBuilder;
use serde::de::DeserializeOwned;

use crate::error::{ReconcileError, Result};

/// The timeout of a request, in addition to its wait for batches.
pub(crate) const TRANSPORT: Duration = Duration::from_secs(10);

/// Returns a client for requests to the control plane. It fails, for example, in an image without CA certificates.
pub(crate) fn http_client() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(TRANSPORT)
        .build()
        .map_err(|error| ReconcileError::Internal(format!("cannot create an HTTP client: {error:?}")))
}

/// Sends a request to the control plane and parses its response.
///
/// # Errors
/// Returns the reason, for people, with the status of a response that is not a success.
pub(crate) async fn exchange<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, (Option<u16>, String)> {
    let failed = |error: reqwest::Error| (None::<u16>, error.without_url().to_string());
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    let bytes = response.bytes().await.map_err(failed)?;
    if !status.is_success() {
        let text = message(&String::from_utf8_lossy(&bytes));
        return Err((Some(status.as_u16()), format!("the control plane responded with {status}: {text}")));
    }
    let invalid = |error: serde_json::Error| (None, format!("the response of the control plane is invalid: {error}"));
    serde_json::from_slice(&bytes).map_err(invalid)
}

/// Returns pauses from 0.5 s to 30 s, with jitter, without an end.
pub(crate) fn pauses() -> ExponentialBuilder {
    let (least, most) = (Duration::from_millis(500), Duration::from_secs(30));
    ExponentialBuilder::default().with_min_delay(least).with_max_delay(most).without_max_times().with_jitter()
}
