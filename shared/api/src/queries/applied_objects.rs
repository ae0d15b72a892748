//! Lists the objects that succeeded units have applied.
//!
//! A success stores no objects. Their names depend only on the plan and on recorded outputs, so the units are rendered
//! again. All objects of such a unit were ready when it succeeded.

use ebb_documents::compile::is_cluster_wide;
use ebb_documents::{Action, KnownOutputs, RenderedUnit, UnitContext, UnitRef, render};
use ebb_engine::Unit;
use ebb_flow::run::inputs;
use ebb_flow::{Env, InvocationCache, Run};
use ebb_protocol::{MAX_OBJECTS, ObjectState, ObjectStatus, RunDetail, UnitState, limits};
use serde_json::Value;

use crate::queries::live::NAME;

/// Maximum units of a run whose objects are listed.
const MAX_UNITS: usize = 100;
/// Maximum units of a run whose inputs are read, because the names of their objects contain outputs of other units.
const MAX_READ: usize = 20;

/// Adds the objects of the succeeded units of a run. The names of a unit whose inputs cannot be read have placeholders.
pub(super) async fn add(env: &Env, run: &Run, detail: &mut RunDetail) {
    let is_object = |unit: Unit| run.unit(unit).is_some_and(|plan| matches!(plan.action, Action::Object(_)));
    let units = run.graph().units().zip(&mut detail.units);
    let succeeded = units.filter(|(unit, shown)| shown.state == UnitState::Succeeded && is_object(*unit));
    let mut incomplete = Vec::new();
    for (unit, shown) in succeeded.take(MAX_UNITS) {
        shown.object_states = objects(run, unit, &KnownOutputs::new());
        // No name of an object has this character, so it begins a placeholder.
        if shown.object_states.iter().any(|status| status.object.contains('<')) && incomplete.len() < MAX_READ {
            incomplete.push((unit, shown));
        }
    }
    let cache = InvocationCache::default();
    let read: Vec<Unit> = incomplete.iter().map(|(unit, _)| *unit).collect();
    if let Err(error) = inputs::prefetch(env, run, &read, &cache).await {
        tracing::warn!(run = %run.id, %error, "cannot read the inputs of units; the names of their objects are incomplete");
        return;
    }
    for (unit, shown) in incomplete {
        let Some(plan) = run.unit(unit) else { continue };
        let Ok(known) = inputs::read_inputs(env, run, plan, &cache).await else { continue };
        let found = objects(run, unit, &known);
        if !found.is_empty() {
            shown.object_states = found;
        }
    }
}

/// Returns the objects of a succeeded unit, or nothing if it cannot be rendered. Outputs that are not in `known` are
/// placeholders.
fn objects(run: &Run, unit: Unit, known: &KnownOutputs) -> Vec<ObjectStatus> {
    let (plan, facts) = (&run.loaded.plan, run.target_facts());
    let at = UnitRef { hook: run.hook(), unit: unit.0 };
    let context = UnitContext { plan, at, facts: &facts, known };
    let Ok(RenderedUnit::Object { manifests, .. }) = render::preview(context) else { return Vec::new() };
    let ready = |manifest| ObjectStatus {
        object: object_name(manifest, plan.target.namespace.as_deref()),
        state: ObjectState::Ready,
        reason: None,
    };
    manifests.iter().take(MAX_OBJECTS).map(ready).collect()
}

/// Returns the name of an object as relays report it. The namespace is that of the manifest, or else that of the target. If
/// neither names one, only the cluster knows it.
fn object_name(manifest: &Value, namespace: Option<&str>) -> String {
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let group = manifest["apiVersion"].as_str().and_then(|version| version.rsplit_once('/'));
    let full = group.map_or_else(|| kind.to_owned(), |(group, _)| format!("{kind}.{group}"));
    let metadata = &manifest["metadata"];
    let place = metadata["namespace"].as_str().or(namespace).filter(|_| !is_cluster_wide(&full));
    let place = place.map(|place| format!("{place}/")).unwrap_or_default();
    limits::clean(&format!("{kind} {place}{}", metadata["name"].as_str().unwrap_or_default()), NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_the_manifest_or_of_the_target() {
        let rows: Vec<(Value, Option<String>, String)> =
            serde_saphyr::from_str(include_str!("../../tests/object_names.yaml")).unwrap();
        for (manifest, of_target, expected) in rows {
            assert_eq!(object_name(&manifest, of_target.as_deref()), expected, "{manifest}");
        }
    }
}
