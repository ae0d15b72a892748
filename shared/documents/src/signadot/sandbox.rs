//! Sandbox and RouteGroup.

use std::collections::BTreeMap;

use crate::diagnostic::Diagnostic;
use crate::load::names::NameSyntax;
use crate::load::reader::{DocumentReader, MapReader, below};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{
    At, ConsumerDoc, Dialect, ParamValue, ResourceDoc, RouteGroupDoc, SandboxDoc, TemplateText, TemplateTree,
};

pub(crate) const SPEC: [&str; 12] = [
    "cluster",
    "description",
    "labels",
    "ttl",
    "resources",
    "forks",
    "local",
    "virtual",
    "defaultRouteGroup",
    "middleware",
    "routing",
    "endpoints",
];
pub(crate) const RESOURCE: [&str; 3] = ["name", "plugin", "params"];
pub(crate) const TTL: [&str; 2] = ["duration", "offsetFrom"];
const ROUTE_GROUP: [&str; 5] = ["cluster", "description", "endpoints", "match", "ttl"];
const CONSUMER: [&str; 2] = ["name", "outputKey"];

/// Reads a sandbox. `None`: so much is wrong that there is none.
pub(crate) fn sandbox(reader: &mut DocumentReader<'_>, document: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let (name, spec) = reader.top(document)?;
    reader.short_name(&name, "the sandbox's name");
    let spec = reader.map(spec, "spec", &SPEC)?;
    let cluster = reader.required_string(&spec, "cluster");
    reader.optional_string(&spec, "description");
    let labels = labels(reader, &spec);
    let (ttl_ms, _) = ttl(reader, &spec, &["createdAt", "updatedAt"]);
    for list in ["forks", "local", "virtual", "middleware", "endpoints"] {
        if let Some(node) = spec.get(list) {
            reader.list(node, &spec.below(list));
        }
    }
    for map in ["defaultRouteGroup", "routing"] {
        if let Some(node) = spec.get(map) {
            reader.any_map(node, &spec.below(map));
        }
    }
    let resources = resources(reader, &spec);
    let mut consumers = Vec::new();
    for key in ["forks", "local"] {
        if let Some(node) = spec.get(key) {
            consume(reader, node, &spec.below(key), &mut consumers);
        }
    }
    Some(SandboxDoc {
        source: reader.source.clone(),
        dialect: Dialect::Signadot,
        name,
        expanded,
        cluster: cluster.map(|cluster| cluster.value),
        namespace: None,
        labels,
        ttl_ms,
        resources,
        env: Vec::new(),
        consumers,
    })
}

/// Reads a route group.
pub(crate) fn route_group(
    reader: &mut DocumentReader<'_>,
    document: &YamlNode,
    expanded: String,
) -> Option<RouteGroupDoc> {
    let (name, spec) = reader.top(document)?;
    reader.short_name(&name, "the route group's name");
    let spec = reader.map(spec, "spec", &ROUTE_GROUP)?;
    let cluster = reader.optional_string(&spec, "cluster");
    reader.optional_string(&spec, "description");
    if let Some(node) = spec.get("match") {
        matching(reader, node, "spec.match");
    }
    if let Some(list) = spec.get("endpoints").and_then(|node| reader.list(node, "spec.endpoints")) {
        for (n, endpoint) in list.iter().enumerate() {
            let path = format!("spec.endpoints[{n}]");
            if let Some(map) = reader.map(endpoint, &path, &["name", "target", "cluster"]) {
                reader.required_string(&map, "name");
                reader.required_string(&map, "target");
            }
        }
    }
    let (ttl_ms, ttl_from) = ttl(reader, &spec, &[RouteGroupDoc::NO_MATCHED_SANDBOXES, "createdAt", "updatedAt"]);
    Some(RouteGroupDoc {
        source: reader.source.clone(),
        name,
        expanded,
        cluster: cluster.map(|cluster| cluster.value),
        ttl_ms,
        ttl_from,
    })
}

fn matching(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) {
    let Some(map) = reader.map(node, path, &["label", "all", "any"]) else { return };
    let given = ["label", "all", "any"].iter().filter(|key| map.get(key).is_some()).count();
    if given != 1 {
        let wrong = reader.wrong("match", node.at, format!("`{path}` has {given} of `label`, `all` and `any`"));
        reader.note(wrong.help("leave exactly one"));
    }
    if let Some(label) = map.get("label").and_then(|node| reader.map(node, &map.below("label"), &["key", "value"])) {
        reader.required_string(&label, "key");
        reader.required_string(&label, "value");
    }
    for key in ["all", "any"] {
        let Some(list) = map.get(key).and_then(|node| reader.list(node, &map.below(key))) else { continue };
        for (n, inner) in list.iter().enumerate() {
            matching(reader, inner, &format!("{path}.{key}[{n}]"));
        }
    }
}

