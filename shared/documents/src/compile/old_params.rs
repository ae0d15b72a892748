//! The params before an update, which `update` units read as `old.params`.

use std::collections::BTreeMap;

use super::plan_expressions::{expressions, strings};
use crate::plan::{HookPlan, OutputRead, Plan, Template, UnitPlan, document_name};
use crate::{HookOwner, ReferenceSource};

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
            // A skipped maker does not skip the unit, because the new params can be complete.
            let optional = |read: OutputRead| OutputRead { optional: true, ..read };
            let reads = behind(current, before, &reference.source).map(|(reads, _)| reads);
            found.extend(reads.into_iter().flatten().map(optional));
        }
    }
    found.sort();
    found.dedup();
    found.retain(|read| unit.reads.iter().all(|own| (own.at, &own.output) != (read.at, &read.output)));
    unit.reads.extend(found);
}

/// Returns the outputs behind a value that a param of the resource `reader` reads, and true if it is sensitive.
pub(super) fn behind(plan: &Plan, reader: &str, source: &ReferenceSource) -> Option<(Vec<OutputRead>, bool)> {
    match source {
        ReferenceSource::Resource { resource, output } => {
            let public = plan.resource_read(reader, resource)?.1.outputs.get(output)?;
            Some((public.reads.clone(), public.sensitive))
        }
        // `units` of a param are those of the target. Of several that updates have made, the last one counts.
        ReferenceSource::Output { unit, output } => {
            let name = plan.owner_read(reader, HookOwner::TARGET, unit);
            let is_owner = |owner: &str| owner == name || document_name(owner) == name;
            let setup = plan.hooks.iter().flat_map(HookPlan::places).filter(|(at, made)| made.is_setup(at.hook));
            let (at, made) = setup.filter(|(_, made)| is_owner(made.resource()) && made.name() == unit).last()?;
            let sensitive = made.outputs.get(output)?.sensitive;
            Some((vec![OutputRead { at, output: output.clone(), optional: false }], sensitive))
        }
        _ => None,
    }
}

pub(super) fn texts(template: &Template) -> Vec<&str> {
    match template {
        Template::Literal(_) | Template::Secret { .. } | Template::Sealed(_) | Template::Plain(_) => Vec::new(),
        Template::Text(text) => vec![text],
        Template::Tree(tree) => strings(tree),
    }
}
