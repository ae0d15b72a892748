//! Handles callbacks of attempts: `POST /v1/callbacks`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_protocol::{Callback, ErrorCode, TokenKind, limits};

use crate::{HttpProblem, HttpResult, RestOfRequest, ServerState, background, bearer, check_length};
use ebb_flow::advance::callback::{self, CallbackOutcome};

const INVALID_TOKEN: &str = "the token is invalid, or is not the token of this attempt";

/// Records the result or the progress of an attempt. The bearer token is the token of that attempt.
#[utoipa::path(post, path = "/v1/callbacks", operation_id = "receiveCallback", tag = "callbacks", request_body = Callback)]
pub(crate) async fn complete(
    State(server): State<ServerState>,
    headers: HeaderMap,
    body: Body,
) -> HttpResult<(RestOfRequest, HttpResult<StatusCode>)> {
    let Some(token) = bearer(&headers) else {
        let detail = "the callback has no token: send `Authorization: Bearer TOKEN` with the token of the attempt";
        return Err(HttpProblem::new(ErrorCode::MissingToken, detail));
    };
    let problem = |code, detail: &str| Err(HttpProblem::new(code, detail));
    let unknown = || HttpProblem::new(ErrorCode::InvalidToken, INVALID_TOKEN).with_status(StatusCode::FORBIDDEN);
    check_length(&headers, limits::CALLBACK_BODY)?;
    let token = callback::verify_token(&server.env, token).ok_or_else(unknown)?;
    let body = super::read(body, limits::CALLBACK_BODY).await?;
    let (outcome, follow_up) = Box::pin(callback::begin(&server.env, token, &body)).await?;
    let rest = background::run_follow_up(&server.env, follow_up).await?;
    let response = match outcome {
        // A relay repeats a result until it is accepted. Repeating a late or excess one changes nothing.
        CallbackOutcome::Accepted
        | CallbackOutcome::Late(TokenKind::Relay)
        | CallbackOutcome::Excess(TokenKind::Relay) => Ok(StatusCode::NO_CONTENT),
        CallbackOutcome::Late(TokenKind::Webhook) => problem(
            ErrorCode::LateResult,
            "the attempt was given up before this result; a success is recorded and undone",
        ),
        CallbackOutcome::Excess(TokenKind::Webhook) => problem(
            ErrorCode::TooManyResults,
            &format!(
                "the attempt has reported {0} distinct results, or its unit {0} late ones; further ones are not undone. \
                 Report one result, and repeat it unchanged",
                limits::DISTINCT_RESULTS
            ),
        ),
        CallbackOutcome::Forbidden => Err(unknown()),
        CallbackOutcome::Expired(TokenKind::Relay) => {
            problem(ErrorCode::Gone, "the token has expired, and the attempt has ended")
        }
        CallbackOutcome::Expired(TokenKind::Webhook) => {
            let expired = HttpProblem::new(ErrorCode::TokenExpired, "the token has expired");
            Err(expired.with_status(StatusCode::FORBIDDEN))
        }
        CallbackOutcome::Gone => problem(ErrorCode::Gone, "the run does not exist"),
        CallbackOutcome::Malformed(detail) => problem(ErrorCode::InvalidCallback, &detail),
    };
    Ok((rest, response))
}
