//! Routes about the server itself, and checks of the deployment: `/v1/checks`.

use axum::Json;
use ebb_protocol::api::CheckList;

use crate::queries::checks;
use crate::{HttpResult, NoQuery, Operate, Permitted};

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

/// Checks table, indexes, bucket, queue, schedule and relays, and returns a result for each. Takes up to 10 s. Scope:
/// `operate`.
#[utoipa::path(get, path = "/v1/checks", operation_id = "listChecks", tag = "checks", responses(
    (status = 200, body = CheckList, description = "The result of each check. Failed checks have `passed: false`."),
))]
pub(crate) async fn checks(_: NoQuery, server: Permitted<Operate>) -> HttpResult<Json<CheckList>> {
    Ok(Json(checks::all(&server.env, &server.env.store).await))
}
