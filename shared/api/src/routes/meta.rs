//! Routes about the server itself.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use crate::{HttpProblem, console};

/// Returns the OpenAPI document.
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "getOpenApi", responses((status = 200, description = "OpenAPI 3.1")))]
pub(crate) async fn openapi_document() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::openapi())
}

/// Returns 200 while the server runs.
#[utoipa::path(get, path = "/healthz", operation_id = "getHealth", responses((status = 200, body = String)))]
pub(crate) async fn health() -> &'static str {
    "ok"
}

pub(crate) async fn not_found(uri: Uri) -> HttpProblem {
    HttpProblem::not_found(format!("unknown path {}; GET /v1/openapi.json lists all paths", uri.path()))
}

/// A path of the console answers with a page.
pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not accept {method}", uri.path());
    console::problem(&uri, HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)).await
}
