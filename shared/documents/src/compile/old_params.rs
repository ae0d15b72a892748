//! The params before an update, which `update` units read as `old.params`.

use std::collections::BTreeMap;

use super::plan_expressions::{expressions, strings};
use crate::cel::ReferenceSource;
use crate::plan::{OutputRead, Plan, Template, UnitPlan};

/// Returns those of the `updated` resources whose units read `old.params`, each with the name of the resource in the
/// current plan that has these params. After an update that is `incomplete`, these are the params before that update.
pub(super) fn readers<'a>(
    (current, wanted): (&Plan, &Plan),
    updated: impl Iterator<Item = &'a String>,
    incomplete: impl Fn(&str) -> Option<u32>,
) -> BTreeMap<String, String> {
    let reads =
        |name: &str| wanted.plugin_updates.iter().any(|unit| unit.resource() == name && !unit.old_params.is_empty());
    let before = |name: &str| {
        let before = incomplete(name).and_then(|number| current.resource_before(name, number));
        before.map_or(name, |(before, _)| before).to_owned()
    };
    updated.filter(|name| reads(name)).map(|name| (name.clone(), before(name))).collect()
}

/// Adds the outputs that the old params of a unit read. `before` is the name of the resource in the current plan that
/// has these params.
pub(super) fn add_reads(current: &Plan, before: &str, unit: &mut UnitPlan) {
    let Some(resource) = current.resource(before) else { return };
    let params = unit.old_params.iter().filter_map(|name| resource.params.get(name));
    let mut found: Vec<OutputRead> = Vec::new();
    for expression in params.flat_map(texts).flat_map(expressions) {
        for reference in expression.references {
            let ReferenceSource::Resource { resource, output } = reference.source else { continue };
            let public = current.resource_read(before, &resource).and_then(|(_, read)| read.outputs.get(&output));
            // A skipped maker does not skip the unit, because the new params can be complete.
            let optional = |read: &OutputRead| OutputRead { optional: true, ..read.clone() };
            found.extend(public.into_iter().flat_map(|public| &public.reads).map(optional));
        }
    }
    found.sort();
    found.dedup();
    found.retain(|read| unit.reads.iter().all(|own| (own.at, &own.output) != (read.at, &read.output)));
    unit.reads.extend(found);
}

pub(super) fn texts(template: &Template) -> Vec<&str> {
    match template {
        Template::Literal(_) | Template::Secret { .. } | Template::Sealed(_) | Template::Plain(_) => Vec::new(),
        Template::Text(text) => vec![text],
        Template::Tree(tree) => strings(tree),
    }
}
