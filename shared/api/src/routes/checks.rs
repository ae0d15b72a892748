//! Handles checks of the deployment: `/v1/checks`.

use axum::Json;
use ebb_protocol::api::CheckList;

use super::NoQuery;
use super::permitted::{Operate, Permitted};
use crate::HttpResult;
use crate::queries::checks;

/// Checks table, indexes, bucket, queue, schedule and relays, and returns a result for each. Takes up to 10 s. Scope:
/// `operate`.
#[utoipa::path(get, path = "/v1/checks", operation_id = "listChecks", tag = "checks", responses(
    (status = 200, body = CheckList, description = "The result of each check. Failed checks have `passed: false`."),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<Operate>) -> HttpResult<Json<CheckList>> {
    Ok(Json(checks::all(&server.env, &server.env.store).await))
}
