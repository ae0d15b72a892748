//! The cluster of each unit. Nothing sensitive is used outside of the cluster that holds it.

use serde_json::Value;

use super::checked::{BoundResource, CompiledUnit, UnitCluster};
use super::collector::{DiagnosticCollector, ExpressionRead};
use super::reads::ResourceReads;
use crate::diagnostic::Diagnostic;
use crate::expr::{ReferenceSource, ReferenceUsage, Scope};
use crate::model::{ActionDoc, LineColumn, ParamKind, PluginDoc, UnitDoc};
use crate::plan::{Plan, Template, UnitRef, cluster_name};

/// The cluster that a unit names; reports what cannot be one.
pub(super) fn named<'a>(
    report: &mut DiagnosticCollector,
    plugin: &PluginDoc,
    doc: &'a UnitDoc,
    uses: &mut Vec<ExpressionRead<'a>>,
) -> Option<UnitCluster> {
    let text = doc.cluster.as_ref()?;
    if let ActionDoc::Webhook(_) = doc.action {
        let message = format!("`{}` is a webhook, which goes to its URL", doc.name.value);
        report.push(report.error("cluster", text.at, message).help("leave `cluster` out"));
        return None;
    }
    let template = report.text(&text.value, text.at, Scope::Plugin, uses);
    match (template, uses.as_slice()) {
        (Template::Literal(Value::String(name)), _) if !name.is_empty() => Some(UnitCluster::Named(name)),
        (
            Template::Text(_),
            [ExpressionRead { source: ReferenceSource::Param(name), usage: ReferenceUsage::Whole, .. }],
        ) => {
            let declared = plugin.params.iter().find(|declared| declared.name.value == *name);
            if let Some(declared) = declared
                && declared.kind != ParamKind::String
            {
                let message = format!("param `{name}` is no text, so it cannot name a cluster");
                report.push(
                    report
                        .error("cluster", text.at, message)
                        .related(declared.name.at, "the param")
                        .help("make it a `string`"),
                );
            }
            Some(UnitCluster::Param(name.clone()))
        }
        _ => {
            let message = format!("the cluster of `{}` is a name, or one param", doc.name.value);
            let help =
                "`cluster: NAME` or `cluster: ${params.NAME}`: teardown has to know it, whatever became of the setup";
            report.push(report.error("cluster", text.at, message).help(help));
            None
        }
    }
}

/// The cluster that a unit of a resource names; `None`: the target's. An error is the place of a param that is wired.
fn of_unit(instance: &BoundResource<'_>, unit: &CompiledUnit<'_>) -> Result<Option<String>, (String, LineColumn)> {
    let name = match &unit.cluster {
        None => return Ok(None),
        Some(UnitCluster::Named(name)) => return Ok(Some(name.clone())),
        Some(UnitCluster::Param(name)) => name,
    };
    match instance.params.get(name.as_str()).map(|given| (&given.value, given.at)) {
        None => Ok(None),
        Some((Template::Literal(Value::String(name)), _)) => Ok(Some(name.clone()).filter(|name| !name.is_empty())),
        Some((_, at)) => Err((name.clone(), at)),
    }
}

/// The cluster that a unit of a resource names, if it is known; `None`: the target's.
pub(super) fn known(instance: &BoundResource<'_>, unit: &CompiledUnit<'_>) -> Option<String> {
    of_unit(instance, unit).unwrap_or_default()
}

/// As [`known`]; reports a param that is wired.
pub(super) fn of(
    report: &mut DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
) -> Option<String> {
    of_unit(instance, unit).unwrap_or_else(|(name, at)| {
        let unit = format!("{}/{}", instance.name, unit.doc.name.value);
        let message = format!("param `{name}` names the cluster of `{unit}`, so it cannot be wired");
        let help = "write the cluster's name: teardown has to know it, whatever became of the setup";
        report.push(report.error("cluster", at, message).help(help));
        None
    })
}

/// Refuses units that would use a sensitive value in another cluster than the one that holds it.
pub(super) fn check(
    report: &mut DiagnosticCollector,
    plan: &Plan,
    instances: &[BoundResource<'_>],
    wires: &ResourceReads<'_>,
) {
    for (number, instance) in instances.iter().enumerate() {
        for (unit, &at) in instance.checked.units.iter().zip(&instance.unit_refs) {
            let Some(own) = plan.unit(at).map(|unit| cluster_name(plan.cluster(unit))) else { continue };
            let foreign =
                unit.uses.iter().filter(|(_, found)| found.usage != ReferenceUsage::Presence).find_map(|(_, found)| {
                    let holders = holders(plan, instance, number, wires, &found.source);
                    holders.into_iter().find(|holder| *holder != own).map(|holder| (found, holder))
                });
            let Some((found, holder)) = foreign else { continue };
            let source = &instance.checked.plugin.source;
            let message = format!(
                "`{}` is sensitive and lies in cluster `{holder}`, but `{}/{}` runs in `{own}`",
                found.source, instance.name, unit.doc.name.value
            );
            let help = "let both run in one cluster (`cluster:`), or hand on what is not sensitive";
            let wrong = Diagnostic::error("cluster", source, found.spot.pos(source), message);
            report.push(wrong.help(help));
        }
    }
}

/// The clusters that hold what a unit reads, as far as it is sensitive.
fn holders<'p>(
    plan: &'p Plan,
    instance: &BoundResource<'_>,
    number: usize,
    wires: &ResourceReads<'_>,
    source: &ReferenceSource,
) -> Vec<&'p str> {
    let holder = |at: UnitRef, output: &str| {
        let unit = plan.unit(at)?;
        unit.outputs.get(output)?.sensitive.then(|| cluster_name(plan.cluster(unit)))
    };
    match source {
        ReferenceSource::Output { unit, output } => {
            instance.at(unit).and_then(|at| holder(at, output)).into_iter().collect()
        }
        ReferenceSource::Param(name) => {
            let Some((&name, given)) = instance.params.get_key_value(name.as_str()) else {
                return Vec::new();
            };
            if let Template::Secret { .. } = given.value {
                // A document's own Secret lies where its target is.
                return vec![cluster_name(plan.target.cluster.as_deref())];
            }
            let reads = wires.param(number, name).into_iter().flatten();
            reads.filter_map(|((at, output), _)| holder(*at, output)).collect()
        }
        _ => Vec::new(),
    }
}
