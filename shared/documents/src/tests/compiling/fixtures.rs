//! Documents, and functions that compile them.

use std::collections::BTreeMap;

use ebb_engine::Hook;
use semver::Version;

use crate::compile::{self, BoundPlugin, EdgeReason};
use crate::load::{self, FileError, FileSource};
use crate::{Diagnostic, Diagnostics, DocumentVars, NoFiles, Plan, PluginDoc, SandboxDoc};

/// A database for each sandbox.
pub(crate) const TENANT_DB: &str = include_str!("../../../tests/plans/tenant-db.yaml");
/// A server with databases.
pub(crate) const SHARED_PG: &str = include_str!("../../../tests/plans/shared-postgres.yaml");
/// A sandbox that passes outputs of one to the other.
pub(crate) const WIRED: &str = include_str!("../../../tests/plans/wired.yaml");

/// A plugin with units over a list, and a sandbox with it.
pub(crate) const TOPICS: &str = include_str!("../../../tests/plans/topics.yaml");

/// Returns the plan of a plugin and a sandbox.
pub(crate) fn pair(documents: &str) -> Result<Plan, Diagnostics> {
    let (plugin, sandbox) = documents.split_once("---\n").unwrap();
    compiled(sandbox, &[plugin]).map(|(plan, _)| plan)
}

/// A source in which each file has this content.
pub(crate) struct OneFile<'a>(pub(crate) &'a [u8]);

impl FileSource for OneFile<'_> {
    fn read(&self, _: &str) -> Result<Vec<u8>, FileError> {
        Ok(self.0.to_vec())
    }
}

pub(crate) fn plugins(documents: &[&str]) -> Result<Vec<PluginDoc>, Diagnostics> {
    let mut plugins = Vec::new();
    for text in documents {
        plugins.extend(load::plugins("plugin.yaml", text, &NoFiles, &DocumentVars::none())?);
    }
    Ok(plugins)
}

/// Returns the plan of a sandbox with these plugins, and the warnings.
pub(crate) fn compiled(sandbox: &str, documents: &[&str]) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let sandbox = load::sandbox("sandbox.yaml", sandbox, &NoFiles, &DocumentVars::none())?;
    planned(&sandbox, &plugins(documents)?)
}

/// Returns the plan of a sandbox whose resources use the first plugin with their name. Checks that a stored plan is the
/// same plan, that its edges are graphs, and that a check without plugins accepts the sandbox.
pub(crate) fn planned(sandbox: &SandboxDoc, plugins: &[PluginDoc]) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let none = Version::new(0, 0, 0);
    let mut bound = BTreeMap::new();
    for resource in &sandbox.resources {
        if let Some(plugin) = plugins.iter().find(|plugin| plugin.name.value == resource.plugin.value) {
            let version = plugin.version.as_ref().unwrap_or(&none);
            bound.insert(resource.name.value.clone(), BoundPlugin { plugin, version, digest: "sha256:00" });
        }
    }
    let (plan, warnings, _) = compile::plan(sandbox, &bound)?;
    let json = plan.to_json();
    assert_eq!(Plan::from_json(&json).unwrap().to_json(), json);
    assert!(plan.hooks.iter().all(|hook| hook.graph().is_ok()));
    compile::check_target(sandbox)?;
    Ok((plan, warnings))
}

/// Returns the edges of a plan: the hook, the unit that runs first, the unit that waits, and the reason.
pub(crate) fn plan_edges(plan: &Plan) -> Vec<(Hook, &str, &str, EdgeReason)> {
    let mut edges = Vec::new();
    for (hook, unit) in plan.hooks.iter().flat_map(|hook| hook.units.iter().map(move |unit| (hook, unit))) {
        let of_unit = compile::edges(hook, unit).into_iter();
        edges.extend(of_unit.map(move |(first, reason)| (hook.hook, first.key.as_str(), unit.key.as_str(), reason)));
    }
    edges
}

/// A sandbox with the resource `r` of the plugin `p`.
pub(crate) const ALONE: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {r: {plugin: p}}\n";

pub(crate) fn alone(plugin: &str) -> Plan {
    compiled(ALONE, &[plugin]).unwrap().0
}
