//! Merges the plan of a changed document into the plan of a living target.
//!
//! 1. Compare the resources of both plans. A resource without a counterpart is added or removed. A resource with other
//!    params or other setup units is updated by the `update` units of its plugin, or replaced if the plugin has none. One
//!    that reads a replaced resource, or whose setup is incomplete, is replaced. A resource is also replaced if the new
//!    undos would not find what its setup has made. Each own setup unit of the target counts as a resource.
//! 2. Keep all hooks that may have run, so that their units keep their positions. Units of earlier runs have results.
//! 3. Add the hook of the update. Its units undo what is removed or replaced, then make what is added or replaced.
//! 4. Take preStop and postStop from the new plan, and add the undos of removed and replaced resources. They run if the
//!    update has not completed them.
//!
//! A changed `bind` is replaced, too, but its new objects are applied first: they take over the objects of the former
//! ones, so that a bound Secret is never missing. What remains of the former ones is removed afterwards. The new objects
//! wait for the `update` units, so that they never name what does not exist yet.
//!
//! A removed or replaced resource gets the name `NAME~N` with the number of the update, so its undo reads the params and
//! outputs with which it was made.
//!
//! Neither the order of a document nor the positions in it matter.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Hook, MAX_UNITS, ResourceEffect};

use super::dependencies::add_teardown_edges;
use super::plan_content::{content_digest, is_bound, last_of, origins, part, units_of};
use super::resource_changes::{UpdateMode, changes, incomplete_update, own_undos};
use super::teardown::OrderSource;
use super::{MAX_STEPS, old_params};
use crate::plan::{FormerResource, HookPlan, PLUGIN_UPDATE, ResourceOrigin, UpdateState, document_name, former_name};
use crate::{Action, HookOwner, Plan, UnitPlan, UnitRef};

/// Maximum bytes of the JSON of a changed plan, which has the units of all updates.
pub(super) const MAX_PLAN: usize = 8 << 20;

/// The plan of a living target after a change of its document.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanUpdate {
    pub plan: Plan,
    /// The effect on each changed resource with units, by name. An unchanged resource has none.
    pub resources: BTreeMap<String, ResourceEffect>,
    /// The resources with a complete preStart that the update removes or replaces, so that what they hold is lost.
    pub lost: BTreeSet<String>,
    /// The number of the update, if it has units.
    pub number: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error("`{0}` of a living target cannot be changed; delete the target and create it again")]
    Fixed(&'static str),
    #[error(
        "with the units of its earlier updates, the target has {found} {unit}; the limit is {limit}; delete the target \
         and create it again"
    )]
    TooLarge { found: usize, unit: &'static str, limit: usize },
}

/// Merges the plan `wanted` of a changed document into the plan of a living target. Returns `None` if the content of the
/// document is the same. `is_done` returns true for a unit of an earlier run that has succeeded or was skipped.
pub fn update(
    current: &Plan,
    wanted: &Plan,
    is_done: impl Fn(UnitRef) -> bool,
) -> Result<Option<PlanUpdate>, UpdateError> {
    let before = current.update.as_ref().map_or_else(|| content_digest(current), |state| state.content.clone());
    if before == content_digest(wanted) { Ok(None) } else { complete(current, wanted, is_done).map(Some) }
}

/// Does the same as [`update`] for a target that has failed, also if the content of the document is the same: everything
/// that is incomplete is made again.
pub fn complete(current: &Plan, wanted: &Plan, is_done: impl Fn(UnitRef) -> bool) -> Result<PlanUpdate, UpdateError> {
    if current.target.cluster != wanted.target.cluster {
        return Err(UpdateError::Fixed("cluster"));
    }
    if current.target.namespace != wanted.target.namespace {
        return Err(UpdateError::Fixed("namespace"));
    }
    let content = content_digest(wanted);
    let merged = merge(current, wanted, &content, &is_done, UpdateMode::InPlace)?;
    // A resource must be updated before one that it read is undone, and after one that it reads now is made. If both
    // have one name, only undoing and making everything has an order.
    let has_cycle = merged.plan.hooks.iter().any(|hook| hook.graph().is_err());
    if has_cycle { merge(current, wanted, &content, &is_done, UpdateMode::Replace) } else { Ok(merged) }
}

