//! The content of a plan without positions and order: a tree whose differences people see, and digests that an update
//! compares.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::Hook;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::plan_expressions::{expressions, strings};
use crate::canonical::digest;
use crate::cel::{self, ReferenceSource, RootVariable, Scope};
use crate::plan::{Action, HookPlan, Plan, PluginInterface, Resource, ResourceOrigin, Template, UnitPlan, UnitRef};
use crate::{HookOwner, durations};

/// The member of an encrypted literal in the content of a plan.
pub const SEALED: &str = "sealed";

/// Returns the content of a plan as a tree with the paths of its document. Values are as a document writes them.
///
/// Positions, order, units that the compiler adds, and what earlier documents have left are not in the tree, so the plan
/// of an updated target can be compared with a new one.
pub fn content(plan: &Plan) -> Value {
    let resources = plan.resources.iter().map(|(name, resource)| {
        let outputs = resource.outputs.iter().map(|(output, public)| (output.clone(), public.value.shown()));
        let outputs: Map<String, Value> = outputs.collect();
        let mut content = json!({"plugin": resource.plugin, "params": params(resource), "outputs": outputs});
        if let Some(protect) = resource.protect {
            content["protect"] = protect.into();
        }
        (name.clone(), content)
    });
    let env = plan.env.iter().map(|(name, value)| match plan.optional_env.contains(name) {
        true => (name.clone(), json!({"value": value.shown(), "optional": true})),
        false => (name.clone(), value.shown()),
    });
    let target = &plan.target;
    let ttl = target.ttl_ms.map(|ttl| match target.ttl_slides {
        true => json!({"after": durations::shown(ttl), "from": "activity"}),
        false => durations::shown(ttl).into(),
    });
    let mut content = json!({
        "cluster": target.cluster, "namespace": target.namespace, "labels": target.labels,
        "ttl": ttl, "env": env.collect::<Map<_, _>>(), "workloads": plan.workloads,
        "resources": resources.collect::<Map<_, _>>(),
    });
    let undone: BTreeSet<UnitRef> =
        plan.hooks.iter().flat_map(|hook| &hook.units).flat_map(|unit| &unit.undoes).copied().collect();
    for (at, unit) in plan.hooks.iter().flat_map(HookPlan::places).filter(|(_, unit)| !unit.action.is_added()) {
        let resource = unit.resource();
        let units = match (unit.stage.unwrap_or(at.hook), resource) {
            // A unit of `update`. It is in the plan only after it was selected.
            (Hook::Update(_), _) => continue,
            _ if plan.resources.contains_key(resource) => &mut content["resources"][resource]["units"],
            (Hook::Event(event), HookOwner::TARGET) => &mut content["hooks"][event.as_str()],
            (hook, HookOwner::TARGET) => &mut content[hook.name()],
            (_, HookOwner::BIND) => &mut content[HookOwner::BIND],
            // A unit of a former resource.
            _ => continue,
        };
        let mut content = unit_of_plan(plan, at.hook, unit);
        // The compiler adds the undo of such a unit, unless the document has this key.
        if matches!(unit.action, Action::Infrakit(_)) && at.hook.is_setup() && !undone.contains(&at) {
            content["cleanup"] = "none".into();
        }
        units[unit.name()] = content;
    }
    content
}

/// Returns the params of a resource as its document writes them, but an encrypted literal with its text, so that two
/// values differ.
fn params(resource: &Resource) -> Map<String, Value> {
    let param = |template: &Template| match template {
        Template::Sealed(text) => json!({ SEALED: text }),
        template => template.shown(),
    };
    resource.params.iter().map(|(name, template)| (name.clone(), param(template))).collect()
}

/// Returns the content of a unit with the units of its resource for which it waits and which it undoes. Other
/// dependencies follow from what it reads.
fn unit_of_plan(plan: &Plan, hook: Hook, unit: &UnitPlan) -> Value {
    if let Action::Object(object) = &unit.action
        && object.bound
    {
        return object.manifest.clone();
    }
    let planned = |at: UnitRef| plan.unit(at).filter(|other| other.resource() == unit.resource());
    let first = unit.dependencies.iter().filter_map(|&first| planned(UnitRef { hook, unit: first }));
    // In an update, a unit of postStart waits for units of preStart.
    let first = first.filter(|first| first.stage == unit.stage && !first.action.is_added());
    let first: BTreeSet<&String> = first.map(|first| &first.key).collect();
    let undone: BTreeSet<&String> =
        unit.undoes.iter().filter_map(|&at| planned(at)).map(|undone| &undone.key).collect();
    let mut content = unit_content(unit);
    content["after"] = json!(first);
    content["undoes"] = json!(undone);
    content
}

/// Returns the fields of a unit that do not follow from others, as a document writes them.
pub fn unit_content(unit: &UnitPlan) -> Value {
    let Value::Object(mut content) = json!(unit) else { return Value::Null };
    for derived in ["key", "source", "reads", "dependencies", "undoes", "orderedAfter", "stage", "unless"] {
        content.remove(derived);
    }
    // An update that opens or closes such outputs replaces no resource.
    for (name, _) in unit.outputs.iter().filter(|(_, output)| output.sensitive_by_default) {
        if let Some(output) = content["outputs"][name].as_object_mut() {
            output.retain(|key, _| !key.starts_with("sensitive"));
        }
    }
    if let Some(Value::Object(action)) = content.remove("action") {
        content.extend(action);
    }
    as_written(Value::Object(content))
}

