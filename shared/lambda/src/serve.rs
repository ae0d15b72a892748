//! How Lambda runs a function behind HTTP: event, answer, the rest of the work, next event.

use std::sync::Arc;

use axum::Router;
use ebb_api::ServerState;
use ebb_flow::background::BackgroundTasks;
use lambda_http::lambda_runtime::Runtime;
use lambda_http::lambda_runtime::layers::TracingLayer;
use lambda_http::{Adapter, Error};
use tower::util::MapFutureLayer;

use crate::router;

/// Answers the events of a function, made of its routes. Lambda has the answer of an event before the rest of its work is
/// done, and freezes the function only when it asks for the next event.
///
/// # Errors
/// Lambda's runtime interface cannot be used.
pub async fn serve(routes: fn(ServerState) -> Router) -> Result<(), Error> {
    let background = Arc::new(BackgroundTasks::default());
    let router = router(routes, &background);
    let joined = MapFutureLayer::new(move |answered| join(answered, Arc::clone(&background)));
    Runtime::new(Adapter::from(router)).layer(TracingLayer::new()).layer(joined).run().await
}

/// Waits until the answer is sent, then until the rest of the work is done.
async fn join<T>(answered: impl Future<Output = T>, background: Arc<BackgroundTasks>) -> T {
    let answered = answered.await;
    background.join().await;
    answered
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_next_event_waits_for_the_rest_of_the_work() {
        let background = Arc::new(BackgroundTasks::default());
        let (go, held) = oneshot::channel::<()>();
        let done = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&done);
        background.spawn(async move {
            held.await.ok();
            noted.store(true, Ordering::SeqCst);
        });
        let answered = async move {
            // The answer is out before the work may end.
            go.send(()).ok();
        };
        join(answered, background).await;
        assert!(done.load(Ordering::SeqCst));
    }
}
