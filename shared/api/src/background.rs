//! Runs each request as an invocation, which may continue after its response.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use ebb_flow::background::{self, BackgroundTasks};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use ebb_flow::{Env, FlowResult, FollowUp};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::sync::oneshot;

/// The rest of an invocation whose response is ready, as an extension of the response.
#[derive(Clone)]
pub(crate) struct RemainingWork(Shared<BoxFuture<'static, ()>>);

/// The work of a request that continues after its response, or `None`.
pub(crate) type RestOfRequest = Option<Extension<RemainingWork>>;

impl RemainingWork {
    fn new(rest: BoxFuture<'static, ()>) -> Extension<Self> {
        Extension(Self(rest.shared()))
    }

    /// Returns the rests of several requests as one. They run at the same time.
    pub(crate) fn joined(rests: Vec<RestOfRequest>) -> RestOfRequest {
        let rests: Vec<_> = rests.into_iter().flatten().map(|Extension(work)| work.0).collect();
        (!rests.is_empty()).then(|| Self::new(futures::future::join_all(rests).map(drop).boxed()))
    }

    fn take(response: &mut Response) -> Option<Shared<BoxFuture<'static, ()>>> {
        response.extensions_mut().remove::<Self>().map(|work| work.0)
    }
}

/// Runs the follow-up of an accepted request in the same way as [`background::run_follow_up`]. Returns the rest.
pub(crate) async fn run_follow_up(env: &Arc<Env>, follow_up: FollowUp) -> FlowResult<RestOfRequest> {
    Ok(background::run_follow_up(env, follow_up).await?.map(RemainingWork::new))
}

/// Runs the follow-ups of a request whose state is durable. Returns their rests as one.
pub(crate) async fn run_follow_ups(env: &Arc<Env>, follow_ups: Vec<FollowUp>) -> RestOfRequest {
    let follow_ups: Vec<_> = follow_ups.into_iter().map(|follow_up| run_follow_up(env, follow_up)).collect();
    run_in_turn(follow_ups).await
}

async fn run_in_turn(follow_ups: Vec<impl Future<Output = FlowResult<RestOfRequest>>>) -> RestOfRequest {
    let mut rests = Vec::new();
    for follow_up in follow_ups {
        // The state is durable, so a sweep does what is left.
        match follow_up.await {
            Ok(rest) => rests.push(rest),
            Err(error) => tracing::warn!(%error, "the follow-up of a request failed; a sweep continues"),
        }
    }
    RemainingWork::joined(rests)
}

/// Returns the function that serves a request on AWS.
fn function(request: &Request) -> FunctionKind {
    let (method, path) = (request.method(), request.uri().path());
    match path {
        "/v1/events" => FunctionKind::Receive,
        "/v1/targets" if *method == Method::POST => FunctionKind::Receive,
        _ if path.starts_with("/v1/sources/") && *method == Method::POST => FunctionKind::Receive,
        _ if path.starts_with("/v1/targets/") && *method == Method::DELETE => FunctionKind::Receive,
        "/v1/callbacks" => FunctionKind::Complete,
        _ => FunctionKind::Api,
    }
}

/// Runs each request to `router` as an invocation. `origin` returns the origin of a request.
///
/// An invocation that changes state is a task of `tasks`. It continues after the response, and when the client
/// disconnects.
pub fn instrument_router(
    telemetry: Arc<Telemetry>,
    router: Router,
    tasks: &Arc<BackgroundTasks>,
    origin: fn(&Request) -> InvocationOrigin,
) -> Router {
    let tasks = Arc::clone(tasks);
    router.layer(from_fn(move |request: Request, next: Next| {
        let (telemetry, tasks) = (Arc::clone(&telemetry), Arc::clone(&tasks));
        async move {
            let (function, origin) = (function(&request), origin(&request));
            // The invocation of a change continues when the client disconnects. A poll of a relay can be repeated.
            let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
            let changes = !reads && !request.uri().path().ends_with("/poll");
            let (sender, receiver) = oneshot::channel();
            let handler = async move {
                let mut response = next.run(request).await;
                let rest = RemainingWork::take(&mut response);
                // This fails if the client has disconnected.
                sender.send(response).ok();
                if let Some(rest) = rest {
                    rest.await;
                }
            };
            let invocation = async move { telemetry.invoke(function, origin, handler).await };
            if changes {
                tasks.spawn(invocation);
            } else {
                invocation.await;
            }
            // A task that panicked sends no response.
            receiver.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Returns the result of a follow-up whose rest ends when it is released.
    async fn with_rest(released: oneshot::Receiver<()>, ended: Arc<AtomicUsize>) -> FlowResult<RestOfRequest> {
        let rest = async move {
            released.await.unwrap();
            ended.fetch_add(1, SeqCst);
        };
        Ok(Some(RemainingWork::new(rest.boxed())))
    }

    #[tokio::test]
    async fn the_rest_of_each_follow_up_ends() {
        let ended = Arc::new(AtomicUsize::new(0));
        let ((first, first_released), (second, second_released)) = (oneshot::channel(), oneshot::channel());
        let follow_ups = [first_released, second_released].map(|released| with_rest(released, Arc::clone(&ended)));
        let rest = run_in_turn(Vec::from(follow_ups)).await;
        let mut response = (StatusCode::ACCEPTED, rest, ()).into_response();
        let rest = tokio::spawn(RemainingWork::take(&mut response).unwrap());
        // A rest that was dropped cannot be released.
        second.send(()).unwrap();
        first.send(()).unwrap();
        rest.await.unwrap();
        assert_eq!(ended.load(SeqCst), 2);
    }
}
