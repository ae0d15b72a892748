//! `/v1/orphans`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use ebb_wire::api::{DeleteOrphans, OrphanList, OrphansDeleted, Problem};

use super::access::Right;
use crate::http::{HttpProblem, Server};
use crate::orphans;

/// Lists what is left in clusters of lives that are over, or of which nothing is known.
#[utoipa::path(get, path = "/v1/orphans", operation_id = "listOrphans", tag = "clusters", responses(
    (status = 200, body = OrphanList), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 503, body = Problem, description = "Try again."),
))]
pub(crate) async fn list(
    State(server): State<Server>,
    headers: HeaderMap,
) -> Result<Json<OrphanList>, HttpProblem> {
    server.access.check(&headers, Right::Operate)?;
    Ok(Json(orphans::list(&server.env).await?))
}

/// Deletes those of these orphans that are proven ours, with what else is left of the same units.
#[utoipa::path(post, path = "/v1/orphans/delete", operation_id = "deleteOrphans", tag = "clusters", request_body = DeleteOrphans, responses(
    (status = 200, body = OrphansDeleted), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 413, body = Problem, description = "Larger than 5 MiB."),
    (status = 503, body = Problem, description = "Try again."),
))]
pub(crate) async fn delete(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<OrphansDeleted>, HttpProblem> {
    server.access.check(&headers, Right::Operate)?;
    let asked: DeleteOrphans = super::read_json(body).await?;
    Ok(Json(orphans::delete(&server.env, &asked.uids).await?))
}
