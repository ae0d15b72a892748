//! Repairs the teardown in the plan of a stuck target with another version of a plugin, or its own units with another
//! document.
//!
//! The units of preStop and postStop get the action, inputs, outputs, condition, timeout and retries of the unit with the
//! same name in the other version or document. Keys, positions, dependencies and undone units stay, because a run refers to
//! them. So does the cluster, in which the undone resource is. The setup stays: it has made what exists.

use std::collections::BTreeSet;

use ebb_engine::Hook;

use super::old_params::{behind, texts};
use super::plan_content::{origins, part, units_of};
use super::plan_expressions::expressions;
use super::plan_update::MAX_PLAN;
use super::{BoundPlugin, CheckedPlugin, CompiledUnit, OutputReads, PublicOutputs, StepCount, plugin, reads};
use crate::plan::{HookPlan, OutputPlan, OutputRead, Plan, Resource, Template, UnitPlan, UnitRef, document_name};
use crate::{Diagnostics, HookOwner, ReferenceSource};

/// The origin of corrected own units, in errors.
const DOCUMENT: &str = "the document";

/// The plan of a stuck target with the teardown of another version of a plugin, or with other own units.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRepair {
    pub plan: Plan,
    /// The teardown units with another content, in the order of the plan.
    pub changes: Vec<RepairedUnit>,
    /// The keys of teardown units of the other version that the plan does not have. They do not run.
    pub ignored: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RepairedUnit {
    /// The version of its plugin before, as `NAME@VERSION`. `the former document` for an own unit.
    pub from: String,
    pub before: UnitPlan,
    pub after: UnitPlan,
}

/// The reason why a version of a plugin or a document cannot repair a plan.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error("{plugin} has errors:\n{errors}")]
    Invalid { plugin: String, errors: Diagnostics },
    #[error("no resource of the target uses plugin {0:?}")]
    Unused(String),
    #[error("the target has no own undo; `ebb retry NAME --plugin NAME@VERSION` repairs those of a plugin")]
    NoOwnUndo,
    #[error(
        "`{unit}` of {plugin} has {field} {found}, the plan of the target has {expected}; a repair keeps the order of the \
         teardown; give it the same {field}"
    )]
    OtherEdges { plugin: String, unit: String, field: &'static str, expected: String, found: String },
    #[error(
        "`{unit}` of {plugin} reads {value}, which {reason}; it can read only what the setup of the target has made"
    )]
    Missing { plugin: String, unit: String, value: String, reason: &'static str },
    #[error("the repaired plan has {found} bytes; the limit is {limit}")]
    TooLarge { found: usize, limit: usize },
}

/// Replaces the teardown units of all resources of a plugin by those of the version `bound`.
///
/// # Errors
/// Returns [`RepairError`] if the version has errors, or if its units need other edges or other values than the plan has.
pub fn repair(current: &Plan, bound: &BoundPlugin<'_>) -> Result<PlanRepair, RepairError> {
    let name = &bound.plugin.name.value;
    let version = format!("{name}@{}", bound.version);
    let checked = plugin::check(bound.plugin, PublicOutputs::default(), &StepCount::default())
        .map_err(|errors| RepairError::Invalid { plugin: version.clone(), errors })?;
    let is_of_plugin = |resource: &Resource| resource.plugin.rsplit_once('@').is_some_and(|(own, _)| own == name);
    let mut plan = current.clone();
    let former = plan.update.iter_mut().flat_map(|update| &mut update.former);
    let former = former.filter_map(|(name, former)| Some((name, former.resource.as_mut()?)));
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (name, resource) in plan.resources.iter_mut().chain(former).filter(|(_, resource)| is_of_plugin(resource)) {
        names.insert(name.clone());
        resource.repaired_by = Some(version.clone());
        resource.optional_params.extend(checked.optional_params());
        // The new units can read params that the plugin did not have.
        for (name, param) in &checked.params {
            if let Some(default) = &param.doc.default {
                let value = || Template::Literal(default.value.clone());
                resource.params.entry((*name).to_owned()).or_insert_with(value);
            }
        }
    }
    if names.is_empty() {
        return Err(RepairError::Unused(name.clone()));
    }
    let mut changes = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (at, unit) in units_of(&current.hooks, Hook::TEARDOWN).filter(|(_, unit)| names.contains(unit.resource())) {
        known.insert(unit.key.split('[').next().unwrap_or_default());
        let Some(resource) = current.resource(unit.resource()) else { continue };
        let after = match checked.unit(unit.document_name()) {
            Some(new) => {
                UnitRepair { current, plan: &plan, checked: &checked, version: &version, unit, new }.made(at)?
            }
            None if unit.action.is_added() => UnitPlan { evidence: checked.required_evidence(), ..unit.clone() },
            None => continue,
        };
        let from = resource.repaired_by.as_ref().unwrap_or(&resource.plugin);
        changes.extend(replaced(&mut plan, at, from, unit, after));
    }
    check(&mut plan, current, &version)?;
    let teardown = checked.units.iter().filter(|unit| unit.hook.is_teardown());
    let keys = teardown.flat_map(|unit| names.iter().map(|name| format!("{name}/{}", unit.plan.key)));
    let ignored = keys.filter(|key| !known.contains(key.as_str())).collect();
    Ok(PlanRepair { plan, changes, ignored })
}

