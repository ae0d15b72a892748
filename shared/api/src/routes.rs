//! The handlers, thin: what HTTP says in, what HTTP says out.

pub(super) mod auth;
pub(super) mod callbacks;
pub(super) mod checks;
pub(super) mod clusters;
pub(super) mod lifecycle;
pub(super) mod meta;
pub(super) mod orphans;
pub(super) mod plans;
pub(super) mod plugins;
pub(super) mod runs;
pub(super) mod targets;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::{HttpProblem, bodies};

/// Bytes of the longest name that anything has: a target's, of characters of four bytes. The table refuses keys that
/// are much longer.
const MAX_NAME: usize = 4 * ebb_protocol::lifecycle::LifecycleData::MAX_NAME;

/// The names in a path. A name that cannot be read is answered as a problem, a name that is too long as not found. utoipa
/// recognises an extractor of path parameters by the name of this type.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        let raw = RawPathParams::from_request_parts(parts, state).await?;
        if raw.iter().any(|(_, name)| name.len() > MAX_NAME) {
            return Err(HttpProblem::not_found("no name is as long as the one in this path"));
        }
        let axum::extract::Path(names) = axum::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(names))
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(body: Body, limit: usize) -> Result<Bytes, HttpProblem> {
    to_bytes(body, limit).await.map_err(|error| bodies::broken(&error, limit))
}

/// Reads a JSON body strictly.
async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, HttpProblem> {
    let bytes = read(body, ebb_protocol::limits::API_BODY).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        HttpProblem::new(StatusCode::BAD_REQUEST, "invalid-json", format!("the body is not what is expected: {error}"))
    })
}
