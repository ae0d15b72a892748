//! The client by which a relay asks the API server.

use std::sync::Arc;

use kube::{Client, Config};
use tokio::sync::Semaphore;

/// Requests that wait for an answer at one time. Each has a connection, which is kept for the next: without a limit a
/// relay that is started again opens one for every task. What streams, as a watch does, counts until it begins.
const REQUESTS: usize = 64;

/// A client for a relay; further requests wait until one is answered.
///
/// # Errors
/// When the configuration names what cannot be read.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let client = Client::try_from(config)?;
    let (namespace, room) = (client.default_namespace().to_owned(), Arc::new(Semaphore::new(REQUESTS)));
    let limited = tower::service_fn(move |request| {
        let (client, room) = (client.clone(), room.clone());
        async move {
            // Nobody closes it.
            let _place = room.acquire().await;
            client.send(request).await
        }
    });
    Ok(Client::new(limited, namespace))
}