/// Replaces the own teardown units of a target by those of a document whose plan is `wanted`.
///
/// # Errors
/// Returns [`RepairError`] if the target has no own undo, or if the units need other edges or other values than the plan has.
pub fn repair_own(current: &Plan, wanted: &Plan) -> Result<PlanRepair, RepairError> {
    let own = |plan: &Plan| -> Vec<(UnitRef, UnitPlan)> {
        let teardown = units_of(&plan.hooks, Hook::TEARDOWN);
        let own = teardown.filter(|(_, unit)| document_name(unit.resource()) == HookOwner::TARGET);
        own.map(|(at, unit)| (at, unit.clone())).collect()
    };
    let (before, new) = (own(current), own(wanted));
    let (made, mut plan, mut changes) = (origins(current), current.clone(), Vec::new());
    if before.is_empty() {
        return Err(RepairError::NoOwnUndo);
    }
    // The undo of a former unit reads what was made with it.
    let place = |owner: &str, at: UnitRef| {
        let maker = wanted.unit(at)?;
        let is_readable = |place: UnitRef, unit: &UnitPlan| unit.is_setup(place.hook) || place.hook == at.hook;
        let of_owner = |owner: &str| {
            let key = format!("{owner}/{}", maker.name());
            let mut places = current.hooks.iter().flat_map(HookPlan::places);
            places.find(|(place, unit)| unit.key == key && is_readable(*place, unit)).map(|(place, _)| place)
        };
        match maker.resource() == HookOwner::TARGET {
            true => of_owner(owner).or_else(|| of_owner(HookOwner::TARGET)),
            false => made.get(part(maker)).and_then(|origin| origin.units.get(&maker.key)).copied(),
        }
    };
    for (at, unit) in &before {
        let found = new.iter().find(|(new, other)| new.hook == at.hook && other.name() == unit.name());
        let Some((_, new)) = found else { continue };
        let key = (DOCUMENT, unit.key.as_str());
        check_edges(key, "undoes", undone(current, unit), undone(wanted, new))?;
        check_edges(key, "dependencies", awaited(current, at.hook, unit), awaited(wanted, at.hook, new))?;
        let mut reads = new.reads.clone();
        for read in &mut reads {
            let maker = place(unit.resource(), read.at).filter(|&at| {
                let frozen = current.unit(at).and_then(|maker| maker.outputs.get(&read.output));
                let declared = wanted.unit(read.at).and_then(|maker| maker.outputs.get(&read.output));
                !at.hook.is_setup() || frozen.is_some_and(|frozen| declared == Some(frozen))
            });
            let key = wanted.unit(read.at).map(|maker| maker.key.as_str()).unwrap_or_default();
            let value = || format!("`{}` of `{key}`", read.output);
            let reason = "the setup of the target did not have, or not in this form";
            read.at = maker.ok_or_else(|| missing(DOCUMENT, unit, value(), reason))?;
        }
        let after = in_place(unit, new, reads);
        changes.extend(replaced(&mut plan, *at, "the former document", unit, after));
    }
    check(&mut plan, current, DOCUMENT)?;
    let is_known = |new: &UnitPlan| before.iter().any(|(_, unit)| unit.name() == new.name());
    let ignored = new.into_iter().filter(|(_, unit)| !is_known(unit)).map(|(_, unit)| unit.key).collect();
    Ok(PlanRepair { plan, changes, ignored })
}

/// Returns a unit with the content of `new` at its place in the plan.
fn in_place(unit: &UnitPlan, new: &UnitPlan, reads: Vec<OutputRead>) -> UnitPlan {
    UnitPlan {
        key: unit.key.clone(),
        entry: unit.entry.clone(),
        cluster: unit.cluster.clone(),
        dependencies: unit.dependencies.clone(),
        reads,
        undoes: unit.undoes.clone(),
        ordered_after: unit.ordered_after.clone(),
        stage: unit.stage,
        unless: unit.unless.clone(),
        verifies: unit.verifies,
        looks: unit.looks,
        ..new.clone()
    }
}

