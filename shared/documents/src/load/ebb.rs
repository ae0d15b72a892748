//! Reads Ebb's documents: `apiVersion: ebb.dev/v1` and a `kind`.

mod connection;
mod event_source;
mod inventory;
mod subscription;
mod verification;

use std::collections::HashMap;

use serde::Deserialize;

use crate::load::names::{MAX_NAME, NameSyntax};
use crate::load::{Document, bind, collection};
use crate::{ActionDoc, At, DocumentReader, HookOwner, NodePath, PluginDoc, SandboxDoc, SandboxKind, YamlNode};

const API_VERSION: &str = "ebb.dev/v1";

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
            "Sandbox" | "Target" => return target(reader, node, &NodePath::Root, expanded).map(Document::Sandbox),
            "Source" => return event_source::event_source(reader, node, expanded).map(Document::Source),
            "Connection" => return connection::connection(reader, node, expanded).map(Document::Connection),
            "Subscription" => return subscription::subscription(reader, node, expanded).map(Document::Subscription),
            "Collection" => return collection::target(reader, node, expanded).map(Document::Sandbox),
            other => {
                let wrong = reader.wrong("unknown-kind", kind.at, format!("unknown kind `{other}`"));
                let known = ["Plugin", "Sandbox", "Target", "Collection", "Source", "Connection", "Subscription"];
                reader.note(wrong.suggest(other, known));
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
    reader.check_names(&plugin.outputs, "the output's name", NameSyntax::Ours);
    connection::check_slots(reader, plugin.max_concurrent.as_ref());
    verification::add_units(reader, &mut plugin);
    check_hooks(reader, node, &plugin);
    inventory::take(reader, &mut plugin);
    if let Some(lister) = &mut plugin.lister {
        check_units(reader, lister);
        lister.apply_defaults();
    }
    plugin.apply_defaults();
    Some(plugin)
}

/// Checks the runners and the hooks of a plugin, or of a target whose keys are in `node`.
fn check_hooks(reader: &DocumentReader<'_>, node: &YamlNode, plugin: &PluginDoc) {
    reader.check_names(&plugin.runners, "the runner's name", NameSyntax::Ours);
    for runner in &plugin.runners {
        let name = &runner.name.value;
        if let Some(template) = node.get("runners").and_then(|all| all.get(name)?.get("podTemplate")) {
            reader.check_pod_template(template, &format!("runners.{name}.podTemplate"), runner);
        }
    }
    for event in &plugin.hooks {
        reader.check_event(&event.name);
    }
    check_units(reader, plugin);
}

fn check_units(reader: &DocumentReader<'_>, plugin: &PluginDoc) {
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
}

/// Moves the own hooks of a target to its `own`, if it has any. Its keys are in `node`, below `path`.
pub(super) fn take_own_hooks(reader: &DocumentReader<'_>, node: &YamlNode, target: &mut SandboxDoc) {
    let mut own = PluginDoc {
        name: At { value: HookOwner::TARGET.to_owned(), at: target.name.at },
        owner: HookOwner::Target,
        runners: std::mem::take(&mut target.runners),
        defaults: std::mem::take(&mut target.defaults),
        pre_start: target.pre_start.take(),
        post_start: target.post_start.take(),
        pre_stop: target.pre_stop.take(),
        post_stop: target.post_stop.take(),
        hooks: std::mem::take(&mut target.hooks),
        source: reader.source.clone(),
        ..PluginDoc::default()
    };
    verification::add_units(reader, &mut own);
    check_hooks(reader, node, &own);
    own.apply_defaults();
    let has_units = own.hooks().any(|(_, units)| !units.is_empty());
    target.own = has_units.then(|| Box::new(own));
}

/// Reads a target whose keys are in `node`, below `path`. Returns `None` after it has reported an error.
pub(super) fn target(
    reader: &DocumentReader<'_>,
    node: &YamlNode,
    path: &NodePath<'_>,
    expanded: String,
) -> Option<SandboxDoc> {
    let mut sandbox: SandboxDoc = reader.read_below(node, path)?;
    sandbox.source = reader.source.clone();
    sandbox.expanded = expanded;
    reader.check_name(&sandbox.name, "the sandbox's name", NameSyntax::Signadot, MAX_NAME);
    reader.check_names(&sandbox.resources, "the resource's name", NameSyntax::Ours);
    reader.check_names(&sandbox.env, "the environment variable", NameSyntax::Environment);
    let collections: HashMap<&str, &YamlNode> = collection::in_resources(node).collect();
    for resource in &mut sandbox.resources.0 {
        let name = &resource.name;
        if let (Some(protect), Some(_)) = (resource.protect.as_ref().filter(|protect| protect.value), &sandbox.ttl) {
            let message = format!("resource `{}` is protected, and `ttl` would delete the target", name.value);
            reader.note(reader.wrong("protected-ttl", protect.at, message).help("remove one of the two"));
        }
        let wrong =
            |message: &str| reader.wrong("resource-kind", name.at, format!("resource `{}` has {message}", name.value));
        match (collections.get(name.value.as_str()), resource.plugin.value.is_empty()) {
            (None, true) => {
                let help = "add `plugin: NAME`, or `collection:` with resources of InfraKit";
                reader.note(wrong("none of `plugin` and `collection`").help(help));
            }
            (Some(_), false) => reader.note(wrong("`plugin` and `collection`").help("make two resources of it")),
            (Some(collection), true) => collection::embedded(reader, collection, resource),
            (None, false) => resource.version = reader.split_reference(&mut resource.inner.plugin),
        }
    }
    check_target_kind(reader, &sandbox);
    take_own_hooks(reader, node, &mut sandbox);
    bind::take(reader, &mut sandbox);
    Some(sandbox)
}

fn check_target_kind(reader: &DocumentReader<'_>, sandbox: &SandboxDoc) {
    match (sandbox.kind, &sandbox.target_kind) {
        (SandboxKind::Sandbox, None) => {}
        (SandboxKind::Sandbox, Some(given)) => {
            let wrong = reader.wrong("contradiction", given.at, "`targetKind` does not apply to `kind: Sandbox`");
            reader.note(wrong.help("write `kind: Target`, or leave `targetKind` out"));
        }
        (SandboxKind::Target, None) => {
            let wrong = reader.wrong("missing-key", sandbox.name.at, "`kind: Target` needs `targetKind`");
            reader.note(wrong.help("add the kind that the platform sends, such as `targetKind: namespace`"));
        }
        (SandboxKind::Target, Some(given)) => {
            reader.check_name(given, "the target's kind", NameSyntax::Kind, MAX_NAME);
        }
    }
}
