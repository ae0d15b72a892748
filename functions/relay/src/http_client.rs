//! The client for requests to the control plane.

use std::time::Duration;

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
