//! The Kubernetes client of the relay.

use std::sync::Arc;

use kube::{Client, Config};
use tokio::sync::Semaphore;

/// Requests that wait for a response at the same time. Each uses a connection of its own: without a limit, a restarted
/// relay opens one per task. A watch counts until its stream begins.
const REQUESTS: usize = 64;

/// Creates a client that queues requests above the limit.
///
/// # Errors
/// Returns an error if a file that the configuration names cannot be read.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let client = Client::try_from(config)?;
    let (namespace, permits) = (client.default_namespace().to_owned(), Arc::new(Semaphore::new(REQUESTS)));
    let limited = tower::service_fn(move |request| {
        let (client, permits) = (client.clone(), permits.clone());
        async move {
            // Fails only if the semaphore is closed, which never happens.
            let _permit = permits.acquire().await;
            client.send(request).await
        }
    });
    Ok(Client::new(limited, namespace))
}
