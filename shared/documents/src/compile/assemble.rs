//! Assembles the plan from bound resources: the order of units, their reads and their dependencies.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ebb_engine::{Hook, MAX_UNITS};

use super::checked::{BoundResource, CompiledUnit};
use super::collector::{DiagnosticCollector, ExpressionRead};
use super::defaults::FEWER_UNITS;
use super::order::{self, CycleStep};
use super::plan_content::{is_bound, last_of};
use super::reads::{self, OutputReads, ResourceReads};
use super::teardown::{self, OrderSource, TeardownUnit};
use super::{added_undos, clusters};
use crate::cel::ReferenceSource;
use crate::diagnostic::Diagnostic;
use crate::model::{Dialect, SandboxDoc};
use crate::plan::{
    HookPlan, OutputRead, Plan, PublicOutput, Resource, TargetSpec, Template, UnitPlan, UnitRef, WorkloadRead,
};

/// Assigns a [`UnitRef`] to every unit. Within a hook, units are in the order of the resources of the sandbox.
pub(super) fn place(report: &mut DiagnosticCollector, sandbox: &SandboxDoc, instances: &mut [BoundResource<'_>]) {
    let mut counts: BTreeMap<Hook, u32> = BTreeMap::new();
    for instance in &mut *instances {
        let units = &instance.checked.units;
        let places = units.iter().map(|unit| {
            let next = counts.entry(unit.hook).or_default();
            let at = UnitRef { hook: unit.hook, unit: *next };
            *next += 1;
            at
        });
        instance.unit_refs = places.collect();
    }
    let kept = instances.iter().flat_map(|instance| &instance.checked.units);
    let kept = kept.filter(|unit| added_undos::is_kept(unit)).count();
    *counts.entry(Hook::PostStop).or_default() += u32::try_from(kept).unwrap_or(u32::MAX);
    for (hook, count) in counts {
        if count as usize > MAX_UNITS {
            let message = format!("`{}` has {count} units over all resources; the limit is {MAX_UNITS}", hook.name());
            report.push(report.error("limit", sandbox.name.at, message).help(FEWER_UNITS));
        }
    }
}

/// Returns the plan without the order of teardown.
pub(super) fn plan(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
    env: BTreeMap<String, Template>,
    instances: &[BoundResource<'_>],
    wires: &ResourceReads<'_>,
) -> Plan {
    let mut units_of: BTreeMap<Hook, Vec<UnitPlan>> = BTreeMap::new();
    for instance in instances {
        for unit in &instance.checked.units {
            units_of.entry(unit.hook).or_default().push(unit_plan(report, instance, unit, wires));
        }
    }
    if let Some(units) = units_of.get_mut(&Hook::PreStart) {
        bind_after_resources(report, units, instances);
    }
    let hooks = units_of.into_iter().map(|(hook, units)| HookPlan { hook, units });
    let target = TargetSpec {
        cluster: sandbox.cluster.clone(),
        namespace: sandbox.namespace.clone(),
        labels: sandbox.labels.clone(),
        ttl_ms: sandbox.ttl.map(|ttl| ttl.0),
    };
    let resources = instances.iter().filter(|instance| !instance.is_target());
    let resources = resources.map(|instance| (instance.name.to_owned(), resource(instance, wires)));
    Plan {
        target,
        resources: resources.collect(),
        env,
        optional_env: sandbox.env.iter().filter(|entry| entry.optional).map(|entry| entry.name.value.clone()).collect(),
        workloads: workloads(sandbox),
        hooks: hooks.collect(),
        ..Plan::empty()
    }
}

fn workloads(sandbox: &SandboxDoc) -> BTreeMap<String, Vec<WorkloadRead>> {
    let mut workloads: BTreeMap<String, Vec<WorkloadRead>> = BTreeMap::new();
    for consumer in &sandbox.consumers {
        workloads.entry(consumer.workload.clone()).or_default().push(WorkloadRead {
            env: consumer.env.clone(),
            container: consumer.container.clone(),
            file: consumer.file.clone(),
            resource: consumer.resource.value.clone(),
            output: consumer.output.value.clone(),
        });
    }
    workloads
}

fn resource(instance: &BoundResource<'_>, wires: &ResourceReads<'_>) -> Resource {
    let params = instance.params.iter().map(|(name, given)| ((*name).to_owned(), given.value.clone())).collect();
    let outputs = instance.checked.outputs.iter().map(|(name, public)| {
        let reads = wires.output(instance.name, name).map(listed).unwrap_or_default();
        let sensitive = public.sensitivity.is_sensitive();
        ((*name).to_owned(), PublicOutput { value: public.value.clone(), sensitive, reads })
    });
    Resource {
        plugin: format!("{}@{}", instance.checked.plugin.name.value, instance.bound.version),
        digest: instance.bound.digest.to_owned(),
        repaired_by: None,
        params,
        optional_params: instance.checked.optional_params(),
        outputs: outputs.collect(),
    }
}

fn listed(reads: &OutputReads) -> Vec<OutputRead> {
    reads.iter().map(|((at, output), &optional)| OutputRead { at: *at, output: output.clone(), optional }).collect()
}

fn unit_plan(
    report: &mut DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    wires: &ResourceReads<'_>,
) -> UnitPlan {
    let mut reads = OutputReads::new();
    let mut old_params = BTreeSet::new();
    for found in &unit.uses {
        let (wired, at) = match &found.source {
            ReferenceSource::Output { unit, output } => {
                if let Some(at) = instance.at(unit) {
                    reads::add(&mut reads, at, output, found.optional);
                }
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
        reads: listed(&reads),
        old_params: old_params.into_iter().collect(),
        undoes,
        evidence,
        ..unit.plan.clone()
    }
}

/// Lets the bound objects wait for the last `units` of preStart of the resources that they name. A resource whose units
/// they read is left out: only a value of params waits for a whole resource. So no object names a resource that is not
/// made yet, and each object is removed before the resource is.
fn bind_after_resources(report: &mut DiagnosticCollector, units: &mut [UnitPlan], instances: &[BoundResource<'_>]) {
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
pub(super) fn check_cycles(
    report: &mut DiagnosticCollector,
    plan: &Plan,
    instances: &[BoundResource<'_>],
    wires: &ResourceReads<'_>,
) {
    for hook in &plan.hooks {
        let dependencies: Vec<Vec<usize>> =
            hook.units.iter().map(|unit| unit.dependencies.iter().map(|&n| n as usize).collect()).collect();
        let at = |unit: usize| Some(UnitRef { hook: hook.hook, unit: u32::try_from(unit).ok()? });
        let step = |from: usize, to: usize| reason(plan, instances, wires, at(from)?, at(to)?);
        // Only wires between resources can close such a cycle, and their positions are in the sandbox.
        let order = order::order_or_error(&report.source, &dependencies, |unit| hook.units[unit].key.clone(), step);
        report.found.extend(order.err());
    }
}

/// Returns the wire of the sandbox that makes `from` wait for `to`.
fn reason(
    plan: &Plan,
    instances: &[BoundResource<'_>],
    wires: &ResourceReads<'_>,
    from: UnitRef,
    to: UnitRef,
) -> Option<CycleStep> {
    let (instance, position) = instances
        .iter()
        .find_map(|instance| Some((instance, instance.unit_refs.iter().position(|&place| place == from)?)))?;
    let unit = instance.checked.units.get(position)?;
    let name = unit.uses.iter().find_map(|found| match &found.source {
        ReferenceSource::Param(name) => {
            let reads = wires.param(instance.name, name)?;
            reads.keys().any(|(at, _)| *at == to).then_some(name)
        }
        _ => None,
    })?;
    let given = instance.params.get(name.as_str())?;
    let text = format!("`{}` reads param `{name}`, wired to what `{}` makes", plan.unit(from)?.key, plan.unit(to)?.key);
    Some((given.at, text))
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
    let Some(hook) = plan.hooks.iter_mut().find(|hook| hook.hook == Hook::PostStop) else {
        return;
    };
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
