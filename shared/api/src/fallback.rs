//! The responses to requests that no route accepts.

use axum::http::{Method, Uri};
use axum::response::Response;
use ebb_protocol::error_code::ErrorCode;

use crate::{HttpProblem, console};

pub(crate) async fn not_found(uri: Uri) -> HttpProblem {
    HttpProblem::not_found(format!("unknown path {}; GET /v1/openapi.json lists all paths", uri.path()))
}

/// A path of the console answers with a page.
pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not accept {method}", uri.path());
    console::problem(&uri, HttpProblem::new(ErrorCode::MethodNotAllowed, detail)).await
}
