//! Handles connections: `/v1/connections`.

use axum::Json;
use axum::http::StatusCode;
use ebb_protocol::api::{ConnectionDetail, ConnectionList, PutConnection};
use ebb_store::NamedKind;

use super::permitted::{Operate, Permitted, ReadConnections};
use super::{JsonBody, NoQuery, Path};
use crate::HttpProblem;
use crate::queries::connections;

/// Lists all connections. Shows whether their secrets exist, and no value. Scope: `plugins:write` or
/// `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/connections", operation_id = "listConnections", tag = "connections", responses(
    (status = 200, body = ConnectionList),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<ReadConnections>) -> Result<Json<ConnectionList>, HttpProblem> {
    Ok(Json(ConnectionList { connections: connections::list(&server.env, server.store.as_ref()).await? }))
}

/// Returns a connection with its document. Scope: `plugins:write` or `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/connections/{name}", operation_id = "getConnection", tag = "connections", responses(
    (status = 200, body = ConnectionDetail),
))]
pub(crate) async fn get(
    Path(name): Path<String>,
    server: Permitted<ReadConnections>,
) -> Result<Json<ConnectionDetail>, HttpProblem> {
    let found = connections::get(&server.env, server.store.as_ref(), &name).await?;
    found.map(Json).ok_or_else(|| unknown(&name))
}

/// Creates or replaces a connection. The next request of each unit uses it. If the origin changes, units of existing
/// targets fail. Scope: `operate`.
#[utoipa::path(put, path = "/v1/connections/{name}", operation_id = "putConnection", tag = "connections", request_body = PutConnection, responses(
    (status = 200, body = ConnectionDetail, description = "The connection is created or replaced."),
    (status = 400, description = "The body is not the expected JSON."),
    (status = 413, description = "The body is larger than 5 MiB."),
    (status = 422, description = "The document has errors."),
))]
pub(crate) async fn put(
    Path(name): Path<String>,
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<PutConnection>,
) -> Result<Json<ConnectionDetail>, HttpProblem> {
    connections::put(&server.env, server.store.as_ref(), &name, &request.document).await?;
    server.caller.log_change("put connection", &name);
    let found = connections::get(&server.env, server.store.as_ref(), &name).await?;
    found.map(Json).ok_or_else(|| unknown(&name))
}

/// Deletes a connection. Units of existing targets that use it fail, also those of the teardown. Scope: `operate`.
#[utoipa::path(delete, path = "/v1/connections/{name}", operation_id = "deleteConnection", tag = "connections", responses(
    (status = 204, description = "The connection is deleted."),
))]
pub(crate) async fn delete(Path(name): Path<String>, server: Permitted<Operate>) -> Result<StatusCode, HttpProblem> {
    match server.store.delete_document(NamedKind::Connection, &name).await? {
        true => {
            server.caller.log_change("delete connection", &name);
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(unknown(&name)),
    }
}

fn unknown(name: &str) -> HttpProblem {
    HttpProblem::not_found(format!("no connection {name:?} exists"))
}
