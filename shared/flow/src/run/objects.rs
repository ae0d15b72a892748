//! Builds the tasks of object units and of removals.

use ebb_documents::plan::{Action, HookPlan, ManifestConditions, ObjectAction, OutputFrom, UnitPlan, UnitRef};
use ebb_engine::Unit;
use ebb_protocol::relay::{
    ManifestFill, ObjectOutput, ObjectOutputFrom, ObjectTask, ReadyRules, TaskCompletion, TaskId,
};
use ebb_protocol::value::SecretRef;

use crate::loaded_run::Run;

/// Returns the task that applies objects and waits until they are ready. Objects of a setup hook remain until their
/// removal, objects of a teardown hook until the result is acknowledged.
pub(crate) fn applied(
    run: &Run,
    unit: &UnitPlan,
    object: &ObjectAction,
    (manifests, fill): (Vec<serde_json::Value>, Vec<(String, SecretRef)>),
) -> ObjectTask {
    // The contract of the kind replaces a missing rule. A single `ready: "${true}"` applies to all objects.
    let always = match &object.ready {
        Some(ManifestConditions::First(text)) if text.trim() == "true" => Some(text.clone()),
        _ => None,
    };
    let rule = |conditions: Option<&ManifestConditions>, manifest| conditions?.of(manifest).map(str::to_owned);
    let rules = (0..manifests.len()).map(|manifest| ReadyRules {
        ready: rule(object.ready.as_ref(), manifest).or_else(|| always.clone()),
        fail: rule(object.fail.as_ref(), manifest),
    });
    let outputs = unit.outputs.iter().filter_map(|(name, output)| {
        let from = match &output.from {
            OutputFrom::Expression(text) => ObjectOutputFrom::Value(text.clone()),
            OutputFrom::Secret { name, key } => ObjectOutputFrom::Secret { name: name.clone(), key: key.clone() },
            OutputFrom::File(_) => return None,
        };
        Some(ObjectOutput { name: name.clone(), from, sensitive: output.sensitive, optional: output.optional })
    });
    let filled = |(key, secret)| ManifestFill { manifest: 0, key, secret };
    let plan = &run.loaded.plan;
    ObjectTask {
        instance: run.facts.instance_key(),
        // A bound object names its namespace, which need not be one of units.
        namespace: plan.target.namespace.clone().filter(|_| !object.bound),
        apply: manifests,
        bind: object.bound,
        fill: fill.into_iter().map(filled).collect(),
        adopts: if object.bound { bound_before(run) } else { Vec::new() },
        until: TaskCompletion::Ready(rules.collect()),
        outputs: outputs.collect(),
        keep: unit.is_setup(run.hook()),
        fail_fast: object.fail_fast,
        ..ObjectTask::default()
    }
}

/// Returns the units of earlier runs that have applied objects of `bind`.
fn bound_before(run: &Run) -> Vec<String> {
    let hooks = run.loaded.plan.hooks.iter().filter(|hook| hook.hook != run.hook());
    let bound = |(_, unit): &(UnitRef, &UnitPlan)| matches!(&unit.action, Action::Object(object) if object.bound);
    let units = hooks.flat_map(HookPlan::places).filter(bound);
    units.map(|(at, _)| task_unit(run, at)).collect()
}

/// Returns the task that removes the objects of all attempts of the units that `unit` undoes.
pub(crate) fn removed(run: &Run, unit: &UnitPlan) -> ObjectTask {
    let names = unit.undoes.iter().map(|&at| task_unit(run, at));
    ObjectTask { instance: run.facts.instance_key(), remove: names.collect(), ..ObjectTask::default() }
}

/// Returns the name of a unit of an earlier run of the instance, as relays know it.
pub(crate) fn task_unit(run: &Run, at: UnitRef) -> String {
    TaskId::unit_of(&run.id.sibling(at.hook), Unit(at.unit))
}
