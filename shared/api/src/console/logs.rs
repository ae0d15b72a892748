//! Logs: that of an attempt of a unit, or those of all units of a run.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use ebb_console::{AttemptLogView, LogQuery, LogView, MAX_LOGS, RUN_LOG, paths};
use ebb_flow::run::records::tail;
use ebb_protocol::{ErrorCode, RunDetail, RunState, UnitState, rfc3339};

use super::responses;
use super::sessions::{ConsoleSession, PathOf, QueryOf};
use crate::queries::logs::{self, MissingLog, ShownLog, UnitLog};
use crate::queries::runs;
use crate::routes::runs::AttemptQuery;
use crate::{HttpProblem, HttpResult, Path, Query, ServerState, routes};

type FoundLog = Result<ShownLog, MissingLog>;

pub(super) async fn log(session: ConsoleSession, path: PathOf<String>, query: QueryOf<LogQuery>) -> Response {
    let page = async {
        let (Path(run), Query(query)) = (path?, query?);
        let (mut logs, is_open) = Box::pin(find(&session, &run, &query)).await?;
        let (kind, name) = routes::runs::target(&run, &session.server).await?;
        let is_of_unit = !query.unit.is_empty();
        if is_of_unit {
            let recorded = runs::attempts(&session.server.env, &routes::runs::parse(&run)?, &query.unit).await?;
            for one in &mut logs {
                if let Some(found) = recorded.iter().find(|found| found.attempt == one.attempt) {
                    one.started = found.started.clone().or(one.started.take());
                    one.ended.clone_from(&found.ended);
                }
            }
        }
        // Another attempt of a unit can begin.
        let (target, is_open) = ((kind.as_str(), name.as_str()), is_open || is_of_unit);
        let view = LogView { run: &run, target, query: &query, logs: &logs, is_open };
        HttpResult::Ok(ebb_console::log(session.viewer(), &view))
    };
    session.respond(paths::TARGETS, page.await)
}

pub(super) async fn log_text(session: ConsoleSession, path: PathOf<String>, query: QueryOf<LogQuery>) -> Response {
    let text = async {
        let (Path(run), Query(query)) = (path?, query?);
        let found = Box::pin(find(&session, &run, &query)).await?;
        let headers = [(header::CONTENT_DISPOSITION, "attachment; filename=\"log.txt\"")];
        HttpResult::Ok((headers, ebb_console::log_text(&query, &found.0)).into_response())
    };
    text.await.unwrap_or_else(|problem| responses::failure(Some(session.viewer()), problem))
}

async fn find(session: &ConsoleSession, run: &str, query: &LogQuery) -> HttpResult<(Vec<AttemptLogView>, bool)> {
    let server = session.permitted()?;
    if query.unit.is_empty() {
        let found = Box::pin(routes::runs::find(run, &server)).await?;
        let is_open = matches!(found.state, RunState::Running | RunState::Cancelling);
        let mut shown = attempts_of(&found);
        shown.drain(..shown.len().saturating_sub(MAX_LOGS));
        let wanted: Vec<(String, u32)> = shown.iter().map(|one| (one.unit.clone(), one.attempt)).collect();
        let read = Box::pin(logs::of_attempts(&server.env, &routes::runs::parse(run)?, &wanted)).await?;
        for (one, found) in shown.iter_mut().zip(read) {
            add(session, one, found).await?;
            one.log = tail(&one.log, RUN_LOG).to_owned();
        }
        shown.retain(|one| !one.log.is_empty() || !one.state.is_empty());
        return Ok((shown, is_open));
    }
    let wanted = AttemptQuery { unit: query.unit.clone(), attempt: query.attempt };
    let UnitLog { attempt, is_open, found, .. } = Box::pin(routes::runs::find_log(run, &server, &wanted)).await?;
    // After a failure, an open page keeps the lines that it has.
    let is_lost = matches!(found, Err(MissingLog::NoResponse { .. })) && !query.after.is_empty();
    let mut one = AttemptLogView { unit: wanted.unit, attempt: attempt.0, ..AttemptLogView::default() };
    add(session, &mut one, found).await?;
    if is_lost {
        return Err(HttpProblem::new(ErrorCode::RelayUnavailable, one.state));
    }
    Ok((vec![one], is_open))
}

async fn add(session: &ConsoleSession, one: &mut AttemptLogView, found: FoundLog) -> HttpResult<()> {
    let ShownLog { log, state, started } = shown(&session.server, &one.unit, found).await?;
    (one.log, one.state, one.started) = (log, state, one.started.take().or(started.map(rfc3339)));
    Ok(())
}

pub(super) async fn shown(server: &ServerState, unit: &str, found: FoundLog) -> HttpResult<ShownLog> {
    let state = match found {
        Ok(found) => return Ok(found),
        Err(MissingLog::None(reason)) => format!("The log does not exist: {reason}."),
        Err(MissingLog::NoResponse { cluster, reason }) => {
            routes::runs::no_response(server, unit, (&cluster, &reason)).await?
        }
    };
    Ok(ShownLog { state, ..ShownLog::default() })
}

/// Returns the attempts that may have logs, in the order of their ends. Then follow those that run, in the order of their starts.
fn attempts_of(run: &RunDetail) -> Vec<AttemptLogView> {
    let mut found = Vec::new();
    for unit in &run.units {
        let mut add = |attempt, started: &Option<String>, ended: &Option<String>| {
            let (unit, started, ended) = (unit.key.clone(), started.clone(), ended.clone());
            found.push(AttemptLogView { unit, attempt, started, ended, ..AttemptLogView::default() });
        };
        for one in unit.earlier_attempts.iter().filter(|one| one.log) {
            add(one.attempt, &one.started, &one.ended);
        }
        if unit.log || unit.state == UnitState::Running && unit.kind != "webhook" {
            add(unit.attempt, &unit.started, &unit.ended);
        }
    }
    found.sort_by_cached_key(|one| (one.ended.is_none(), one.ended.clone().or(one.started.clone())));
    found
}