/// Replaces a unit of the plan. Returns the change, unless only the position differs.
fn replaced(plan: &mut Plan, at: UnitRef, from: &str, before: &UnitPlan, after: UnitPlan) -> Option<RepairedUnit> {
    let hook = plan.hooks.iter_mut().find(|planned| planned.hook == at.hook);
    if let Some(place) = hook.and_then(|planned| planned.units.get_mut(at.unit as usize)) {
        place.clone_from(&after);
    }
    let is_changed = UnitPlan { source: before.source.clone(), ..after.clone() } != *before;
    is_changed.then(|| RepairedUnit { from: from.to_owned(), before: before.clone(), after })
}

/// Returns the names of the units that a unit of the plan undoes.
fn undone<'p>(plan: &'p Plan, unit: &UnitPlan) -> BTreeSet<&'p str> {
    unit.undoes.iter().filter_map(|&at| plan.unit(at)).map(UnitPlan::document_name).collect()
}

/// Returns the names of the units of its resource for which a unit of `stage` waits because of its author.
fn awaited<'p>(plan: &'p Plan, stage: Hook, unit: &UnitPlan) -> BTreeSet<&'p str> {
    let by_author = unit.dependencies.iter().filter(|first| !unit.ordered_after.contains(first));
    let first = by_author.filter_map(|&unit| plan.unit(UnitRef { hook: stage, unit }));
    let own = first.filter(|first| first.resource() == unit.resource() && !first.action.is_added());
    own.map(UnitPlan::document_name).collect()
}

/// Checks a repaired plan, and keeps its clusters.
fn check(plan: &mut Plan, current: &Plan, version: &str) -> Result<(), RepairError> {
    check_reads(plan, version)?;
    plan.keep_clusters(current);
    let found = plan.to_json().len();
    if found > MAX_PLAN { Err(RepairError::TooLarge { found, limit: MAX_PLAN }) } else { Ok(()) }
}

fn check_edges(
    (version, unit): (&str, &str),
    field: &'static str,
    expected: BTreeSet<&str>,
    found: BTreeSet<&str>,
) -> Result<(), RepairError> {
    if expected == found {
        return Ok(());
    }
    let list = |names: BTreeSet<&str>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let (expected, found) = (list(expected), list(found));
    Err(RepairError::OtherEdges { plugin: version.to_owned(), unit: unit.to_owned(), field, expected, found })
}

fn missing(version: &str, unit: &UnitPlan, value: String, reason: &'static str) -> RepairError {
    RepairError::Missing { plugin: version.to_owned(), unit: unit.key.clone(), value, reason }
}

/// A teardown unit of the plan with its counterpart in the other version.
struct UnitRepair<'a> {
    current: &'a Plan,
    /// The plan with the params of the other version.
    plan: &'a Plan,
    checked: &'a CheckedPlugin<'a>,
    version: &'a str,
    unit: &'a UnitPlan,
    new: &'a CompiledUnit<'a>,
}

