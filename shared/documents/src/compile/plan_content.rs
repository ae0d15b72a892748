//! The content of a plan without positions and order, as digests that an update compares.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::Hook;
use serde_json::{Map, Value, json};

use super::plan_expressions::{expressions, strings};
use crate::canonical::digest;
use crate::cel::{self, ReferenceSource, RootVariable, Scope};
use crate::plan::{Action, HookPlan, OutputRead, Plan, PluginInterface, ResourceOrigin, Template, UnitPlan, UnitRef};

/// Returns the units of a hook with their places.
pub(super) fn units_of(hooks: &[HookPlan], hook: Hook) -> impl Iterator<Item = (UnitRef, &UnitPlan)> {
    hooks.iter().filter(move |planned| planned.hook == hook).flat_map(HookPlan::places)
}

/// Returns the positions of the units for which no other unit of the same resource waits.
pub(super) fn last_of(units: &[UnitPlan]) -> Vec<u32> {
    let waited_for: BTreeSet<u32> = units
        .iter()
        .flat_map(|unit| {
            let is_same = |first: &&u32| units[**first as usize].resource() == unit.resource();
            unit.dependencies.iter().filter(is_same).copied()
        })
        .collect();
    (0..).zip(units).map(|(number, _)| number).filter(|number| !waited_for.contains(number)).collect()
}

/// Returns the resources of a plan with their setup units, and the target itself if it has own units.
pub(super) fn origins(plan: &Plan) -> BTreeMap<String, ResourceOrigin> {
    if let Some(state) = &plan.update {
        return state.resources.clone();
    }
    let mut units: BTreeMap<String, BTreeMap<String, UnitRef>> =
        plan.resources.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
    for (at, unit) in plan.hooks.iter().flat_map(HookPlan::places) {
        let own = units.entry(unit.resource().to_owned()).or_default();
        if at.hook.is_setup() {
            own.insert(unit.key.clone(), at);
        }
    }
    let origin = |(name, units): (String, BTreeMap<String, UnitRef>)| {
        let setup = setup_digest(plan, &name, &units);
        (name, ResourceOrigin { setup, units })
    };
    units.into_iter().map(origin).collect()
}

/// Returns the digest of what the setup of a resource depends on.
fn setup_digest(plan: &Plan, name: &str, units: &BTreeMap<String, UnitRef>) -> String {
    let is_bind = units.values().filter_map(|&at| plan.unit(at)).any(is_bound);
    let units: Map<String, Value> =
        units.iter().filter_map(|(key, &at)| Some((key.clone(), content(plan, at.hook, plan.unit(at)?)))).collect();
    let mut made = json!({"params": plan.resources.get(name).map(|resource| &resource.params), "units": units});
    if is_bind {
        let read = resources_read(plan, &made);
        made["read"] = json!(read);
    }
    add_labels(plan, &mut made);
    digest_of(made)
}

/// Returns true for a unit that applies an object of `bind`.
pub(super) fn is_bound(unit: &UnitPlan) -> bool {
    matches!(&unit.action, Action::Object(object) if object.bound)
}

/// Returns the params and the public outputs of the resources that these templates read, and of those that these read.
///
/// A bound object holds the values of such outputs. They can change although no unit that made them runs again: with a
/// param, a label or the text of the output.
fn resources_read(plan: &Plan, made: &Value) -> BTreeMap<String, Value> {
    let mut read = BTreeMap::new();
    let mut open = vec![made.clone()];
    while let Some(templates) = open.pop() {
        for reference in strings(&templates).into_iter().flat_map(expressions).flat_map(|it| it.references) {
            let ReferenceSource::Resource { resource: name, .. } = reference.source else { continue };
            let Some(resource) = plan.resources.get(&name).filter(|_| !read.contains_key(&name)) else { continue };
            let outputs: BTreeMap<&String, &Template> =
                resource.outputs.iter().map(|(output, public)| (output, &public.value)).collect();
            let values = json!([resource.params, outputs]);
            read.insert(name, values.clone());
            open.push(values);
        }
    }
    read
}

/// Returns the digest of what a plugin of InfraKit gets to find the resource of a unit. Returns `None` if the key of the
/// unit is enough.
pub(super) fn search_digest(plan: &Plan, unit: &UnitPlan) -> Option<String> {
    let Action::Infrakit(action) = &unit.action else { return None };
    if action.interface == PluginInterface::Instance {
        return None;
    }
    let references = strings(&action.properties).into_iter().flat_map(expressions).flat_map(|it| it.references);
    let read: BTreeSet<ReferenceSource> = references.map(|reference| reference.source).collect();
    let is_read = |param: &String| read.contains(&ReferenceSource::Param(param.clone()));
    let params = plan.resources.get(unit.resource()).map(|resource| &resource.params);
    let params: BTreeMap<&String, &Template> =
        params.into_iter().flatten().filter(|&(param, _)| is_read(param)).collect();
    let mut made = json!({"interface": action.interface, "properties": action.properties, "params": params});
    add_labels(plan, &mut made);
    Some(digest_of(made))
}

