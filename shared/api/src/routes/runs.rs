//! Handles runs, the logs of their units and their rendered forms: `/v1/runs`.

use axum::Json;
use axum::http::StatusCode;
use ebb_protocol::api::{RunDetail, UnitRendering};
use ebb_protocol::id::RunId;
use ebb_protocol::limits;
use serde::Deserialize;
use utoipa::IntoParams;

use super::permitted::{Permitted, ReadTargets};
use super::{Path, Query};
use crate::queries::logs::{self, LogSearch, ShownLog};
use crate::queries::rendered::{self, RenderingSearch};
use crate::queries::{clusters, runs};
use crate::{HttpProblem, HttpResult};

/// The response header with the attempt of a log.
const ATTEMPT: &str = "ebb-attempt";
const LOG_BYTES: &str = "ebb-log-bytes";

fn parse(run: &str) -> HttpResult<RunId> {
    run.parse().map_err(|error: ebb_protocol::id::RunIdError| {
        HttpProblem::new(StatusCode::BAD_REQUEST, "invalid-run-id", error.to_string())
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct UnitsQuery {
    /// The `nextToken` of the previous page.
    pub(crate) next_token: Option<String>,
}

/// Returns a run and a page of its units.
#[utoipa::path(get, path = "/v1/runs/{run}", operation_id = "getRun", tag = "runs", params(
    ("run" = String, Path, description = "The id of the run.", pattern = "^[a-z0-9]{1,32}-[0-9]{1,19}-((pre|post)-(start|stop)|update-[1-9][0-9]{0,8}|on-[a-z][a-z0-9]{0,10}-[a-z0-9]{8})$"),
    UnitsQuery,
), responses(
    (status = 200, body = RunDetail),
))]
pub(crate) async fn get(
    Path(run): Path<String>,
    server: Permitted<ReadTargets>,
    Query(query): Query<UnitsQuery>,
) -> HttpResult<Json<RunDetail>> {
    let id = parse(&run)?;
    server.check_run(&id).await?;
    let found = runs::get(&server.env, &id).await?;
    let mut found = found.ok_or_else(|| HttpProblem::not_found(format!("run {run} does not exist")))?;
    let token = query.next_token.as_deref();
    runs::page(&mut found, token, limits::API_RESPONSE).ok_or_else(|| {
        let token = token.unwrap_or_default();
        let text = format!("{token:?} is not the `nextToken` of a page of run {run}");
        HttpProblem::new(StatusCode::BAD_REQUEST, "invalid-next-token", text)
    })?;
    Ok(Json(found))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptQuery {
    /// The key of the unit: `RESOURCE/UNIT`.
    pub(crate) unit: String,
    /// The attempt, from 1. By default the last one, and for a log the last one that has a log.
    #[param(minimum = 1, maximum = 4_294_967_295_u32)]
    pub(crate) attempt: Option<u32>,
}

/// Returns the tail of a unit's log, during and after its execution.
#[utoipa::path(get, path = "/v1/runs/{run}/logs", operation_id = "getLog", tag = "runs", params(
    ("run" = String, Path, description = "The id of the run.", pattern = "^[a-z0-9]{1,32}-[0-9]{1,19}-((pre|post)-(start|stop)|update-[1-9][0-9]{0,8}|on-[a-z][a-z0-9]{0,10}-[a-z0-9]{8})$"),
    AttemptQuery,
), responses(
    (status = 200, body = String, content_type = "text/plain", headers(
        ("ebb-attempt" = u32, description = "The attempt of the log."),
        ("ebb-log-bytes" = u64, description = "The size of the log. Lines about the state of the attempt follow it."),
    )),
))]
pub(crate) async fn logs(
    Path(run): Path<String>,
    server: Permitted<ReadTargets>,
    Query(query): Query<AttemptQuery>,
) -> HttpResult<([(&'static str, String); 2], String)> {
    let id = parse(&run)?;
    server.check_run(&id).await?;
    match logs::log(&server.env, &id, &query.unit, query.attempt).await? {
        LogSearch::Found(attempt, ShownLog { mut log, state }) => {
            let headers = [(ATTEMPT, attempt.0.to_string()), (LOG_BYTES, log.len().to_string())];
            if !log.is_empty() && !log.ends_with('\n') && !state.is_empty() {
                log.push('\n');
            }
            Ok((headers, log + &state))
        }
        LogSearch::Missing => Err(HttpProblem::not_found(format!("run {run} has no log of {}", query.unit))),
        LogSearch::NoResponse { cluster, reason } => {
            let store = server.store.as_ref();
            let denied = clusters::denied(&server.env, store, &cluster).await?;
            let known = clusters::outages(store).await?.remove(&cluster);
            let since = known.map(|outage| format!(" since {}", outage.since)).unwrap_or_default();
            let detail = format!(
                "the log of {} cannot be read now: the relay of cluster {cluster} does not respond{since}: {}; `ebb \
                 cluster list` shows its health, and the log is there again as soon as it responds",
                query.unit,
                denied.unwrap_or_else(|| limits::message(&reason))
            );
            Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "relay-unavailable", detail))
        }
    }
}

/// Returns what a unit was rendered to: its manifests, request or inputs, with `<sensitive>` for sensitive values.
#[utoipa::path(get, path = "/v1/runs/{run}/rendered", operation_id = "getRendered", tag = "runs", params(
    ("run" = String, Path, description = "The id of the run.", pattern = "^[a-z0-9]{1,32}-[0-9]{1,19}-((pre|post)-(start|stop)|update-[1-9][0-9]{0,8}|on-[a-z][a-z0-9]{0,10}-[a-z0-9]{8})$"),
    AttemptQuery,
), responses(
    (status = 200, body = UnitRendering),
    (status = 409, description = "`not-rendered`: the inputs of the unit do not exist yet, it cannot be rendered, or its rendered form is too large."),
))]
pub(crate) async fn rendered(
    Path(run): Path<String>,
    server: Permitted<ReadTargets>,
    Query(query): Query<AttemptQuery>,
) -> HttpResult<Json<UnitRendering>> {
    let id = parse(&run)?;
    server.check_run(&id).await?;
    match Box::pin(rendered::rendered(&server.env, &id, &query.unit, query.attempt)).await? {
        RenderingSearch::Found(rendering) => Ok(Json(*rendering)),
        RenderingSearch::Missing(detail) => Err(HttpProblem::not_found(detail)),
        RenderingSearch::Unavailable(detail) => Err(HttpProblem::new(StatusCode::CONFLICT, "not-rendered", detail)),
    }
}
