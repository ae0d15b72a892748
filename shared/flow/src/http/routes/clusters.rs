//! `/v1/clusters`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_wire::api::{ClusterList, Problem};
use ebb_wire::mail::{POLL_BODY, Post};

use super::Path;
use super::access::Right;
use crate::api::clusters;
use crate::cluster::NotServed;
use crate::http::{HttpProblem, Server};

/// Lists the clusters that are connected, with what their relays say of themselves.
#[utoipa::path(get, path = "/v1/clusters", tag = "clusters", responses(
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
#[utoipa::path(post, path = "/v1/clusters/{name}/poll", tag = "clusters", responses(
    (status = 200, description = "What waits for the relay, sealed with the cluster's secret."),
    (status = 400, body = Problem, description = "No poll."),
    (status = 401, body = Problem, description = "Unsigned, wrongly signed, too old, or of a cluster that is not connected."),
    (status = 409, body = Problem, description = "The relay of another cluster, or one that is asked itself."),
    (status = 413, body = Problem, description = "Larger than 5.5 MiB."),
    (status = 503, body = Problem, description = "Try again."),
))]
pub(crate) async fn poll(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<Post>, HttpProblem> {
    let body = super::read(body, POLL_BODY).await?;
    let problem = |status, code, why| Err(HttpProblem::new(status, code, why));
    match server.post.poll(&name, &headers, &body).await {
        Ok(post) => Ok(Json(post)),
        Err(NotServed::Unproven(why)) => problem(StatusCode::UNAUTHORIZED, "signature", why),
        Err(NotServed::Malformed(why)) => problem(StatusCode::BAD_REQUEST, "poll", why),
        Err(NotServed::Conflict(code, why)) => problem(StatusCode::CONFLICT, code, why),
        Err(NotServed::Store(error)) => Err(error.into()),
    }
}