/// Adds the labels that the params and units of a resource may read.
fn add_labels(plan: &Plan, made: &mut Value) {
    let read = labels_read(made);
    let is_read = |label: &String| read.as_ref().is_none_or(|read| read.contains(label));
    let labels: BTreeMap<&String, &String> = plan.target.labels.iter().filter(|&(label, _)| is_read(label)).collect();
    if !labels.is_empty() {
        made["labels"] = json!(labels);
    }
}

/// Returns the labels that the params and units of a resource may read. `None` means all of them.
fn labels_read(made: &Value) -> Option<BTreeSet<String>> {
    let units = made["units"].as_object().into_iter().flat_map(Map::values);
    let conditions = units.filter_map(|unit| cel::parse(unit["when"].as_str()?, Scope::Plan).ok());
    let templates = strings(made).into_iter().filter(|text| text.contains(RootVariable::Target.as_str()));
    let read = templates.flat_map(expressions).chain(conditions);
    let keys: Option<Vec<BTreeSet<String>>> = read.map(|read| read.keys_of(RootVariable::Target, "labels")).collect();
    keys.map(|keys| keys.into_iter().flatten().collect())
}

/// Returns the digest of a plan's content, without positions and order.
pub(super) fn content_digest(plan: &Plan) -> String {
    let hooks: Map<String, Value> = plan
        .hooks
        .iter()
        .map(|hook| {
            let units = hook.units.iter().map(|unit| (unit.key.clone(), content(plan, hook.hook, unit)));
            (hook.hook.to_string(), Value::Object(units.collect()))
        })
        .collect();
    let resources: Map<String, Value> = plan
        .resources
        .iter()
        .map(|(name, resource)| {
            let outputs: Map<String, Value> = resource
                .outputs
                .iter()
                .map(|(name, output)| {
                    let is_declared =
                        output.sensitive && !output.reads.iter().any(|read| is_kept_by_default(plan, read));
                    (name.clone(), json!([output.value, is_declared, read_keys(plan, &output.reads)]))
                })
                .collect();
            (name.clone(), json!([resource.plugin, resource.digest, resource.params, outputs]))
        })
        .collect();
    let mut content = vec![json!(plan.target), json!(resources), json!(plan.env), json!(plan.workloads), json!(hooks)];
    if !plan.optional_env.is_empty() {
        content.push(json!(plan.optional_env));
    }
    digest_of(content.into())
}

/// Returns a unit without positions: its references are keys.
fn content(plan: &Plan, hook: Hook, unit: &UnitPlan) -> Value {
    let key = |at: UnitRef| plan.unit(at).map_or("", |unit| unit.key.as_str());
    let keys =
        |positions: &[u32]| -> BTreeSet<&str> { positions.iter().map(|&unit| key(UnitRef { hook, unit })).collect() };
    let undoes: BTreeSet<&str> = unit.undoes.iter().map(|&at| key(at)).collect();
    let mut content = json!(unit);
    content["source"] = Value::Null;
    content["reads"] = json!(read_keys(plan, &unit.reads));
    content["undoes"] = json!(undoes);
    content["dependencies"] = json!(keys(&unit.dependencies));
    content["orderedAfter"] = json!(keys(&unit.ordered_after));
    for (name, _) in unit.outputs.iter().filter(|(_, output)| output.sensitive_by_default) {
        if let Some(output) = content["outputs"][name].as_object_mut() {
            output.retain(|key, _| !key.starts_with("sensitive"));
        }
    }
    content
}

/// Returns true if an output is sensitive although its document does not say so. The content of a plan ignores that, so
/// that no update replaces the resources of earlier plans, in which it was in clear.
fn is_kept_by_default(plan: &Plan, read: &OutputRead) -> bool {
    let output = plan.unit(read.at).and_then(|unit| unit.outputs.get(&read.output));
    output.is_some_and(|output| output.sensitive_by_default)
}

/// Returns reads without positions: `UNIT.OUTPUT`, with `?` if the output may be missing.
fn read_keys(plan: &Plan, reads: &[OutputRead]) -> BTreeSet<String> {
    let key = |read: &OutputRead| {
        let unit = plan.unit(read.at).map_or("", |unit| unit.key.as_str());
        format!("{unit}.{}{}", read.output, if read.optional { "?" } else { "" })
    };
    reads.iter().map(key).collect()
}

fn digest_of(mut value: Value) -> String {
    value.sort_all_objects();
    digest(&value.to_string())
}
