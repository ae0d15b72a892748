//! Decides which resources of a living target an update adds, removes, replaces or changes in place.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Hook, ResourceEffect};
use serde::Serialize;

use super::plan_content::{part, search_digest, units_of};
use crate::plan::PublicOutput;
use crate::{HookOwner, Plan, ResourceOrigin, UnitPlan, UnitRef, cluster_name};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateMode {
    InPlace,
    Replace,
}

/// Returns the effect on each resource that has units in a run. An unchanged resource has none.
pub(super) fn changes(
    (current, wanted): (&Plan, &Plan),
    (old, new): (&BTreeMap<String, ResourceOrigin>, &BTreeMap<String, ResourceOrigin>),
    is_done: &impl Fn(UnitRef) -> bool,
    mode: UpdateMode,
) -> BTreeMap<String, ResourceEffect> {
    let plugin = |plan: &Plan, name: &str| {
        let plugin = plan.resources.get(name).map(|resource| resource.plugin.as_str());
        plugin.and_then(|plugin| plugin.split('@').next()).map(str::to_owned)
    };
    let (undos, new_undos) = (PlannedUndos::of(current), PlannedUndos::of(wanted));
    let keeps_undos = |before: &ResourceOrigin, origin: &ResourceOrigin| {
        let is_kept = |(key, &at): (&String, &UnitRef)| {
            origin.units.get(key).is_some_and(|&new| undos.are_kept(at, &new_undos, new))
        };
        before.units.iter().all(is_kept)
    };
    let is_same =
        |before: &ResourceOrigin, origin: &ResourceOrigin| before.setup == origin.setup && keeps_undos(before, origin);
    // Outputs keep their units.
    let can_update = |name: &str, before: &ResourceOrigin, origin: &ResourceOrigin| {
        mode == UpdateMode::InPlace
            && wanted.plugin_updates.iter().any(|unit| unit.resource() == name)
            && plugin(current, name) == plugin(wanted, name)
            && before.units.keys().eq(origin.units.keys())
            && keeps_undos(before, origin)
    };
    let removed =
        old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), ResourceEffect::Removed));
    let mut changes: BTreeMap<String, ResourceEffect> = removed.collect();
    for (name, origin) in new {
        let change = match old.get(name) {
            None => ResourceEffect::Added,
            Some(before) if !before.units.values().all(|&at| is_done(at)) => ResourceEffect::Replaced,
            Some(before) if is_same(before, origin) && incomplete_update(current, name, is_done).is_none() => continue,
            Some(before) if can_update(name, before, origin) => ResourceEffect::Updated,
            Some(_) => ResourceEffect::Replaced,
        };
        changes.insert(name.clone(), change);
    }
    let is_read = |name: &str, at: UnitRef, changes: &BTreeMap<String, ResourceEffect>| {
        let maker = wanted.unit(at).map_or("", part);
        maker != name && changes.get(maker) == Some(&ResourceEffect::Replaced)
    };
    // An output with the key of a replaced resource has another value, although it reads no unit.
    let reads_key = |name: &str, origin: &ResourceOrigin, changes: &BTreeMap<String, ResourceEffect>| {
        let is_keyed = |(maker, _, output): &(&str, &str, &PublicOutput)| {
            let is_replaced = *maker != name && changes.get(*maker) == Some(&ResourceEffect::Replaced);
            is_replaced && text(&output.value).contains("resource.key")
        };
        let mut keyed = wanted.public_outputs(None).filter(is_keyed);
        let own = || {
            let units: Vec<&UnitPlan> = origin.units.values().filter_map(|&at| wanted.unit(at)).collect();
            text(&(units, wanted.resources.get(name).map(|resource| &resource.params)))
        };
        keyed.any(|(maker, output, _)| own().contains(&format!("resources.{maker}.outputs.{output}")))
    };
    let own_undos: Vec<_> = own_undos(current).into_iter().chain(own_undos(wanted)).collect();
    // The readers of a replaced resource are replaced, too, and then their readers.
    loop {
        let is_ended =
            |name: &&str| matches!(changes.get(*name), Some(ResourceEffect::Removed | ResourceEffect::Replaced));
        let ended = own_undos.iter().filter(|undo| undo.needed.iter().any(is_ended));
        let undone: BTreeSet<&str> = ended.flat_map(|undo| &undo.undone).copied().collect();
        let readers: Vec<String> = new
            .iter()
            .filter(|(name, origin)| {
                let units = origin.units.values().filter_map(|&at| wanted.unit(at));
                !matches!(changes.get(*name), Some(ResourceEffect::Added | ResourceEffect::Replaced))
                    && (units.flat_map(|unit| &unit.reads).any(|read| is_read(name, read.at, &changes))
                        || reads_key(name, origin, &changes)
                        || undone.contains(name.as_str()))
            })
            .map(|(name, _)| name.clone())
            .collect();
        if readers.is_empty() {
            return changes;
        }
        changes.extend(readers.into_iter().map(|name| (name, ResourceEffect::Replaced)));
    }
}

