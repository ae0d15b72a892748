//! Answers open pages that ask whether anything has changed. Without news, an answer costs at most one read unit, and the check
//! of the session.

use std::sync::Arc;

use axum::Json;
use axum::response::Response;
use ebb_console::{SelectedRun, SelectedUnit, TargetView, paths};
use ebb_protocol::{ChangeList, RunDetail, TargetDetail, TargetDiagnosis, TargetKey, UnitDetail, words};
use serde::Deserialize;

use super::sessions::{ConsoleSession, PathOf, QueryOf};
use super::stamps::{self, TargetStamp};
use super::{logs, responses};
use crate::queries::logs::{ShownLog, UnitLog};
use crate::routes::runs::{self, AttemptQuery};
use crate::routes::target_changes::ChangesQuery;
use crate::routes::targets::DetailQuery;
use crate::{HttpProblem, HttpResult, Operate, Path, Permitted, Query, ReadTargets, WriteTargets, routes};

/// Maximum units on a page of a run.
const UNITS: usize = 100;

/// The run, and the unit of it, that the page of a target shows in detail.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectedQuery {
    run: String,
    unit: String,
    attempt: Option<u32>,
    next_token: String,
}

pub(super) async fn changes_since(session: &ConsoleSession, since: Option<String>) -> HttpResult<ChangeList> {
    let list = routes::target_changes::list(session.permitted()?, Query(ChangesQuery { since }));
    Ok(Box::pin(list).await?.0)
}

pub(super) async fn changes(session: ConsoleSession, query: QueryOf<ChangesQuery>) -> HttpResult<Json<ChangeList>> {
    Ok(Json(changes_since(&session, query?.0.since).await?))
}

pub(super) async fn target(
    session: ConsoleSession,
    path: PathOf<(String, String)>,
    query: QueryOf<SelectedQuery>,
) -> Response {
    if let Ok(Path((kind, name))) = &path
        && let Some(tag) = current_tag(&session, TargetKey::new(kind, name)).await
    {
        return responses::unchanged(&tag);
    }
    let page = async { render(&session, path?.0, query?.0).await };
    session.respond_stamped(paths::TARGETS, page.await)
}

/// Returns the entity tag of the browser whose stamp is that of the target now. A problem is left to the page.
async fn current_tag(session: &ConsoleSession, key: TargetKey<'_>) -> Option<String> {
    let tags = responses::known_tags(&session.request);
    let (tag, known) = tags.into_iter().find_map(|tag| Some((tag, tag.split_once('.')?.0)))?;
    let present = stamps::of_target(session, key, Some(known)).await.ok()??;
    (present.text == known).then(|| tag.to_owned())
}

/// Returns the page of a target with its stamp, which is read first.
async fn render(
    session: &ConsoleSession,
    (kind, name): (String, String),
    query: SelectedQuery,
) -> HttpResult<(String, String)> {
    let key = TargetKey::new(&kind, &name);
    let stamp = stamps::of_target(session, key, None).await?;
    let read = async { read(session, key).await.map(Arc::new) };
    let (shown, stamp) = match stamp {
        Some(TargetStamp { text, state }) if session.is_renewal() => {
            session.permitted::<ReadTargets>()?.check_target(key).await?;
            let shared = session.memory.targets.get(session.server.env.steady(), state, read);
            (Box::pin(shared).await?, text)
        }
        stamp => (Box::pin(read).await?, stamp.map(|stamp| stamp.text).unwrap_or_default()),
    };
    let (detail, why) = shown.as_ref();
    let selected = Box::pin(selected(session, key, query)).await?;
    let may_change = async { session.permitted::<WriteTargets>()?.check_target(key).await };
    let may_change = may_change.await.is_ok();
    let view = TargetView {
        detail,
        why,
        may_change,
        may_override: session.permitted::<Operate>().is_ok(),
        stamp: &stamp,
        now: session.server.env.now(),
        selected: selected.as_ref(),
    };
    let html = ebb_console::target(session.viewer(), &view);
    Ok((stamp, html))
}

/// Returns the run of a query, with a page of its units or with all. Refuses a run of another target.
async fn selected(
    session: &ConsoleSession,
    key: TargetKey<'_>,
    query: SelectedQuery,
) -> HttpResult<Option<SelectedRun>> {
    let SelectedQuery { run: id, unit, attempt, next_token } = query;
    if id.is_empty() {
        return Ok(None);
    }
    let server = session.permitted()?;
    let mut run = Box::pin(runs::find(&id, &server)).await?;
    let (kind, name) = runs::target(&id, &session.server).await?;
    if TargetKey::new(&kind, &name) != key {
        return Err(HttpProblem::not_found(format!("run {id} does not exist")));
    }
    let counts = words::unit_counts(&run.units);
    let unit = match run.units.iter().find(|found| found.key == unit).cloned() {
        Some(found) => Some(Box::pin(selected_unit(&server, &run, (found, attempt))).await?),
        None if unit.is_empty() => None,
        None => return Err(HttpProblem::not_found(format!("run {id} has no unit {unit}"))),
    };
    let page_token = (unit.is_none() || !next_token.is_empty()).then_some(next_token);
    if let Some(token) = &page_token {
        runs::keep_page(&mut run, Some(token.as_str()).filter(|token| !token.is_empty()))?;
        if run.units.len() > UNITS {
            run.units.truncate(UNITS);
            run.next_token = run.units.last().map(|unit| unit.key.clone());
        }
    }
    Ok(Some(SelectedRun { run, counts, page_token, unit }))
}

/// Returns a unit with its request and its log in an attempt, by default in the last one.
async fn selected_unit(
    server: &Permitted<ReadTargets>,
    run: &RunDetail,
    (detail, attempt): (UnitDetail, Option<u32>),
) -> HttpResult<SelectedUnit> {
    let query = AttemptQuery { unit: detail.key.clone(), attempt };
    let rendering = match Box::pin(runs::find_rendering(&run.id, server, &query)).await {
        Ok(rendering) => Ok(rendering),
        Err(HttpProblem(problem)) if problem.status < 500 => Err(problem.detail),
        Err(problem) => return Err(problem),
    };
    let (mut log, mut log_state) = (None, String::new());
    if detail.kind == "pod" {
        let UnitLog { attempt, found, .. } = Box::pin(runs::find_log(&run.id, server, &query)).await?;
        let ShownLog { log: text, state, .. } = logs::shown(server, &detail.key, found).await?;
        (log, log_state) = (Some((attempt.0, text)), state);
    }
    let attempt = attempt.unwrap_or(detail.attempt);
    Ok(SelectedUnit { detail, attempt, rendering, log, log_state })
}

async fn read(session: &ConsoleSession, key: TargetKey<'_>) -> HttpResult<(TargetDetail, TargetDiagnosis)> {
    let path = || Path((key.kind.to_owned(), key.name.to_owned()));
    let why = routes::targets::why(path(), session.permitted()?);
    let Json(why) = Box::pin(why).await?;
    let detail = routes::targets::get(path(), session.permitted()?, Query(DetailQuery::default()));
    let Json(detail) = Box::pin(detail).await?;
    Ok((detail, why))
}