impl UnitRepair<'_> {
    fn made(&self, at: UnitRef) -> Result<UnitPlan, RepairError> {
        let UnitRepair { unit, new, .. } = *self;
        let key = (self.version, unit.key.as_str());
        check_edges(key, "hook", [at.hook.name()].into(), [new.hook.name()].into())?;
        let list = unit.entry.iter().map(|entry| entry.list.as_str()).collect();
        check_edges(key, "forEach", list, new.list.iter().map(String::as_str).collect())?;
        check_edges(key, "undoes", undone(self.current, unit), self.names(&new.undoes))?;
        let reads = self.reads(at.hook)?;
        check_edges(key, "dependencies", awaited(self.current, at.hook, unit), self.awaited(at.hook, &reads))?;
        for (name, output) in &unit.outputs {
            let is_other = new.plan.outputs.get(name).is_some_and(|new| new.sensitive != output.sensitive);
            if is_other && !self.checked.hands_on_whole() {
                return Err(self.missing(format!("its output `{name}`"), "is sensitive in one of both versions only"));
            }
        }
        let reads = reads.into_iter().map(|((at, output), optional)| OutputRead { at, output, optional });
        let evidence = self.checked.required_evidence().filter(|_| !unit.undoes.is_empty());
        Ok(UnitPlan { evidence, ..in_place(unit, &new.plan, reads.collect()) })
    }

    fn names(&self, units: &[usize]) -> BTreeSet<&str> {
        units.iter().filter_map(|&unit| self.checked.units.get(unit)).map(|unit| unit.plan.key.as_str()).collect()
    }

    fn missing(&self, value: String, reason: &'static str) -> RepairError {
        missing(self.version, self.unit, value, reason)
    }

    /// Returns the names of the units of the plugin for which the unit of the other version waits because of its author.
    fn awaited(&self, stage: Hook, reads: &OutputReads) -> BTreeSet<&str> {
        let read = reads.keys().filter(|(at, _)| at.hook == stage).filter_map(|(at, _)| self.current.unit(*at));
        let mut after = self.names(&self.new.after);
        after.extend(read.map(UnitPlan::document_name));
        after
    }

    /// Returns the outputs that the unit of the other version reads, at their places in the plan.
    fn reads(&self, stage: Hook) -> Result<OutputReads, RepairError> {
        let name = self.unit.resource();
        let mut reads = OutputReads::new();
        for found in &self.new.uses {
            match &found.source {
                ReferenceSource::Output { unit, output } => {
                    for at in self.makers(stage, unit, output)? {
                        reads::add(&mut reads, at, output, found.optional);
                    }
                }
                ReferenceSource::Param(param) => {
                    let given = self.plan.resource(name).and_then(|resource| resource.params.get(param));
                    let declared = self.checked.params.get(param.as_str()).map(|param| param.doc);
                    let (may_miss, is_sensitive) =
                        declared.map_or((false, false), |param| (param.is_optional(), param.sensitive));
                    let value = || format!("param `{param}`");
                    let Some(given) = given else {
                        if may_miss {
                            continue;
                        }
                        return Err(self.missing(value(), "the target has not set"));
                    };
                    let is_secret = matches!(given, Template::Secret { .. } | Template::Sealed(_));
                    if is_secret && !is_sensitive {
                        return Err(self.missing(value(), "is sensitive in the plan of the target"));
                    }
                    for reference in texts(given).into_iter().flat_map(expressions).flat_map(|it| it.references) {
                        let behind = behind(self.current, name, &reference.source);
                        let Some((public, sensitive)) = behind else { continue };
                        if sensitive && !is_sensitive && !self.checked.hands_on_whole() {
                            return Err(self.missing(value(), "is sensitive in the plan of the target"));
                        }
                        for read in &public {
                            let optional = read.optional || reference.optional || found.optional;
                            reads::add(&mut reads, read.at, &read.output, optional);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(reads)
    }

    /// Returns the places in the plan of the units with the name `unit` in the document, which make `output`.
    fn makers(&self, stage: Hook, unit: &str, output: &str) -> Result<Vec<UnitRef>, RepairError> {
        let value = || format!("`units.{unit}.outputs.{output}`");
        let is_maker = |at: UnitRef, maker: &UnitPlan| {
            maker.resource() == self.unit.resource()
                && maker.document_name() == unit
                && self.unit.meets(maker)
                && (at.hook.is_teardown() || maker.is_setup(at.hook))
        };
        let hooks = self.current.hooks.iter().filter(|hook| hook.hook <= stage);
        let made = hooks.flat_map(HookPlan::places).filter(|(at, maker)| is_maker(*at, maker));
        let mut makers = Vec::new();
        for (at, made) in made {
            makers.push(at);
            // The other version can change the outputs of a teardown unit.
            if !at.hook.is_setup() {
                continue;
            }
            let declared = self.checked.unit(unit).and_then(|unit| unit.plan.outputs.get(output));
            let is_other =
                |frozen: &OutputPlan| declared.is_some_and(|declared| declared.sensitive != frozen.sensitive);
            match made.outputs.get(output) {
                None => return Err(self.missing(value(), "the setup of the target did not have")),
                Some(frozen) if is_other(frozen) && !self.checked.hands_on_whole() => {
                    return Err(self.missing(value(), "is sensitive in one of both versions only"));
                }
                // The setup has stored the value as its version says.
                Some(frozen) if declared.is_some_and(|new| (new.json, new.trim) != (frozen.json, frozen.trim)) => {
                    return Err(self.missing(value(), "has another `json` or `trim` in the plan of the target"));
                }
                Some(_) => {}
            }
        }
        if makers.is_empty() { Err(self.missing(value(), "the plan of the target does not have")) } else { Ok(makers) }
    }
}

/// Checks that the teardown units still have the outputs that others of them read.
fn check_reads(plan: &Plan, version: &str) -> Result<(), RepairError> {
    for (_, unit) in units_of(&plan.hooks, Hook::TEARDOWN) {
        for read in unit.reads.iter().filter(|read| read.at.hook.is_teardown()) {
            let maker = plan.unit(read.at).filter(|maker| !maker.outputs.contains_key(&read.output));
            let Some(maker) = maker else { continue };
            let value = format!("`{}` of `{}`", read.output, maker.key);
            return Err(missing(version, unit, value, "the other version does not have"));
        }
    }
    Ok(())
}
