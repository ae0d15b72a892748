//! The plugins with their users, and one plugin: a version, its parameters, all versions and the difference of two of them.

use axum::Json;
use axum::response::Response;
use ebb_console::{PluginParam, PluginUsers, PluginView, TargetListFilter, paths};
use ebb_documents::{DocumentVars, NoFiles, compile, load};
use ebb_flow::offload::offload;
use ebb_protocol::api::PluginDetail;
use serde::Deserialize;

use super::sessions::{ConsoleSession, PathOf, QueryOf};
use super::{pages, renewals};
use crate::queries::plugins;
use crate::{HttpResult, NoQuery, Path, Query, ReadPlugins, ReadTargets, WriteTargets, routes};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PluginQuery {
    version: String,
    from: String,
    to: String,
}

pub(super) async fn list(session: ConsoleSession) -> Response {
    let page = async {
        let Json(list) = routes::plugins::list(NoQuery, session.permitted()?).await?;
        let users = users(&session, "").await?;
        let may_upgrade = session.permitted::<WriteTargets>().is_ok();
        HttpResult::Ok(ebb_console::plugins(session.viewer(), &list.plugins, users.as_ref(), may_upgrade))
    };
    session.respond(paths::PLUGINS, page.await)
}

/// Shows a version, by default the second one of a comparison or the highest one.
pub(super) async fn plugin(session: ConsoleSession, path: PathOf<String>, query: QueryOf<PluginQuery>) -> Response {
    let page = async {
        let (Path(name), Query(PluginQuery { version, from, to })) = (path?, query?);
        let server = session.permitted::<ReadPlugins>()?;
        let (versions, latest) = plugins::all_versions(&server.env.store, &name).await?;
        let highest =
            || latest.as_deref().or_else(|| Some(versions.first()?.info.version.as_str())).unwrap_or("latest");
        let compared = (!from.is_empty()).then(|| (from, if to.is_empty() { highest().to_owned() } else { to }));
        let shown = compared.as_ref().map(|(_, to)| to.as_str()).filter(|_| version.is_empty());
        let shown = shown.unwrap_or_else(|| if version.is_empty() { highest() } else { &version });
        let detail = get(&session, &name, shown).await?;
        let mut difference = None;
        if let Some((from, to)) = compared {
            let (old, new) = (get(&session, &name, &from).await?, get(&session, &name, &to).await?);
            let (from, to) = (old.info.version.clone(), new.info.version.clone());
            difference = Some((from, to, offload(move || plugins::difference(&old, &new)).await?));
        }
        let users = users(&session, &name).await?;
        let document = detail.document.clone();
        let params = offload(move || params(&document)).await?;
        let view = PluginView {
            detail: &detail,
            params: &params,
            versions: &versions,
            latest: latest.as_deref(),
            users: users.as_ref(),
            comparison: difference.as_ref().map(|(from, to, diff)| (from.as_str(), to.as_str(), diff.as_str())),
            may_upgrade: session.permitted::<WriteTargets>().is_ok(),
        };
        HttpResult::Ok(ebb_console::plugin(session.viewer(), &view))
    };
    session.respond(paths::PLUGINS, page.await)
}

async fn get(session: &ConsoleSession, name: &str, version: &str) -> HttpResult<PluginDetail> {
    let path = Path((name.to_owned(), version.to_owned()));
    Ok(routes::plugins::get(path, session.permitted()?).await?.0)
}

/// Returns the living users of a plugin, or all living targets without a name. A caller who may not read targets has none.
pub(super) async fn users(session: &ConsoleSession, name: &str) -> HttpResult<Option<PluginUsers>> {
    if session.permitted::<ReadTargets>().is_err() {
        return Ok(None);
    }
    let since = renewals::changes_since(session, None).await?.seq;
    let filter = TargetListFilter { plugin: name.to_owned(), ..TargetListFilter::default() };
    let (counted, is_partial) = Box::pin(pages::first_pages(session, &since, &filter)).await?;
    let targets = counted.into_iter().flat_map(|page| page.targets).collect();
    Ok(Some(PluginUsers { targets, is_partial, since }))
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
