//! The pages. Each one calls handlers of the API with the caller of the session.

use axum::Json;
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::{OverviewView, SourceTrial, TargetListFilter, TargetListView, paths};
use ebb_protocol::{ErrorCode, TargetAccess, TargetPage, TargetPhase};
use serde::Deserialize;

use super::renewals;
use super::sessions::{ConsoleSession, PathOf, QueryOf};
use crate::routes::named_documents::{sources as source_routes, subscriptions as subscription_routes};
use crate::routes::target_history::HistoryQuery;
use crate::routes::target_list::ListQuery;
use crate::{HttpProblem, HttpResult, NoQuery, Path, Query, ReadTargets, WriteTargets, routes};

/// Maximum pages of the API that are read to count targets, and that the first page of the list shows.
const COUNTED_PAGES: usize = 3;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageQuery {
    next_token: String,
    select: String,
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
    let read = async { HttpResult::Ok(Box::pin(routes::target_list::list(permitted, Query(query))).await?.0) };
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

/// Shows the start page: numbers of the first targets, and those that need attention.
pub(super) async fn overview(session: ConsoleSession) -> Response {
    // The sign-in leads here.
    if let Some(start) = session.viewer().start_page().filter(|start| *start != paths::ROOT) {
        return Redirect::to(start).into_response();
    }
    let page = async {
        let all = TargetListFilter::default();
        let since = renewals::changes_since(&session, None).await?.seq;
        let (counted, is_partial) = first_pages(&session, &since, &all).await?;
        let mut troubled = Vec::new();
        if is_partial {
            for phases in [&["stuck", "failed"][..], &["starting", "updating", "stopping"]] {
                troubled.push(list(&session, &since, (&all, phases), "").await?);
            }
        }
        let (mut sources, mut subscriptions) = (Vec::new(), Vec::new());
        if let Ok(permitted) = session.permitted() {
            sources = source_routes::list(NoQuery, permitted).await?.0.sources;
        }
        if let Ok(permitted) = session.permitted() {
            subscriptions = subscription_routes::list(NoQuery, permitted).await?.0.subscriptions;
        }
        let plugin = match counted.iter().all(|page| page.targets.is_empty()) {
            true => first_plugin(&session).await?,
            false => None,
        };
        let view = OverviewView {
            plugin: plugin.as_deref(),
            now: session.server.env.now(),
            counted: &counted,
            is_partial,
            troubled: if is_partial { &troubled } else { &counted },
            sources: &sources,
            subscriptions: &subscriptions,
            url: &session.server.env.settings.source,
            since: &since,
        };
        HttpResult::Ok(ebb_console::overview(session.viewer(), &view))
    };
    session.respond(paths::ROOT, page.await)
}

async fn first_plugin(session: &ConsoleSession) -> HttpResult<Option<String>> {
    let Ok(permitted) = session.permitted() else { return Ok(None) };
    let plugins = routes::plugins::list(NoQuery, permitted).await?.0.plugins;
    Ok(plugins.into_iter().next().map(|plugin| plugin.name))
}

pub(super) async fn targets(
    session: ConsoleSession,
    filter: QueryOf<TargetListFilter>,
    query: QueryOf<PageQuery>,
) -> Response {
    let page = async {
        let (Query(filter), Query(PageQuery { next_token, select })) = (filter?, query?);
        let filter = filter.parsed();
        // The lists that are read later have all changes up to this one.
        let since = renewals::changes_since(&session, None).await?.seq;
        let (counted, is_partial) = first_pages(&session, &since, &filter).await?;
        let has_all = filter.phase.is_empty() || !is_partial && filter.state().is_some();
        let listed = match has_all && next_token.is_empty() {
            true => None,
            false => Some(list(&session, &since, (&filter, &[filter.phase.as_str()]), &next_token).await?),
        };
        let view = TargetListView {
            filter: &filter,
            counted: &counted,
            is_partial,
            shown: listed.as_ref().map_or(&counted[..], std::slice::from_ref),
            selection: session.permitted::<WriteTargets>().is_ok().then_some(select.as_str()),
            page_token: &next_token,
            since: &since,
        };
        HttpResult::Ok(ebb_console::targets(session.viewer(), &view))
    };
    session.respond(paths::TARGETS, page.await)
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
    session.respond(paths::TARGETS, page.await)
}

pub(super) async fn history_entry(session: ConsoleSession, path: PathOf<(String, String, String)>) -> Response {
    let page = async {
        let Path((kind, name, id)) = path?;
        let path = Path((kind.clone(), name.clone(), id));
        let Json(found) = Box::pin(routes::target_history::get(path, session.permitted()?)).await?;
        HttpResult::Ok(ebb_console::history_entry(session.viewer(), (&kind, &name), &found))
    };
    session.respond(paths::TARGETS, page.await)
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
