//! Publishes, lists and withdraws plugins.

use ebb_documents::compile;
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::{Dialect, PluginDoc, VersionRange};
use ebb_engine::Timestamp;
use ebb_protocol::api::{PluginDetail, PluginInfo};
use ebb_protocol::time::rfc3339;
use ebb_store::{PluginItem, ReadPlugins};

use crate::{HttpProblem, HttpResult};
use ebb_flow::env::ApiStore;
use ebb_flow::error::{FlowResult, RequestError};
use ebb_flow::offload::offload;

/// A published version, new or unchanged.
#[derive(Debug)]
pub enum PublishOutcome {
    Created(PluginInfo),
    /// The same document was published before.
    Unchanged(PluginInfo),
}

#[derive(Debug)]
pub enum PublishRejection {
    /// The version exists with another document.
    Exists(String),
    Document(Diagnostics),
    /// The caller may not publish this plugin.
    Forbidden(HttpProblem),
}

/// Returns all versions of all plugins that are not withdrawn, by name, the highest version first.
pub async fn list(store: &dyn ApiStore) -> FlowResult<Vec<PluginInfo>> {
    Ok(sorted(ReadPlugins::list_plugins(store).await?))
}

/// Returns the versions of a plugin that are not withdrawn, the highest first.
pub async fn versions(store: &dyn ApiStore, name: &str) -> FlowResult<Vec<PluginInfo>> {
    let mut listed = store.list_versions(name).await?;
    listed.retain(|item| item.withdrawn.is_none());
    Ok(sorted(listed))
}

fn sorted(mut items: Vec<PluginItem>) -> Vec<PluginInfo> {
    let version = |item: &PluginItem| item.version.parse::<semver::Version>().ok();
    items.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| version(b).cmp(&version(a))));
    items.iter().map(about).collect()
}

fn about(item: &PluginItem) -> PluginInfo {
    PluginInfo {
        name: item.name.clone(),
        version: item.version.clone(),
        dialect: item.dialect.clone(),
        digest: item.digest.clone(),
        created: rfc3339(item.created),
    }
}

/// Publishes the plugin of a document. Without a version in the document, the version is `0.0.0`. Publishing the same
/// document again changes nothing, or reverses a withdrawal.
pub async fn publish(
    store: &dyn ApiStore,
    document: &str,
    now: Timestamp,
) -> Result<PublishOutcome, RequestError<PublishRejection>> {
    publish_if(store, document, now, |_| Ok(())).await
}

/// Publishes in the same way as [`publish`], if `permit` accepts the name of the plugin.
pub(crate) async fn publish_if(
    store: &dyn ApiStore,
    document: &str,
    now: Timestamp,
    permit: impl Fn(&str) -> HttpResult<()>,
) -> Result<PublishOutcome, RequestError<PublishRejection>> {
    let text = document.to_owned();
    let plugin = offload(move || one_plugin(&text)).await?;
    let plugin = plugin.map_err(|errors| RequestError::Rejected(PublishRejection::Document(errors)))?;
    permit(&plugin.name.value).map_err(|problem| RequestError::Rejected(PublishRejection::Forbidden(problem)))?;
    let version = plugin.version.clone().unwrap_or_else(|| semver::Version::new(0, 0, 0));
    let dialect = match plugin.dialect {
        Dialect::Signadot => "signadot",
        Dialect::Ebb => "ebb",
    };
    let item = PluginItem {
        name: plugin.name.value.clone(),
        version: version.to_string(),
        dialect: dialect.to_owned(),
        digest: load::digest(&plugin),
        document: plugin.expanded,
        created: now,
        withdrawn: None,
    };
    if store.put_plugin(&item).await? {
        return Ok(PublishOutcome::Created(about(&item)));
    }
    let existing = store.get_plugin(&item.name, &item.version).await?;
    let is_withdrawn = existing.as_ref().is_some_and(|existing| existing.withdrawn.is_some());
    if let Some(existing) = existing.filter(|existing| existing.digest == item.digest) {
        return Ok(PublishOutcome::Unchanged(about(&existing)));
    }
    let was = if is_withdrawn { "was published and withdrawn" } else { "is published" };
    let text = format!("plugin {}@{} {was} with another document: versions are immutable", item.name, item.version);
    Err(RequestError::Rejected(PublishRejection::Exists(text)))
}

/// Loads and checks the only plugin of a document.
fn one_plugin(document: &str) -> Result<PluginDoc, Diagnostics> {
    let mut list = load::plugins("document", document, &NoFiles, &DocumentVars::none())?;
    let plugin = match (list.pop(), list.last()) {
        (Some(plugin), None) => plugin,
        (Some(plugin), Some(_)) => {
            let text = "the document has several plugins; publish one at a time";
            return Err(Diagnostic::error("several-documents", &plugin.source, None, text).into());
        }
        (None, _) => {
            let source = ebb_documents::model::SourceText::new("document", document);
            return Err(Diagnostic::error("no-plugin", &source, None, "the document has no plugin").into());
        }
    };
    compile::check_plugin(&plugin)?;
    Ok(plugin)
}

/// Returns a version in canonical form; for `latest`, the highest version that is not withdrawn, for the first numbers
/// of versions the highest one of these.
async fn resolve(store: &dyn ApiStore, name: &str, version: &str) -> FlowResult<Option<String>> {
    let range = match (version, version.parse::<VersionRange>()) {
        ("latest", _) => None,
        (_, Err(_)) => return Ok(Some(version.to_owned())),
        (_, Ok(range)) => match range.exact() {
            Some(version) => return Ok(Some(version.to_string())),
            None => Some(range),
        },
    };
    let listed = store.list_versions(name).await?;
    let listed = listed.iter().filter(|item| item.withdrawn.is_none());
    let versions: Vec<semver::Version> = listed.filter_map(|item| item.version.parse().ok()).collect();
    Ok(compile::resolve_version(range.as_ref(), &versions).map(ToString::to_string))
}

/// Returns a version with its document, also a withdrawn one.
pub async fn get(store: &dyn ApiStore, name: &str, version: &str) -> FlowResult<Option<PluginDetail>> {
    let Some(version) = resolve(store, name, version).await? else { return Ok(None) };
    let item = store.get_plugin(name, &version).await?;
    Ok(item.map(|item| PluginDetail {
        info: about(&item),
        withdrawn: item.withdrawn.map(rfc3339),
        document: item.document,
    }))
}

/// Withdraws a version: new targets cannot use it. Active targets keep it in their plans. Returns false if the version
/// does not exist, or is only the first numbers of versions.
pub async fn withdraw(store: &dyn ApiStore, name: &str, version: &str, now: Timestamp) -> FlowResult<bool> {
    if version.parse::<VersionRange>().is_ok_and(|range| range.exact().is_none()) {
        return Ok(false);
    }
    let Some(version) = resolve(store, name, version).await? else { return Ok(false) };
    Ok(store.withdraw_plugin(name, &version, now).await?)
}
