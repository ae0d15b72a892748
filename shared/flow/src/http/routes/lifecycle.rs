//! `POST /v1/events`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_wire::api::Problem;
use ebb_wire::cloudevents;
use ebb_wire::lifecycle::{Lifecycle, LifecycleAnswer};
use ebb_wire::limits;
use ebb_wire::sign;
use ebb_wire::unit::TRACEPARENT;

use crate::http::{HttpProblem, Server};
use crate::observe;
use crate::receive::{self, NotTaken};

/// Takes a lifecycle webhook: a CloudEvent in structured mode, signed with Standard Webhooks. The same webhook again
/// gets the same answer.
#[utoipa::path(post, path = "/v1/events", tag = "lifecycle", request_body = Lifecycle, responses(
    (status = 202, body = LifecycleAnswer, description = "Taken; the outcome comes as an event."),
    (status = 400, body = Problem, description = "Not a CloudEvent."),
    (status = 401, body = Problem, description = "Unsigned, wrongly signed, or too old."),
    (status = 409, body = Problem, description = "The life is over, or its name is taken."),
    (status = 413, body = Problem, description = "Larger than 1 MiB."),
    (status = 415, body = Problem, description = "Not an event in structured mode. The binary mode is refused because its event type is not signed."),
    (status = 422, body = Problem, description = "A kind of event or a document that cannot be used."),
    (status = 503, body = Problem, description = "Try again."),
))]
pub(crate) async fn receive(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<LifecycleAnswer>), HttpProblem> {
    let body = super::read(body, limits::WEBHOOK_BODY).await?;
    let env = &server.env;
    // Nothing is parsed before the signature is proven.
    sign::verify(&env.settings.webhook_keys, &headers, &body, env.now())
        .map_err(|error| HttpProblem::new(StatusCode::UNAUTHORIZED, "signature", error.to_string()))?;
    let event = cloudevents::parse(&headers, &body).map_err(|error| {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        HttpProblem::new(status, "event", error.to_string())
    })?;
    // That of the request comes from the nearest; that of the event is signed, and as old as the event.
    let header = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let parents = header.into_iter().chain(event.traceparent.as_deref());
    observe::event(&event.data.kind, &event.data.name, parents);
    let plugins: &dyn crate::env::ApiStore = server.store.as_ref();
    match Box::pin(receive::receive(env, plugins, event.asked, &event.data)).await? {
        Ok(answer) => Ok((StatusCode::ACCEPTED, Json(answer))),
        Err(NotTaken::Conflict(code, detail)) => Err(HttpProblem::new(StatusCode::CONFLICT, code, detail)),
        Err(NotTaken::Document(errors)) => Err(HttpProblem::document(&errors)),
        Err(NotTaken::Missing(detail)) => {
            Err(HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "incomplete", detail))
        }
    }
}
