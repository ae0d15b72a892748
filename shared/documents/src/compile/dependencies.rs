//! The dependencies of units: an input that reads an output, `after`, bound objects, and the order of teardown.

use std::collections::{BTreeSet, HashMap};

use ebb_engine::Hook;

use super::order::{self, CycleStep};
use super::plan_content::{is_bound, last_of};
use super::reads::{self, OutputReads, ResourceReads};
use super::teardown::{self, OrderSource, TeardownUnit};
use super::{BoundResource, CompiledUnit, DiagnosticCollector, ExpressionRead, clusters};
use crate::{Diagnostic, Dialect, Plan, ReferenceSource, UnitPlan, UnitRef};

/// Returns the plan of a unit with what it reads and the units of its hook for which it waits.
pub(super) fn unit_plan(
    report: &mut DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    wires: &ResourceReads<'_>,
) -> UnitPlan {
    let mut reads = OutputReads::new();
    let mut old_params = BTreeSet::new();
    for found in &unit.uses {
        let (wired, at) = match &found.source {
            ReferenceSource::Output { unit: maker, output } => {
                let makers = instance.makers(maker, Some(unit));
                // A single one is a part of the steps of its expression.
                if makers.len() > 1 && !report.spend(reads::READ_STEPS * makers.len() as u64, instance.at) {
                    break;
                }
                makers.into_iter().for_each(|at| reads::add(&mut reads, at, output, found.optional));
                continue;
            }
            ReferenceSource::Param(name) => {
                let at = instance.params.get(name.as_str()).map(|given| given.at).unwrap_or_default();
                (wires.param(instance.name, name), at)
            }
            ReferenceSource::Resource { resource, output } => (wires.output(resource, output), instance.at),
            ReferenceSource::OldParam(name) => {
                old_params.insert(name.clone());
                continue;
            }
            _ => continue,
        };
        let steps = wired.map_or(0, |reads| reads.len() as u64).saturating_mul(reads::READ_STEPS);
        if !report.spend(steps, at) {
            break;
        }
        for ((at, output), optional) in wired.into_iter().flatten() {
            if at.hook > unit.hook {
                report.push(too_early(report, instance, unit, found, (*at, output)));
                break;
            }
            reads::add(&mut reads, *at, output, *optional || found.optional);
        }
    }
    let mut dependencies: BTreeSet<u32> =
        reads.keys().filter(|(at, _)| at.hook == unit.hook).map(|(at, _)| at.unit).collect();
    dependencies.extend(unit.after.iter().filter_map(|&n| instance.unit_refs.get(n)).map(|at| at.unit));
    let mut undoes: Vec<UnitRef> = unit.undoes.iter().filter_map(|&n| instance.unit_refs.get(n).copied()).collect();
    undoes.sort_unstable();
    let evidence = instance.checked.required_evidence().filter(|_| !undoes.is_empty());
    UnitPlan {
        key: format!("{}/{}", instance.name, unit.plan.key),
        cluster: clusters::of(report, instance, unit),
        dependencies: dependencies.into_iter().collect(),
        reads: reads::listed(&reads),
        old_params: old_params.into_iter().collect(),
        undoes,
        evidence,
        ..unit.plan.clone()
    }
}

