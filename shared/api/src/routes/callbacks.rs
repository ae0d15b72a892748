//! `POST /v1/callbacks`.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_protocol::api::ProblemDetails;
use ebb_protocol::callback::Callback;
use ebb_protocol::limits;
use ebb_protocol::token::TokenKind;

use super::auth::bearer;
use crate::background::{self, RemainingWork};
use crate::bodies::check_length;
use crate::{HttpProblem, ServerState};
use ebb_flow::run::callback::{self, CallbackOutcome};

const NOT_VALID: &str = "the token is not valid here";

/// Applies the result or the progress of an attempt. The bearer token is the token of that attempt.
#[utoipa::path(post, path = "/v1/callbacks", operation_id = "receiveCallback", tag = "callbacks", request_body = Callback, responses(
    (status = 204, description = "Taken."),
    (status = 400, body = ProblemDetails, description = "Not a callback."),
    (status = 401, body = ProblemDetails, description = "No token."),
    (status = 403, body = ProblemDetails, description = "Not a token of ours, or an expired one."),
    (status = 409, body = ProblemDetails, description = "`late-result`: too late to count; a success is recorded, and its cleanup runs. `too-many-results`: the attempt has reported 16 distinct results; further ones are counted only."),
    (status = 410, body = ProblemDetails, description = "The run does not exist, or the attempt of an expired token has ended."),
    (status = 413, body = ProblemDetails, description = "Larger than 5 MiB."),
    (status = 503, body = ProblemDetails, description = "Try again."),
))]
pub(crate) async fn complete(
    State(server): State<ServerState>,
    headers: HeaderMap,
    body: Body,
) -> Result<(Option<Extension<RemainingWork>>, Result<StatusCode, HttpProblem>), HttpProblem> {
    let Some(token) = bearer(&headers) else {
        let detail = "a callback needs `Authorization: Bearer TOKEN` with the token that the unit was sent with";
        return Err(HttpProblem::new(StatusCode::UNAUTHORIZED, "missing-token", detail));
    };
    let problem = |status, code, detail: &str| Err(HttpProblem::new(status, code, detail));
    // The head is judged before there is memory for a body.
    check_length(&headers, limits::CALLBACK_BODY)?;
    let Some(token) = callback::verify_token(&server.env, token) else {
        return Err(HttpProblem::new(StatusCode::FORBIDDEN, "invalid-token", NOT_VALID));
    };
    let body = super::read(body, limits::CALLBACK_BODY).await?;
    let (taken, follow_up) = Box::pin(callback::begin(&server.env, token, &body)).await?;
    let remainder = background::run_follow_up(&server.env, follow_up).await?;
    let answer = match taken {
        // A relay repeats a result until it is taken, and a late or further one changes nothing more.
        CallbackOutcome::Accepted
        | CallbackOutcome::Late(TokenKind::Relay)
        | CallbackOutcome::Excess(TokenKind::Relay) => Ok(StatusCode::NO_CONTENT),
        CallbackOutcome::Late(TokenKind::Webhook) => problem(
            StatusCode::CONFLICT,
            "late-result",
            "the result is too late to count; a success is recorded, and its cleanup runs",
        ),
        CallbackOutcome::Excess(TokenKind::Webhook) => problem(
            StatusCode::CONFLICT,
            "too-many-results",
            &format!(
                "this attempt has reported {} distinct results; further ones are counted and not kept. Report one \
                 result, and repeat it unchanged",
                limits::DISTINCT_RESULTS
            ),
        ),
        CallbackOutcome::Forbidden => problem(StatusCode::FORBIDDEN, "invalid-token", NOT_VALID),
        CallbackOutcome::Expired(TokenKind::Relay) => {
            problem(StatusCode::GONE, "gone", "the attempt has ended, and the token has expired")
        }
        CallbackOutcome::Expired(TokenKind::Webhook) => {
            problem(StatusCode::FORBIDDEN, "token-expired", "the token has expired")
        }
        CallbackOutcome::Gone => problem(StatusCode::GONE, "gone", "the run does not exist"),
        CallbackOutcome::Malformed(detail) => problem(StatusCode::BAD_REQUEST, "invalid-callback", &detail),
    };
    Ok((remainder, answer))
}