fn merge(
    current: &Plan,
    wanted: &Plan,
    content: &str,
    is_done: &impl Fn(UnitRef) -> bool,
    mode: UpdateMode,
) -> Result<PlanUpdate, UpdateError> {
    let (old, new) = (origins(current), origins(wanted));
    let resources = changes((current, wanted), (&old, &new), is_done, mode);
    // A resource exists before its units of postStart have ended.
    let is_made = |at: UnitRef| {
        let is_later = current.unit(at).is_some_and(|unit| unit.stage.unwrap_or(at.hook) == Hook::PostStart);
        is_later || is_done(at)
    };
    let exists = |before: &ResourceOrigin| {
        let units = || before.units.values().copied();
        units().all(is_made) && (before.units.is_empty() || units().any(is_done))
    };
    // The objects of `bind` hold nothing.
    let is_lost = |name: &str| name != HookOwner::BIND && old.get(name).is_some_and(exists);
    let number = current.update.as_ref().map_or(0, |state| state.number) + 1;
    let is_ended = |change: &ResourceEffect| matches!(change, ResourceEffect::Removed | ResourceEffect::Replaced);
    let ended = resources.iter().filter(|(_, change)| is_ended(change)).map(|(name, _)| {
        let resource = name.split('/').next().unwrap_or_default();
        (name.clone(), former_name(resource, number))
    });
    let ended: EndedNames = ended.collect();
    let lost = ended.keys().filter(|name| is_lost(name)).cloned().collect();
    let updated = resources.iter().filter(|(_, change)| **change == ResourceEffect::Updated).map(|(name, _)| name);
    let incomplete = |name: &str| incomplete_update(current, name, is_done);
    let read_before = old_params::readers((current, wanted), updated, incomplete);
    let former = former(current, number, &ended, &read_before);
    let mut merge = PlanMerge {
        current: renamed(current, &ended),
        old: &old,
        former,
        read_before,
        wanted,
        number,
        resources,
        lost,
        units: Vec::new(),
        undos: BTreeMap::new(),
        setup: BTreeMap::new(),
    };
    merge.add_undos(is_done);
    merge.add_setup();
    merge.add_updates();
    merge.finish(content.to_owned(), new)
}

/// The resources that an update undoes, each with its name from then on.
type EndedNames = BTreeMap<String, String>;

/// Returns a plan with the new keys of the units of resources that the update undoes.
fn renamed(plan: &Plan, ended: &EndedNames) -> Plan {
    let undos = own_undos(plan);
    let mut plan = plan.clone();
    for HookPlan { hook, units } in &mut plan.hooks {
        for (at, unit) in (0..).zip(units) {
            let at = UnitRef { hook: *hook, unit: at };
            let undone = undos.iter().filter(|undo| undo.units.contains(&at)).flat_map(|undo| &undo.undone);
            if let Some(name) = ended.get(part(unit)).or_else(|| undone.copied().find_map(|name| ended.get(name))) {
                unit.key = format!("{name}/{}", unit.name());
            }
        }
    }
    plan
}

fn former(
    plan: &Plan,
    number: u32,
    ended: &EndedNames,
    read_before: &BTreeMap<String, String>,
) -> BTreeMap<String, FormerResource> {
    let mut former = plan.update.as_ref().map(|state| state.former.clone()).unwrap_or_default();
    for (name, before) in read_before {
        let names = former.get(before).map(|before| before.names.clone()).unwrap_or_default();
        let resource = plan.resource(before).cloned();
        former.insert(former_name(name, number), FormerResource { resource, names });
    }
    for (name, ended_name) in ended {
        let resource = plan.resources.get(name).cloned();
        former.insert(ended_name.clone(), FormerResource { resource, names: BTreeMap::new() });
    }
    // A resource that ended earlier keeps the names that it has already.
    for one in former.values_mut() {
        for (name, ended_name) in ended {
            one.names.entry(name.clone()).or_insert_with(|| ended_name.clone());
        }
    }
    former
}

