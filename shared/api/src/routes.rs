//! The handlers. They translate between HTTP and the functions that they call.

pub(super) mod auth;
pub(super) mod callbacks;
pub(super) mod clusters;
pub(super) mod lifecycle;
pub(super) mod mcp;
pub(super) mod meta;
pub(super) mod named_documents;
pub(super) mod permitted;
mod plugin_upgrades;
pub(super) mod plugins;
pub(super) mod runs;
pub(super) mod sources;
mod target_access;
pub(super) mod target_actions;
pub(super) mod target_changes;
pub(super) mod target_history;
pub(super) mod target_list;
pub(super) mod target_requests;
pub(super) mod targets;
pub(super) mod tokens;

use std::fmt;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri};
use ebb_protocol::error_code::ErrorCode;
use serde::de::DeserializeOwned;

use super::{HttpProblem, HttpResult, bodies};

/// Maximum bytes of a name in a path: a target name of characters of four bytes. DynamoDB rejects much longer keys.
const MAX_NAME: usize = 4 * ebb_protocol::lifecycle::LifecycleData::MAX_NAME;

/// The names in a path. A malformed name is rejected with a problem, a name that is too long with 404. utoipa recognises
/// an extractor of path parameters by the name `Path`.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HttpResult<Self> {
        let malformed = |detail: String| HttpProblem::new(ErrorCode::InvalidPath, detail);
        let raw = RawPathParams::from_request_parts(parts, state).await;
        if raw.map_err(|rejection| malformed(rejection.body_text()))?.iter().any(|(_, name)| name.len() > MAX_NAME) {
            return Err(HttpProblem::not_found(format!("a name in the path has more than {MAX_NAME} bytes")));
        }
        let names = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        names.map(|names| Self(names.0)).map_err(|rejection| malformed(rejection.body_text()))
    }
}

/// The query parameters. Wrong ones are rejected with a problem. utoipa recognises the extractor by the name `Query`.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HttpResult<Self> {
        let parameters = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        parameters.map(|parameters| Self(parameters.0)).map_err(|rejection| {
            let text = rejection.body_text();
            let reason = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            HttpProblem::new(ErrorCode::InvalidQuery, format!("a query parameter is missing or wrong: {reason}"))
        })
    }
}

/// The query of a route without parameters. A parameter is rejected: it would have no effect.
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> HttpResult<Self> {
        Self::check(&parts.uri)
    }
}

impl NoQuery {
    fn check(uri: &Uri) -> HttpResult<Self> {
        if uri.query().is_none_or(str::is_empty) {
            return Ok(Self);
        }
        Err(HttpProblem::new(ErrorCode::InvalidQuery, "this path has no query parameters: remove those of the request"))
    }
}

/// A JSON body of at most [`API_BODY`](ebb_protocol::limits::API_BODY) bytes. The content type is not checked. The route has
/// no query parameters: a `dryRun` there would have no effect.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, _: &S) -> HttpResult<Self> {
        NoQuery::check(request.uri())?;
        read_json_within(request.into_body(), ebb_protocol::limits::API_BODY).await.map(Self)
    }
}

pub(super) async fn not_found(uri: Uri) -> HttpProblem {
    HttpProblem::not_found(format!("unknown path {}; GET /v1/openapi.json lists all paths", uri.path()))
}

/// Returns the headers of a response with secrets. No cache keeps it.
pub(crate) fn no_store() -> HeaderMap {
    HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("no-store"))])
}

pub(crate) async fn read(body: Body, limit: usize) -> HttpResult<Bytes> {
    to_bytes(body, limit).await.map_err(|error| bodies::incomplete(&error, limit))
}

async fn read_optional_json<T: DeserializeOwned + Default>(body: Body) -> HttpResult<T> {
    let bytes = read(body, ebb_protocol::limits::API_BODY).await?;
    if bytes.is_empty() { Ok(T::default()) } else { Ok(parse_json::<Option<T>>(&bytes)?.unwrap_or_default()) }
}

async fn read_json_within<T: DeserializeOwned>(body: Body, limit: usize) -> HttpResult<T> {
    parse_json(&read(body, limit).await?)
}

pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> HttpResult<T> {
    let invalid = |reason: &dyn fmt::Display| {
        HttpProblem::new(ErrorCode::InvalidJson, format!("the body is not the expected JSON: {reason}"))
    };
    // Serde reads the items of a list as the members of an object, by their position.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(invalid(&"it is a list; send an object"));
    }
    serde_json::from_slice(bytes).map_err(|error| invalid(&error))
}
