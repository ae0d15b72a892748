//! An API server that has just started. It takes requests before it has heard of all roles and kinds, and refuses then what
//! it allows a moment later. A refusal is believed once the server says that it is ready, and refuses again.

use http::Request;
use kube::{Client, Error};

use crate::error::status;

/// That the API server knows all that it decides by. Every account may ask this (`system:public-info-viewer`).
///
/// # Errors
/// When it does not, or does not say so. Nothing of this is a refusal.
pub(crate) async fn check_ready(client: &Client) -> Result<(), Error> {
    let request = Request::get("/readyz").body(Vec::new()).map_err(Error::HttpError)?;
    match client.request_text(request).await {
        Err(Error::Api(said)) => Err(Error::Service(format!("the API server is not ready: {}", said.message).into())),
        answer => answer.map(drop),
    }
}

/// What the API server answers; where it forbids something, what it answers once it is ready.
///
/// # Errors
/// The API server's.
pub(crate) async fn retry_forbidden<T, F>(client: &Client, ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    match ask().await {
        Err(error) if status(&error) == Some(403) => {
            check_ready(client).await?;
            ask().await
        }
        answer => answer,
    }
}