struct PlanMerge<'a> {
    /// The current plan, with the names of former resources in the keys of units.
    current: Plan,
    old: &'a BTreeMap<String, ResourceOrigin>,
    former: BTreeMap<String, FormerResource>,
    /// The resources of the current plan whose params updated resources read as `old.params`.
    read_before: BTreeMap<String, String>,
    wanted: &'a Plan,
    number: u32,
    resources: BTreeMap<String, ResourceEffect>,
    lost: BTreeSet<String>,
    units: Vec<UnitPlan>,
    /// The places in the update of undos of the current plan.
    undos: BTreeMap<UnitRef, UnitRef>,
    /// The places in the update of setup units of the new plan.
    setup: BTreeMap<UnitRef, UnitRef>,
}

impl PlanMerge<'_> {
    fn is_made(&self, resource: &str) -> bool {
        matches!(self.resources.get(resource), Some(ResourceEffect::Added | ResourceEffect::Replaced))
    }

    fn place(&self, index: usize) -> UnitRef {
        UnitRef { hook: Hook::Update(self.number), unit: position(index) }
    }

    /// Adds the undos of removed and replaced resources, and those that a failed update has left open.
    fn add_undos(&mut self, is_done: &impl Fn(UnitRef) -> bool) {
        let undos = units_of(&self.current.hooks, Hook::TEARDOWN);
        let is_open = |(_, unit): &(UnitRef, &UnitPlan)| {
            self.former.contains_key(unit.resource()) && !unit.unless.iter().any(|&undo| is_done(undo))
        };
        let chosen: Vec<(UnitRef, UnitPlan)> = undos.filter(is_open).map(|(at, unit)| (at, unit.clone())).collect();
        self.undos = chosen.iter().enumerate().map(|(index, (at, _))| (*at, self.place(index))).collect();
        for (at, mut unit) in chosen {
            // New bound objects wait for new resources, which wait for these undos.
            let is_awaited = |&first: &u32| {
                let first = self.current.unit(UnitRef { hook: at.hook, unit: first });
                !self.is_made(HookOwner::BIND) || !first.is_some_and(|first| removes_bound(&self.current, first))
            };
            unit.dependencies.retain(is_awaited);
            let unit = UnitPlan { stage: Some(at.hook), unless: Vec::new(), ..moved(at, &unit, &self.undos) };
            self.units.push(unit);
        }
        self.wait_for_stage(0, Hook::PostStop, Hook::PreStop);
    }

    /// Adds the setup units of added and replaced resources, after the undos of the same resource.
    fn add_setup(&mut self) {
        let (wanted, first) = (self.wanted, self.units.len());
        let setup = units_of(&wanted.hooks, [Hook::PreStart, Hook::PostStart]);
        let chosen: Vec<(UnitRef, &UnitPlan)> = setup.filter(|(_, unit)| self.is_made(part(unit))).collect();
        self.setup = chosen.iter().enumerate().map(|(index, (at, _))| (*at, self.place(first + index))).collect();
        let last_undos = last_of(&self.units);
        for (at, unit) in chosen {
            let mut made = with_reads(&moved(at, unit, &self.setup), |at| self.origin(at));
            made.stage = Some(at.hook);
            let is_own = |&first: &u32| {
                let first = UnitRef { hook: at.hook, unit: first };
                let resource = wanted.unit(first).map(UnitPlan::resource);
                self.setup.contains_key(&first) && resource == Some(unit.resource())
            };
            // Units that wait for others of the resource wait for its undos, too.
            let has_first = unit.dependencies.iter().any(is_own);
            if !has_first && !is_bound(unit) {
                let is_undo = |undo: &&u32| document_name(self.units[**undo as usize].resource()) == unit.resource();
                made.dependencies.extend(last_undos.iter().filter(is_undo));
            }
            self.units.push(made);
        }
        self.wait_for_stage(first, Hook::PostStart, Hook::PreStart);
        let (undos, setup) = self.units.split_at_mut(first);
        let bound: Vec<u32> =
            (position(first)..).zip(&*setup).filter(|(_, unit)| is_bound(unit)).map(|it| it.0).collect();
        for undo in undos.iter_mut().filter(|undo| removes_bound(&self.current, undo)) {
            undo.dependencies.extend(&bound);
        }
    }

    /// Adds the `update` units of updated resources. They run after the setup units that they read, and before the undos
    /// of what the resource read until now.
    fn add_updates(&mut self) {
        let (wanted, first, hook) = (self.wanted, self.units.len(), Hook::Update(self.number));
        let is_updated = |resource: &str| self.resources.get(resource) == Some(&ResourceEffect::Updated);
        let chosen: Vec<(u32, &UnitPlan)> =
            (0..).zip(&wanted.plugin_updates).filter(|(_, unit)| is_updated(unit.resource())).collect();
        let places: BTreeMap<u32, u32> =
            chosen.iter().enumerate().map(|(index, (at, _))| (*at, position(first + index))).collect();
        for (_, unit) in chosen {
            let here = |at: UnitRef| match at.hook {
                PLUGIN_UPDATE => UnitRef { hook, unit: places[&at.unit] },
                _ => self.origin(at),
            };
            let mut unit = with_reads(unit, here);
            if let Some(before) = self.read_before.get(unit.resource()) {
                old_params::add_reads(&self.current, before, &mut unit);
            }
            let read = unit.reads.iter().filter(|read| read.at.hook == hook).map(|read| read.at.unit);
            let own = unit.dependencies.iter().map(|first| places[first]);
            let dependencies = read.chain(own).collect();
            self.units.push(UnitPlan { dependencies, ordered_after: Vec::new(), stage: Some(hook), ..unit });
        }
        let last = last_of(&self.units);
        for (name, origin) in self.old.iter().filter(|(name, _)| is_updated(name)) {
            let current = &self.current;
            let setup = origin.units.values().filter_map(|&at| current.unit(at));
            let own = self.units[first..].iter().filter(|unit| unit.resource() == name);
            let makers = setup.chain(own).flat_map(|unit| &unit.reads).filter_map(|read| current.unit(read.at));
            let read: BTreeSet<&str> = makers.map(|unit| document_name(unit.resource())).collect();
            let is_update = |&unit: &u32| unit as usize >= first && self.units[unit as usize].resource() == name;
            let updates: Vec<u32> = last.iter().copied().filter(is_update).collect();
            let undos = self.units[..first].iter_mut().filter(|unit| !unit.is_setup(Hook::PreStop));
            for undo in undos.filter(|undo| read.contains(document_name(undo.resource()))) {
                undo.dependencies.extend(&updates);
            }
        }
        self.bind_after_updates(first);
    }

    /// Lets the new bound objects wait for the last `update` units, which are at the position `first` and later: they
    /// may name what these units make.
    fn bind_after_updates(&mut self, first: usize) {
        let bound: Vec<u32> = (0..).zip(&self.units).filter(|(_, unit)| is_bound(unit)).map(|it| it.0).collect();
        if bound.is_empty() {
            return;
        }
        let mut later: Vec<Vec<u32>> = vec![Vec::new(); self.units.len()];
        for (number, unit) in (0..).zip(&self.units) {
            unit.dependencies.iter().for_each(|&at| later[at as usize].push(number));
        }
        // An `update` unit that reads a unit of postStart waits for the bound objects itself.
        let (mut open, mut waiting) = (bound.clone(), BTreeSet::new());
        while let Some(unit) = open.pop() {
            if waiting.insert(unit) {
                open.extend(&later[unit as usize]);
            }
        }
        let mut updates = last_of(&self.units);
        updates.retain(|unit| *unit as usize >= first && !waiting.contains(unit));
        for unit in bound {
            self.units[unit as usize].dependencies.extend(&updates);
        }
    }

    /// Lets the first units of a stage wait for the last ones of an earlier stage, from the position `from`.
    fn wait_for_stage(&mut self, from: usize, stage: Hook, earlier: Hook) {
        let of = |stage: Hook| -> BTreeSet<u32> {
            let numbered = (0..).zip(&self.units).skip(from);
            numbered.filter(|(_, unit)| unit.stage == Some(stage)).map(|(number, _)| number).collect()
        };
        let (waiting, mut last) = (of(stage), of(earlier));
        for number in of(earlier) {
            for first in &self.units[number as usize].dependencies {
                last.remove(first);
            }
        }
        for &number in &waiting {
            let dependencies = &mut self.units[number as usize].dependencies;
            if !dependencies.iter().any(|first| waiting.contains(first)) {
                dependencies.extend(&last);
            }
        }
    }

    /// Returns the place of a setup unit of the new plan: in the update, or in the run that made its resource.
    fn origin(&self, at: UnitRef) -> UnitRef {
        if let Some(&place) = self.setup.get(&at) {
            return place;
        }
        let Some(unit) = self.wanted.unit(at).filter(|_| at.hook.is_setup()) else { return at };
        self.old.get(part(unit)).and_then(|origin| origin.units.get(&unit.key)).copied().unwrap_or(at)
    }

    fn finish(mut self, content: String, new: BTreeMap<String, ResourceOrigin>) -> Result<PlanUpdate, UpdateError> {
        let mut units = std::mem::take(&mut self.units);
        for unit in &mut units {
            unit.dependencies.sort_unstable();
            unit.dependencies.dedup();
        }
        let has_units = !units.is_empty();
        // The number is used even without units, because former resources can have it.
        let number = self.number;
        let mut hooks: Vec<HookPlan> = self.current.hooks.iter().filter(|hook| hook.hook.is_setup()).cloned().collect();
        hooks.extend(has_units.then_some(HookPlan { hook: Hook::Update(number), units }));
        for hook in self.wanted.hooks.iter().filter(|hook| matches!(hook.hook, Hook::Event(_))) {
            let units = hook.units.iter().map(|unit| with_reads(unit, |at| self.origin(at)));
            hooks.push(HookPlan { hook: hook.hook, units: units.collect() });
        }
        let mut places = BTreeMap::new();
        for stage in Hook::TEARDOWN {
            let units = self.teardown(stage, &mut places);
            hooks.extend((!units.is_empty()).then_some(HookPlan { hook: stage, units }));
        }
        let mut public = self.wanted.resources.clone();
        for (name, resource) in &mut public {
            let is_former = |former: &String| document_name(former) == name;
            resource.incarnation = match self.resources.get(name) {
                Some(ResourceEffect::Added | ResourceEffect::Replaced) if self.former.keys().any(is_former) => number,
                Some(ResourceEffect::Added | ResourceEffect::Replaced) => 0,
                _ => self.current.resources.get(name).map_or(0, |before| before.incarnation),
            };
        }
        let outputs = public.values_mut().flat_map(|resource| resource.outputs.values_mut());
        let mut env_reads = self.wanted.env_reads.clone();
        for read in outputs.flat_map(|output| &mut output.reads).chain(&mut env_reads) {
            read.at = self.origin(read.at);
        }
        let origins = new.into_iter().map(|(name, origin)| {
            let units = origin.units.into_iter().map(|(key, at)| (key, self.origin(at))).collect();
            (name, ResourceOrigin { units, ..origin })
        });
        let update = Some(UpdateState { number, content, resources: origins.collect(), former: self.former });
        let mut plan =
            Plan { resources: public, env_reads, hooks, update, plugin_updates: Vec::new(), ..self.wanted.clone() };
        let steps = std::cell::Cell::new(0_u64);
        let count = |more: u64| {
            steps.set(steps.get().saturating_add(more));
            steps.get() <= MAX_STEPS
        };
        // The units of one resource have their order already.
        add_teardown_edges(&mut plan, &count, |_| OrderSource::Author);
        plan.keep_clusters(&self.current);
        check_size(&plan)?;
        // The objects of `bind` change in place.
        let binds = self.wanted.hooks.iter().flat_map(|hook| &hook.units).any(is_bound);
        let change = self.resources.get_mut(HookOwner::BIND).filter(|_| binds);
        if let Some(change) = change.filter(|change| **change == ResourceEffect::Replaced) {
            *change = ResourceEffect::Updated;
        }
        Ok(PlanUpdate { plan, resources: self.resources, lost: self.lost, number: has_units.then_some(number) })
    }

    /// Returns the units of preStop or postStop: those of the new plan, then those for removed and replaced resources.
    /// `places` gets those of the latter.
    fn teardown(&self, stage: Hook, places: &mut BTreeMap<UnitRef, UnitRef>) -> Vec<UnitPlan> {
        let made = |at: UnitRef| self.current.unit(at);
        let own = units_of(&self.wanted.hooks, [stage]).map(|(_, unit)| {
            let undoes: Vec<UnitRef> = unit.undoes.iter().map(|&at| self.origin(at)).collect();
            let mut unit = with_reads(unit, |at| self.origin(at));
            // It is rendered from the unit that has made the resource.
            if let (Action::Destroy, Some(made)) = (&unit.action, undoes.first().and_then(|&at| made(at))) {
                unit.reads.clone_from(&made.reads);
            }
            UnitPlan { undoes, ..unit }
        });
        let mut units: Vec<UnitPlan> = own.collect();
        let is_kept = |unit: &UnitPlan| self.former.contains_key(unit.resource());
        let kept: Vec<(UnitRef, &UnitPlan)> =
            units_of(&self.current.hooks, [stage]).filter(|(_, unit)| is_kept(unit)).collect();
        for (index, (at, _)) in kept.iter().enumerate() {
            places.insert(*at, UnitRef { hook: stage, unit: position(units.len() + index) });
        }
        for (at, unit) in kept {
            let unless = unit.unless.iter().chain(self.undos.get(&at)).copied().collect();
            units.push(UnitPlan { unless, ..moved(at, unit, places) });
        }
        units
    }
}

