//! `kind: Sandbox`.

use std::collections::BTreeMap;

use super::inner;
use crate::load::names::{MAX_NAME, NameSyntax};
use crate::load::reader::{DocumentReader, MapReader, below};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{At, Dialect, ParamValue, ResourceDoc, SandboxDoc, TemplateText};

pub(crate) const KEYS: [&str; 10] =
    ["apiVersion", "kind", "name", "description", "cluster", "namespace", "labels", "ttl", "resources", "env"];
pub(crate) const RESOURCE: [&str; 2] = ["plugin", "params"];

/// Reads a sandbox. `None`: so much is wrong that there is none.
pub(crate) fn sandbox(reader: &mut DocumentReader<'_>, document: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let map = reader.map(document, "", &KEYS)?;
    let name = reader.required_string(&map, "name");
    if let Some(name) = &name {
        reader.check_name(name, "the sandbox's name", NameSyntax::Signadot, MAX_NAME);
    }
    reader.optional_string(&map, "description");
    let cluster = reader.optional_string(&map, "cluster").map(|text| text.value);
    let namespace = reader.optional_string(&map, "namespace").map(|text| text.value);
    let ttl_ms = map.get("ttl").and_then(|node| reader.duration(node, "ttl"));
    let mut labels = BTreeMap::new();
    if let Some(node) = map.get("labels") {
        for (key, value) in reader.entries(node, "labels").unwrap_or_default() {
            if let Some(value) = reader.string(value, &below("labels", &key.name)) {
                labels.insert(key.name.clone(), value.value);
            }
        }
    }
    let mut resources = Vec::new();
    if let Some(node) = map.get("resources") {
        for (name, node) in reader.named(node, "resources", "the resource's name", NameSyntax::Ours) {
            let path = inner("resources", &name);
            resources.extend(resource(reader, name, node, &path));
        }
    }
    let env = env(reader, &map);
    Some(SandboxDoc {
        source: reader.source.clone(),
        dialect: Dialect::Ebb,
        name: name?,
        expanded,
        cluster,
        namespace,
        labels,
        ttl_ms,
        resources,
        env,
        consumers: Vec::new(),
    })
}

fn env(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Vec<(At<String>, At<TemplateText>)> {
    let Some(node) = map.get("env") else { return Vec::new() };
    let mut env = Vec::new();
    for (name, node) in reader.named(node, "env", "the environment variable", NameSyntax::Environment) {
        if let Some(text) = reader.text(node, &inner("env", &name)) {
            env.push((name, text));
        }
    }
    env
}

fn resource(reader: &mut DocumentReader<'_>, name: At<String>, node: &YamlNode, path: &str) -> Option<ResourceDoc> {
    let map = reader.map(node, path, &RESOURCE)?;
    let mut params = Vec::new();
    if let Some(node) = map.get("params") {
        for (key, value) in reader.entries(node, &map.below("params")).unwrap_or_default() {
            params.push((super::named(key), At { value: given(value), at: value.at }));
        }
    }
    let plugin = reader.required_string(&map, "plugin")?;
    let reference = reader.reference(&plugin)?;
    let plugin = At { value: reference.name, at: plugin.at };
    Some(ResourceDoc { name, plugin, version: reference.version, params })
}

/// A mapping of nothing but the texts `secret` and `key` names a secret; all else is a value.
fn given(node: &YamlNode) -> ParamValue {
    if let YamlValue::Map(entries) = &node.value
        && let [_, _] = entries.as_slice()
        && let (Some(YamlValue::String(name)), Some(YamlValue::String(key))) =
            (node.get("secret").map(|n| &n.value), node.get("key").map(|n| &n.value))
    {
        return ParamValue::Secret { name: name.clone(), key: key.clone() };
    }
    ParamValue::Tree(super::tree(node).value)
}
