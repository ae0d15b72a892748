//! `POST /v1/events`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_protocol::api::ProblemDetails;
use ebb_protocol::cloudevents::{self, EventError};
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResponse};
use ebb_protocol::limits;
use ebb_protocol::sign::{self, SignatureError};
use ebb_protocol::unit::TRACEPARENT;

use crate::background::{self, RemainingWork};
use crate::bodies::{BodyBudget, check_length};
use crate::{HttpProblem, ServerState};
use ebb_flow::target::lifecycle::{self, LifecycleRejection};
use ebb_flow::telemetry;

/// Receives a lifecycle webhook: a CloudEvent in structured mode, signed with Standard Webhooks. A repeated webhook
/// gets the same response.
#[utoipa::path(post, path = "/v1/events", operation_id = "receiveEvent", tag = "lifecycle", request_body = LifecycleData, responses(
    (status = 202, body = LifecycleResponse, description = "Taken; the result comes as a notification."),
    (status = 400, body = ProblemDetails, description = "Not a CloudEvent."),
    (status = 401, body = ProblemDetails, description = "Unsigned, wrongly signed, or too old."),
    (status = 409, body = ProblemDetails, description = "The life is over, its name is taken, or the update would change a living target."),
    (status = 413, body = ProblemDetails, description = "Larger than 1 MiB."),
    (status = 415, body = ProblemDetails, description = "Not an event in structured mode. The binary mode is refused because its event type is not signed."),
    (status = 422, body = ProblemDetails, description = "A kind of event or a document that cannot be used."),
    (status = 408, body = ProblemDetails, description = "The body did not arrive in time."),
    (status = 503, body = ProblemDetails, description = "Try again; `busy`: too many requests are being received."),
))]
pub(crate) async fn receive(
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Option<Extension<RemainingWork>>, Json<LifecycleResponse>), HttpProblem> {
    let env = &server.env;
    let unsigned =
        |error: SignatureError| HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid-signature", error.to_string());
    let no_event = |error: EventError| {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        HttpProblem::new(status, "invalid-event", error.to_string())
    };
    // The head is judged before there is memory for a body.
    check_length(&headers, limits::WEBHOOK_BODY)?;
    sign::check_headers(&headers, env.now()).map_err(unsigned)?;
    cloudevents::check_content_type(&headers).map_err(no_event)?;
    let body = bodies.read(&headers, body, limits::WEBHOOK_BODY).await?;
    // Nothing is parsed before the signature is proven.
    sign::verify(&env.settings.webhook_keys, &headers, body.as_ref(), env.now()).map_err(unsigned)?;
    let event = cloudevents::parse(&headers, body.as_ref()).map_err(no_event)?;
    drop(body);
    // That of the request comes from the nearest; that of the event is signed, and as old as the event.
    let header = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let parents = header.into_iter().chain(event.traceparent.as_deref());
    telemetry::webhook_received(&event.data.kind, &event.data.name, parents);
    let plugins: &dyn ebb_flow::env::ApiStore = server.store.as_ref();
    let (answer, follow_up) = Box::pin(lifecycle::begin(env, plugins, event.event_type, &event.data)).await?;
    let remainder = background::run_follow_up(env, follow_up).await?;
    Ok((StatusCode::ACCEPTED, remainder, Json(answer)))
}

impl From<LifecycleRejection> for HttpProblem {
    fn from(rejection: LifecycleRejection) -> Self {
        match rejection {
            LifecycleRejection::Conflict(code, detail) => Self::new(StatusCode::CONFLICT, code, detail),
            LifecycleRejection::Changed(changes) => Self::changed(changes),
            LifecycleRejection::Document(errors) => errors.into(),
            LifecycleRejection::Missing(detail) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "missing-field", detail),
        }
    }
}
