//! Routes about the server itself.

use axum::Json;

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
