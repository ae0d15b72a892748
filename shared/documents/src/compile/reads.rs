//! The values that resources read from each other: params are wired to public outputs, which read the outputs of units.

use std::collections::{BTreeMap, HashMap};

use super::{BoundResource, DiagnosticCollector, checked, order};
use crate::model::LineColumn;
use crate::{Diagnostics, OutputRead, ReferenceSource, UnitRef};

pub(crate) const READ_STEPS: u64 = 6;

/// Outputs that are read. The value is true if the output may be missing.
pub(crate) type OutputReads = BTreeMap<(UnitRef, String), bool>;

/// The reads of every param and public output of every resource.
pub(crate) struct ResourceReads<'a> {
    pub(super) instances: &'a [BoundResource<'a>],
    nodes: HashMap<ResourceValue<'a>, usize>,
    reads: Vec<OutputReads>,
}

/// A value of a resource, by the names of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ResourceValue<'a> {
    Param(&'a str, &'a str),
    Output(&'a str, &'a str),
}

/// Returns the reads in the form of a plan.
pub(super) fn listed(reads: &OutputReads) -> Vec<OutputRead> {
    reads.iter().map(|((at, output), &optional)| OutputRead { at: *at, output: output.clone(), optional }).collect()
}

/// Adds a read. An output that is read several times may be missing only if every read permits it.
pub(super) fn add(reads: &mut OutputReads, at: UnitRef, output: &str, optional: bool) {
    let known = reads.entry((at, output.to_owned())).or_insert(optional);
    *known &= optional;
}

impl<'a> ResourceReads<'a> {
    /// Resolves all wires. Fails if values depend on each other in a cycle, or if the reads take too many steps.
    pub(super) fn new(
        report: &mut DiagnosticCollector,
        whole: LineColumn,
        instances: &'a [BoundResource<'a>],
    ) -> Result<Self, Diagnostics> {
        let mut list: Vec<(&BoundResource<'_>, ResourceValue<'_>)> = Vec::new();
        for instance in instances {
            let (params, outputs) = (instance.params.keys(), instance.checked.outputs.keys());
            list.extend(params.map(|name| (instance, ResourceValue::Param(instance.name, name))));
            list.extend(outputs.map(|name| (instance, ResourceValue::Output(instance.name, name))));
        }
        let nodes: HashMap<ResourceValue<'_>, usize> = list.iter().map(|&(_, value)| value).zip(0..).collect();
        let mut own: Vec<OutputReads> = vec![OutputReads::new(); list.len()];
        let mut inner: Vec<Vec<(usize, bool)>> = vec![Vec::new(); list.len()];
        for (at, &(instance, value)) in list.iter().enumerate() {
            let uses = match value {
                ResourceValue::Param(_, name) => &instance.params[name].uses,
                ResourceValue::Output(_, name) => &instance.checked.outputs[name].uses,
            };
            for found in uses {
                let target = match &found.source {
                    ReferenceSource::Output { unit, output } => {
                        // `units` of a param are those of the target.
                        let of = match value {
                            ResourceValue::Param(..) => checked::own_units(instances),
                            ResourceValue::Output(..) => Some(instance),
                        };
                        let makers = of.map_or_else(Vec::new, |of| of.makers(unit, None));
                        if makers.len() > 1 && !report.spend(READ_STEPS * makers.len() as u64, whole) {
                            return Err(std::mem::take(&mut report.found).sorted());
                        }
                        makers.into_iter().for_each(|made_by| add(&mut own[at], made_by, output, found.optional));
                        None
                    }
                    ReferenceSource::Param(name) => nodes.get(&ResourceValue::Param(instance.name, name)),
                    ReferenceSource::Resource { resource, output } => {
                        nodes.get(&ResourceValue::Output(resource, output))
                    }
                    _ => None,
                };
                inner[at].extend(target.map(|&target| (target, found.optional)));
            }
        }
        let targets: Vec<Vec<usize>> = inner.iter().map(|list| list.iter().map(|(to, _)| *to).collect()).collect();
        let name = |node: usize| match list[node].1 {
            ResourceValue::Param(resource, name) => format!("{resource}.params.{name}"),
            ResourceValue::Output(resource, name) => format!("{resource}.outputs.{name}"),
        };
        // Every such cycle contains a param, whose position is in the sandbox.
        let step = |from: usize, _: usize| match list[from].1 {
            ResourceValue::Param(resource, name) => {
                Some((place(list[from])?, format!("param `{name}` of `{resource}` is wired")))
            }
            ResourceValue::Output(..) => None,
        };
        let order = order::order_or_error(&report.source, &targets, name, step)?;
        let mut wires = Self { instances, nodes, reads: own };
        for at in order {
            for &(target, optional) in &inner[at] {
                let steps = (wires.reads[target].len() as u64).saturating_mul(READ_STEPS);
                if !report.spend(steps, place(list[at]).unwrap_or(whole)) {
                    return Err(std::mem::take(&mut report.found).sorted());
                }
                for ((unit, output), inner) in wires.reads[target].clone() {
                    add(&mut wires.reads[at], unit, &output, optional || inner);
                }
            }
        }
        Ok(wires)
    }

    /// Returns the outputs that a param of a resource reads, or `None` for a param without a value.
    pub(super) fn param(&self, resource: &str, name: &str) -> Option<&OutputReads> {
        self.reads.get(*self.nodes.get(&ResourceValue::Param(resource, name))?)
    }

    /// Returns the outputs that a public output reads, or `None` if the resource or the output does not exist.
    pub(super) fn output(&self, resource: &str, name: &str) -> Option<&OutputReads> {
        self.reads.get(*self.nodes.get(&ResourceValue::Output(resource, name))?)
    }
}

/// Returns the position of a param. An output has no position in the sandbox.
fn place((instance, value): (&BoundResource<'_>, ResourceValue<'_>)) -> Option<LineColumn> {
    let ResourceValue::Param(_, name) = value else { return None };
    instance.params.get(name).map(|given| given.at)
}
