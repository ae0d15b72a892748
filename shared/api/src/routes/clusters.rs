//! Handles clusters and polls of relays: `/v1/clusters`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_protocol::api::ClusterList;
use ebb_protocol::pull::{POLL_BODY, PollResponse};
use ebb_protocol::sign;

use super::permitted::{Operate, Permitted};
use super::{NoQuery, Path};
use crate::bodies::{BodyBudget, check_length};
use crate::queries::clusters;
use crate::{HttpProblem, ServerState};
use ebb_relay_client::PollRejection;

/// Lists the connected clusters, with information from their relays. Scope: `operate`.
#[utoipa::path(get, path = "/v1/clusters", operation_id = "listClusters", tag = "clusters", responses(
    (status = 200, body = ClusterList),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<Operate>) -> Result<Json<ClusterList>, HttpProblem> {
    Ok(Json(clusters::list(&server.env, server.store.as_ref()).await?))
}

/// Stores the responses of a relay with pull transport, and returns its next batches. Waits up to 20 s for a batch. The
/// request is signed as in Standard Webhooks, with the cluster's secret.
#[utoipa::path(post, path = "/v1/clusters/{name}/poll", operation_id = "pollCluster", tag = "clusters", responses(
    (status = 200, description = "Batches for the relay, encrypted with the cluster's secret."),
    (status = 400, description = "`invalid-poll`: the body is not a poll."),
    (status = 401, description = "The signature is missing, wrong or too old, or the cluster is not connected."),
    (status = 409, description = "`wrong-cluster`: the relay runs in another cluster. `wrong-transport`: the cluster has the push transport."),
    (status = 413, description = "The body is larger than 5.5 MiB."),
))]
pub(crate) async fn poll(
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<PollResponse>, HttpProblem> {
    // Headers are checked before memory is allocated for the body.
    check_length(&headers, POLL_BODY)?;
    sign::check_headers(&headers, server.env.now())
        .map_err(|error| HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid-signature", error.to_string()))?;
    let body = bodies.read(&headers, body, POLL_BODY).await?;
    let cluster = server.poll_endpoint.authenticate(&name, &headers, body.as_ref()).map_err(rejection_response)?;
    // A poll may wait for 20 s. It must not hold the permit of an unauthenticated body meanwhile.
    let body = body.into_proven();
    server.poll_endpoint.poll(cluster, &body).await.map(Json).map_err(rejection_response)
}

fn rejection_response(error: PollRejection) -> HttpProblem {
    match error {
        PollRejection::Unauthenticated(why) => HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid-signature", why),
        PollRejection::Malformed(why) => HttpProblem::new(StatusCode::BAD_REQUEST, "invalid-poll", why),
        PollRejection::Conflict(code, why) => HttpProblem::new(StatusCode::CONFLICT, code, why),
        PollRejection::Store(error) => error.into(),
    }
}
