//! `/v1/targets`.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use ebb_store::TargetList;
use ebb_wire::api::{Abandon, Problem, Retried, Skip, TargetDetail, TargetPage, Waived, Why};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Path;
use super::access::Right;
use crate::api::{retry, targets, waive, why};
use crate::http::{HttpProblem, Server};

/// Which targets to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only those of this kind.
    #[param(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    kind: Option<String>,
    /// What `next` of the page before said.
    #[param(
        pattern = r"^[a-z][a-z0-9-]{0,62}/([!\x22$&-.0->@-\[\]-~]{1,253}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$"
    )]
    after: Option<String>,
    /// Lists targets that are gone instead, for as long as they are remembered.
    #[serde(default)]
    gone: bool,
}

/// Lists the targets that live or wait for something, by kind and name; with `gone` the others.
#[utoipa::path(get, path = "/v1/targets", operation_id = "listTargets", tag = "targets", params(ListQuery), responses(
    (status = 200, body = TargetPage), (status = 401, body = Problem), (status = 403, body = Problem),
))]
pub(crate) async fn list(
    State(server): State<Server>,
    headers: HeaderMap,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<TargetPage>, HttpProblem> {
    server.access.check(&headers, Right::ReadTargets)?;
    let Query(query) = query?;
    let list = if query.gone { TargetList::Gone } else { TargetList::Living };
    let (kind, after) = (query.kind.as_deref(), query.after.as_deref());
    let page = targets::list(server.store.as_ref(), list, kind, after).await?;
    page.map(Json).map_err(|wrong| HttpProblem::new(StatusCode::BAD_REQUEST, "query", wrong.to_string()))
}

fn unknown(kind: &str, name: &str) -> HttpProblem {
    HttpProblem::not_found(format!("there is no {kind} {name:?}"))
}

/// A target with its resources, outputs, runs and units.
#[utoipa::path(get, path = "/v1/targets/{kind}/{name}", operation_id = "getTarget", tag = "targets", responses(
    (status = 200, body = TargetDetail), (status = 401, body = Problem), (status = 404, body = Problem),
))]
pub(crate) async fn get(
    State(server): State<Server>,
    headers: HeaderMap,
    Path((kind, name)): Path<(String, String)>,
) -> Result<Json<TargetDetail>, HttpProblem> {
    server.access.check(&headers, Right::ReadTargets)?;
    let found = targets::get(&server.env, server.store.as_ref(), &kind, &name).await?;
    found.map(Json).ok_or_else(|| unknown(&kind, &name))
}

/// Why a target is not where it should be, what exists now, and what to do next.
#[utoipa::path(get, path = "/v1/targets/{kind}/{name}/why", operation_id = "explainTarget", tag = "targets", responses(
    (status = 200, body = Why), (status = 401, body = Problem), (status = 404, body = Problem),
))]
pub(crate) async fn why(
    State(server): State<Server>,
    headers: HeaderMap,
    Path((kind, name)): Path<(String, String)>,
) -> Result<Json<Why>, HttpProblem> {
    server.access.check(&headers, Right::ReadTargets)?;
    let found = why::why(&server.env, server.store.as_ref(), &kind, &name).await?;
    found.map(Json).ok_or_else(|| unknown(&kind, &name))
}

/// Tries the failed units of a failed or stuck target again.
#[utoipa::path(post, path = "/v1/targets/{kind}/{name}/retry", operation_id = "retryTarget", tag = "targets", responses(
    (status = 202, body = Retried), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem, description = "Nothing has failed."),
))]
pub(crate) async fn retry(
    State(server): State<Server>,
    headers: HeaderMap,
    Path((kind, name)): Path<(String, String)>,
) -> Result<(StatusCode, Json<Retried>), HttpProblem> {
    server.access.check(&headers, Right::Operate)?;
    match retry::retry(&server.env, &kind, &name).await? {
        retry::Answer::Retried(retried) => Ok((StatusCode::ACCEPTED, Json(retried))),
        retry::Answer::Unknown => Err(unknown(&kind, &name)),
        retry::Answer::NothingFailed(detail) => {
            Err(HttpProblem::new(StatusCode::CONFLICT, "nothing-failed", detail))
        }
    }
}

fn waived(answer: waive::Answer, kind: &str, name: &str) -> Result<(StatusCode, Json<Waived>), HttpProblem> {
    match answer {
        waive::Answer::Waived(waived) => Ok((StatusCode::ACCEPTED, Json(waived))),
        waive::Answer::Unknown => Err(unknown(kind, name)),
        waive::Answer::NotStuck(detail) => Err(HttpProblem::new(StatusCode::CONFLICT, "not-stuck", detail)),
        waive::Answer::Incomplete(detail) => {
            Err(HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "incomplete", detail))
        }
    }
}

/// Lets one failed unit of a stuck target's teardown count as over; the teardown goes on. What the unit takes away may
/// still exist.
#[utoipa::path(post, path = "/v1/targets/{kind}/{name}/skip", operation_id = "skipUnit", tag = "targets", request_body = Skip, responses(
    (status = 202, body = Waived), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem, description = "No such unit has failed."),
    (status = 422, body = Problem, description = "There is no reason."),
))]
pub(crate) async fn skip(
    State(server): State<Server>,
    headers: HeaderMap,
    Path((kind, name)): Path<(String, String)>,
    body: Body,
) -> Result<(StatusCode, Json<Waived>), HttpProblem> {
    server.access.check(&headers, Right::Operate)?;
    let asked: Skip = super::read_json(body).await?;
    waived(waive::skip(&server.env, &kind, &name, &asked).await?, &kind, &name)
}

/// Ends a stuck target's life: it is gone, although something of it may still exist.
#[utoipa::path(post, path = "/v1/targets/{kind}/{name}/abandon", operation_id = "abandonTarget", tag = "targets", request_body = Abandon, responses(
    (status = 202, body = Waived), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem, description = "It is not stuck."),
    (status = 422, body = Problem, description = "There is no reason."),
))]
pub(crate) async fn abandon(
    State(server): State<Server>,
    headers: HeaderMap,
    Path((kind, name)): Path<(String, String)>,
    body: Body,
) -> Result<(StatusCode, Json<Waived>), HttpProblem> {
    server.access.check(&headers, Right::Operate)?;
    let asked: Abandon = super::read_json(body).await?;
    waived(waive::abandon(&server.env, &kind, &name, &asked).await?, &kind, &name)
}
