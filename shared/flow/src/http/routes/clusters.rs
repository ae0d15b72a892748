//! `/v1/clusters`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use ebb_wire::api::{ClusterList, Problem};
use ebb_wire::mail::{POLL_BODY, Post};
use ebb_wire::sign;

use super::Path;
use super::access::Right;
use crate::api::clusters;
use crate::cluster::NotServed;
use crate::http::bodies::{BodyBudget, check_length};
use crate::http::{HttpProblem, Server};

/// Lists the clusters that are connected, with what their relays say of themselves.
#[utoipa::path(get, path = "/v1/clusters", operation_id = "listClusters", tag = "clusters", responses(
    (status = 200, body = ClusterList), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 503, body = Problem, description = "Try again."),
))]
pub(crate) async fn list(
    State(server): State<Server>,
    headers: HeaderMap,
) -> Result<Json<ClusterList>, HttpProblem> {
    server.access.check(&headers, Right::Operate)?;
    Ok(Json(clusters::list(&server.env, server.store.as_ref()).await?))
}

/// For relays that nobody reaches: takes answers, and waits up to 20 s for what the relay is to do. Signed with Standard
/// Webhooks and the cluster's secret.
#[utoipa::path(post, path = "/v1/clusters/{name}/poll", operation_id = "pollCluster", tag = "clusters", responses(
    (status = 200, description = "What waits for the relay, sealed with the cluster's secret."),
    (status = 400, body = Problem, description = "No poll."),
    (status = 401, body = Problem, description = "Unsigned, wrongly signed, too old, or of a cluster that is not connected."),
    (status = 409, body = Problem, description = "The relay of another cluster, or one that is asked itself."),
    (status = 413, body = Problem, description = "Larger than 5.5 MiB."),
    (status = 503, body = Problem, description = "Try again."),
))]
pub(crate) async fn poll(
    State(server): State<Server>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<Post>, HttpProblem> {
    // The head is judged before there is memory for a body.
    check_length(&headers, POLL_BODY)?;
    sign::check_headers(&headers, server.env.now())
        .map_err(|error| HttpProblem::new(StatusCode::UNAUTHORIZED, "signature", error.to_string()))?;
    let body = bodies.read(&headers, body, POLL_BODY).await?;
    let cluster = server.post.prove(&name, &headers, body.as_ref()).map_err(not_served)?;
    // A poll may wait for long. Its sender is known, so it must not use the memory for unproven bodies meanwhile.
    let body = body.into_proven();
    server.post.poll(cluster, &body).await.map(Json).map_err(not_served)
}

fn not_served(error: NotServed) -> HttpProblem {
    match error {
        NotServed::Unproven(why) => HttpProblem::new(StatusCode::UNAUTHORIZED, "signature", why),
        NotServed::Malformed(why) => HttpProblem::new(StatusCode::BAD_REQUEST, "poll", why),
        NotServed::Conflict(code, why) => HttpProblem::new(StatusCode::CONFLICT, code, why),
        NotServed::Store(error) => error.into(),
    }
}
