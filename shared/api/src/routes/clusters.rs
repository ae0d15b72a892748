//! Handles clusters, orphans in them and polls of relays: `/v1/clusters`, `/v1/orphans`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_protocol::api::{
    ClusterBootstrap, ClusterDetail, ClusterList, DeleteOrphans, DeleteOrphansResponse, OrphanList, PutCluster,
};
use ebb_protocol::pull::{POLL_BODY, PollResponse};
use ebb_protocol::registration::{REGISTRATION_BODY, RegisterRelay, RelayRegistration, is_token};
use ebb_protocol::{ErrorCode, sign};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::queries::clusters;
use crate::{
    ApiPermission, BodyBudget, HttpProblem, HttpResult, JsonBody, NoQuery, Operate, Path, Permitted, Query,
    ReadPlugins, ServerState, bearer, check_length, no_store,
};
use ebb_flow::sweep::orphans;
use ebb_relay_client::StoredRegistration;

/// Lists the clusters, with information from their relays. Scope: `operate`.
#[utoipa::path(get, path = "/v1/clusters", operation_id = "listClusters", tag = "clusters", responses(
    (status = 200, body = ClusterList),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<Operate>) -> HttpResult<Json<ClusterList>> {
    Ok(Json(ClusterList { clusters: clusters::described(&server.env, None).await?.0 }))
}

/// Returns the name, the state and the policy of a cluster. With the scope `operate`, returns all information from its
/// relay, and its registration.
#[utoipa::path(get, path = "/v1/clusters/{name}", operation_id = "getCluster", tag = "clusters", responses(
    (status = 200, body = ClusterDetail),
))]
pub(crate) async fn get(Path(name): Path<String>, server: Permitted<ReadPlugins>) -> HttpResult<Json<ClusterDetail>> {
    let found = clusters::get(&server.env, &name).await?;
    let missing = || HttpProblem::not_found(format!("no cluster {name:?} is connected or registered"));
    let found = found.ok_or_else(missing)?;
    let is_operator = server.caller.require(ApiPermission::Operate).is_ok();
    Ok(Json(if is_operator { found } else { clusters::for_authors(found) }))
}

/// Registers a cluster, or replaces its settings. The response for a new cluster has a bootstrap token, with which one
/// relay can register within an hour. Scope: `operate`.
#[utoipa::path(put, path = "/v1/clusters/{name}", operation_id = "putCluster", tag = "clusters", request_body = PutCluster, responses(
    (status = 200, body = ClusterBootstrap, description = "The cluster is registered or changed."),
))]
pub(crate) async fn put(
    Path(name): Path<String>,
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<PutCluster>,
) -> HttpResult<(HeaderMap, Json<ClusterBootstrap>)> {
    let (registry, now) = (server.poll_endpoint.clusters(), server.env.now());
    let stored = registry.put(&name, &request, &server.caller.stored_name(), now, random(&server)).await?;
    server.caller.log_change(if stored.is_new { "register cluster" } else { "change cluster" }, &name);
    Ok(bootstrap(stored, &server))
}

/// Issues another bootstrap token for a registered cluster. The relay that uses it replaces the secret of the former
/// one, which is valid until then. Scope: `operate`.
#[utoipa::path(post, path = "/v1/clusters/{name}/rotate", operation_id = "rotateCluster", tag = "clusters", responses(
    (status = 200, body = ClusterBootstrap),
))]
pub(crate) async fn rotate(
    Path(name): Path<String>,
    server: Permitted<Operate>,
    _: NoQuery,
) -> HttpResult<(HeaderMap, Json<ClusterBootstrap>)> {
    let stored = server.poll_endpoint.clusters().rotate(&name, server.env.now(), random(&server)).await?;
    server.caller.log_change("rotate cluster", &name);
    Ok(bootstrap(stored, &server))
}

fn random(server: &ServerState) -> [u64; 4] {
    std::array::from_fn(|_| server.env.random.next())
}

fn bootstrap(
    StoredRegistration { cluster, token, .. }: StoredRegistration,
    server: &ServerState,
) -> (HeaderMap, Json<ClusterBootstrap>) {
    let (registration, callback_url) = (clusters::registration(&cluster), server.env.settings.callback_url.clone());
    (no_store(), Json(ClusterBootstrap { name: cluster.name, bootstrap_token: token, callback_url, registration }))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    /// Deletes the cluster although targets have units in it. Their teardown cannot end without the cluster.
    force: bool,
}

