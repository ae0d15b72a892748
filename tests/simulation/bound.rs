//! The objects of `bind`, as the relays of the clusters have them, and their checks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_documents::plan::Template;
use ebb_protocol::relay::ObjectTask;

use super::*;

/// The lines of a document that bind the outputs of the resource `a`. `more` has further values.
pub(super) fn lines(more: &str) -> String {
    let of = |output: &str| format!("{output}: \"${{resources.a.outputs.{output}}}\"");
    let data = format!("{}, {}{more}", of("first"), of("sized"));
    format!("bind:\n- secret: {{namespace: web, name: \"${{target.key}}\"}}\n  data: {{{data}}}\n")
}

/// An object of `bind`. Its name is the key of the instance.
#[derive(Clone, Debug)]
pub(super) struct SimBound {
    /// The unit that owns it, as in the labels of the object.
    pub(super) owner: String,
    values: BTreeMap<String, String>,
}

impl Simulation {
    pub fn bound(&self) -> Vec<Vec<String>> {
        self.ledger.state().bound.values().map(|bound| bound.values.values().cloned().collect()).collect()
    }
}

/// No object is left of an instance that is gone, except those whose removal is unconfirmed or was overridden.
pub(super) fn left(simulation: &Simulation) -> Vec<String> {
    let left: Vec<(String, Option<Arc<SimUnit>>)> = {
        let state = simulation.ledger.state();
        let gone = state.instances.iter().filter(|(uid, one)| one.until.is_some() && !state.unconfirmed.contains(*uid));
        let gone: BTreeSet<String> = gone.map(|(uid, one)| id::instance_key(KIND, &one.name, uid)).collect();
        let maker = |bound: &SimBound| {
            let is_maker = |unit: &&Arc<SimUnit>| TaskId::unit_of(&unit.run(), Unit(unit.unit)) == bound.owner;
            state.units.values().find(is_maker).cloned()
        };
        let left = state.bound.iter().filter(|(name, _)| gone.contains(*name));
        left.map(|(name, bound)| (name.clone(), maker(bound))).collect()
    };
    let is_wrong =
        |unit: &Option<Arc<SimUnit>>| unit.as_ref().is_none_or(|unit| !checks::is_overridden(simulation, unit));
    let wrong = left.into_iter().filter(|(_, unit)| is_wrong(unit));
    wrong.map(|(name, _)| format!("the bound object {name} is left, and its instance is gone")).collect()
}

impl Ledger {
    /// Applies and removes objects of `bind`, as the relay does for a task of this unit.
    pub(super) fn apply_bound(&self, unit: &str, task: &ObjectTask) {
        {
            let LedgerState { bound, forgotten, .. } = &mut *self.state();
            bound.retain(|_, bound| !task.remove.contains(&bound.owner) || forgotten.contains(&bound.owner));
        }
        for (number, manifest) in task.apply.iter().enumerate().filter(|_| task.bind) {
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let decoded = manifest["data"].as_object().into_iter().flatten().filter_map(|(key, value)| {
                Some((key.clone(), String::from_utf8(STANDARD.decode(value.as_str()?).ok()?).ok()?))
            });
            let copied = task.fill.iter().filter(|fill| fill.manifest == number);
            let copied = copied.map(|fill| (fill.key.clone(), fill.secret.key.clone()));
            let bound = SimBound { owner: unit.to_owned(), values: decoded.chain(copied).collect() };
            self.trace(|| format!("binds {name}: {:?}", bound.values));
            let former = self.state().bound.insert(name.clone(), bound);
            if let Some(former) = former.filter(|former| former.owner != unit && !task.adopts.contains(&former.owner)) {
                self.report_violation(format!("{unit} applies the object {name}, which belongs to {}", former.owner));
            }
        }
    }

    /// Returns true if a bound object of one of these units exists, and its relay has lost the record of it.
    pub(super) fn is_bound_unrecorded(&self, units: &[String]) -> bool {
        let state = self.state();
        state.bound.values().any(|bound| units.contains(&bound.owner) && state.forgotten.contains(&bound.owner))
    }

    /// Checks the bound object of a target that becomes ready or gone. A ready one has a value for each key of its
    /// plan: outputs of living resources, and the present param. A gone one has no object.
    pub(super) fn check_bound(&self, table: &TableState, target: &TargetHead) {
        let bound = self.state().bound.get(&target.instance_key()).cloned();
        let plan = table.plan(&target.instance_key());
        let mut units = plan.iter().flat_map(|plan| &plan.hooks).flat_map(|hook| &hook.units);
        let present = units.find_map(|unit| match &unit.action {
            Action::Object(object) if object.bound && unit.resource() == "bind" => Some(&object.manifest["data"]),
            _ => None,
        });
        let keys = present.and_then(|data| data.as_object().map(serde_json::Map::len));
        let size = plan.as_ref().and_then(|plan| match plan.resources.get("a")?.params.get("size")? {
            Template::Literal(size) => Some(size.to_string()),
            _ => None,
        });
        let uid = &target.uid;
        // An update goes on after a removal that its relay could not confirm.
        let is_unconfirmed = |bound: &SimBound| self.state().forgotten.contains(&bound.owner);
        let bound =
            bound.filter(|bound| target.phase != TargetPhase::Ready || keys.is_some() || !is_unconfirmed(bound));
        match (target.phase, bound) {
            (TargetPhase::Gone, Some(_)) if target.unconfirmed == 0 && !target.is_overridden => {
                self.report_violation(format!("{uid} is gone, and its bound object exists"));
            }
            (TargetPhase::Ready, bound) if bound.as_ref().map(|bound| bound.values.len()) != keys => {
                self.report_violation(format!("{uid} is ready, and its bound object with {keys:?} keys is {bound:?}"));
            }
            (TargetPhase::Ready, Some(bound)) => {
                let sized = bound.values.get("sized");
                if sized.is_some() && sized != size.as_ref() {
                    self.report_violation(format!("{uid} is ready with the size {size:?}, and {sized:?} is bound"));
                }
                for id in bound.values.values().filter(|id| self.is_missing(id)) {
                    self.report_violation(format!("{uid} is ready, and its bound object names {id}, which is gone"));
                }
            }
            _ => {}
        }
    }
}
