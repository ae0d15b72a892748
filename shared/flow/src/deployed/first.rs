//! A function begins to work when the first event comes, and not before.
//!
//! Clients, certificates of authorities and the secret take longer than all else that a start does. Lambda counts a
//! start from the beginning of the program until it asks for an event; what is done after that can fail without ending
//! the function, and the next event finds it tried again.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::OnceCell;
use tower::ServiceExt as _;

use super::{Deployed, DeployedError};
use crate::http::{HttpProblem, Server};

/// The routes of a function whose surroundings are made [from the environment](Deployed::from_environment) when the first
/// request comes. What is wrong with them is logged, and answered with 503; the next request has them made again.
pub fn router(routes: fn(Server) -> Router) -> Router {
    let made: Arc<OnceCell<Router>> = Arc::default();
    Router::new().fallback(move |request: Request| {
        let made = Arc::clone(&made);
        async move {
            let make = || async { Deployed::from_environment().await.map(|made| made.router(routes)) };
            match made.get_or_try_init(make).await {
                Ok(router) => router.clone().oneshot(request).await.into_response(),
                Err(error) => refused(&error),
            }
        }
    })
}

fn refused(error: &DeployedError) -> Response {
    tracing::error!(%error, "the function cannot work");
    let detail = "the function cannot work as it is deployed; its log says why";
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};

    use super::*;

    /// Nothing is set where tests run: the function is there, and says that it cannot work without saying more.
    #[tokio::test]
    async fn a_function_without_surroundings_answers() {
        let router = router(crate::http::api);
        for _ in 0..2 {
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            let body = to_bytes(answer.into_body(), 1 << 10).await.unwrap();
            assert!(!String::from_utf8_lossy(&body).contains("AWS_"), "{body:?}");
        }
    }
}
