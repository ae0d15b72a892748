//! Writes another version of a plugin into the document of a target.

use std::collections::BTreeMap;

use semver::Version;
use serde_json::Value;

use crate::model::{LineColumn, ResourceDoc, RouteGroupDoc, SandboxDoc, SourceText, VersionRange};
use crate::{Diagnostics, Document, DocumentVars, NoFiles, PluginReference, load};

/// The reason why a document cannot get another version of a plugin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PinError {
    #[error("{0:?} is not a plugin with its version; expected NAME@VERSION, such as db@1.1.0")]
    Plugin(String),
    #[error("{0}")]
    Document(Diagnostics),
    #[error("the stored document is not that of a target")]
    NotTarget,
    #[error("its document has no resource of the plugin {0}")]
    Unused(String),
    /// More than the references to the plugin with this name would change.
    #[error("its document does not write {0} in a form that can be changed alone, such as an alias")]
    NotAlone(String),
}

/// A document of a target with another version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedDocument {
    pub text: String,
    /// True if the document did not exclude the version, so that an update to it as it was keeps the version.
    pub is_allowed: bool,
}

/// Returns the document of a target with the plugin `full`, which is `NAME@VERSION`, in each resource of the plugin that has
/// another version, or `None` if all have this one. `living` has the plugin of each resource of the target by name, as
/// `NAME@VERSION`. The rest of the text stays as it is.
///
/// # Errors
/// Returns an error if the text is not the document of a target, if no resource is of the plugin, or if more than these
/// resources would change.
pub fn with_version(
    text: &str,
    full: &str,
    living: &BTreeMap<String, String>,
) -> Result<Option<PinnedDocument>, PinError> {
    let parsed = full.split_once('@').and_then(|(name, version)| Some((name, version.parse::<Version>().ok()?)));
    let Some((name, version)) = parsed else { return Err(PinError::Plugin(full.to_owned())) };
    let document = target(text)?;
    let allows = |resource: &ResourceDoc| resource.version.as_ref().is_none_or(|range| range.allows(&version));
    // An update keeps the version of a resource with a range.
    let has_version = |resource: &ResourceDoc| {
        let is_exact = matches!(resource.version, Some(VersionRange::Exact(_)));
        allows(resource) && (is_exact || living.get(&resource.name.value).is_some_and(|plugin| plugin == full))
    };
    let mut own = document.resources.iter().filter(|resource| resource.plugin.value == name).peekable();
    if own.peek().is_none() {
        return Err(PinError::Unused(name.to_owned()));
    }
    let others: Vec<&ResourceDoc> = own.filter(|resource| !has_version(resource)).collect();
    if others.is_empty() {
        return Ok(None);
    }
    let is_allowed = others.iter().all(|resource| allows(resource));
    let edits: Vec<(LineColumn, &str)> = others.iter().map(|resource| (resource.plugin.at, full)).collect();
    let text = edited(&document.source, &edits).ok_or_else(|| PinError::NotAlone(name.to_owned()))?;
    Ok(Some(PinnedDocument { text, is_allowed }))
}

/// Returns the document of a target with the exact versions `plugins`, `NAME@VERSION` of each resource by name. A resource of
/// another plugin, or without an entry, stays as it is.
///
/// # Errors
/// Returns an error if the text is not the document of a target, or if more than these references would change.
pub fn with_versions(text: &str, plugins: &BTreeMap<String, String>) -> Result<String, PinError> {
    let document = target(text)?;
    let edit = |resource: &ResourceDoc| {
        let full = plugins.get(&resource.name.value)?;
        let (name, version) = full.split_once('@')?;
        let exact = VersionRange::Exact(version.parse().ok()?);
        let is_other = name == resource.plugin.value && resource.version.as_ref() != Some(&exact);
        (is_other && resource.collection.is_none()).then_some((resource.plugin.at, full.as_str()))
    };
    let edits: Vec<(LineColumn, &str)> = document.resources.iter().filter_map(edit).collect();
    let names = || edits.iter().map(|(_, full)| *full).collect::<Vec<_>>().join(", ");
    edited(&document.source, &edits).ok_or_else(|| PinError::NotAlone(names()))
}

fn target(text: &str) -> Result<SandboxDoc, PinError> {
    match load::document("document", text, &NoFiles, &DocumentVars::none()).map_err(PinError::Document)? {
        Document::Sandbox(document) | Document::RouteGroup(RouteGroupDoc { target: document, .. }) => Ok(document),
        _ => Err(PinError::NotTarget),
    }
}

/// Returns a text with another plugin at each of the places, or `None` if another value would change, too.
fn edited(source: &SourceText, edits: &[(LineColumn, &str)]) -> Option<String> {
    let places: BTreeMap<LineColumn, &str> = edits.iter().copied().collect();
    // Two resources can be written in one place, by an alias.
    if edits.iter().any(|(at, full)| places.get(at) != Some(full)) {
        return None;
    }
    let mut edited = source.text.clone();
    // From the end, so that the bytes of earlier places stay valid.
    for (at, full) in places.into_iter().rev() {
        let (start, length) = source.bytes(at, source.word_length(at));
        let quote = source.text[start..start + length].chars().next().filter(|first| ['"', '\''].contains(first));
        let quote = quote.map(String::from).unwrap_or_default();
        edited.replace_range(start..start + length, &format!("{quote}{full}{quote}"));
    }
    changes_only(&source.text, &edited, edits).then_some(edited)
}

/// Returns true if exactly the edited values differ, each a reference that gets a version of its plugin. An anchor, for
/// example, would change other values, too.
fn changes_only(before: &str, after: &str, edits: &[(LineColumn, &str)]) -> bool {
    let [Some(before), Some(after)] = [before, after].map(|text| serde_saphyr::from_str::<Value>(text).ok()) else {
        return false;
    };
    let mut found = Vec::new();
    differences(&before, &after, &mut found);
    let is_edit = |(old, new): &(&Value, &Value)| {
        let (Some(old), Some(new)) = (old.as_str(), new.as_str()) else { return false };
        let name = old.parse::<PluginReference>().ok().map(|reference| reference.name);
        edits.iter().any(|(_, full)| *full == new) && name.as_deref() == new.split('@').next()
    };
    found.len() == edits.len() && found.iter().all(is_edit)
}

fn differences<'a>(old: &'a Value, new: &'a Value, found: &mut Vec<(&'a Value, &'a Value)>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if old.keys().eq(new.keys()) => {
            old.values().zip(new.values()).for_each(|(old, new)| differences(old, new, found));
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            old.iter().zip(new).for_each(|(old, new)| differences(old, new, found));
        }
        _ if old == new => {}
        _ => found.push((old, new)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn documents_get_another_version() {
        type Row = (String, String, BTreeMap<String, String>, Result<Option<String>, String>);
        type Exact = (String, BTreeMap<String, String>, Result<String, String>);
        for (full, text, living, expected) in rows::<Row>("documents_get_another_version") {
            let pinned = with_version(&text, &full, &living).map_err(|error| error.to_string());
            assert_eq!(pinned.map(|pinned| pinned.map(|pinned| pinned.text)), expected, "{text}");
        }
        for (text, plugins, expected) in rows::<Exact>("documents_get_exact_versions") {
            let pinned = with_versions(&text, &plugins).map_err(|error| error.to_string());
            assert_eq!(pinned, expected, "{text}");
        }
    }
}
