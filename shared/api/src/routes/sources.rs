//! Handles events of sources: `POST /v1/sources/NAME`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_flow::source::delivery::{self, DeliveryRequest};
use ebb_protocol::{SourceResponse, SourceResult, limits};
use serde::Deserialize;

use crate::{BodyBudget, HttpResult, Path, Query, RestOfRequest, ServerState, background, check_length};

/// The credentials of a sender that signs nothing.
#[derive(Deserialize)]
pub(crate) struct DeliveryQuery {
    /// The secret of a source with `verify: {url: …}`.
    secret: Option<String>,
}

/// Receives an event of a source. A request without the proof of its sender is refused before the body is read, and the
/// proof is verified before the body is parsed. A verified event gets a status
/// 2xx, also one that changes nothing, because senders disable an endpoint that responds with errors.
#[utoipa::path(post, path = "/v1/sources/{name}", operation_id = "receiveSourceEvent", tag = "sources",
    request_body(content = serde_json::Value, content_type = "application/json", description = "The event of the sender: any JSON. The content type is not checked."),
    responses(
    (status = 200, body = SourceResponse, description = "The event changes nothing: it is ignored, repeated, outdated or rejected."),
    (status = 202, body = SourceResponse, description = "The event is stored. It was applied, or will be."),
))]
pub(crate) async fn receive(
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    Path(name): Path<String>,
    query: HttpResult<Query<DeliveryQuery>>,
    headers: HeaderMap,
    body: Body,
) -> HttpResult<(StatusCode, RestOfRequest, Json<SourceResponse>)> {
    check_length(&headers, limits::SOURCE_BODY)?;
    let Query(DeliveryQuery { secret }) = query?;
    let url_secret = secret.as_deref();
    let source = delivery::open(&server.env, &name, (&headers, url_secret)).await?;
    let body = bodies.read(&headers, body, limits::SOURCE_BODY).await?;
    let request = DeliveryRequest { headers: &headers, url_secret, body: &body.bytes };
    let (outcome, follow_ups) = Box::pin(delivery::receive(&server.env, (&name, source), request)).await?;
    drop(body);
    let status = match outcome.result {
        SourceResult::Ignored | SourceResult::Repeated | SourceResult::Outdated | SourceResult::Rejected => {
            StatusCode::OK
        }
        _ => StatusCode::ACCEPTED,
    };
    let rest = background::run_follow_ups(&server.env, follow_ups).await;
    Ok((status, rest, Json(outcome)))
}
