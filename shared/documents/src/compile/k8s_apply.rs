//! Signadot's plugin `k8s-apply`, which applies the manifests in its param `data`.
//!
//! The plugin's image needs objects that only Signadot creates. Ebb therefore replaces the plugin by an object unit,
//! with the usual removal of the objects. The plugin need not be published. If Signadot's document of it is published,
//! it has the same effect. A plugin of this name with another image is an ordinary plugin.

use std::collections::BTreeMap;

use semver::Version;

use super::{BoundPlugin, DiagnosticCollector, UNVERSIONED, collection};
use crate::load::yaml::{self, YamlNode, YamlValue};
use crate::model::{
    ActionDoc, Dialect, Entries, HookDoc, Named, ObjectDoc, ResourceDoc, TemplateTree, UnitSpec, VersionRange,
};
use crate::{At, EmbeddedLines, PluginDoc, SandboxDoc, SourceText, TemplatePiece, escaping, load, template};

const NAME: &str = "k8s-apply";
const IMAGE: &str = "signadot/k8s-apply";
/// The name of the unit: the only step of Signadot's document.
const UNIT: &str = "provision";
/// The required param with the manifests as text.
const DATA: &str = "data";
/// A param that only Ebb has: the `ready` of the unit, which replaces the readiness contract of the kind. Signadot
/// ignores unknown params.
const READY: &str = "ready";

/// Returns true if a resource needs no published plugin.
pub fn is_built_in(resource: &ResourceDoc) -> bool {
    resource.collection.is_some() || is_built_in_name(&resource.plugin.value, resource.version.as_ref())
}

/// Returns true if a plugin need not be published.
pub(super) fn is_built_in_name(name: &str, version: Option<&VersionRange>) -> bool {
    name == NAME && version.is_none_or(|version| version.allows(&UNVERSIONED))
}

/// Returns a plugin for each resource with `k8s-apply` or a collection, by the name of the resource, with its version and
/// its digest. Reports errors of its params or of the collection.
pub(super) fn built_in(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
    plugins: &BTreeMap<String, BoundPlugin<'_>>,
) -> BTreeMap<String, (PluginDoc, Version, String)> {
    let mut made = BTreeMap::new();
    let mut reads = None;
    for resource in &sandbox.resources {
        let published = plugins.get(&resource.name.value).filter(|_| resource.collection.is_none());
        let plugin = match (&resource.collection, published) {
            (Some(collection), _) => {
                let reads = reads.get_or_insert_with(|| collection::reads(sandbox));
                collection::plugin(report, sandbox, resource, collection, reads)
            }
            (None, Some(bound)) if !is_signadots(bound.plugin) => continue,
            (None, None) if !is_built_in(resource) => continue,
            (None, _) => plugin(report, sandbox, resource),
        };
        let (version, digest) = match published {
            Some(bound) => (bound.version.clone(), bound.digest.to_owned()),
            None => (UNVERSIONED.clone(), load::digest(&plugin)),
        };
        made.insert(resource.name.value.clone(), (plugin, version, digest));
    }
    made
}

/// Returns true for Signadot's document of the plugin, which Ebb replaces.
pub(super) fn is_signadots(plugin: &PluginDoc) -> bool {
    let image = |text: &str| {
        let text = text.strip_prefix("docker.io/").unwrap_or(text);
        text.strip_prefix(IMAGE).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
    };
    plugin.dialect == Dialect::Signadot
        && plugin.name.value == NAME
        && plugin.runners.iter().all(|runner| image(&runner.image.value))
}

/// Returns the plugin of a resource. It has no units if the params are invalid.
fn plugin(report: &mut DiagnosticCollector, sandbox: &SandboxDoc, resource: &ResourceDoc) -> PluginDoc {
    let given = |name: &str| resource.params.iter().find(|given| given.name.value == name);
    let ready = given(READY).and_then(|given| ready(report, sandbox.dialect, &given.inner));
    let data = match given(DATA) {
        Some(Named { name, inner: value }) => {
            text(report, name, value).map(|text| (name, At { value: text, at: value.at }))
        }
        None => {
            let message = format!("resource `{}` needs param `{DATA}`", resource.name.value);
            let help = "add `params: {data: …}`, a text with the manifests that are to be applied";
            report.push(report.error("missing-param", resource.name.at, message).help(help));
            None
        }
    };
    let pre_start = data.as_ref().and_then(|(name, data)| {
        let manifest = At { value: TemplateTree::List(manifests(report, data)?), at: data.at };
        let action = ActionDoc::Object(ObjectDoc { manifest, ready, fail: None, data: None });
        let inner = UnitSpec { action, ..UnitSpec::default() };
        let unit = Named { name: At { value: UNIT.to_owned(), at: name.at }, inner };
        Some(HookDoc { name: At { value: "preStart".to_owned(), at: name.at }, inner: Entries(vec![unit]) })
    });
    PluginDoc {
        source: sandbox.source.clone(),
        dialect: Dialect::Signadot,
        name: resource.plugin.clone(),
        expanded: data.map(|(_, data)| data.value).unwrap_or_default(),
        pre_start,
        ..PluginDoc::default()
    }
}

