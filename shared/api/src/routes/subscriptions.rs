//! Handles subscriptions: `/v1/subscriptions`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_protocol::api::{PutSubscription, SubscriptionDetail, SubscriptionList};

use super::auth::ApiPermission;
use super::{NoQuery, Path};
use crate::queries::subscriptions;
use crate::{HttpProblem, ServerState};

/// Lists all subscriptions, with the numbers of notifications that wait and that were given up. Scope: `plugins:write` or
/// `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/subscriptions", operation_id = "listSubscriptions", tag = "subscriptions", responses(
    (status = 200, body = SubscriptionList),
))]
pub(crate) async fn list(
    State(server): State<ServerState>,
    headers: HeaderMap,
    _: NoQuery,
) -> Result<Json<SubscriptionList>, HttpProblem> {
    server.authorize(&headers, ApiPermission::ReadConnections).await?;
    Ok(Json(SubscriptionList { subscriptions: subscriptions::list(&server.env, server.store.as_ref()).await? }))
}

/// Returns a subscription with its document, its last error and the notifications that were given up. Scope:
/// `plugins:write` or `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/subscriptions/{name}", operation_id = "getSubscription", tag = "subscriptions", responses(
    (status = 200, body = SubscriptionDetail),
))]
pub(crate) async fn get(
    State(server): State<ServerState>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Json<SubscriptionDetail>, HttpProblem> {
    server.authorize(&headers, ApiPermission::ReadConnections).await?;
    let found = subscriptions::get(&server.env, server.store.as_ref(), &name).await?;
    found.map(Json).ok_or_else(|| unknown(&name))
}

/// Creates or replaces a subscription. It reports the changes of targets that begin a minute later or earlier. Scope:
/// `operate`.
#[utoipa::path(put, path = "/v1/subscriptions/{name}", operation_id = "putSubscription", tag = "subscriptions", request_body = PutSubscription, responses(
    (status = 200, body = SubscriptionDetail, description = "The subscription is created or replaced."),
    (status = 400, description = "The body is not the expected JSON."),
    (status = 413, description = "The body is larger than 5 MiB."),
    (status = 422, description = "The document has errors."),
))]
pub(crate) async fn put(
    State(server): State<ServerState>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<SubscriptionDetail>, HttpProblem> {
    let caller = server.authorize(&headers, ApiPermission::Operate).await?;
    let request: PutSubscription = super::read_json(body).await?;
    subscriptions::put(&server.env, server.store.as_ref(), &name, &request.document).await?;
    caller.log_change("put subscription", &name);
    let found = subscriptions::get(&server.env, server.store.as_ref(), &name).await?;
    found.map(Json).ok_or_else(|| unknown(&name))
}

/// Deletes a subscription. Its waiting notifications are dropped. Scope: `operate`.
#[utoipa::path(delete, path = "/v1/subscriptions/{name}", operation_id = "deleteSubscription", tag = "subscriptions", responses(
    (status = 204, description = "The subscription is deleted."),
))]
pub(crate) async fn delete(
    State(server): State<ServerState>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<StatusCode, HttpProblem> {
    let caller = server.authorize(&headers, ApiPermission::Operate).await?;
    match subscriptions::delete(&server.env, server.store.as_ref(), &name).await? {
        true => {
            caller.log_change("delete subscription", &name);
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(unknown(&name)),
    }
}

fn unknown(name: &str) -> HttpProblem {
    HttpProblem::not_found(format!("no subscription {name:?} exists"))
}
