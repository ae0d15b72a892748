//! The responses to requests that no route accepts.

use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use crate::{HttpProblem, console};

pub(crate) async fn not_found(uri: Uri) -> HttpProblem {
    HttpProblem::not_found(format!("unknown path {}; GET /v1/openapi.json lists all paths", uri.path()))
}

/// A path of the console answers with a page.
pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not accept {method}", uri.path());
    console::problem(&uri, HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)).await
}
