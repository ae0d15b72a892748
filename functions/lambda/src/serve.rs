//! The event loop of an HTTP function: event, response, background tasks, next event.

use std::sync::Arc;

use axum::Router;
use ebb_api::ServerState;
use ebb_flow::background::BackgroundTasks;
use lambda_http::lambda_runtime::Runtime;
use lambda_http::lambda_runtime::layers::TracingLayer;
use lambda_http::{Adapter, Error};
use tower::util::MapFutureLayer;

use crate::{log, router};

/// Begins the log and serves the events of a function with its routes.
///
/// Lambda receives a response before the background tasks of its event end. Lambda freezes the function when it
/// requests the next event, which happens after these tasks have ended.
///
/// # Errors
/// Returns an error if Lambda's runtime interface fails.
pub async fn serve(routes: fn(ServerState) -> Router) -> Result<(), Error> {
    log();
    let background = Arc::new(BackgroundTasks::default());
    let router = router(routes, &background);
    let joined = MapFutureLayer::new(move |response| join(response, Arc::clone(&background)));
    Runtime::new(Adapter::from(router)).layer(TracingLayer::new()).layer(joined).run().await
}

async fn join<T>(response: impl Future<Output = T>, background: Arc<BackgroundTasks>) -> T {
    let response = response.await;
    background.join().await;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_next_event_waits_for_background_tasks() {
        let background = Arc::new(BackgroundTasks::default());
        let (go, held) = oneshot::channel::<()>();
        let done = Arc::new(AtomicBool::new(false));
        let set_done = Arc::clone(&done);
        background.spawn(async move {
            held.await.ok();
            set_done.store(true, Ordering::SeqCst);
        });
        let response = async move {
            // The task can end only after the response.
            go.send(()).ok();
        };
        join(response, background).await;
        assert!(done.load(Ordering::SeqCst));
    }
}
