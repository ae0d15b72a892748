//! Handles orphans in clusters: `/v1/orphans`.

use axum::Json;
use ebb_protocol::api::{DeleteOrphans, DeleteOrphansResponse, OrphanList};

use super::permitted::{Operate, Permitted};
use super::{JsonBody, NoQuery};
use crate::HttpResult;
use ebb_flow::sweep::orphans;

/// Lists the orphans of all clusters: objects whose instance has ended or is unknown. Scope: `operate`.
#[utoipa::path(get, path = "/v1/orphans", operation_id = "listOrphans", tag = "clusters", responses(
    (status = 200, body = OrphanList),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<Operate>) -> HttpResult<Json<OrphanList>> {
    Ok(Json(orphans::list(&server.env).await?))
}

/// Deletes the owned ones of the given orphans, with the other objects of their tasks. Scope: `operate`.
#[utoipa::path(post, path = "/v1/orphans/delete", operation_id = "deleteOrphans", tag = "clusters", request_body = DeleteOrphans, responses(
    (status = 200, body = DeleteOrphansResponse),
))]
pub(crate) async fn delete(
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<DeleteOrphans>,
) -> HttpResult<Json<DeleteOrphansResponse>> {
    server.caller.log_change("delete orphans", request.uids.len());
    Ok(Json(orphans::delete(&server.env, &request.uids).await?))
}
