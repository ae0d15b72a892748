//! What a relay is asked for by a unit of objects, and by the removal of them.

use ebb_documents::plan::{HookName, ObjectAction, OutputFrom, UnitPlan};
use ebb_engine::Unit;
use ebb_protocol::relay::{ObjectOutput, ObjectOutputFrom, ObjectTask, ReadyRules, TaskCompletion, TaskId};

use crate::run::head::Run;

/// Objects that are applied and waited for. Those of a target that is starting stay until they are removed, those of one
/// that is stopping until the result was taken.
pub(crate) fn applied(
    run: &Run,
    unit: &UnitPlan,
    object: &ObjectAction,
    manifests: Vec<serde_json::Value>,
) -> ObjectTask {
    let own = ReadyRules { ready: object.ready.clone(), fail: object.fail.clone() };
    // The document's rules speak of the first; the others go by the contracts of their kinds. That nothing is waited
    // for is said of all.
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
        Some(ObjectOutput { name: name.clone(), from, sensitive: output.sensitive })
    });
    ObjectTask {
        instance: run.instance_key(),
        namespace: run.loaded.plan.target.namespace.clone(),
        apply: manifests,
        until: TaskCompletion::Ready(rules),
        outputs: outputs.collect(),
        keep: HookName::from(run.hook()) <= HookName::PostStart,
        ..ObjectTask::default()
    }
}

/// The removal of what `unit` undoes: all objects of all tries, in one go.
pub(crate) fn removed(run: &Run, unit: &UnitPlan) -> ObjectTask {
    let names = unit.undoes.iter().map(|at| {
        let earlier = run.id.sibling(at.hook.into());
        TaskId::unit_of(&earlier, Unit(at.unit))
    });
    ObjectTask { instance: run.instance_key(), remove: names.collect(), ..ObjectTask::default() }
}
