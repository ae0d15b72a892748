//! Handles subscriptions: `/v1/subscriptions`.

use axum::Json;
use axum::http::StatusCode;
use ebb_protocol::api::{PutSubscription, SubscriptionDetail, SubscriptionList};

use super::permitted::{Operate, Permitted, ReadConnections};
use super::{JsonBody, NoQuery, Path};
use crate::HttpProblem;
use crate::queries::subscriptions;

/// Lists all subscriptions, with the numbers of notifications that wait and that were given up. Scope: `plugins:write` or
/// `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/subscriptions", operation_id = "listSubscriptions", tag = "subscriptions", responses(
    (status = 200, body = SubscriptionList),
))]
pub(crate) async fn list(
    _: NoQuery,
    server: Permitted<ReadConnections>,
) -> Result<Json<SubscriptionList>, HttpProblem> {
    Ok(Json(SubscriptionList { subscriptions: subscriptions::list(&server.env, server.store.as_ref()).await? }))
}

/// Returns a subscription with its document, its last error and the notifications that were given up. Scope:
/// `plugins:write` or `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/subscriptions/{name}", operation_id = "getSubscription", tag = "subscriptions", responses(
    (status = 200, body = SubscriptionDetail),
))]
pub(crate) async fn get(
    Path(name): Path<String>,
    server: Permitted<ReadConnections>,
) -> Result<Json<SubscriptionDetail>, HttpProblem> {
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
    Path(name): Path<String>,
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<PutSubscription>,
) -> Result<Json<SubscriptionDetail>, HttpProblem> {
    subscriptions::put(&server.env, server.store.as_ref(), &name, &request.document).await?;
    server.caller.log_change("put subscription", &name);
    let found = subscriptions::get(&server.env, server.store.as_ref(), &name).await?;
    found.map(Json).ok_or_else(|| unknown(&name))
}

/// Deletes a subscription. Its waiting notifications are dropped. Scope: `operate`.
#[utoipa::path(delete, path = "/v1/subscriptions/{name}", operation_id = "deleteSubscription", tag = "subscriptions", responses(
    (status = 204, description = "The subscription is deleted."),
))]
pub(crate) async fn delete(Path(name): Path<String>, server: Permitted<Operate>) -> Result<StatusCode, HttpProblem> {
    match subscriptions::delete(&server.env, server.store.as_ref(), &name).await? {
        true => {
            server.caller.log_change("delete subscription", &name);
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(unknown(&name)),
    }
}

fn unknown(name: &str) -> HttpProblem {
    HttpProblem::not_found(format!("no subscription {name:?} exists"))
}