/// Returns the text of a param. Rejects a param with expressions.
fn text(report: &mut DiagnosticCollector, name: &At<String>, value: &At<TemplateTree>) -> Option<String> {
    let refused = |message: &str, help: &str| {
        report.error("param-value", value.at, format!("`{}` {message}", name.value)).help(help)
    };
    let wrong = match &value.value {
        TemplateTree::Text(text) => match template::split(text) {
            Ok(pieces) if pieces.iter().all(|piece| matches!(piece, TemplatePiece::Literal(_))) => {
                return Some(text.replace("$${", "${"));
            }
            _ => refused(
                "is applied as it is, so nothing is put into it",
                "write `$${` for a literal `${`; a plugin of yours with `object:` can have `${…}` in its manifest",
            ),
        },
        tree if tree.secret().is_some() => {
            refused("cannot come from a Secret", "write the manifests into the document")
        }
        _ => refused("must be a text", "begin it with `data: |`"),
    };
    report.push(wrong);
    None
}

fn ready(report: &mut DiagnosticCollector, dialect: Dialect, value: &At<TemplateTree>) -> Option<At<TemplateTree>> {
    match &value.value {
        TemplateTree::Text(text) => {
            // Texts of Signadot documents are not templates, so loading escaped the expression.
            let text = if dialect == Dialect::Signadot { text.replace("$${", "${") } else { text.clone() };
            Some(At { value: TemplateTree::Text(text), at: value.at })
        }
        _ => {
            let message = format!("`{READY}` must be a text with an expression over `object`");
            report.push(report.error("param-value", value.at, message).help("such as `ready: ${true}`"));
            None
        }
    }
}

/// Returns the manifests in a text. Returns `None` after it has reported their errors.
fn manifests(report: &mut DiagnosticCollector, data: &At<String>) -> Option<Vec<At<TemplateTree>>> {
    let source = SourceText::new(DATA, data.value.as_str());
    let lines = EmbeddedLines::of(&report.source, &source, data.at);
    let parsed = yaml::parse(&source).map_err(|error| {
        let at = error.at.map_or(data.at, |at| lines.place(at));
        let wrong = report.error("manifest", at, format!("`{DATA}` is not YAML: {}", error.message));
        report.push(wrong.help(error.help.unwrap_or_else(|| "`---` separates manifests".to_owned())));
    });
    let nodes: Vec<YamlNode> = parsed.ok()?.into_iter().filter(|node| node.value != YamlValue::Null).collect();
    if nodes.is_empty() {
        let wrong = report.error("manifest", data.at, format!("`{DATA}` contains no manifest"));
        report.push(wrong.help("write what is to be applied, `---` separates manifests"));
        return None;
    }
    let kinds = nodes.iter().filter_map(|node| node.get("kind"));
    for list in kinds.filter(|kind| kind.text() == Some("List")) {
        let wrong = report.error("manifest", lines.place(list.at), "a `List` is nothing that is applied");
        report.push(wrong.help("write its items one by one, `---` separates them"));
    }
    Some(nodes.iter().map(|node| tree(&lines, node)).collect())
}

/// Returns the tree with its positions in the document. Its texts are not templates.
pub(super) fn tree(lines: &EmbeddedLines, node: &YamlNode) -> At<TemplateTree> {
    let value = match &node.value {
        YamlValue::String(text) => TemplateTree::Text(escaping::escape(text)),
        YamlValue::List(items) => TemplateTree::List(items.iter().map(|item| tree(lines, item)).collect()),
        YamlValue::Map(entries) => {
            let named = |key: &At<String>| At { value: key.value.clone(), at: lines.place(key.at) };
            let entries = entries.iter().map(|(key, node)| Named { name: named(key), inner: tree(lines, node) });
            TemplateTree::Map(Entries(entries.collect()))
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => TemplateTree::Scalar(node.to_json()),
    };
    At { value, at: lines.place(node.at) }
}
