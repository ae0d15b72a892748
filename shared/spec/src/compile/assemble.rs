//! The plan from bound resources: units in their places, what each reads, what each waits for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ebb_engine::MAX_UNITS;

use super::canonical::PLAN_VERSION;
use super::clusters;
use super::defaults::event_name;
use super::order::{self, Step};
use super::reader::Report;
use super::removal;
use super::sandbox::Instance;
use super::teardown::{self, Order, Undoing};
use super::unit::Unit;
use super::wires::{self, Reads, Wires};
use crate::diagnostic::Diagnostic;
use crate::expr::Source;
use crate::model::Sandbox;
use crate::plan::{
    EventPlan, Moment, Plan, PublicOutput, Read, Resource, TargetSpec, Template, UnitAt, UnitPlan, Work,
};

const MOMENTS: [Moment; 4] = [Moment::BeforeReady, Moment::AfterReady, Moment::BeforeStop, Moment::AfterStop];

/// Gives every unit its place: events in the order of a life, in each the resources in the order of the sandbox.
pub(super) fn place(report: &mut Report, sandbox: &Sandbox, instances: &mut [Instance<'_>]) {
    let mut counts: BTreeMap<Moment, u32> = BTreeMap::new();
    for instance in &mut *instances {
        let units = &instance.checked.units;
        let places = units.iter().map(|unit| {
            let next = counts.entry(unit.moment).or_default();
            let at = UnitAt { moment: unit.moment, unit: *next };
            *next += 1;
            at
        });
        instance.places = places.collect();
    }
    let kept = instances.iter().flat_map(|instance| &instance.checked.units);
    let kept = kept.filter(|unit| removal::is_kept(unit.moment, &unit.plan.work)).count();
    *counts.entry(Moment::AfterStop).or_default() += u32::try_from(kept).unwrap_or(u32::MAX);
    for (moment, count) in counts {
        if count as usize > MAX_UNITS {
            let message = format!(
                "{} has {count} units over all resources; the limit is {MAX_UNITS}",
                event_name(moment)
            );
            report.push(report.error("limit", sandbox.name.at, message));
        }
    }
}

/// The plan, without teardown order.
pub(super) fn plan(
    report: &mut Report,
    sandbox: &Sandbox,
    env: BTreeMap<String, Template>,
    instances: &[Instance<'_>],
    wires: &Wires<'_>,
) -> Plan {
    let mut events: BTreeMap<Moment, Vec<UnitPlan>> = BTreeMap::new();
    for (number, instance) in instances.iter().enumerate() {
        for unit in &instance.checked.units {
            let made = unit_plan(report, number, instance, unit, wires);
            events.entry(unit.moment).or_default().push(made);
        }
    }
    let events = MOMENTS.into_iter().filter_map(|moment| {
        let units = events.remove(&moment)?;
        Some(EventPlan { event: event_name(moment).to_owned(), moment, units })
    });
    let target = TargetSpec {
        cluster: sandbox.cluster.clone(),
        namespace: sandbox.namespace.clone(),
        labels: sandbox.labels.clone(),
        ttl_ms: sandbox.ttl_ms,
    };
    let resources =
        instances.iter().enumerate().map(|(number, i)| (i.name.to_owned(), resource(number, i, wires)));
    Plan { v: PLAN_VERSION, target, resources: resources.collect(), env, events: events.collect() }
}

fn resource(number: usize, instance: &Instance<'_>, wires: &Wires<'_>) -> Resource {
    let params =
        instance.given.iter().map(|(name, given)| ((*name).to_owned(), given.value.clone())).collect();
    let outputs = instance.checked.outputs.iter().map(|(name, public)| {
        let reads = wires.output(number, name).map(listed).unwrap_or_default();
        let sensitive = public.sensitivity == super::sensitive::Sensitivity::Sensitive;
        ((*name).to_owned(), PublicOutput { value: public.value.clone(), sensitive, reads })
    });
    Resource {
        plugin: format!("{}@{}", instance.checked.plugin.name.value, instance.bound.version),
        digest: instance.bound.digest.to_owned(),
        params,
        outputs: outputs.collect(),
    }
}

fn listed(reads: &Reads) -> Vec<Read> {
    reads
        .iter()
        .map(|((at, output), optional)| Read { at: *at, output: output.clone(), optional: *optional })
        .collect()
}

fn unit_plan(
    report: &mut Report,
    number: usize,
    instance: &Instance<'_>,
    unit: &Unit<'_>,
    wires: &Wires<'_>,
) -> UnitPlan {
    let mut reads = Reads::new();
    for (_, found) in &unit.uses {
        match &found.source {
            Source::Output { unit, output } => {
                if let Some(at) = instance.at(unit) {
                    wires::add(&mut reads, at, output, found.optional);
                }
            }
            Source::Param(name) => {
                let wired = wires.param(number, name);
                let steps = wired.map_or(0, |reads| reads.len() as u64).saturating_mul(wires::READ_STEPS);
                let at = instance.given.get(name.as_str()).map(|given| given.at).unwrap_or_default();
                if !report.spend(steps, at) {
                    break;
                }
                for ((at, output), optional) in wired.into_iter().flatten() {
                    if at.moment > unit.moment {
                        report.push(too_early(report, instance, unit, name, *at));
                        break;
                    }
                    wires::add(&mut reads, *at, output, *optional || found.optional);
                }
            }
            _ => {}
        }
    }
    let mut dependencies: BTreeSet<u32> =
        reads.keys().filter(|(at, _)| at.moment == unit.moment).map(|(at, _)| at.unit).collect();
    dependencies.extend(unit.after.iter().filter_map(|&n| instance.places.get(n)).map(|at| at.unit));
    let mut undoes: Vec<UnitAt> =
        unit.undoes.iter().filter_map(|&n| instance.places.get(n).copied()).collect();
    undoes.sort_unstable();
    UnitPlan {
        key: format!("{}/{}", instance.name, unit.plan.key),
        cluster: clusters::of(report, instance, unit),
        dependencies: dependencies.into_iter().collect(),
        reads: listed(&reads),
        undoes,
        ..unit.plan.clone()
    }
}

fn too_early(
    report: &Report,
    instance: &Instance<'_>,
    unit: &Unit<'_>,
    param: &str,
    made: UnitAt,
) -> Diagnostic {
    let given = instance.given.get(param);
    let at = given.map(|given| given.at).unwrap_or_default();
    let message = format!(
        "`{}/{}` in {} reads param `{param}`, which is wired to what is made later, in {}",
        instance.name,
        unit.doc.name.value,
        event_name(unit.moment),
        event_name(made.moment)
    );
    let help = "an event reads its own outputs and those of earlier events";
    report.error("event-order", at, message).help(help)
}

/// Refuses cycles over several resources; those within one have been found in its plugin.
pub(super) fn check_cycles(report: &mut Report, plan: &Plan, instances: &[Instance<'_>], wires: &Wires<'_>) {
    for event in &plan.events {
        let dependencies: Vec<Vec<usize>> =
            event.units.iter().map(|unit| unit.dependencies.iter().map(|&n| n as usize).collect()).collect();
        let Some(cycle) = order::cycle(&dependencies) else { continue };
        let names: Vec<&str> = cycle.iter().map(|&n| event.units[n].key.as_str()).collect();
        let steps: Vec<Step> = cycle
            .windows(2)
            .filter_map(|pair| {
                let [from, to] = *pair else { return None };
                let to = UnitAt { moment: event.moment, unit: u32::try_from(to).ok()? };
                reason(
                    plan,
                    instances,
                    wires,
                    UnitAt { moment: event.moment, unit: u32::try_from(from).ok()? },
                    to,
                )
            })
            .collect();
        // Only wires between resources, which stand in the sandbox, can close it.
        report.push(order::cycle_error(&report.source, &names, &steps));
    }
}

/// Why one unit waits for another one, if that is written in the sandbox.
fn reason(
    plan: &Plan,
    instances: &[Instance<'_>],
    wires: &Wires<'_>,
    from: UnitAt,
    to: UnitAt,
) -> Option<Step> {
    let (number, instance, position) = instances.iter().enumerate().find_map(|(number, instance)| {
        let position = instance.places.iter().position(|&place| place == from)?;
        Some((number, instance, position))
    })?;
    let unit = instance.checked.units.get(position)?;
    let name = unit.uses.iter().find_map(|(_, found)| match &found.source {
        Source::Param(name) => {
            let reads = wires.param(number, name)?;
            reads.keys().any(|(at, _)| *at == to).then_some(name)
        }
        _ => None,
    })?;
    let given = instance.given.get(name.as_str())?;
    let text = format!(
        "`{}` reads param `{name}`, wired to what `{}` makes",
        plan.unit(from)?.key,
        plan.unit(to)?.key
    );
    Some(Step { at: given.at, text })
}

/// Adds teardown order to the plan.
pub(super) fn order_teardown(plan: &mut Plan) {
    let removals = plan.event(Moment::AfterStop).into_iter().flat_map(|event| &event.units);
    if plan.resources.len() < 2 && !removals.into_iter().any(|unit| unit.work == Work::Removal) {
        return;
    }
    let mut users: HashMap<UnitAt, Vec<UnitAt>> = HashMap::new();
    for event in plan.events.iter().filter(|event| event.moment <= Moment::AfterReady) {
        for (number, unit) in event.units.iter().enumerate() {
            let at = UnitAt { moment: event.moment, unit: u32::try_from(number).unwrap_or(u32::MAX) };
            let waits = unit.dependencies.iter().map(|&unit| UnitAt { moment: event.moment, unit });
            let used: BTreeSet<UnitAt> = waits.chain(unit.reads.iter().map(|read| read.at)).collect();
            used.into_iter().for_each(|used| users.entry(used).or_default().push(at));
        }
    }
    let Some(event) = plan.events.iter_mut().find(|event| event.moment == Moment::AfterStop) else { return };
    let undoing: Vec<Undoing<'_>> = event
        .units
        .iter()
        .map(|unit| Undoing {
            resource: unit.key.split_once('/').map_or("", |(resource, _)| resource),
            undoes: &unit.undoes,
            touches: unit
                .undoes
                .iter()
                .copied()
                .chain(unit.reads.iter().map(|read| read.at))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            dependencies: &unit.dependencies,
            order: if unit.work == Work::Removal { Order::Ours } else { Order::OfAuthor },
        })
        .collect();
    let edges = teardown::edges(&undoing, &users);
    for (waits, first) in edges {
        if let (Some(unit), Ok(first)) = (event.units.get_mut(waits), u32::try_from(first)) {
            unit.dependencies.push(first);
        }
    }
    for unit in &mut event.units {
        unit.dependencies.sort_unstable();
        unit.dependencies.dedup();
    }
}
