//! Builds the tasks of object units and of removals.

use ebb_documents::plan::{Action, HookPlan, ObjectAction, OutputFrom, UnitPlan, UnitRef};
use ebb_documents::render::BoundSecretKey;
use ebb_engine::Unit;
use ebb_protocol::relay::{
    ManifestFill, ObjectOutput, ObjectOutputFrom, ObjectTask, ReadyRules, TaskCompletion, TaskId,
};

use crate::loaded_run::Run;
use crate::run::records;

/// Returns the task that applies objects and waits until they are ready. Objects of a setup hook remain until their
/// removal, objects of a teardown hook until the result is acknowledged.
pub(crate) fn applied(
    run: &Run,
    unit: &UnitPlan,
    object: &ObjectAction,
    (manifests, fill): (Vec<serde_json::Value>, Vec<BoundSecretKey>),
) -> ObjectTask {
    let own = ReadyRules { ready: object.ready.clone(), fail: object.fail.clone() };
    // The rules of the document apply to the first object, the contracts of kinds to the others. Only `ready:
    // "${true}"` applies to all.
    let others = match own.ready.as_deref().map(str::trim) {
        Some("true") => ReadyRules { fail: None, ..own.clone() },
        _ => ReadyRules::default(),
    };
    let mut rules = vec![others; manifests.len()];
    if let Some(first) = rules.first_mut() {
        *first = own;
    }
    let outputs = unit.outputs.iter().filter_map(|(name, output)| {
        let from = match &output.from {
            OutputFrom::Expression(text) => ObjectOutputFrom::Value(text.clone()),
            OutputFrom::Secret { name, key } => ObjectOutputFrom::Secret { name: name.clone(), key: key.clone() },
            OutputFrom::File(_) => return None,
        };
        Some(ObjectOutput { name: name.clone(), from, sensitive: output.sensitive, optional: output.optional })
    });
    let filled =
        |key: BoundSecretKey| ManifestFill { manifest: 0, key: key.key, secret: records::from_secret(key.secret) };
    let plan = &run.loaded.plan;
    ObjectTask {
        instance: run.instance_key(),
        // A bound object names its namespace, which need not be one of units.
        namespace: plan.target.namespace.clone().filter(|_| !object.bound),
        apply: manifests,
        bind: object.bound,
        fill: fill.into_iter().map(filled).collect(),
        adopts: if object.bound { bound_before(run) } else { Vec::new() },
        until: TaskCompletion::Ready(rules),
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
    units.map(|(at, _)| TaskId::unit_of(&run.id.sibling(at.hook), Unit(at.unit))).collect()
}

/// Returns the task that removes the objects of all attempts of the units that `unit` undoes.
pub(crate) fn removed(run: &Run, unit: &UnitPlan) -> ObjectTask {
    let names = unit.undoes.iter().map(|at| {
        let earlier = run.id.sibling(at.hook);
        TaskId::unit_of(&earlier, Unit(at.unit))
    });
    ObjectTask { instance: run.instance_key(), remove: names.collect(), ..ObjectTask::default() }
}
