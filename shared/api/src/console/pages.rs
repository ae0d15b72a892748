//! The pages. Each one calls handlers of the API with the caller of the session.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::{RunUnitsView, SourceTrial, TargetListFilter, TargetListView, UnitLogView, WaitingView, paths};
use ebb_protocol::{ErrorCode, TargetAccess, TargetPage, TargetPhase};
use serde::Deserialize;

use super::sessions::{ConsoleSession, PathOf, QueryOf};
use super::{renewals, responses};
use crate::queries::logs::{MissingLog, ShownLog, UnitLog};
use crate::routes::named_documents::{sources as source_routes, subscriptions as subscription_routes};
use crate::routes::runs::AttemptQuery;
use crate::routes::target_history::HistoryQuery;
use crate::routes::target_list::ListQuery;
use crate::{HttpProblem, HttpResult, NoQuery, Path, Query, ReadTargets, WriteTargets, routes};

/// Maximum pages of the API that are read to count targets.
const COUNTED_PAGES: usize = 3;
/// Maximum units on a page of a run.
const UNITS: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageQuery {
    next_token: String,
    /// The tokens of the pages before.
    previous: String,
    select: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct UnitQuery {
    unit: String,
    attempt: Option<u32>,
    /// The mark of the lines of a log that an open page has.
    #[serde(default)]
    after: String,
}

/// Returns a page of targets in phases. `filter` is applied without its phase. `since` is the number of the last change. Open
/// pages of callers with the same access share the lists that they read.
async fn list(
    session: &ConsoleSession,
    since: &str,
    (filter, phases): (&TargetListFilter, &[&str]),
    next_token: &str,
) -> HttpResult<TargetPage> {
    let is_gone = if filter.state() == Some(TargetPhase::Gone) { "true" } else { "" };
    let given = [
        ("gone", is_gone),
        ("label", filter.label.as_str()),
        // Callers share what is read, so `me` must not be a part of its name.
        ("owner", session.caller.owner(&filter.owner)),
        ("plugin", filter.plugin.as_str()),
        ("q", filter.q.as_str()),
        ("nextToken", next_token),
    ];
    let given = given.into_iter().chain(phases.iter().map(|phase| ("phase", *phase)));
    let given = given.filter(|(_, value)| !value.is_empty());
    let pairs: Vec<(String, String)> = given.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let permitted = session.permitted::<ReadTargets>()?;
    let access = Some(permitted.access()).filter(TargetAccess::is_limited);
    let name = format!("{since} {access:?} {pairs:?}");
    let query = ListQuery::try_from(pairs);
    let query = query.map_err(|detail| HttpProblem::new(ErrorCode::InvalidQuery, detail))?;
    let read = async { HttpResult::Ok(routes::target_list::list(permitted, Query(query)).await?.0) };
    match session.is_renewal() {
        true => session.memory.lists.get(session.server.env.steady(), name, read).await,
        false => read.await,
    }
}

/// Returns the first pages of the targets that pass a filter without its phase, and true if further ones follow.
pub(super) async fn first_pages(
    session: &ConsoleSession,
    since: &str,
    filter: &TargetListFilter,
) -> HttpResult<(Vec<TargetPage>, bool)> {
    let (mut pages, mut next) = (Vec::new(), Some(String::new()));
    while let Some(token) = next.take_if(|_| pages.len() < COUNTED_PAGES) {
        let page = list(session, since, (filter, &[]), &token).await?;
        next.clone_from(&page.next_token);
        pages.push(page);
    }
    Ok((pages, next.is_some()))
}

pub(super) async fn targets(
    session: ConsoleSession,
    filter: QueryOf<TargetListFilter>,
    query: QueryOf<PageQuery>,
) -> Response {
    // The sign-in leads here.
    if let Some(start) = session.viewer().start_page().filter(|start| *start != paths::ROOT) {
        return Redirect::to(start).into_response();
    }
    let page = async {
        let (Query(filter), Query(PageQuery { next_token, previous, select })) = (filter?, query?);
        // The lists that are read later have all changes up to this one.
        let since = renewals::changes_since(&session, None).await?.seq;
        let (counted, is_partial) = first_pages(&session, &since, &filter).await?;
        let shown = match filter.phase.is_empty() && next_token.is_empty() {
            true => counted[0].clone(),
            false => list(&session, &since, (&filter, &[filter.phase.as_str()]), &next_token).await?,
        };
        let mut counts: Vec<(TargetPhase, usize)> = Vec::new();
        for target in counted.iter().flat_map(|page| &page.targets) {
            match counts.iter_mut().find(|(phase, _)| *phase == target.phase) {
                Some((_, count)) => *count += 1,
                None => counts.push((target.phase, 1)),
            }
        }
        let view = TargetListView {
            filter: &filter,
            targets: &shown.targets,
            counts: &counts,
            is_partial,
            outages: &shown.outages,
            damaged: &shown.damaged,
            selection: session.permitted::<WriteTargets>().is_ok().then_some(select.as_str()),
            page_token: &next_token,
            previous: &previous,
            next_token: shown.next_token.as_deref(),
            since: &since,
        };
        HttpResult::Ok(ebb_console::targets(session.viewer(), &view))
    };
    session.respond(paths::ROOT, page.await)
}

pub(super) async fn waiting(session: ConsoleSession) -> Response {
    let page = async {
        let all = TargetListFilter::default();
        let since = renewals::changes_since(&session, None).await?.seq;
        let mut found = list(&session, &since, (&all, &["stuck", "failed"]), "").await?;
        let moving = list(&session, &since, (&all, &["starting", "updating", "stopping"]), "").await?;
        found.targets.extend(moving.targets);
        let sources = match session.permitted() {
            Ok(permitted) => Some(source_routes::list(NoQuery, permitted).await?.0.sources),
            Err(_) => None,
        };
        let subscriptions = match session.permitted() {
            Ok(permitted) => Some(subscription_routes::list(NoQuery, permitted).await?.0.subscriptions),
            Err(_) => None,
        };
        let view = WaitingView {
            targets: &found.targets,
            is_partial: found.next_token.is_some() || moving.next_token.is_some(),
            outages: &found.outages,
            sources: sources.as_deref(),
            subscriptions: subscriptions.as_deref(),
            since: &since,
        };
        HttpResult::Ok(ebb_console::waiting(session.viewer(), &view))
    };
    session.respond(paths::WAITING, page.await)
}

pub(super) async fn history(
    session: ConsoleSession,
    path: PathOf<(String, String)>,
    query: QueryOf<PageQuery>,
) -> Response {
    let page = async {
        let (Path((kind, name)), Query(PageQuery { next_token, .. })) = (path?, query?);
        let query = HistoryQuery { next_token: Some(next_token.clone()).filter(|token| !token.is_empty()) };
        let path = Path((kind.clone(), name.clone()));
        let found = routes::target_history::list(path, session.permitted()?, Query(query));
        let Json(found) = Box::pin(found).await?;
        HttpResult::Ok(ebb_console::history(session.viewer(), (&kind, &name), &found, &next_token))
    };
    session.respond(paths::ROOT, page.await)
}

pub(super) async fn history_entry(session: ConsoleSession, path: PathOf<(String, String, String)>) -> Response {
    let page = async {
        let Path((kind, name, id)) = path?;
        let path = Path((kind.clone(), name.clone(), id));
        let Json(found) = Box::pin(routes::target_history::get(path, session.permitted()?)).await?;
        HttpResult::Ok(ebb_console::history_entry(session.viewer(), (&kind, &name), &found))
    };
    session.respond(paths::ROOT, page.await)
}

pub(super) async fn run(session: ConsoleSession, path: PathOf<String>, query: QueryOf<PageQuery>) -> Response {
    let page = async {
        let (Path(id), Query(PageQuery { next_token, .. })) = (path?, query?);
        let server = session.permitted()?;
        let mut run = Box::pin(routes::runs::find(&id, &server)).await?;
        let (kind, name) = routes::runs::target(&id, &session.server).await?;
        let counts = ebb_console::unit_counts(&run.units);
        routes::runs::keep_page(&mut run, Some(next_token.as_str()).filter(|token| !token.is_empty()))?;
        if run.units.len() > UNITS {
            run.units.truncate(UNITS);
            run.next_token = run.units.last().map(|unit| unit.key.clone());
        }
        let view = RunUnitsView { run: &run, target: (&kind, &name), counts: &counts, page_token: &next_token };
        HttpResult::Ok(ebb_console::run(session.viewer(), &view))
    };
    session.respond(paths::ROOT, page.await)
}

/// Shows the log of an attempt, or to an open page the lines after those that it has. Without a log, shows the reason, and
/// the log as soon as it exists.
pub(super) async fn log(session: ConsoleSession, path: PathOf<String>, query: QueryOf<UnitQuery>) -> Response {
    let page = async {
        let (Path(run), Query(UnitQuery { unit, attempt, after })) = (path?, query?);
        let server = session.permitted()?;
        let query = AttemptQuery { unit, attempt };
        let UnitLog { attempt, last, found } = Box::pin(routes::runs::find_log(&run, &server, &query)).await?;
        let AttemptQuery { unit, .. } = query;
        let without = |state: String| ShownLog { log: String::new(), state };
        let ShownLog { log, state } = match found {
            Ok(found) => found,
            Err(MissingLog::None(reason)) => without(format!("The log does not exist: {reason}.")),
            Err(MissingLog::NoResponse { cluster, reason }) => {
                let detail = routes::runs::no_response(&session.server, &unit, (&cluster, &reason)).await?;
                // After a failure, an open page keeps the lines that it has.
                if !after.is_empty() {
                    return Err(HttpProblem::new(ErrorCode::RelayUnavailable, detail));
                }
                without(detail)
            }
        };
        let (kind, name) = routes::runs::target(&run, &session.server).await?;
        let view = UnitLogView {
            run: &run,
            target: (&kind, &name),
            unit: &unit,
            attempt: attempt.0,
            last_attempt: last.0,
            log: &log,
            state: &state,
            after: &after,
        };
        HttpResult::Ok(ebb_console::log(session.viewer(), &view))
    };
    session.respond(paths::ROOT, page.await)
}

pub(super) async fn log_text(session: ConsoleSession, path: PathOf<String>, query: QueryOf<UnitQuery>) -> Response {
    let text = async {
        let (Path(run), Query(UnitQuery { unit, attempt, .. })) = (path?, query?);
        let query = AttemptQuery { unit, attempt };
        let found = Box::pin(routes::runs::read_log(&run, &session.permitted()?, &query)).await?;
        let (_, ShownLog { log, .. }) = found;
        HttpResult::Ok(ebb_console::log_text(&log))
    };
    match text.await {
        Ok(text) => ([(header::CONTENT_DISPOSITION, "attachment; filename=\"log.txt\"")], text).into_response(),
        Err(problem) => responses::failure(Some(session.viewer()), problem),
    }
}

pub(super) async fn rendering(session: ConsoleSession, path: PathOf<String>, query: QueryOf<UnitQuery>) -> Response {
    let page = async {
        let (Path(run), Query(UnitQuery { unit, attempt, .. })) = (path?, query?);
        let (server, query) = (session.permitted()?, AttemptQuery { unit, attempt });
        let (rendering, last) = Box::pin(routes::runs::find_rendering(&run, &server, &query)).await?;
        let (kind, name) = routes::runs::target(&rendering.run, &session.server).await?;
        HttpResult::Ok(ebb_console::rendering(session.viewer(), (&kind, &name), &rendering, last.0))
    };
    session.respond(paths::ROOT, page.await)
}

/// Defines pages of one response of the API each.
macro_rules! response_pages {
    ($($name:ident($session:ident $(, $path:ident)?) in $section:ident: $read:expr => |$found:ident| $page:expr;)*) => {$(
        pub(super) async fn $name($session: ConsoleSession $(, $path: PathOf<String>)?) -> Response {
            let page = async {
                let Json($found) = $read.await?;
                HttpResult::Ok($page)
            };
            $session.respond(paths::$section, page.await)
        }
    )*};
}

response_pages! {
    plugins(session) in PLUGINS: routes::plugins::list(NoQuery, session.permitted()?) =>
        |list| ebb_console::plugins(session.viewer(), &list.plugins);
    sources(session) in SOURCES: source_routes::list(NoQuery, session.permitted()?) =>
        |list| ebb_console::sources(session.viewer(), &list.sources);
    source(session, path) in SOURCES: source_routes::get(path?, session.permitted()?) =>
        |source| ebb_console::source(session.viewer(), &source, &SourceTrial::default());
    subscriptions(session) in SUBSCRIPTIONS: subscription_routes::list(NoQuery, session.permitted()?) =>
        |list| ebb_console::subscriptions(session.viewer(), &list.subscriptions);
    subscription(session, path) in SUBSCRIPTIONS: subscription_routes::get(path?, session.permitted()?) =>
        |subscription| ebb_console::subscription(session.viewer(), &subscription);
    clusters(session) in CLUSTERS: routes::clusters::list(NoQuery, session.permitted()?) =>
        |list| ebb_console::clusters(session.viewer(), &list.clusters);
    cluster(session, path) in CLUSTERS: routes::clusters::get(path?, session.permitted()?) =>
        |cluster| ebb_console::cluster(session.viewer(), &cluster);
}

pub(super) async fn unknown(session: ConsoleSession) -> Response {
    session.respond(paths::ROOT, Err(HttpProblem::not_found("no page has this address")))
}
