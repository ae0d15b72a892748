//! Handles runs, the logs of their units and their rendered forms: `/v1/runs`.

use axum::Json;
use ebb_engine::Attempt;
use ebb_protocol::{ErrorCode, RunDetail, RunId, UnitRendering, limits};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::queries::logs::{self, MissingLog, ShownLog, UnitLog};
use crate::queries::{clusters, rendered, runs};
use crate::{HttpProblem, HttpResult, Path, Permitted, Query, ReadTargets, ServerState};

pub(crate) fn parse(run: &str) -> HttpResult<RunId> {
    run.parse()
        .map_err(|error: ebb_protocol::id::RunIdError| HttpProblem::new(ErrorCode::InvalidRunId, error.to_string()))
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
    let mut found = Box::pin(find(&run, &server)).await?;
    keep_page(&mut found, query.next_token.as_deref())?;
    Ok(Json(found))
}

/// Returns a run that the caller may read with all its units.
///
/// # Errors
/// Returns 404 for another run.
pub(crate) async fn find(run: &str, server: &Permitted<ReadTargets>) -> HttpResult<RunDetail> {
    let id = parse(run)?;
    server.check_run(&id).await?;
    runs::get(&server.env, &id).await?.ok_or_else(|| HttpProblem::not_found(format!("run {run} does not exist")))
}

/// Keeps the units of the page with this token.
///
/// # Errors
/// Returns 400 for another token.
pub(crate) fn keep_page(run: &mut RunDetail, token: Option<&str>) -> HttpResult<()> {
    let found = runs::page(run, token, limits::API_RESPONSE);
    found.map(|_| ()).ok_or_else(|| {
        let token = token.unwrap_or_default();
        let text = format!("{token:?} is not the `nextToken` of a page of run {}", run.id);
        HttpProblem::new(ErrorCode::InvalidNextToken, text)
    })
}

/// Returns the kind and the name of the target of a run. It does not check the access of a caller.
pub(crate) async fn target(run: &str, server: &ServerState) -> HttpResult<(String, String)> {
    let facts = server.env.facts(&parse(run)?).await?;
    let facts = facts.ok_or_else(|| HttpProblem::not_found(format!("run {run} does not exist")))?;
    let key = facts.target_key();
    Ok((key.kind.to_owned(), key.name.to_owned()))
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
    let (attempt, ShownLog { mut log, state, .. }) = Box::pin(read_log(&run, &server, &query)).await?;
    let headers = [("ebb-attempt", attempt.0.to_string()), ("ebb-log-bytes", log.len().to_string())];
    if !log.is_empty() && !log.ends_with('\n') && !state.is_empty() {
        log.push('\n');
    }
    Ok((headers, log + &state))
}

/// Returns the log of a unit of a run that the caller may read, and its attempt.
///
/// # Errors
/// Returns 404 without a log and for another run, and 503 if the relay does not respond.
pub(crate) async fn read_log(
    run: &str,
    server: &Permitted<ReadTargets>,
    query: &AttemptQuery,
) -> HttpResult<(Attempt, ShownLog)> {
    let UnitLog { attempt, found, .. } = Box::pin(find_log(run, server, query)).await?;
    match found {
        Ok(log) => Ok((attempt, log)),
        Err(MissingLog::None(reason)) => {
            Err(HttpProblem::not_found(format!("run {run} has no log of {}: {reason}", query.unit)))
        }
        Err(MissingLog::NoResponse { cluster, reason }) => {
            let detail = no_response(server, &query.unit, (&cluster, &reason)).await?;
            Err(HttpProblem::new(ErrorCode::RelayUnavailable, detail))
        }
    }
}

/// Searches the log of a unit of a run that the caller may read.
///
/// # Errors
/// Returns 404 for another run, unit or attempt.
pub(crate) async fn find_log(run: &str, server: &Permitted<ReadTargets>, query: &AttemptQuery) -> HttpResult<UnitLog> {
    let id = parse(run)?;
    server.check_run(&id).await?;
    Ok(logs::log(&server.env, &id, &query.unit, query.attempt).await?)
}

/// Returns a sentence about the log of a unit whose relay does not respond. `reason` is that of the relay.
pub(crate) async fn no_response(
    server: &ServerState,
    unit: &str,
    (cluster, reason): (&str, &str),
) -> HttpResult<String> {
    let denied = clusters::denied(&server.env, cluster).await?;
    let known = clusters::outages(&server.env.store).await?.remove(cluster);
    let since = known.map(|outage| format!(" since {}", outage.since)).unwrap_or_default();
    Ok(format!(
        "the log of {unit} cannot be read now: the relay of cluster {cluster} does not respond{since}: {}; `ebb cluster \
         list` shows its health, and the log is there again as soon as it responds",
        denied.unwrap_or_else(|| limits::message(reason))
    ))
}

/// Returns what a unit was rendered to: its manifests, request or inputs, with `<sensitive>` for sensitive values.
#[utoipa::path(get, path = "/v1/runs/{run}/rendered", operation_id = "getRendered", tag = "runs", params(
    ("run" = String, Path, description = "The id of the run.", pattern = "^[a-z0-9]{1,32}-[0-9]{1,19}-((pre|post)-(start|stop)|update-[1-9][0-9]{0,8}|on-[a-z][a-z0-9]{0,10}-[a-z0-9]{8})$"),
    AttemptQuery,
), responses(
    (status = 200, body = UnitRendering),
))]
pub(crate) async fn rendered(
    Path(run): Path<String>,
    server: Permitted<ReadTargets>,
    Query(query): Query<AttemptQuery>,
) -> HttpResult<Json<UnitRendering>> {
    Ok(Json(Box::pin(find_rendering(&run, &server, &query)).await?))
}

/// Returns what a unit of a run that the caller may read was rendered to.
///
/// # Errors
/// Returns 404 for another run, unit or attempt, and 409 for a unit without a rendered form.
pub(crate) async fn find_rendering(
    run: &str,
    server: &Permitted<ReadTargets>,
    query: &AttemptQuery,
) -> HttpResult<UnitRendering> {
    let id = parse(run)?;
    server.check_run(&id).await?;
    Ok(Box::pin(rendered::rendered(&server.env, &id, &query.unit, query.attempt)).await?)
}
