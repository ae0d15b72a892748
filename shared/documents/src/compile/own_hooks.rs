//! The own hooks of a target. They are compiled like a plugin without params that is bound to the target itself.

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

/// Binds the own hooks of a target whose resources are `instances`. Returns `None` if there are none, or after it has
/// reported errors.
pub(super) fn bind<'a>(
    report: &mut DiagnosticCollector,
    sandbox: &'a SandboxDoc,
    instances: &[BoundResource<'a>],
    warnings: &mut Vec<Diagnostic>,
) -> Option<BoundResource<'a>> {
    let own = sandbox.own.as_deref()?;
    if let Some(taken) = sandbox.resources.iter().find(|resource| resource.name.value == HookOwner::TARGET) {
        let message = format!("resource `{}` has the name of the target's own units", HookOwner::TARGET);
        let help = "give the resource another name: the keys of own units begin with `target/`";
        report.push(report.error("duplicate", taken.name.at, message).help(help));
        return None;
    }
    let checked = plugin::check(own, PublicOutputs::of(instances), &report.steps);
    let checked = checked.map_err(|wrong| report.found.extend(wrong)).ok()?;
    warnings.extend(checked.warnings.iter().cloned());
    Some(BoundResource {
        name: HookOwner::TARGET,
        at: own.name.at,
        source: &sandbox.source,
        bound: BoundPlugin { plugin: own, version: &VERSION, digest: "" },
        checked: checked.into(),
        params: BTreeMap::new(),
        unit_refs: Vec::new(),
    })
}
