//! Reads Ebb's documents: `apiVersion: ebb.dev/v1` and a `kind`.

use std::collections::HashMap;

use serde::Deserialize;

use crate::load::Document;
use crate::load::infrakit;
use crate::load::names::{MAX_NAME, NameSyntax};
use crate::load::reader::DocumentReader;
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{ActionDoc, At, PluginDoc, SandboxDoc};

/// The only version of the format.
const API_VERSION: &str = "ebb.dev/v1";

/// The keys that identify the type of a document.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentHeader {
    api_version: Option<At<String>>,
    kind: At<String>,
}

/// Reads a document. Returns `None` after it has reported an error.
pub(crate) fn document(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<Document> {
    let DocumentHeader { api_version, kind } = reader.read(node)?;
    let wrong = match &api_version {
        None => reader.wrong("missing-key", node.at, "the document has no `apiVersion`"),
        Some(version) if version.value != API_VERSION => {
            reader.wrong("api-version", version.at, format!("`{}` is not read here", version.value))
        }
        Some(_) => match kind.value.as_str() {
            "Plugin" => return plugin(reader, node, expanded).map(Document::Plugin),
            "Sandbox" => return sandbox(reader, node, expanded).map(Document::Sandbox),
            "Collection" => return infrakit::target(reader, node, expanded).map(Document::Sandbox),
            other => {
                let wrong = reader.wrong("unknown-kind", kind.at, format!("unknown kind `{other}`"));
                reader.note(wrong.suggest(other, ["Plugin", "Sandbox", "Collection"]));
                return None;
            }
        },
    };
    reader.note(wrong.help(format!("write `apiVersion: {API_VERSION}` at the top")));
    None
}

fn plugin(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<PluginDoc> {
    let mut plugin: PluginDoc = reader.read(node)?;
    plugin.version = reader.split_version(&mut plugin.name);
    plugin.source = reader.source.clone();
    plugin.expanded = expanded;
    reader.check_names(&plugin.params, "the param's name", NameSyntax::Ours);
    reader.check_names(&plugin.runners, "the runner's name", NameSyntax::Ours);
    reader.check_names(&plugin.outputs, "the output's name", NameSyntax::Ours);
    for runner in &plugin.runners {
        let name = &runner.name.value;
        if let Some(template) = node.get("runners").and_then(|all| all.get(name)?.get("podTemplate")) {
            reader.check_pod_template(template, &format!("runners.{name}.podTemplate"), runner);
        }
    }
    for (_, hook) in plugin.hooks() {
        reader.check_names(hook, "the unit's name", NameSyntax::Ours);
        for unit in &hook.inner {
            reader.check_names(&unit.inputs, "the input's name", NameSyntax::Ours);
            reader.check_names(&unit.outputs, "the output's name", NameSyntax::Ours);
            if let ActionDoc::Pod(pod) = &unit.action {
                reader.check_script(&pod.script);
            }
        }
    }
    plugin.apply_defaults();
    Some(plugin)
}

fn sandbox(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let mut sandbox: SandboxDoc = reader.read(node)?;
    sandbox.source = reader.source.clone();
    sandbox.expanded = expanded;
    reader.check_name(&sandbox.name, "the sandbox's name", NameSyntax::Signadot, MAX_NAME);
    reader.check_names(&sandbox.resources, "the resource's name", NameSyntax::Ours);
    reader.check_names(&sandbox.env, "the environment variable", NameSyntax::Environment);
    let resources = match node.get("resources").map(|resources| &resources.value) {
        Some(YamlValue::Map(resources)) => resources.as_slice(),
        _ => &[],
    };
    let collections: HashMap<&str, &YamlNode> = resources
        .iter()
        .filter_map(|(key, resource)| Some((key.name.as_str(), resource.get(infrakit::NAME)?)))
        .collect();
    for resource in &mut sandbox.resources.0 {
        match collections.get(resource.name.value.as_str()) {
            Some(collection) => infrakit::embedded(reader, collection, resource),
            // An entry that is no mapping is reported, and has no plugin.
            None if resource.plugin.value.is_empty() => {}
            None => resource.version = reader.split_reference(&mut resource.inner.plugin),
        }
    }
    Some(sandbox)
}
