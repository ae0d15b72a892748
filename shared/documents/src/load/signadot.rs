//! Reads Signadot's documents, which have `name` and `spec` at the top and no `kind`, and converts them to Ebb's.
//!
//! Unknown keys at the top are ignored, as in Signadot. Below `spec` and `ebb` they are errors. Parts that only
//! Signadot uses (forks, local workloads, routing) are kept unchanged. The outputs of resources in them are checked, and
//! resolved for the platform.

mod plugin;
mod target;

use crate::load::Document;
use crate::{DocumentReader, YamlNode, YamlValue};

pub(crate) use plugin::ResourcePlugin;
pub(crate) use target::SignadotSandbox;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignadotKind {
    Plugin,
    Sandbox,
    RouteGroup,
    /// The format before the first release.
    Alpha,
}

/// Returns the kind of a document by the keys of its `spec`, or `None` if it is not one of Signadot's.
pub(crate) fn shape(document: &YamlNode) -> Option<SignadotKind> {
    if let Some(version) = document.get("apiVersion").and_then(YamlNode::text) {
        return version.starts_with("signadot.com/").then_some(SignadotKind::Alpha);
    }
    let spec = document.get("spec")?;
    let sandbox = "cluster description labels ttl resources forks local virtual defaultRouteGroup middleware routing \
        endpoints";
    let kinds = [
        ("provisioner deprovisioner provision deprovision", SignadotKind::Alpha),
        ("runner create delete", SignadotKind::Plugin),
        ("image template pod container", SignadotKind::Alpha),
        ("match", SignadotKind::RouteGroup),
        (sandbox, SignadotKind::Sandbox),
    ];
    kinds.into_iter().find(|(keys, _)| keys.split(' ').any(|key| spec.get(key).is_some())).map(|(_, kind)| kind)
}

pub(crate) fn document(
    reader: &DocumentReader<'_>,
    kind: SignadotKind,
    node: &YamlNode,
    expanded: String,
) -> Option<Document> {
    match kind {
        SignadotKind::Plugin => plugin::read(reader, node, expanded).map(Document::Plugin),
        SignadotKind::Sandbox => target::sandbox(reader, node, expanded).map(Document::Sandbox),
        SignadotKind::RouteGroup => target::route_group(reader, node, expanded).map(Document::RouteGroup),
        SignadotKind::Alpha => alpha(reader, node),
    }
}

/// Returns the document without the keys that the platform adds.
pub(crate) fn kept(document: &YamlNode) -> YamlNode {
    let mut kept = document.clone();
    if let YamlValue::Map(entries) = &mut kept.value {
        entries.retain(|(key, _)| ["name", "spec", "ebb"].iter().any(|kept| key.value.eq_ignore_ascii_case(kept)));
    }
    kept
}

/// Reports the conversion that a document of the old format needs. Returns no document.
fn alpha(reader: &DocumentReader<'_>, document: &YamlNode) -> Option<Document> {
    let at = document.get("apiVersion").map_or(document.at, |node| node.at);
    let wrong = reader.wrong("old-format", at, "this is Signadot's format from before its API, which is not read");
    let plugin = document.get("kind").is_none_or(|kind| kind.text() == Some("ResourcePlugin"));
    reader.note(wrong.help(if plugin {
        "write `name:` and `spec:` at the top, with `spec.runner.image` for the image and each provisioning program \
         as the `script` of a step under `spec.create` and `spec.delete`; a step's files become \
         `outputs[].valueFromPath`, the sandbox's params `inputs[].valueFromSandbox: true`"
    } else {
        "write `name:` and `spec:` at the top, without `apiVersion`, `kind` and `metadata`"
    }));
    None
}
