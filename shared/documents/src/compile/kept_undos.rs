//! The undos of a resource that keeps its setup units although its plan changes.
//!
//! The undos of the new plan remove what the units of the current plan have made. An undo finds objects by a task in a
//! cluster, and a resource of InfraKit by the key of its unit or by the properties of the unit.

use std::collections::BTreeMap;

use ebb_engine::Hook;

use super::plan_content::{search_digest, units_of};
use crate::plan::{Plan, UnitRef, cluster_name};

/// The undos of a plan.
pub(super) struct PlannedUndos<'a> {
    plan: &'a Plan,
    /// The key and the cluster of each undo, by the setup unit that it undoes.
    undos: BTreeMap<UnitRef, BTreeMap<&'a str, &'a str>>,
}

impl<'a> PlannedUndos<'a> {
    pub(super) fn of(plan: &'a Plan) -> Self {
        let mut undos: BTreeMap<UnitRef, BTreeMap<&str, &str>> = BTreeMap::new();
        for stage in Hook::TEARDOWN {
            for (_, undo) in units_of(&plan.hooks, stage) {
                for &at in &undo.undoes {
                    undos.entry(at).or_default().insert(&undo.key, cluster_name(plan.cluster(undo)));
                }
            }
        }
        Self { plan, undos }
    }

    /// Returns true if the undos of the unit `new_at` of another plan can remove what the unit `at` of this plan has made.
    pub(super) fn are_kept(&self, at: UnitRef, new: &PlannedUndos<'_>, new_at: UnitRef) -> bool {
        let (Some(made), Some(unit)) = (self.plan.unit(at), new.plan.unit(new_at)) else { return false };
        let own = new.undos.get(&new_at);
        // An undo can get another name, but it runs in the same cluster.
        let is_kept = |key: &str, cluster: &str| {
            own.is_some_and(|own| match own.get(key) {
                Some(&other) => other == cluster,
                None => own.values().any(|&other| other == cluster),
            })
        };
        made.action.kind() == unit.action.kind()
            && cluster_name(self.plan.cluster(made)) == cluster_name(new.plan.cluster(unit))
            && search_digest(self.plan, made) == search_digest(new.plan, unit)
            && self.undos.get(&at).into_iter().flatten().all(|(key, cluster)| is_kept(key, cluster))
    }
}
