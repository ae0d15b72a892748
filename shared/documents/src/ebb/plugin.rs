//! `kind: Plugin`.

use std::collections::BTreeMap;

use super::inner;
use crate::load::names::NameSyntax;
use crate::load::reader::{DocumentReader, MapReader};
use crate::load::yaml::YamlNode;
use crate::model::{At, Dialect, HookDoc, LineColumn, ParamDoc, PluginDoc, RunnerDoc, TemplateText};
use crate::plan::HookName;

pub(crate) const KEYS: [&str; 12] = [
    "apiVersion",
    "kind",
    "name",
    "description",
    "params",
    "runners",
    "defaults",
    "preStart",
    "postStart",
    "preStop",
    "postStop",
    "outputs",
];
pub(crate) const RUNNER: [&str; 3] = ["image", "namespace", "podTemplate"];
pub(crate) const DEFAULTS: [&str; 2] = ["timeout", "retry"];
const HOOKS: [(&str, HookName); 4] = [
    ("preStart", HookName::PreStart),
    ("postStart", HookName::PostStart),
    ("preStop", HookName::PreStop),
    ("postStop", HookName::PostStop),
];

/// Reads a plugin. `None`: so much is wrong that there is none.
pub(crate) fn plugin(reader: &mut DocumentReader<'_>, document: &YamlNode, expanded: String) -> Option<PluginDoc> {
    let map = reader.map(document, "", &KEYS)?;
    let name = reader.required_string(&map, "name").and_then(|name| reader.definition(&name));
    let description = reader.optional_string(&map, "description").map(|text| text.value);
    let params = params(reader, &map);
    let runners = runners(reader, &map);
    let defaults = defaults(reader, &map);
    let mut hooks = Vec::new();
    let mut seen: BTreeMap<String, LineColumn> = BTreeMap::new();
    for (hook_key, hook) in HOOKS {
        let Some((key, node)) = map.entry(hook_key) else { continue };
        let mut units = Vec::new();
        for (name, node) in reader.named(node, hook_key, "the unit's name", NameSyntax::Ours) {
            if let Some(first) = seen.insert(name.value.clone(), name.at) {
                let wrong = reader
                    .wrong("duplicate-unit", name.at, format!("there are two units `{}`", name.value))
                    .help("names of units are unique over all hooks")
                    .related(first, "first here");
                reader.note(wrong);
            }
            let path = inner(hook_key, &name);
            units.extend(super::unit::unit(reader, name, node, &path, &defaults));
        }
        hooks.push(HookDoc { name: super::named(key), hook, units });
    }
    let outputs = outputs(reader, &map);
    let (name, version) = name?;
    Some(PluginDoc {
        source: reader.source.clone(),
        dialect: Dialect::Ebb,
        name,
        version,
        description,
        expanded,
        params,
        runners,
        hooks,
        outputs,
    })
}

fn params(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Vec<(At<String>, ParamDoc)> {
    let Some(node) = map.get("params") else { return Vec::new() };
    let mut params = Vec::new();
    for (name, node) in reader.named(node, "params", "the param's name", NameSyntax::Ours) {
        if let Some(param) = super::param::param(reader, node, &inner("params", &name)) {
            params.push((name, param));
        }
    }
    params
}

fn runners(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Vec<(At<String>, RunnerDoc)> {
    let Some(node) = map.get("runners") else { return Vec::new() };
    let mut runners = Vec::new();
    for (name, node) in reader.named(node, "runners", "the runner's name", NameSyntax::Ours) {
        let path = inner("runners", &name);
        let Some(map) = reader.map(node, &path, &RUNNER) else { continue };
        let image = reader.required_string(&map, "image");
        let namespace = reader.optional_string(&map, "namespace");
        let pod_template = reader.optional_string(&map, "podTemplate");
        let Some(image) = image else { continue };
        let runner = RunnerDoc { image, namespace, pod_template };
        if let Some(template) = map.get("podTemplate") {
            reader.check_pod_template(template, &map.below("podTemplate"), &runner);
        }
        runners.push((name, runner));
    }
    runners
}

fn defaults(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> super::unit::UnitLimits {
    let found = map.get("defaults").and_then(|node| reader.map(node, "defaults", &DEFAULTS));
    found.map_or_else(super::unit::UnitLimits::default, |map| super::unit::limits(reader, &map))
}

fn outputs(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Vec<(At<String>, At<TemplateText>)> {
    let Some(node) = map.get("outputs") else { return Vec::new() };
    let mut outputs = Vec::new();
    for (name, node) in reader.named(node, "outputs", "the output's name", NameSyntax::Ours) {
        if let Some(text) = reader.text(node, &inner("outputs", &name)) {
            outputs.push((name, text));
        }
    }
    outputs
}