/// Returns a value with its templates as a document writes them.
fn as_written(value: Value) -> Value {
    // A template is an object with the name of its form.
    if value.as_object().is_some_and(|members| members.len() == 1)
        && let Ok(template) = Template::deserialize(&value)
    {
        return template.shown();
    }
    // Such a value is a tree that can look like a template.
    let written = |(name, value): (String, Value)| match name.as_str() {
        "body" | "manifest" | "properties" | "attachments" => (name, value),
        _ => (name, as_written(value)),
    };
    match value {
        Value::Object(members) => Value::Object(members.into_iter().map(written).collect()),
        value => value,
    }
}

/// Returns the units of these hooks with their places, in this order.
pub(super) fn units_of<const N: usize>(
    hooks: &[HookPlan],
    of: [Hook; N],
) -> impl Iterator<Item = (UnitRef, &UnitPlan)> {
    let planned = of.into_iter().flat_map(move |hook| hooks.iter().filter(move |planned| planned.hook == hook));
    planned.flat_map(HookPlan::places)
}

/// Returns the positions of the units for which no other unit of the same resource waits.
pub(super) fn last_of(units: &[UnitPlan]) -> Vec<u32> {
    let waits = units.iter().flat_map(|unit| unit.dependencies.iter().map(move |&first| (unit, first)));
    let own = waits.filter(|(unit, first)| units[*first as usize].resource() == unit.resource());
    let waited_for: BTreeSet<u32> = own.map(|(_, first)| first).collect();
    (0..).zip(units).map(|(number, _)| number).filter(|number| !waited_for.contains(number)).collect()
}

/// Returns what an update keeps or replaces as a whole with the unit: its resource, or the own unit of the target as
/// `target/UNIT`, with all entries of `forEach`.
pub(super) fn part(unit: &UnitPlan) -> &str {
    match unit.resource() {
        HookOwner::TARGET => unit.key.split('[').next().unwrap_or_default(),
        resource => resource,
    }
}

/// Returns the resources of a plan with their setup units, and each own setup unit of the target.
pub(super) fn origins(plan: &Plan) -> BTreeMap<String, ResourceOrigin> {
    if let Some(state) = &plan.update {
        return state.resources.clone();
    }
    let mut units: BTreeMap<String, BTreeMap<String, UnitRef>> =
        plan.resources.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
    for (at, unit) in plan.hooks.iter().flat_map(HookPlan::places).filter(|(at, _)| at.hook.is_setup()) {
        units.entry(part(unit).to_owned()).or_default().insert(unit.key.clone(), at);
    }
    let origin = |(name, units): (String, BTreeMap<String, UnitRef>)| {
        let setup = setup_digest(plan, &name, &units);
        (name, ResourceOrigin { setup, units })
    };
    units.into_iter().map(origin).collect()
}

/// Returns the digest of what the setup of a resource depends on.
fn setup_digest(plan: &Plan, name: &str, units: &BTreeMap<String, UnitRef>) -> String {
    let units: Vec<(Hook, &UnitPlan)> = units.values().filter_map(|&at| Some((at.hook, plan.unit(at)?))).collect();
    let contents = units.iter().map(|&(hook, unit)| {
        let mut content = unit_of_plan(plan, hook, unit);
        // What the next attempts would do is no reason to make a complete own unit again.
        if let (HookOwner::TARGET, Some(fields)) = (unit.resource(), content.as_object_mut()) {
            fields.retain(|field, _| field != "timeoutMs" && field != "retry");
        }
        (unit.key.clone(), content)
    });
    let contents: Map<String, Value> = contents.collect();
    let reads = units.iter().flat_map(|(_, unit)| &unit.reads);
    let reads: BTreeSet<(Option<&String>, &String, bool)> =
        reads.map(|read| (plan.unit(read.at).map(|unit| &unit.key), &read.output, read.optional)).collect();
    let mut made = json!({"params": plan.resources.get(name).map(params), "units": contents, "reads": reads});
    if units.iter().any(|(_, unit)| is_bound(unit)) {
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

/// Returns the digest of a plan's content, with the documents of its plugins.
pub(super) fn content_digest(plan: &Plan) -> String {
    let plugins: Vec<&String> = plan.resources.values().map(|resource| &resource.digest).collect();
    digest_of(json!([content(plan), plugins]))
}

fn digest_of(mut value: Value) -> String {
    value.sort_all_objects();
    digest(&value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_list_differs_from_its_expression() {
        let list = json!(["${resources.x.outputs.o}"]);
        let [literal, tree] = [Template::Literal(list.clone()), Template::Tree(list)].map(|template| template.shown());
        assert_eq!(literal, json!(["$${resources.x.outputs.o}"]));
        assert_ne!(literal, tree);
    }

    #[test]
    fn a_tree_that_looks_like_a_template_stays() {
        for name in ["body", "manifest", "properties", "attachments"] {
            let mut unit = json!({"after": []});
            unit[name] = json!({"literal": "a"});
            assert_eq!(as_written(unit.clone()), unit, "{name}");
        }
    }
}
