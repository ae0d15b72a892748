//! The handlers, thin: what HTTP says in, what HTTP says out.

pub(super) mod access;
pub(super) mod callbacks;
pub(super) mod lifecycle;
pub(super) mod meta;
pub(super) mod plans;
pub(super) mod plugins;
pub(super) mod runs;
pub(super) mod targets;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use super::HttpProblem;

/// Reads a body of at most `limit` bytes.
async fn read(body: Body, limit: usize) -> Result<Bytes, HttpProblem> {
    to_bytes(body, limit).await.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.to_string().contains("length limit"));
        if too_large {
            let detail = format!("the body is larger than {limit} bytes");
            HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
        } else {
            HttpProblem::new(StatusCode::BAD_REQUEST, "body", format!("the body broke off: {error}"))
        }
    })
}

/// Reads a JSON body strictly.
async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, HttpProblem> {
    let bytes = read(body, ebb_wire::limits::API_BODY).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        HttpProblem::new(
            StatusCode::BAD_REQUEST,
            "json",
            format!("the body is not what is expected: {error}"),
        )
    })
}
