//! Handles lifecycle webhooks: `POST /v1/events`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_engine::target::RequestSender;
use ebb_protocol::{ErrorCode, EventError, LifecycleResponse, SignatureError, TRACEPARENT, cloudevents, limits, sign};

use crate::{BodyBudget, HttpProblem, HttpResult, RestOfRequest, ServerState, background, check_length};
use ebb_flow::lifecycle::{self, DecidedFor};
use ebb_flow::telemetry;

/// Receives a lifecycle webhook: a CloudEvent in structured mode, signed as in Standard Webhooks. A repeated webhook gets
/// the same response.
#[utoipa::path(post, path = "/v1/events", operation_id = "receiveEvent", tag = "lifecycle", responses(
    (status = 202, body = LifecycleResponse, description = "Accepted. The outcome follows as a notification."),
))]
pub(crate) async fn receive(
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    body: Body,
) -> HttpResult<(StatusCode, RestOfRequest, Json<LifecycleResponse>)> {
    let env = &server.env;
    let unsigned = |error: SignatureError| HttpProblem::new(ErrorCode::InvalidSignature, error.to_string());
    let invalid_event = |error: EventError| {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        HttpProblem::new(ErrorCode::InvalidEvent, error.to_string()).with_status(status)
    };
    check_length(&headers, limits::WEBHOOK_BODY)?;
    sign::check_headers(&headers, env.now()).map_err(unsigned)?;
    cloudevents::check_content_type(&headers).map_err(invalid_event)?;
    let body = bodies.read(&headers, body, limits::WEBHOOK_BODY).await?;
    // The signature is verified before anything is parsed.
    sign::verify(&env.settings.webhook_keys, &headers, &body.bytes, env.now()).map_err(unsigned)?;
    let event = cloudevents::parse(&headers, &body.bytes).map_err(invalid_event)?;
    drop(body);
    lifecycle::check_uid(env, event.event_type, &event.data).await?;
    // The header names the nearest caller. The attribute of the event is signed, and is as old as the event.
    let header = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let parents = header.into_iter().chain(event.traceparent.as_deref());
    telemetry::webhook_received(&event.data.kind, &event.data.name, parents);
    let (requester, decided) = (RequestSender::Platform.into(), DecidedFor::Any);
    let begun = lifecycle::begin(env, &env.store, (event.event_type, &event.id), &event.data, requester, decided);
    let (response, follow_up) = Box::pin(begun).await?;
    let rest = background::run_follow_up(env, follow_up).await?;
    Ok((StatusCode::ACCEPTED, rest, Json(response)))
}