/// Lets the bound objects wait for the last `units` of preStart of the resources that they name. A resource whose units
/// they read is left out: only a value of params waits for a whole resource. So no object names a resource that is not
/// made yet, and each object is removed before the resource is.
pub(super) fn bind_after_resources(
    report: &mut DiagnosticCollector,
    units: &mut [UnitPlan],
    instances: &[BoundResource<'_>],
) {
    let last = last_of(units);
    let compiled = instances.iter().flat_map(|instance| {
        let own = instance.checked.units.iter().zip(&instance.unit_refs);
        own.filter(|(unit, _)| is_bound(&unit.plan)).map(|(unit, at)| (instance.at, unit, at.unit as usize))
    });
    for (place, unit, number) in compiled {
        if !report.spend(last.len() as u64, place) {
            return;
        }
        let resource = |at: u32| units[at as usize].resource();
        let sources = unit.uses.iter().filter_map(|found| match &found.source {
            ReferenceSource::Resource { resource, .. } => Some(resource.as_str()),
            _ => None,
        });
        let mut named: BTreeSet<&str> = sources.collect();
        for read in &units[number].reads {
            named.remove(resource(read.at.unit));
        }
        let first: Vec<u32> = last.iter().copied().filter(|&at| named.contains(resource(at))).collect();
        let dependencies = &mut units[number].dependencies;
        dependencies.extend(first);
        dependencies.sort_unstable();
    }
}

/// Returns the error for a unit that reads what a later hook makes: the value of a param, or, as an own unit, a public
/// output.
fn too_early(
    report: &DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    found: &ExpressionRead,
    (made, output): (UnitRef, &str),
) -> Diagnostic {
    let (own, hook, later) = (&unit.doc.name.value, unit.hook.name(), made.hook.name());
    if let ReferenceSource::Param(param) = &found.source {
        let at = instance.params.get(param.as_str()).map(|given| given.at).unwrap_or_default();
        let message = format!(
            "`{}/{own}` in {hook} reads param `{param}`, which is wired to what is made later, in {later}",
            instance.name
        );
        return report.error("hook-order", at, message).help("a hook reads its own outputs and those of earlier hooks");
    }
    let source = &found.source;
    let message = format!("`{own}` in {hook} reads `{source}`, which needs output `{output}` of {later}, a later hook");
    let help = format!("a hook reads what its own and earlier hooks make: read it in {later}");
    report.error_in("hook-order", &found.spot, message).help(help)
}

/// Rejects cycles across resources. The checks of the plugins have already rejected cycles within one resource.
pub(super) fn check_cycles(report: &mut DiagnosticCollector, plan: &Plan, wires: &ResourceReads<'_>) {
    for hook in &plan.hooks {
        let dependencies: Vec<Vec<usize>> =
            hook.units.iter().map(|unit| unit.dependencies.iter().map(|&n| n as usize).collect()).collect();
        let at = |unit: usize| Some(UnitRef { hook: hook.hook, unit: u32::try_from(unit).ok()? });
        let step = |from: usize, to: usize| reason(plan, wires, at(from)?, at(to)?);
        // Only what resources and own units read from each other closes such a cycle, and its positions are in the sandbox.
        let order = order::order_or_error(&report.source, &dependencies, |unit| hook.units[unit].key.clone(), step);
        report.found.extend(order.err());
    }
}

/// Returns the read of the sandbox that makes `from` wait for `to`.
fn reason(plan: &Plan, wires: &ResourceReads<'_>, from: UnitRef, to: UnitRef) -> Option<CycleStep> {
    let (instance, position) = wires
        .instances
        .iter()
        .find_map(|instance| Some((instance, instance.unit_refs.iter().position(|&place| place == from)?)))?;
    let unit = instance.checked.units.get(position)?;
    let reads = |reads: &OutputReads| reads.keys().any(|(at, _)| *at == to);
    let (at, what) = unit.uses.iter().find_map(|found| match &found.source {
        ReferenceSource::Param(name) => {
            let at = instance.params.get(name.as_str())?.at;
            wires.param(instance.name, name).is_some_and(reads).then(|| (at, format!("param `{name}`, wired to what")))
        }
        ReferenceSource::Resource { resource, output } => {
            let at = || found.spot.pos(&instance.checked.plugin.source);
            wires.output(resource, output).is_some_and(reads).then(|| (at(), format!("`{}`, which", found.source)))
        }
        _ => None,
    })?;
    Some((at, format!("`{}` reads {what} `{}` makes", plan.unit(from)?.key, plan.unit(to)?.key)))
}

pub(super) fn order_teardown(report: &DiagnosticCollector, plan: &mut Plan, instances: &[BoundResource<'_>]) {
    let ours = instances.iter().filter(|instance| instance.checked.plugin.dialect == Dialect::Ebb);
    let ours: BTreeSet<&str> = ours.map(|instance| instance.name).collect();
    let order = |resource: &str| if ours.contains(resource) { OrderSource::Setup } else { OrderSource::Author };
    add_teardown_edges(plan, &|steps| report.count(steps), order);
}

/// Adds the edges of teardown to postStop. `order` returns the source of the order within a resource.
pub(super) fn add_teardown_edges(plan: &mut Plan, count: &dyn Fn(u64) -> bool, order: impl Fn(&str) -> OrderSource) {
    let mut users: HashMap<UnitRef, Vec<UnitRef>> = HashMap::new();
    for hook in plan.hooks.iter().filter(|hook| hook.hook.is_setup()) {
        for (at, unit) in hook.places().filter(|(_, unit)| unit.is_setup(hook.hook)) {
            let waits = unit.dependencies.iter().map(|&unit| UnitRef { hook: hook.hook, unit });
            let used: BTreeSet<UnitRef> = waits.chain(unit.reads.iter().map(|read| read.at)).collect();
            used.into_iter().for_each(|used| users.entry(used).or_default().push(at));
        }
    }
    let Some(hook) = plan.hooks.iter_mut().find(|hook| hook.hook == Hook::PostStop) else { return };
    let units = hook.units.iter();
    let undoing: Vec<TeardownUnit<'_>> = units
        .map(|unit| TeardownUnit {
            resource: unit.resource(),
            undoes: &unit.undoes,
            touches: {
                // An added unit reads what its setup unit read. That need not exist any more.
                let reads = unit.reads.iter().filter(|_| !unit.action.is_added()).map(|read| read.at);
                unit.undoes.iter().copied().chain(reads).collect()
            },
            dependencies: &unit.dependencies,
            order: if unit.action.is_added() { OrderSource::Compiler } else { order(unit.resource()) },
        })
        .collect();
    let edges: Vec<(usize, usize, bool)> = teardown::edges(count, &undoing, &users)
        .into_iter()
        .map(|(x, y)| {
            let by_author = [x, y].iter().all(|&unit| undoing[unit].order == OrderSource::Setup);
            (x, y, by_author && undoing[x].resource == undoing[y].resource)
        })
        .collect();
    for (waits, first, within) in edges {
        if let (Some(unit), Ok(first)) = (hook.units.get_mut(waits), u32::try_from(first)) {
            unit.dependencies.push(first);
            unit.ordered_after.extend(within.then_some(first));
        }
    }
    for unit in &mut hook.units {
        unit.dependencies.sort_unstable();
        unit.dependencies.dedup();
    }
}
