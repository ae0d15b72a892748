//! The own hooks of a target, and the units of its `bind`. They are compiled like plugins without params that are bound
//! to the target itself.

use std::collections::BTreeMap;

use semver::Version;

use super::BoundPlugin;
use super::checked::{BoundResource, PublicOutputs};
use super::collector::DiagnosticCollector;
use super::plugin;
use crate::diagnostic::Diagnostic;
use crate::model::{HookOwner, SandboxDoc};

/// A version that no plan shows.
static VERSION: Version = Version::new(0, 0, 0);

/// Binds the own hooks and the `bind` of a target whose resources are `instances`. Leaves out what has errors, which
/// are reported.
pub(super) fn bind<'a>(
    report: &mut DiagnosticCollector,
    sandbox: &'a SandboxDoc,
    instances: &[BoundResource<'a>],
    warnings: &mut Vec<Diagnostic>,
) -> Vec<BoundResource<'a>> {
    let own = [
        (HookOwner::TARGET, "the target's own units", "own units", sandbox.own.as_deref()),
        (HookOwner::BIND, "the units of `bind`", "these units", sandbox.bound.as_deref()),
    ];
    let mut found = Vec::new();
    for (name, units, short, own) in own {
        let Some(own) = own else { continue };
        if let Some(taken) = sandbox.resources.iter().find(|resource| resource.name.value == name) {
            let message = format!("resource `{name}` has the name of {units}");
            let help = format!("give the resource another name: the keys of {short} begin with `{name}/`");
            report.push(report.error("duplicate", taken.name.at, message).help(help));
            continue;
        }
        match plugin::check(own, PublicOutputs::of(instances), &report.steps) {
            Err(wrong) => report.found.extend(wrong),
            Ok(checked) => {
                warnings.extend(checked.warnings.iter().cloned());
                found.push(BoundResource {
                    name,
                    at: own.name.at,
                    source: &sandbox.source,
                    bound: BoundPlugin { plugin: own, version: &VERSION, digest: "" },
                    checked: checked.into(),
                    params: BTreeMap::new(),
                    unit_refs: Vec::new(),
                });
            }
        }
    }
    found
}
