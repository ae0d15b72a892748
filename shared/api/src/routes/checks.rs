//! Handles checks of the deployment: `/v1/checks`.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use ebb_protocol::api::CheckList;

use super::NoQuery;
use super::auth::ApiPermission;
use crate::queries::checks;
use crate::{HttpProblem, ServerState};

/// Checks table, indexes, bucket, queue, schedule and relays, and returns a result for each. Takes up to 10 s. Scope:
/// `operate`.
#[utoipa::path(get, path = "/v1/checks", operation_id = "listChecks", tag = "checks", responses(
    (status = 200, body = CheckList, description = "The result of each check. Failed checks have `passed: false`."),
))]
pub(crate) async fn list(
    State(server): State<ServerState>,
    headers: HeaderMap,
    _: NoQuery,
) -> Result<Json<CheckList>, HttpProblem> {
    server.authorize(&headers, ApiPermission::Operate).await?;
    Ok(Json(checks::all(&server.env, server.store.as_ref()).await))
}
