//! The Kubernetes client of the relay.
//!
//! An API server that has just started accepts requests before it has loaded all roles and kinds. A refusal is
//! therefore accepted only if the server reports that it is ready and refuses again.

use std::sync::Arc;

use http::Request;
use kube::client::Body;
use kube::{Client, Config, Error};
use tokio::sync::Semaphore;

use crate::error::status;

/// Requests that wait for a response at the same time. Each uses its own connection. Without a limit, a restarted relay
/// opens one per task. A watch counts until its stream begins.
const REQUESTS: usize = 64;

/// An extension of a request that must not be repeated. The client repeats others after the status 429, 503 or 504.
#[derive(Clone, Copy)]
pub(crate) struct SendOnce;

/// Creates a client that queues requests above the limit.
///
/// # Errors
/// Returns an error if a file that the configuration names cannot be read.
pub fn client(config: Config) -> Result<Client, Error> {
    let mut without_retry = config.clone();
    without_retry.default_retry = false;
    let (once, client) = (Client::try_from(without_retry)?, Client::try_from(config)?);
    let (namespace, permits) = (client.default_namespace().to_owned(), Arc::new(Semaphore::new(REQUESTS)));
    let limited = tower::service_fn(move |request: Request<Body>| {
        let client = if request.extensions().get::<SendOnce>().is_some() { once.clone() } else { client.clone() };
        let permits = permits.clone();
        async move {
            // This fails only if the semaphore is closed, which never happens.
            let _permit = permits.acquire().await;
            client.send(request).await
        }
    });
    Ok(Client::new(limited, namespace))
}

/// Checks that the API server is ready. Every account has this right (`system:public-info-viewer`).
pub(crate) async fn check_ready(client: &Client) -> Result<(), Error> {
    match client.request_text(Request::get("/readyz").body(Vec::new()).map_err(Error::HttpError)?).await {
        Err(Error::Api(status)) => Err(Error::Service(format!("it is not ready: {}", status.message).into())),
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
