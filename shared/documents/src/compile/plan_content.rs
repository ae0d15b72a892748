//! The content of a plan without positions and order, as digests that an update compares.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::canonical::digest;
use crate::plan::{HookName, HookPlan, Plan, ResourceOrigin, UnitPlan, UnitRef};

/// Returns the units of a hook with their places.
pub(super) fn units_of(hooks: &[HookPlan], hook: HookName) -> impl Iterator<Item = (UnitRef, &UnitPlan)> {
    let units = hooks.iter().filter(move |planned| planned.hook == hook).flat_map(|hook| &hook.units);
    units.zip(0..).map(move |(unit, position)| (UnitRef { hook, unit: position }, unit))
}

/// Returns the resources of a plan with their setup units, and the target itself if it has own units.
pub(super) fn origins(plan: &Plan) -> BTreeMap<String, ResourceOrigin> {
    if let Some(state) = &plan.update {
        return state.resources.clone();
    }
    let mut units: BTreeMap<String, BTreeMap<String, UnitRef>> =
        plan.resources.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
    for hook in &plan.hooks {
        for (at, unit) in units_of(&plan.hooks, hook.hook) {
            let own = units.entry(unit.resource().to_owned()).or_default();
            if at.hook.is_setup() {
                own.insert(unit.key.clone(), at);
            }
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
    let units: Map<String, Value> =
        units.iter().filter_map(|(key, &at)| Some((key.clone(), content(plan, at.hook, plan.unit(at)?)))).collect();
    let mut made = json!({"params": plan.resources.get(name).map(|resource| &resource.params), "units": units});
    let text = made.to_string();
    let read: BTreeMap<&String, &String> =
        plan.target.labels.iter().filter(|(label, _)| reads_label(&text, label)).collect();
    if !read.is_empty() {
        made["labels"] = json!(read);
    }
    digest_of(made)
}

/// Returns true if a plan's JSON may read a label: by its name, or by another use of `target.labels` than that of a name.
fn reads_label(json: &str, label: &str) -> bool {
    json.match_indices("target.labels").any(|(at, root)| {
        let rest = &json[at + root.len()..];
        // The JSON escapes a quote of an expression.
        let quoted = ["[\\\"", "[?\\\"", "['", "[?'"].iter().find_map(|open| rest.strip_prefix(open));
        let named = rest.strip_prefix(".?").or_else(|| rest.strip_prefix('.'));
        match (quoted, named) {
            (Some(name), _) => name.split(['\\', '\'']).next() == Some(label),
            (None, Some(name)) => name.strip_prefix(label).is_some_and(|rest| !rest.starts_with(is_in_name)),
            (None, None) => true,
        }
    })
}

/// A subtraction has blanks, so a dash is part of a name.
fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '-'
}

/// Returns the digest of a plan's content, without positions and order.
pub(super) fn content_digest(plan: &Plan) -> String {
    let hooks: Map<String, Value> = plan
        .hooks
        .iter()
        .map(|hook| {
            let units = hook.units.iter().map(|unit| (unit.key.clone(), content(plan, hook.hook, unit)));
            (hook.hook.into(), Value::Object(units.collect()))
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
                    let reads: BTreeSet<String> =
                        output.reads.iter().map(|read| read_key(plan, read.at, &read.output, read.optional)).collect();
                    (name.clone(), json!([output.value, output.sensitive, reads]))
                })
                .collect();
            (name.clone(), json!([resource.plugin, resource.digest, resource.params, outputs]))
        })
        .collect();
    digest_of(json!([plan.target, resources, plan.env, plan.workloads, hooks]))
}

/// Returns a unit without positions: its references are keys.
fn content(plan: &Plan, hook: HookName, unit: &UnitPlan) -> Value {
    let key = |at: UnitRef| plan.unit(at).map_or("", |unit| unit.key.as_str());
    let keys =
        |positions: &[u32]| -> BTreeSet<&str> { positions.iter().map(|&unit| key(UnitRef { hook, unit })).collect() };
    let reads: BTreeSet<String> =
        unit.reads.iter().map(|read| read_key(plan, read.at, &read.output, read.optional)).collect();
    let undoes: BTreeSet<&str> = unit.undoes.iter().map(|&at| key(at)).collect();
    let mut content = json!(unit);
    content["source"] = Value::Null;
    content["reads"] = json!(reads);
    content["undoes"] = json!(undoes);
    content["dependencies"] = json!(keys(&unit.dependencies));
    content["orderedAfter"] = json!(keys(&unit.ordered_after));
    content
}

fn read_key(plan: &Plan, at: UnitRef, output: &str, optional: bool) -> String {
    let key = plan.unit(at).map_or("", |unit| unit.key.as_str());
    format!("{key}.{output}{}", if optional { "?" } else { "" })
}

fn digest_of(mut value: Value) -> String {
    value.sort_all_objects();
    digest(&value.to_string())
}
