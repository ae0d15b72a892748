//! `POST /v1/events`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_wire::api::Problem;
use ebb_wire::cloudevents::{self, EventError};
use ebb_wire::lifecycle::{Lifecycle, LifecycleAnswer};
use ebb_wire::limits;
use ebb_wire::sign::{self, SignatureError};
use ebb_wire::unit::TRACEPARENT;

use crate::background::{self, RemainingWork};
use crate::http::bodies::{BodyBudget, check_length};
use crate::http::{HttpProblem, Server};
use crate::observe;
use crate::receive::{self, NotTaken};

/// Takes a lifecycle webhook: a CloudEvent in structured mode, signed with Standard Webhooks. The same webhook again
/// gets the same answer.
#[utoipa::path(post, path = "/v1/events", operation_id = "receiveEvent", tag = "lifecycle", request_body = Lifecycle, responses(
    (status = 202, body = LifecycleAnswer, description = "Taken; the outcome comes as an event."),
    (status = 400, body = Problem, description = "Not a CloudEvent."),
    (status = 401, body = Problem, description = "Unsigned, wrongly signed, or too old."),
    (status = 409, body = Problem, description = "The life is over, its name is taken, or the update would change a living target."),
    (status = 413, body = Problem, description = "Larger than 1 MiB."),
    (status = 415, body = Problem, description = "Not an event in structured mode. The binary mode is refused because its event type is not signed."),
    (status = 422, body = Problem, description = "A kind of event or a document that cannot be used."),
    (status = 408, body = Problem, description = "The body did not arrive in time."),
    (status = 503, body = Problem, description = "Try again; `busy`: too many requests are being received."),
))]
pub(crate) async fn receive(
    State(server): State<Server>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Option<Extension<RemainingWork>>, Json<LifecycleAnswer>), HttpProblem> {
    let env = &server.env;
    let unsigned =
        |error: SignatureError| HttpProblem::new(StatusCode::UNAUTHORIZED, "signature", error.to_string());
    let no_event = |error: EventError| {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        HttpProblem::new(status, "event", error.to_string())
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
    observe::event(&event.data.kind, &event.data.name, parents);
    let plugins: &dyn crate::env::ApiStore = server.store.as_ref();
    let (answer, follow_up) = Box::pin(receive::begin(env, plugins, event.asked, &event.data)).await?;
    let remainder = background::follow(env, follow_up).await?;
    match answer {
        Ok(answer) => Ok((StatusCode::ACCEPTED, remainder, Json(answer))),
        Err(NotTaken::Conflict(code, detail)) => Err(HttpProblem::new(StatusCode::CONFLICT, code, detail)),
        Err(NotTaken::Changed(changes)) => Err(HttpProblem::changed(changes)),
        Err(NotTaken::Document(errors)) => Err(HttpProblem::document(&errors)),
        Err(NotTaken::Missing(detail)) => {
            Err(HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "incomplete", detail))
        }
    }
}