fn labels(reader: &mut DocumentReader<'_>, spec: &MapReader<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let Some(node) = spec.get("labels") else { return labels };
    let path = spec.below("labels");
    for (key, value) in reader.entries(node, &path).unwrap_or_default() {
        if let Some(value) = reader.string(value, &below(&path, &key.name)) {
            labels.insert(key.name.clone(), value.value);
        }
    }
    labels
}

/// `ttl` in milliseconds, and what it counts from: `offsetFrom`, or the first of `offsets`.
fn ttl(reader: &mut DocumentReader<'_>, spec: &MapReader<'_>, offsets: &[&str]) -> (Option<u64>, Option<At<String>>) {
    let Some(node) = spec.get("ttl") else { return (None, None) };
    let Some(map) = reader.map(node, &spec.below("ttl"), &TTL) else { return (None, None) };
    let offset = reader.optional_string(&map, "offsetFrom");
    match &offset {
        Some(offset) if !offsets.contains(&offset.value.as_str()) => {
            let message = format!("`offsetFrom` cannot be `{}`", offset.value);
            let wrong = reader.wrong("unknown-value", offset.at, message);
            reader.note_near(wrong, &offset.value, offsets.iter().copied());
        }
        Some(offset) if offset.value == "updatedAt" => {
            let message = "`updatedAt` is taken as `createdAt`";
            let warning = Diagnostic::warning("ttl-offset", reader.source, offset.at, message);
            reader.note(warning.help("the time to live is set when the target is created and stays as it is"));
        }
        _ => {}
    }
    let first = offsets.first().map_or_else(String::new, |offset| (*offset).to_owned());
    let from = offset.unwrap_or(At { value: first, at: node.at });
    let duration = reader.required_string(&map, "duration");
    (duration.and_then(|duration| reader.signadot_duration(&duration)), Some(from))
}

fn resources(reader: &mut DocumentReader<'_>, spec: &MapReader<'_>) -> Vec<ResourceDoc> {
    let mut resources: Vec<ResourceDoc> = Vec::new();
    let Some(list) = spec.get("resources").and_then(|node| reader.list(node, "spec.resources")) else {
        return resources;
    };
    for (n, node) in list.iter().enumerate() {
        let Some(resource) = resource(reader, node, &format!("spec.resources[{n}]")) else { continue };
        if let Some(first) = resources.iter().find(|other| other.name.value == resource.name.value) {
            let wrong = reader
                .wrong(
                    "duplicate-resource",
                    resource.name.at,
                    format!("there are two resources `{}`", resource.name.value),
                )
                .help("give one of them another name")
                .related(first.name.at, "first here");
            reader.note(wrong);
        }
        resources.push(resource);
    }
    resources
}

fn resource(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<ResourceDoc> {
    let map = reader.map(node, path, &RESOURCE)?;
    let name = reader.required_string(&map, "name");
    if let Some(name) = &name {
        reader.check_name(name, "the resource's name", NameSyntax::Signadot, 30);
    }
    let plugin = reader.required_string(&map, "plugin");
    let reference = plugin.as_ref().and_then(|plugin| reader.reference(plugin));
    let mut params = Vec::new();
    if let Some(node) = map.get("params") {
        let path = map.below("params");
        for (key, value) in reader.entries(node, &path).unwrap_or_default() {
            let text = match &value.value {
                YamlValue::Null => Some(String::new()),
                _ => reader.string(value, &below(&path, &key.name)).map(|text| text.value),
            };
            let Some(text) = text else { continue };
            let value = At { value: ParamValue::Tree(TemplateTree::Text(TemplateText::Literal(text))), at: value.at };
            params.push((At { value: key.name.clone(), at: key.at }, value));
        }
    }
    let (plugin, reference) = (plugin?, reference?);
    let plugin = At { value: reference.name, at: plugin.at };
    Some(ResourceDoc { name: name?, plugin, version: reference.version, params })
}

/// Collects every `valueFrom.resource` at or below a node.
fn consume(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str, consumers: &mut Vec<ConsumerDoc>) {
    match &node.value {
        YamlValue::List(items) => {
            for (n, item) in items.iter().enumerate() {
                consume(reader, item, &format!("{path}[{n}]"), consumers);
            }
        }
        YamlValue::Map(entries) => {
            for (key, value) in entries {
                let path = below(path, &key.name);
                match (key.name.as_str(), value.get("resource")) {
                    ("valueFrom", Some(resource)) => {
                        consumers.extend(consumer(reader, resource, &below(&path, "resource")));
                    }
                    _ => consume(reader, value, &path, consumers),
                }
            }
        }
        _ => {}
    }
}

fn consumer(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<ConsumerDoc> {
    let map = reader.map(node, path, &CONSUMER)?;
    let resource = reader.required_string(&map, "name");
    let output = reader.required_string(&map, "outputKey");
    Some(ConsumerDoc { resource: resource?, output: output? })
}