/// Deletes a registered cluster. Polls of its relay are rejected from then on. Scope: `operate`.
#[utoipa::path(delete, path = "/v1/clusters/{name}", operation_id = "deleteCluster", tag = "clusters", params(DeleteQuery), responses(
    (status = 204, description = "The cluster is deleted."),
))]
pub(crate) async fn delete(
    Path(name): Path<String>,
    server: Permitted<Operate>,
    Query(DeleteQuery { force }): Query<DeleteQuery>,
) -> HttpResult<StatusCode> {
    if !force {
        let why = match clusters::targets_in(&server.env, &name).await? {
            None => Some("there are too many targets to check in time whether they use it".to_owned()),
            Some(found) if found.is_empty() => None,
            Some(found) => Some(format!("these targets have units in it, at most 10 are named: {}", found.join(", "))),
        };
        if let Some(why) = why {
            let detail = format!(
                "the cluster {name} is not deleted: {why}. Delete them first. If the cluster does not exist any more, delete it \
                 by force; their teardown then becomes stuck"
            );
            return Err(HttpProblem::new(ErrorCode::ClusterInUse, detail));
        }
    }
    if !server.poll_endpoint.clusters().delete(&name).await? {
        return Err(HttpProblem::not_found(format!("the cluster {name:?} is not registered")));
    }
    if let Err(error) = server.env.store.forget_cluster(&name).await {
        tracing::warn!(cluster = name, %error, "cannot remove the state of a deleted cluster; the next scan repeats it");
    }
    server.caller.log_change(if force { "delete cluster by force" } else { "delete cluster" }, &name);
    Ok(StatusCode::NO_CONTENT)
}

/// Registers the relay of a cluster, once. The bearer token is the bootstrap token of the cluster. The same relay can
/// repeat the request with the same secret.
#[utoipa::path(post, path = "/v1/clusters/{name}/register", operation_id = "registerRelay", tag = "clusters", request_body = RegisterRelay, responses(
    (status = 200, body = RelayRegistration),
))]
pub(crate) async fn register(
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> HttpResult<Json<RelayRegistration>> {
    check_length(&headers, REGISTRATION_BODY)?;
    let Some(token) = bearer(&headers) else {
        let detail = "the request has no bootstrap token: send `Authorization: Bearer TOKEN`";
        return Err(HttpProblem::new(ErrorCode::MissingToken, detail));
    };
    if !is_token(token) {
        let detail = "this is not a bootstrap token, `ebbc_` and 43 characters";
        return Err(HttpProblem::new(ErrorCode::InvalidToken, detail));
    }
    let body = bodies.read(&headers, body, REGISTRATION_BODY).await?;
    let request: RegisterRelay = super::parse_json(&body.bytes)?;
    drop(body);
    Ok(Json(server.poll_endpoint.clusters().register(&name, token, &request, server.env.now()).await?))
}

/// Stores the responses of a relay with pull transport, and returns its next batches. Waits up to 20 s for a batch. The
/// request is signed as in Standard Webhooks, with the cluster's secret.
#[utoipa::path(post, path = "/v1/clusters/{name}/poll", operation_id = "pollCluster", tag = "clusters")]
pub(crate) async fn poll(
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> HttpResult<Json<PollResponse>> {
    check_length(&headers, POLL_BODY)?;
    sign::check_headers(&headers, server.env.now())
        .map_err(|error| HttpProblem::new(ErrorCode::InvalidSignature, error.to_string()))?;
    let body = bodies.read(&headers, body, POLL_BODY).await?;
    let cluster = server.poll_endpoint.authenticate(&name, &headers, &body.bytes).await?;
    // A poll may wait for 20 s. It must not hold the permit of an unauthenticated body meanwhile.
    Ok(Json(server.poll_endpoint.poll(&cluster, &body.into_proven()).await?))
}

/// Lists the orphans of all clusters: objects whose instance has ended or is unknown. Scope: `operate`.
#[utoipa::path(get, path = "/v1/orphans", operation_id = "listOrphans", tag = "clusters", responses(
    (status = 200, body = OrphanList),
))]
pub(crate) async fn orphans(_: NoQuery, server: Permitted<Operate>) -> HttpResult<Json<OrphanList>> {
    Ok(Json(orphans::list(&server.env).await?))
}

/// Deletes the owned ones of the given orphans, with the other objects of their tasks. Scope: `operate`.
#[utoipa::path(post, path = "/v1/orphans/delete", operation_id = "deleteOrphans", tag = "clusters", request_body = DeleteOrphans, responses(
    (status = 200, body = DeleteOrphansResponse),
))]
pub(crate) async fn delete_orphans(
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<DeleteOrphans>,
) -> HttpResult<Json<DeleteOrphansResponse>> {
    server.caller.log_change("delete orphans", request.uids.len());
    Ok(Json(orphans::delete(&server.env, &request.uids).await?))
}