fn text(value: &impl Serialize) -> String {
    // The parts of a plan are JSON.
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the number of the last update of a resource by `update` units if one of these units is not done.
pub(super) fn incomplete_update(plan: &Plan, name: &str, is_done: &impl Fn(UnitRef) -> bool) -> Option<u32> {
    let is_own = |(at, unit): &(UnitRef, &UnitPlan)| unit.stage == Some(at.hook) && unit.resource() == name;
    plan.hooks.iter().rev().find_map(|hook| {
        let Hook::Update(number) = hook.hook else { return None };
        let mut own = hook.places().filter(is_own).peekable();
        own.peek()?;
        Some((!own.all(|(at, _)| is_done(at))).then_some(number))
    })?
}

/// An undo of own setup units of the target, which have the names of [`part`].
pub(super) struct OwnUndo<'a> {
    pub(super) undone: BTreeSet<&'a str>,
    /// The own setup units that the undo undoes, or reads itself or by other teardown units.
    pub(super) needed: BTreeSet<&'a str>,
    /// The undo, and the teardown units that it reads.
    pub(super) units: BTreeSet<UnitRef>,
}

/// Returns the undos of the own units that the target has now.
pub(super) fn own_undos(plan: &Plan) -> Vec<OwnUndo<'_>> {
    let is_own = |unit: &&UnitPlan| unit.resource() == HookOwner::TARGET;
    let undos = units_of(&plan.hooks, Hook::TEARDOWN).filter(|(_, unit)| is_own(unit) && !unit.undoes.is_empty());
    let of_undo = undos.map(|(at, undo)| {
        let (mut found, mut open) = (BTreeSet::from([at]), vec![undo]);
        while let Some(unit) = open.pop() {
            for at in unit.undoes.iter().copied().chain(unit.reads.iter().map(|read| read.at)) {
                if found.insert(at) {
                    open.extend(plan.unit(at).filter(|_| at.hook.is_teardown()));
                }
            }
        }
        let (units, made): (BTreeSet<UnitRef>, _) = found.into_iter().partition(|at| at.hook.is_teardown());
        let names =
            |of: &BTreeSet<UnitRef>| of.iter().filter_map(|&at| plan.unit(at)).filter(is_own).map(part).collect();
        OwnUndo { undone: names(&undo.undoes.iter().copied().collect()), needed: names(&made), units }
    });
    of_undo.collect()
}

/// The undos of a plan. A resource keeps its setup units only if those of the new plan can remove what the units of the
/// current plan have made. An undo finds objects by a task in a cluster, and a resource of InfraKit by the key or the
/// properties of its unit.
struct PlannedUndos<'a> {
    plan: &'a Plan,
    /// The key and the cluster of each undo, by the setup unit that it undoes.
    undos: BTreeMap<UnitRef, BTreeMap<&'a str, &'a str>>,
}

impl<'a> PlannedUndos<'a> {
    fn of(plan: &'a Plan) -> Self {
        let mut undos: BTreeMap<UnitRef, BTreeMap<&str, &str>> = BTreeMap::new();
        for (_, undo) in units_of(&plan.hooks, Hook::TEARDOWN) {
            for &at in &undo.undoes {
                undos.entry(at).or_default().insert(&undo.key, cluster_name(plan.cluster(undo)));
            }
        }
        Self { plan, undos }
    }

    /// Returns true if the undos of the unit `new_at` of another plan can remove what the unit `at` of this plan has made.
    fn are_kept(&self, at: UnitRef, new: &PlannedUndos<'_>, new_at: UnitRef) -> bool {
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
