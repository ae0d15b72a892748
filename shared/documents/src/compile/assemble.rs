//! Assembles the plan from bound resources: the places of units, the target and the resources.

use std::collections::BTreeMap;

use ebb_engine::{Hook, MAX_UNITS};

use super::reads::{self, OutputReads, ResourceReads};
use super::{BoundResource, DiagnosticCollector, ExpressionRead, FEWER_UNITS, added_undos, checked, dependencies};
use crate::plan::{HookPlan, Plan, PublicOutput, Resource, TargetSpec, Template, UnitPlan, UnitRef, WorkloadRead};
use crate::{ReferenceSource, SandboxDoc, TtlFrom, cluster_name};

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
    (env, env_uses): (BTreeMap<String, Template>, &[ExpressionRead]),
    wires: &ResourceReads<'_>,
) -> Plan {
    let mut units_of: BTreeMap<Hook, Vec<UnitPlan>> = BTreeMap::new();
    for instance in wires.instances {
        for unit in &instance.checked.units {
            let mut planned = dependencies::unit_plan(report, instance, unit, wires);
            // Without a cluster, the control plane would send the request.
            if unit.cluster.is_some() && planned.action.webhook().is_some() {
                planned.cluster.get_or_insert_with(|| cluster_name(sandbox.cluster.as_deref()).to_owned());
            }
            units_of.entry(unit.hook).or_default().push(planned);
        }
    }
    if let Some(units) = units_of.get_mut(&Hook::PreStart) {
        dependencies::bind_after_resources(report, units, wires.instances);
    }
    let hooks = units_of.into_iter().map(|(hook, units)| HookPlan { hook, units });
    let mut env_reads = OutputReads::new();
    for found in env_uses {
        if let (ReferenceSource::Output { unit, output }, Some(own)) =
            (&found.source, checked::own_units(wires.instances))
        {
            let makers = own.makers(unit, None);
            makers.into_iter().for_each(|at| reads::add(&mut env_reads, at, output, found.optional));
        }
    }
    let target = TargetSpec {
        cluster: sandbox.cluster.clone(),
        namespace: sandbox.namespace.clone(),
        labels: sandbox.labels.clone(),
        ttl_ms: sandbox.ttl.map(|ttl| ttl.after.0),
        ttl_slides: sandbox.ttl.is_some_and(|ttl| ttl.from == TtlFrom::Activity),
    };
    let resources = wires.instances.iter().filter(|instance| !instance.is_target());
    let resources = resources.map(|instance| (instance.name.to_owned(), resource(instance, wires)));
    Plan {
        target,
        resources: resources.collect(),
        env,
        optional_env: sandbox.env.iter().filter(|entry| entry.optional).map(|entry| entry.name.value.clone()).collect(),
        env_reads: reads::listed(&env_reads),
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
        let reads = wires.output(instance.name, name).map(reads::listed).unwrap_or_default();
        let sensitive = public.sensitivity.is_sensitive();
        ((*name).to_owned(), PublicOutput { value: public.value.clone(), sensitive, link: public.is_link, reads })
    });
    Resource {
        plugin: format!("{}@{}", instance.checked.plugin.name.value, instance.bound.version),
        digest: instance.bound.digest.to_owned(),
        max_concurrent: instance.checked.plugin.max_concurrent.as_ref().map(|slots| slots.value),
        protect: instance.protect,
        repaired_by: None,
        incarnation: 0,
        params,
        optional_params: instance.checked.optional_params(),
        outputs: outputs.collect(),
    }
}
