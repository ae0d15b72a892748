//! The objects of `bind`, as the relays of the clusters have them, and their checks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_documents::plan::{Action, Plan, UnitPlan};
use ebb_engine::TargetPhase;
use ebb_protocol::relay::ObjectTask;
use ebb_store::TargetHead;

use super::ledger::Ledger;
use super::simulator::Simulation;
use super::table::TableState;

/// The lines of a document that bind the output `first` of the resource `a`. `more` has further values.
pub(super) fn lines(more: &str) -> String {
    format!(
        "bind:\n- secret: {{namespace: web, name: \"${{target.key}}\"}}\n  data: {{first: \"${{resources.a.outputs.first}}\"{more}}}\n"
    )
}

/// An object of `bind`. Its name is the key of the instance.
#[derive(Clone, Debug)]
pub(super) struct SimBound {
    /// The unit that owns it, as in the labels of the object.
    owner: String,
    values: Vec<String>,
}

impl Simulation {
    /// Returns the values of each bound object.
    pub fn bound(&self) -> Vec<Vec<String>> {
        self.ledger.state().bound.values().map(|bound| bound.values.clone()).collect()
    }
}

impl Ledger {
    /// Applies and removes objects of `bind`, as the relay does for a task of this unit.
    pub(super) fn apply_bound(&self, unit: &str, task: &ObjectTask) {
        self.state().bound.retain(|_, bound| !task.remove.contains(&bound.owner));
        for (number, manifest) in task.apply.iter().enumerate().filter(|_| task.bind) {
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let texts = manifest["data"].as_object().into_iter().flatten().filter_map(|(_, value)| value.as_str());
            let decoded = texts.filter_map(|text| String::from_utf8(STANDARD.decode(text).ok()?).ok());
            let copied = task.fill.iter().filter(|fill| fill.manifest == number).map(|fill| fill.secret.key.clone());
            let bound = SimBound { owner: unit.to_owned(), values: decoded.chain(copied).collect() };
            self.trace(|| format!("binds {name}: {:?}", bound.values));
            let former = self.state().bound.insert(name.clone(), bound);
            if let Some(former) = former.filter(|former| former.owner != unit && !task.adopts.contains(&former.owner)) {
                self.report_violation(format!("{unit} applies the object {name}, which belongs to {}", former.owner));
            }
        }
    }

    /// Checks the bound object of a target that becomes ready or gone. A ready one has the outputs of living resources,
    /// and a gone one has no object.
    pub(super) fn check_bound(&self, table: &TableState, target: &TargetHead) {
        let bound = self.state().bound.get(&target.instance_key()).cloned();
        let is_bind = |unit: &UnitPlan| {
            unit.resource() == "bind" && matches!(&unit.action, Action::Object(object) if object.bound)
        };
        let json = table.plans.get(&target.instance_key()).cloned().unwrap_or_default();
        let plan = std::str::from_utf8(&json).ok().and_then(|json| Plan::from_json(json).ok());
        let binds = plan.is_some_and(|plan| plan.hooks.iter().flat_map(|hook| &hook.units).any(is_bind));
        let uid = &target.uid;
        match (target.phase, bound) {
            (TargetPhase::Gone, Some(_)) if target.unconfirmed == 0 && !target.is_overridden => {
                self.report_violation(format!("{uid} is gone, and its bound object exists"));
            }
            (TargetPhase::Ready, bound) if bound.is_some() != binds => {
                self.report_violation(format!("{uid} is ready, and its bound object is {bound:?}"));
            }
            (TargetPhase::Ready, Some(bound)) => {
                for id in bound.values.iter().filter(|id| self.is_missing(id)) {
                    self.report_violation(format!("{uid} is ready, and its bound object names {id}, which is gone"));
                }
            }
            _ => {}
        }
    }
}
