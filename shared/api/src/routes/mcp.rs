//! Serves the tools of agents: `/mcp`, the Model Context Protocol over HTTP.
//!
//! A tool sends requests to the routes of this program, with the token of its caller. The protocol runs a tool as a task.
//! Its requests are handled here and not in that task, so that they belong to the invocation of the request to `/mcp`.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{self, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use ebb_protocol::{ErrorCode, limits};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tower::ServiceExt as _;

use crate::mcp::{ApiTransport, EbbTools, ToolAccess};
use crate::{HttpProblem, HttpResult, RemainingWork, ServerState};

/// The response to a tool, or the reason why there is none.
type ToolResponse = Result<http::Response<Vec<u8>>, String>;

/// Passes the requests of tools to [`serve`], each with the sender of its response.
struct OwnRoutes {
    requests: mpsc::Sender<(http::Request<String>, oneshot::Sender<ToolResponse>)>,
    /// The header with the token of the caller.
    authorization: Option<HeaderValue>,
}

impl ApiTransport for OwnRoutes {
    fn send(&self, mut request: http::Request<String>) -> BoxFuture<'_, ToolResponse> {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        async move {
            let ended = || "the request has ended".to_owned();
            let (reply, response) = oneshot::channel();
            self.requests.send((request, reply)).await.map_err(|_| ended())?;
            response.await.unwrap_or_else(|_| Err(ended()))
        }
        .boxed()
    }
}

/// Serves one request. The caller is verified before the body is read. `routes` serve the requests of the tools.
pub(crate) async fn serve(server: &ServerState, routes: &Router, request: Request) -> HttpResult<Response> {
    server.authenticate(request.headers()).await?;
    let authorization = request.headers().get(header::AUTHORIZATION).cloned();
    let (requests, mut received) = mpsc::channel(1);
    let tools = EbbTools::new(OwnRoutes { requests, authorization }, ToolAccess::ByScopes);
    let service = crate::mcp::http_service(tools, &server.env.settings.source);
    let mut served = Box::pin(service.handle(request));
    let mut rests = Vec::new();
    let response = loop {
        tokio::select! {
            response = &mut served => break response,
            Some((request, reply)) = received.recv() => {
                let mut response = routes.clone().oneshot(request.map(Body::from)).await.into_response();
                rests.push(response.extensions_mut().remove::<RemainingWork>().map(Extension));
                // The tool does not wait any more if its client has cancelled it.
                reply.send(collected(response).await).ok();
            }
        }
    };
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        let problem =
            HttpProblem::new(ErrorCode::InvalidHeader, "expected the header `Content-Type: application/json`");
        return Err(problem.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let mut response = response.map(Body::new);
    // A tool can change several targets.
    if let Some(Extension(rest)) = RemainingWork::joined(rests) {
        response.extensions_mut().insert(rest);
    }
    Ok(response)
}

async fn collected(response: Response) -> ToolResponse {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, limits::LAMBDA_EVENT).await.map_err(|error| error.to_string())?;
    Ok(http::Response::from_parts(parts, body.to_vec()))
}
