//! Checks the uses of values whose kind a sandbox decides: a sensitive param is in a Secret of a cluster, or encrypted.

use std::collections::HashMap;

use super::collector::{DiagnosticCollector, whole};
use super::{BoundResource, ParamBinding, READ_STEPS, Sensitivity};
use crate::{Diagnostic, HookOwner, ReferenceSource, Template};

/// Rejects a param, or a public output that is a param of its plugin, that a unit uses as values of its kind cannot be
/// used.
pub(super) fn check(report: &mut DiagnosticCollector, instances: &[BoundResource<'_>]) {
    let by_name: HashMap<&str, &BoundResource<'_>> =
        instances.iter().map(|instance| (instance.name, instance)).collect();
    for instance in instances {
        for unit in &instance.checked.units {
            for found in &unit.uses {
                if report.is_full() {
                    return;
                }
                if !matches!(found.source, ReferenceSource::Param(_) | ReferenceSource::Resource { .. }) {
                    continue;
                }
                let sensitivity = decided(report, &by_name, instance, &found.source);
                let Some((place, help)) = sensitivity.refusal(found) else { continue };
                let (kind, fix) = match sensitivity {
                    Sensitivity::InCluster | Sensitivity::InClusterByDefault => {
                        ("a Secret of a cluster", "give a value, which Ebb encrypts, or wire an output of a webhook")
                    }
                    _ => (
                        "an encrypted value",
                        "give `{secret: NAME, key: KEY}`, or wire an output that stays in its cluster",
                    ),
                };
                let own = &unit.doc.name.value;
                let diagnostic = match &found.source {
                    ReferenceSource::Param(name) => {
                        let plugin = &instance.checked.plugin.name.value;
                        let at = instance.params.get(name.as_str()).map_or(instance.at, |given| given.at);
                        let message =
                            format!("`{own}` of plugin `{plugin}` uses param `{name}` where {kind} cannot {place}");
                        report.error("sensitive", at, message).help(fix)
                    }
                    source => {
                        let document = &instance.checked.plugin.source;
                        let message = format!("`{source}` is {kind}, which cannot {place}");
                        Diagnostic::error("sensitive", document, found.spot.pos(document), message)
                            .help(sensitivity.help(help))
                    }
                };
                report.push(diagnostic);
            }
        }
    }
}

/// Returns the sensitivity of a value with the params that the sandbox gives. No value depends on itself.
fn decided<'x, 'a>(
    report: &DiagnosticCollector,
    by_name: &HashMap<&str, &'x BoundResource<'a>>,
    mut instance: &'x BoundResource<'a>,
    mut source: &'x ReferenceSource,
) -> Sensitivity {
    while report.count(READ_STEPS) {
        let next = match source {
            ReferenceSource::Output { unit, output } => {
                let unit = instance.checked.unit(unit);
                return unit.map_or(Sensitivity::Open, |unit| Sensitivity::of_output(&unit.plan, output));
            }
            ReferenceSource::Param(name) => match instance.params.get(name.as_str()) {
                Some(ParamBinding { value: Template::Secret { .. }, .. }) => return Sensitivity::InCluster,
                Some(ParamBinding { value: Template::Plain(_), .. }) => return Sensitivity::Sealed,
                given => {
                    let read = given.and_then(|given| whole(&given.uses));
                    // `units` of a param are those of the target.
                    if let (Some(ReferenceSource::Output { .. }), Some(&own)) = (read, by_name.get(HookOwner::TARGET)) {
                        instance = own;
                    }
                    read
                }
            },
            ReferenceSource::Resource { resource, output } => by_name.get(resource.as_str()).and_then(|&made_by| {
                instance = made_by;
                whole(&made_by.checked.outputs.get(output.as_str())?.uses)
            }),
            _ => None,
        };
        match next {
            Some(next) => source = next,
            None => return Sensitivity::Open,
        }
    }
    Sensitivity::Open
}
