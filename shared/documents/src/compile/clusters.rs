//! The cluster of each unit. A sensitive value is used only in the cluster that stores it.

use serde_json::Value;

use super::collector::{DiagnosticCollector, whole};
use super::{BoundResource, CompiledUnit, OutputReads, ParamBinding, ResourceReads, UnitCluster};
use crate::model::{LineColumn, ParamKind, PluginDoc, UnitDoc};
use crate::{Diagnostic, Plan, ReferenceSource, ReferenceUsage, Template, UnitRef, cluster_name};

/// Returns the cluster that the document sets for a unit. Reports an invalid one.
pub(super) fn named(report: &mut DiagnosticCollector, plugin: &PluginDoc, doc: &UnitDoc) -> Option<UnitCluster> {
    let text = doc.cluster.as_ref()?;
    let first = report.reads.len();
    let template = report.text(&text.value, text.at, report.units);
    match (template, whole(&report.reads[first..]).cloned()) {
        (Template::Literal(Value::String(name)), _) if !name.is_empty() => Some(UnitCluster::Named(name)),
        (Template::Text(_), Some(ReferenceSource::Param(name))) => {
            let declared = plugin.params.iter().find(|declared| declared.name.value == name);
            if let Some(declared) = declared.filter(|declared| declared.kind != ParamKind::String) {
                let message = format!("param `{name}` is not a string, so it cannot name a cluster");
                let wrong = report.error("cluster", text.at, message).related(declared.name.at, "the param");
                report.push(wrong.help("make it a `string`"));
            }
            Some(UnitCluster::Param(name))
        }
        _ => {
            let message = format!("the cluster of `{}` is a name, or one param", doc.name.value);
            let help =
                "`cluster: NAME` or `cluster: ${params.NAME}`: the teardown must know it, even if the setup has failed";
            report.push(report.error("cluster", text.at, message).help(help));
            None
        }
    }
}

/// Returns the cluster of a unit of a resource. `None` means the target's cluster. An error has the name and the position of
/// a param that names the cluster and is wired.
pub(super) fn of_unit(
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
) -> Result<Option<String>, (String, LineColumn)> {
    let name = match &unit.cluster {
        None => return Ok(None),
        Some(UnitCluster::Named(name)) => return Ok(Some(name.clone())),
        Some(UnitCluster::Param(name)) => name,
    };
    match instance.params.get(name.as_str()).map(|given| (&given.value, given.at)) {
        None | Some((Template::Literal(Value::Null), _)) => Ok(None),
        Some((Template::Literal(Value::String(name)), _)) => Ok(Some(name.clone()).filter(|name| !name.is_empty())),
        Some((_, at)) => Err((name.clone(), at)),
    }
}

/// Returns the cluster of a unit of a resource. Reports a wired param.
pub(super) fn of(
    report: &mut DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
) -> Option<String> {
    of_unit(instance, unit).unwrap_or_else(|(name, at)| {
        let unit = format!("{}/{}", instance.name, unit.doc.name.value);
        let message = format!("param `{name}` names the cluster of `{unit}`, so it cannot be wired");
        let help = "write the cluster's name: the teardown must know it, even if the setup has failed";
        report.push(report.error("cluster", at, message).help(help));
        None
    })
}

/// Rejects units that would use a sensitive value in another cluster than the one that stores it.
pub(super) fn check(report: &mut DiagnosticCollector, plan: &Plan, wires: &ResourceReads<'_>) {
    for instance in wires.instances {
        for (unit, &at) in instance.checked.units.iter().zip(&instance.unit_refs) {
            let Some(own) = plan.unit(at).map(|unit| cluster_name(plan.cluster(unit))) else { continue };
            let foreign = unit.uses.iter().filter(|found| found.usage != ReferenceUsage::Presence).find_map(|found| {
                let holders = holders(plan, instance, wires, &found.source);
                holders.into_iter().find(|holder| *holder != own).map(|holder| (found, holder))
            });
            let Some((found, holder)) = foreign else { continue };
            let source = &instance.checked.plugin.source;
            let message = format!(
                "`{}` is sensitive and lies in cluster `{holder}`, but `{}/{}` runs in `{own}`",
                found.source, instance.name, unit.doc.name.value
            );
            let help = "let both run in one cluster (`cluster:`), or hand on what is not sensitive";
            report.push(Diagnostic::error("cluster", source, found.spot.pos(source), message).help(help));
        }
    }
}

/// Returns the clusters that store the sensitive values of a source.
fn holders<'p>(
    plan: &'p Plan,
    instance: &BoundResource<'_>,
    wires: &ResourceReads<'_>,
    source: &ReferenceSource,
) -> Vec<&'p str> {
    let holder = |at: UnitRef, output: &str| {
        let unit = plan.unit(at)?;
        let is_held = unit.action.is_relayed() && unit.outputs.get(output)?.sensitive;
        is_held.then(|| cluster_name(plan.cluster(unit)))
    };
    let held = |reads: Option<&OutputReads>| -> Vec<&'p str> {
        reads.into_iter().flatten().filter_map(|((at, output), _)| holder(*at, output)).collect()
    };
    match source {
        ReferenceSource::Output { unit, output } => {
            instance.makers(unit, None).into_iter().filter_map(|at| holder(at, output)).collect()
        }
        ReferenceSource::Resource { resource, output } => held(wires.output(resource, output)),
        ReferenceSource::Param(name) => match instance.params.get(name.as_str()) {
            // A Secret that a document names is in the target's cluster.
            Some(ParamBinding { value: Template::Secret { .. }, .. }) => {
                vec![cluster_name(plan.target.cluster.as_deref())]
            }
            Some(_) => held(wires.param(instance.name, name)),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}
