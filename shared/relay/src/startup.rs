//! Handles an API server that has just started. It accepts requests before it knows all roles and kinds. A refusal is
//! therefore believed only if the server reports that it is ready and refuses again.

use http::Request;
use kube::{Client, Error};

use crate::error::status;

/// Checks that the API server is ready. Every account has this right (`system:public-info-viewer`).
pub(crate) async fn check_ready(client: &Client) -> Result<(), Error> {
    let request = Request::get("/readyz").body(Vec::new()).map_err(Error::HttpError)?;
    match client.request_text(request).await {
        Err(Error::Api(status)) => {
            Err(Error::Service(format!("the API server is not ready: {}", status.message).into()))
        }
        response => response.map(drop),
    }
}

/// Sends a request, and repeats a forbidden one when the API server is ready.
pub(crate) async fn retry_forbidden<T, F>(client: &Client, ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    match ask().await {
        Err(error) if status(&error) == Some(403) => {
            check_ready(client).await?;
            ask().await
        }
        response => response,
    }
}
