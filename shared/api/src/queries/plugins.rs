//! Publishes, lists, compares and withdraws plugins.

use std::time::Duration;

use ebb_documents::model::{Dialect, PluginDoc, VersionRange};
use ebb_documents::{Diagnostic, Diagnostics, DocumentVars, NoFiles, compile, load};
use ebb_protocol::{ErrorCode, PluginDetail, PluginInfo, Timestamp, rfc3339};
use ebb_store::{PluginItem, Store};
use similar::TextDiff;

use crate::{HttpProblem, HttpResult};
use ebb_flow::{FlowResult, offload};

/// The time after which the rest of two documents is compared roughly.
const DIFF_TIME: Duration = Duration::from_millis(500);
/// The equal lines around a change.
const CONTEXT: usize = 3;

/// Returns all versions of all plugins that are not withdrawn, by name, the highest version first.
pub async fn list(store: &Store) -> FlowResult<Vec<PluginInfo>> {
    Ok(sorted(store.list_plugins().await?).map(|detail| detail.info).collect())
}

/// Returns the versions of a plugin that are not withdrawn, the highest first.
pub async fn versions(store: &Store, name: &str) -> FlowResult<Vec<PluginInfo>> {
    let mut listed = store.list_versions(name).await?;
    listed.retain(|item| item.withdrawn.is_none());
    Ok(sorted(listed).map(|detail| detail.info).collect())
}

fn sorted(mut items: Vec<PluginItem>) -> impl Iterator<Item = PluginDetail> {
    let version = |item: &PluginItem| item.version.parse::<semver::Version>().ok();
    items.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| version(b).cmp(&version(a))));
    items.into_iter().map(detail)
}

/// Returns all versions of a plugin without their documents, the highest first, and the one that a document without a version
/// gets.
pub(crate) async fn all_versions(store: &Store, name: &str) -> FlowResult<(Vec<PluginDetail>, Option<String>)> {
    let latest = resolve(store, name, "latest").await?;
    Ok((sorted(store.list_versions(name).await?).collect(), latest))
}

fn detail(item: PluginItem) -> PluginDetail {
    let PluginItem { name, version, dialect, digest, document, created, withdrawn } = item;
    let info = PluginInfo { name, version, dialect, digest, created: rfc3339(created) };
    PluginDetail { info, withdrawn: withdrawn.map(rfc3339), document }
}

/// Returns the difference of the documents of two versions, as unified diff. It is empty for equal documents.
pub fn difference(old: &PluginDetail, new: &PluginDetail) -> String {
    let name = |PluginDetail { info, .. }: &PluginDetail| format!("{}@{}", info.name, info.version);
    let mut config = TextDiff::configure();
    let diff = config.timeout(DIFF_TIME).diff_lines(old.document.as_str(), new.document.as_str());
    diff.unified_diff().context_radius(CONTEXT).header(&name(old), &name(new)).to_string()
}

/// Returns the versions to compare if only one is given: this one and the highest other one of those that are listed, the
/// lower one first. Releases precede other versions. Returns `None` if no other one is listed.
pub fn with_other(listed: &[PluginInfo], version: &str) -> Option<(String, String)> {
    let others = listed.iter().filter(|info| info.version != version);
    let others: Vec<semver::Version> = others.filter_map(|info| info.version.parse().ok()).collect();
    let other = compile::resolve_version(None, &others)?;
    let is_lower = version.parse().is_ok_and(|version: semver::Version| version < *other);
    let (version, other) = (version.to_owned(), other.to_string());
    Some(if is_lower { (version, other) } else { (other, version) })
}

/// Publishes the plugin of a document, if `permit` accepts its name. Without a version in the document, the version is
/// `0.0.0`. Publishing the same document again changes nothing, or reverses a withdrawal. Returns the version, and false if the
/// same document was published before.
///
/// # Errors
/// Returns the errors of the document, the problem of `permit`, or a conflict with another document of the version.
pub async fn publish(
    store: &Store,
    document: &str,
    now: Timestamp,
    permit: impl Fn(&str) -> HttpResult<()>,
) -> HttpResult<(PluginInfo, bool)> {
    let text = document.to_owned();
    let plugin = offload(move || one_plugin(&text)).await??;
    permit(&plugin.name.value)?;
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
        return Ok((detail(item).info, true));
    }
    let existing = store.get_plugin(&item.name, &item.version).await?;
    let is_withdrawn = existing.as_ref().is_some_and(|existing| existing.withdrawn.is_some());
    if let Some(existing) = existing.filter(|existing| existing.digest == item.digest) {
        return Ok((detail(existing).info, false));
    }
    let was = if is_withdrawn { "was published and withdrawn" } else { "is published" };
    let text = format!("plugin {}@{} {was} with another document: versions are immutable", item.name, item.version);
    Err(HttpProblem::new(ErrorCode::AlreadyExists, text))
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
async fn resolve(store: &Store, name: &str, version: &str) -> FlowResult<Option<String>> {
    let range = match (version, VersionRange::parse(version)) {
        ("latest", _) => None,
        (_, None) => return Ok(Some(version.to_owned())),
        (_, Some(range)) => match range.exact() {
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
pub async fn get(store: &Store, name: &str, version: &str) -> FlowResult<Option<PluginDetail>> {
    let Some(version) = resolve(store, name, version).await? else { return Ok(None) };
    Ok(store.get_plugin(name, &version).await?.map(detail))
}

/// Withdraws a version: new targets cannot use it. Active targets keep it in their plans. Returns false if the version
/// does not exist, or is only the first numbers of versions.
pub(crate) async fn withdraw(store: &Store, name: &str, version: &str, now: Timestamp) -> FlowResult<bool> {
    if VersionRange::parse(version).is_some_and(|range| range.exact().is_none()) {
        return Ok(false);
    }
    let Some(version) = resolve(store, name, version).await? else { return Ok(false) };
    Ok(store.withdraw_plugin(name, &version, now).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(version: &str, document: &str) -> PluginDetail {
        let detail = serde_json::json!({
            "name": "db", "version": version, "dialect": "ebb", "digest": "sha256:0", "created": "2026-11-21T09:00:00Z",
            "document": document,
        });
        serde_json::from_value(detail).unwrap()
    }

    /// Documents without a common line are compared, too.
    #[test]
    fn a_comparison_ends() {
        let text = |word: &str| (0..50_000).map(|line| format!("{word}{line}\n")).collect::<String>();
        let diff = difference(&detail("1.0.0", &text("a")), &detail("2.0.0", &text("b")));
        assert_eq!(diff.lines().filter(|line| line.starts_with("+b")).count(), 50_000);
    }
}
