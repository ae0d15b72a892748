//! The values that resources read from each other: params are wired to public outputs, which read the outputs of units.

use std::collections::{BTreeMap, HashMap};

use super::checked::BoundResource;
use super::collector::DiagnosticCollector;
use super::order::{self, CycleStep};
use crate::cel::ReferenceSource;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::LineColumn;
use crate::plan::UnitRef;

/// The number of steps to record a read.
pub(super) const READ_STEPS: u64 = 6;

/// Outputs that are read. The value is true if the output may be missing.
pub(super) type OutputReads = BTreeMap<(UnitRef, String), bool>;

/// The reads of every param and public output of every resource.
#[derive(Debug, Default)]
pub(super) struct ResourceReads<'a> {
    by_name: HashMap<&'a str, usize>,
    nodes: HashMap<ResourceValue<'a>, usize>,
    reads: Vec<OutputReads>,
}

/// A value of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ResourceValue<'a> {
    Param(usize, &'a str),
    Output(usize, &'a str),
}

/// Adds a read. An output that is read several times may be missing only if every read permits it.
pub(super) fn add(reads: &mut OutputReads, at: UnitRef, output: &str, optional: bool) {
    let known = reads.entry((at, output.to_owned())).or_insert(optional);
    *known &= optional;
}

impl<'a> ResourceReads<'a> {
    /// Resolves all wires.
    ///
    /// # Errors
    /// Returns an error if values depend on each other in a cycle, or if the reads take too many steps.
    pub(super) fn new(
        report: &mut DiagnosticCollector,
        whole: LineColumn,
        instances: &'a [BoundResource<'a>],
    ) -> Result<Self, Diagnostics> {
        let by_name: HashMap<&str, usize> = instances.iter().enumerate().map(|(n, i)| (i.name, n)).collect();
        let mut list = Vec::new();
        for (n, instance) in instances.iter().enumerate() {
            list.extend(instance.params.keys().map(|name| ResourceValue::Param(n, name)));
            list.extend(instance.checked.outputs.keys().map(|name| ResourceValue::Output(n, name)));
        }
        let nodes: HashMap<ResourceValue<'_>, usize> = list.iter().copied().zip(0..).collect();
        let mut own: Vec<OutputReads> = vec![OutputReads::new(); list.len()];
        let mut inner: Vec<Vec<(usize, bool)>> = vec![Vec::new(); list.len()];
        for (at, node) in list.iter().enumerate() {
            let (resource, uses) = match *node {
                ResourceValue::Param(n, name) => (n, &instances[n].params[name].uses),
                ResourceValue::Output(n, name) => (n, &instances[n].checked.outputs[name].uses),
            };
            for found in uses {
                let target = match &found.source {
                    ReferenceSource::Output { unit, output } => {
                        if let Some(made_by) = instances[resource].at(unit) {
                            add(&mut own[at], made_by, output, found.optional);
                        }
                        None
                    }
                    ReferenceSource::Param(name) => nodes.get(&ResourceValue::Param(resource, name.as_str())),
                    ReferenceSource::Resource { resource, output } => by_name
                        .get(resource.as_str())
                        .and_then(|&n| nodes.get(&ResourceValue::Output(n, output.as_str()))),
                    _ => None,
                };
                inner[at].extend(target.map(|&target| (target, found.optional)));
            }
        }
        let targets: Vec<Vec<usize>> = inner.iter().map(|list| list.iter().map(|(to, _)| *to).collect()).collect();
        let order = order::order(&targets).map_err(|cycle| cycle_of_values(instances, &list, &cycle))?;
        let mut wires = Self { by_name, nodes, reads: own };
        for at in order {
            for &(target, optional) in &inner[at] {
                let steps = (wires.reads[target].len() as u64).saturating_mul(READ_STEPS);
                if !report.spend(steps, place(instances, list[at]).unwrap_or(whole)) {
                    return Err(std::mem::take(&mut report.found).sorted());
                }
                let found: Vec<_> =
                    wires.reads[target].iter().map(|(key, optional)| (key.clone(), *optional)).collect();
                for ((unit, output), inner) in found {
                    add(&mut wires.reads[at], unit, &output, optional || inner);
                }
            }
        }
        Ok(wires)
    }

    /// Returns the outputs that a param of a resource reads, or `None` for a param without a value.
    pub(super) fn param(&self, resource: usize, name: &'a str) -> Option<&OutputReads> {
        self.reads.get(*self.nodes.get(&ResourceValue::Param(resource, name))?)
    }

    /// Returns the outputs that a public output of a resource reads.
    pub(super) fn output(&self, resource: usize, name: &'a str) -> Option<&OutputReads> {
        self.reads.get(*self.nodes.get(&ResourceValue::Output(resource, name))?)
    }

    /// Returns the outputs that a public output reads, or `None` if the resource or the output does not exist.
    pub(super) fn public_output(&self, resource: &str, name: &'a str) -> Option<&OutputReads> {
        self.output(*self.by_name.get(resource)?, name)
    }
}

/// Returns the position of a param. An output has no position in the sandbox.
fn place(instances: &[BoundResource<'_>], node: ResourceValue<'_>) -> Option<LineColumn> {
    match node {
        ResourceValue::Param(resource, name) => instances[resource].params.get(name).map(|given| given.at),
        ResourceValue::Output(..) => None,
    }
}

fn cycle_of_values(instances: &[BoundResource<'_>], list: &[ResourceValue<'_>], cycle: &[usize]) -> Diagnostic {
    let names: Vec<String> = cycle
        .iter()
        .map(|&n| match list[n] {
            ResourceValue::Param(resource, name) => format!("{}.params.{name}", instances[resource].name),
            ResourceValue::Output(resource, name) => format!("{}.outputs.{name}", instances[resource].name),
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Every such cycle contains a param, whose position is in the sandbox.
    let mut steps = Vec::new();
    let mut source = None;
    for &n in cycle.iter().take(cycle.len().saturating_sub(1)) {
        if let ResourceValue::Param(resource, name) = list[n] {
            let given = &instances[resource].params[name];
            source = Some(instances[resource].source);
            let text = format!("param `{name}` of `{}` is wired", instances[resource].name);
            steps.push(CycleStep { at: given.at, text });
        }
    }
    let source = source.unwrap_or(&instances[0].checked.plugin.source);
    order::cycle_error(source, &names, &steps)
}
