//! The pages of one plugin: a version with its parameters and users, and the difference of two versions.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::{PluginComparison, PluginParam, PluginView, TargetListFilter, paths};
use ebb_documents::{DocumentVars, NoFiles, compile, load};
use ebb_flow::offload::offload;
use ebb_protocol::api::PluginDetail;
use serde::Deserialize;

use super::pages;
use super::sessions::{ConsoleSession, PathOf, QueryOf};
use crate::queries::plugins;
use crate::{HttpProblem, HttpResult, Path, Query, ReadPlugins, ReadTargets, routes};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ComparisonQuery {
    from: String,
    to: String,
}

pub(super) async fn version(session: ConsoleSession, path: PathOf<(String, String)>) -> Response {
    let page = async {
        let Path((name, version)) = path?;
        let Json(detail) = routes::plugins::get(Path((name.clone(), version)), session.permitted()?).await?;
        let (users, is_partial) = users(&session, &name).await?;
        let (versions, latest) = versions(&session, &name).await?;
        let document = detail.document.clone();
        let params = offload(move || params(&document)).await?;
        let (latest, users) = (latest.as_deref(), users.as_ref());
        let view = PluginView { detail: &detail, params: &params, versions: &versions, latest, users, is_partial };
        HttpResult::Ok(ebb_console::plugin(session.viewer(), &view))
    };
    session.respond(paths::PLUGINS, page.await)
}

/// Shows the difference of two versions. One version is compared with the highest other one. Without versions, leads to the
/// highest one.
pub(super) async fn comparison(
    session: ConsoleSession,
    path: PathOf<String>,
    query: QueryOf<ComparisonQuery>,
) -> Response {
    if let (Ok(Path(name)), Ok(Query(ComparisonQuery { from, to }))) = (&path, &query)
        && from.is_empty()
        && to.is_empty()
    {
        return Redirect::to(&paths::plugin(name, "latest")).into_response();
    }
    let page = async {
        let (Path(name), Query(ComparisonQuery { from, to })) = (path?, query?);
        let (from, to) = match from.is_empty() || to.is_empty() {
            true => with_other(&session, &name, from + &to).await?,
            false => (from, to),
        };
        let Json(old) = routes::plugins::get(Path((name.clone(), from)), session.permitted()?).await?;
        let Json(new) = routes::plugins::get(Path((name.clone(), to)), session.permitted()?).await?;
        let (versions, _) = versions(&session, &name).await?;
        let (from, to) = (old.info.version.clone(), new.info.version.clone());
        let diff = offload(move || plugins::difference(&old, &new)).await?;
        let comparison = PluginComparison { name: &name, from: &from, to: &to, versions: &versions, diff: &diff };
        HttpResult::Ok(ebb_console::plugin_comparison(session.viewer(), comparison))
    };
    session.respond(paths::PLUGINS, page.await)
}

/// Returns a version and the one to compare it with, the lower one first.
async fn with_other(session: &ConsoleSession, name: &str, version: String) -> HttpResult<(String, String)> {
    let Json(given) = routes::plugins::get(Path((name.to_owned(), version)), session.permitted()?).await?;
    let server = session.permitted::<ReadPlugins>()?;
    let listed = plugins::versions(&server.env.store, name).await?;
    let version = &given.info.version;
    plugins::with_other(&listed, version)
        .ok_or_else(|| HttpProblem::not_found(format!("plugin {name} has no other version than {version}")))
}

/// Returns all versions of a plugin, and the one that a document without a version gets.
async fn versions(session: &ConsoleSession, name: &str) -> HttpResult<(Vec<PluginDetail>, Option<String>)> {
    let server = session.permitted::<ReadPlugins>()?;
    Ok(plugins::all_versions(&server.env.store, name).await?)
}

/// The number of living targets by version and phase.
type PluginUsers = BTreeMap<String, BTreeMap<&'static str, usize>>;

/// Returns the users of a plugin, and true if not all were counted. Returns `None` for a caller who may not read targets.
async fn users(session: &ConsoleSession, name: &str) -> HttpResult<(Option<PluginUsers>, bool)> {
    if session.permitted::<ReadTargets>().is_err() {
        return Ok((None, false));
    }
    let filter = TargetListFilter { plugin: name.to_owned(), ..TargetListFilter::default() };
    let (counted, is_partial) = Box::pin(pages::first_pages(session, "", &filter)).await?;
    let mut users = PluginUsers::new();
    for target in counted.iter().flat_map(|page| &page.targets) {
        for (found, version) in target.plugins.iter().filter_map(|used| used.split_once('@')) {
            if found == name {
                *users.entry(version.to_owned()).or_default().entry(target.phase.name()).or_insert(0) += 1;
            }
        }
    }
    Ok((Some(users), is_partial))
}

/// Returns the params of a plugin. A document that no longer loads has none.
fn params(document: &str) -> Vec<PluginParam> {
    let loaded = load::plugins("document", document, &NoFiles, &DocumentVars::none());
    let Some(plugin) = loaded.ok().and_then(|mut plugins| plugins.pop()) else { return Vec::new() };
    let params = plugin.params.iter().map(|param| PluginParam {
        name: param.name.value.clone(),
        kind: format!("{}{}", if param.sensitive { "sensitive " } else { "" }, compile::kind_name(param.kind)),
        default: param.default.as_ref().map(|default| default.value.to_string()),
        is_required: param.default.is_none() && !param.is_optional(),
        description: param.description.clone().unwrap_or_default(),
    });
    params.collect()
}