fn check_size(plan: &Plan) -> Result<(), UpdateError> {
    if let Some(units) = plan.hooks.iter().map(|hook| hook.units.len()).find(|&units| units > MAX_UNITS) {
        return Err(UpdateError::TooLarge { found: units, unit: "units in one hook", limit: MAX_UNITS });
    }
    match plan.to_json().len() {
        bytes if bytes > MAX_PLAN => Err(UpdateError::TooLarge { found: bytes, unit: "bytes", limit: MAX_PLAN }),
        _ => Ok(()),
    }
}

fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Returns true for a unit that removes an object of `bind`, which a unit of this plan has applied.
fn removes_bound(plan: &Plan, unit: &UnitPlan) -> bool {
    unit.action == Action::Removal && unit.undoes.iter().any(|&at| plan.unit(at).is_some_and(is_bound))
}

/// Returns a unit with the `places` of the units that it refers to. Others stay where they are, but the unit does not wait
/// for them any more. `at` is the place of the unit until now.
fn moved(at: UnitRef, unit: &UnitPlan, places: &BTreeMap<UnitRef, UnitRef>) -> UnitPlan {
    let first = |&unit: &u32| places.get(&UnitRef { hook: at.hook, unit }).map(|place| place.unit);
    let place = |at: UnitRef| places.get(&at).copied().unwrap_or(at);
    UnitPlan {
        dependencies: unit.dependencies.iter().filter_map(first).collect(),
        ordered_after: unit.ordered_after.iter().filter_map(first).collect(),
        undoes: unit.undoes.iter().map(|&at| place(at)).collect(),
        ..with_reads(unit, place)
    }
}

fn with_reads(unit: &UnitPlan, place: impl Fn(UnitRef) -> UnitRef) -> UnitPlan {
    let mut unit = unit.clone();
    for read in &mut unit.reads {
        read.at = place(read.at);
    }
    unit
}
