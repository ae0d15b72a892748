//! Compiles documents to the frozen plan.
//!
//! [`check_plugin`] checks a plugin on its own. [`plan()`] also checks the sandbox: its plugins, params and wires. Both
//! report all semantic errors together, each with its position.

mod added_undos;
mod assemble;
mod checked;
mod clusters;
mod collection;
mod collection_text;
mod collector;
pub mod connection;
pub mod defaults;
mod dependencies;
mod edge_reasons;
mod event_source;
mod for_each;
mod infrakit_unit;
mod input_destinations;
mod k8s_apply;
mod object_action;
mod object_names;
mod old_params;
mod order;
mod params;
mod plan_content;
mod plan_expressions;
mod plan_repair;
mod plan_update;
mod plugin;
mod pod_checks;
mod policy_requests;
mod profile;
mod reads;
mod resource_changes;
mod sandbox;
mod sensitive;
mod shared_keys;
mod source_lints;
mod subscription;
mod teardown;
mod undecided;
mod unit;
mod unit_lints;
mod version;
mod webhook;
mod webhook_action;

use std::collections::BTreeMap;

use crate::plan::PLUGIN_UPDATE;
use crate::{Diagnostic, Diagnostics, Plan, PluginDoc, RouteGroupDoc, SandboxDoc, Scope, TtlStart};

pub use crate::canonical::PlanError;
pub use checked::BoundPlugin;
pub(crate) use checked::{BoundResource, CheckedParam, CheckedPlugin, CompiledUnit, ParamBinding, PublicOutputs};
pub(crate) use checked::{UNVERSIONED, UnitCluster};
pub(crate) use collector::{DiagnosticCollector, ExpressionRead, StepCount, TextRole};
pub(crate) use defaults::{FEWER_UNITS, MAX_EVENTS, MAX_INPUTS, MAX_RESOURCES, MAX_STEPS};
pub use ebb_kube::podspec::{AllowedService, ClusterPolicy, NamespacePolicy, PodSecurityLevel};
pub use edge_reasons::{EdgeReason, edges};
pub use event_source::{event_source, named_plugins};
pub use k8s_apply::is_built_in;
pub use params::kind_name;
pub use plan_content::{SEALED, content, unit_content};
pub use plan_repair::{PlanRepair, RepairError, RepairedUnit, repair, repair_own};
pub use plan_update::{PlanUpdate, UpdateError, complete, update};
pub use policy_requests::{
    CLUSTER_POLICY, PolicyRequest, UNCHECKED_POLICY, is_cluster_wide, objects_without_cluster, policy_violations,
    replacement_requests,
};
pub(crate) use reads::{OutputReads, READ_STEPS, ResourceReads};
pub(crate) use sensitive::Sensitivity;
pub use subscription::subscription;
pub use version::resolve_version;

/// Compiles a sandbox to the frozen plan. Returns the plan, the warnings, and what the units request from their clusters,
/// for [`policy_violations`].
///
/// `plugins` has the plugin of each resource by the name of the resource. Resources that are [`is_built_in`] may be
/// missing there.
///
/// # Errors
/// Returns all semantic errors of the sandbox and its plugins, sorted by file and position. One of them may be that
/// compiling takes more than [`MAX_STEPS`].
pub fn plan(
    sandbox: &SandboxDoc,
    plugins: &BTreeMap<String, BoundPlugin<'_>>,
) -> Result<(Plan, Vec<Diagnostic>, Vec<PolicyRequest>), Diagnostics> {
    let mut report = DiagnosticCollector::new(&sandbox.source, &StepCount::default());
    let mut warnings = Vec::new();
    let built_in = k8s_apply::built_in(&mut report, sandbox, plugins);
    let mut bound: BTreeMap<String, BoundPlugin<'_>> = plugins.clone();
    bound.extend(built_in.iter().map(|(name, (plugin, version, digest))| {
        (name.clone(), BoundPlugin { plugin, version, digest: digest.as_str() })
    }));
    let mut instances = sandbox::instances(&mut report, sandbox, &bound, &mut warnings);
    let (env, env_uses) = sandbox::env(&mut report, sandbox);
    if instances.len() == sandbox.resources.len() {
        for_each::expand(&mut report, &mut instances);
        let outputs = PublicOutputs::of(&instances);
        instances.extend(sandbox::bind_own(&mut report, sandbox, &outputs, &mut warnings));
        sandbox::check_uses(&mut report, sandbox, &instances, &outputs, &env_uses);
        assemble::place(&mut report, sandbox, &mut instances);
        shared_keys::check(&mut report, &instances, &mut warnings);
    }
    report.check(sandbox.name.at)?;
    let wires = ResourceReads::new(&mut report, sandbox.name.at, &instances)?;
    let mut plan = assemble::plan(&mut report, sandbox, (env, &env_uses), &wires);
    dependencies::check_cycles(&mut report, &plan, &wires);
    clusters::check(&mut report, &plan, &wires);
    undecided::check(&mut report, &instances);
    report.check(sandbox.name.at)?;
    object_names::check(&mut report, sandbox, &plan, &instances);
    report.check(sandbox.name.at)?;
    let requests = policy_requests::of_plan(&plan, &instances);
    if let Some(at) = plan.hooks.iter().position(|hook| hook.hook == PLUGIN_UPDATE) {
        plan.plugin_updates = plan.hooks.remove(at).units;
    }
    added_undos::add(&mut plan, &instances);
    dependencies::order_teardown(&report, &mut plan, &instances);
    report.check(sandbox.name.at)?;
    Ok((plan, warnings, requests))
}

/// Checks that Ebb supports a route group.
///
/// # Errors
/// Returns an error for a `ttl` that counts from the end of the last matching sandbox. No platform reports which
/// sandboxes match, so the route group would end while some still match.
pub fn check_route_group(group: &RouteGroupDoc) -> Result<(), Diagnostics> {
    let Some(from) = group.ttl_from.as_ref().filter(|from| from.value == TtlStart::NoMatchedSandboxes) else {
        return Ok(());
    };
    let message = "this `ttl` counts from when no sandbox matches the route group, which is not known here";
    let help = "write `offsetFrom: createdAt`, or leave `ttl` out";
    Err(Diagnostic::error("ttl-offset", &group.target.source, from.at, message).help(help).into())
}

/// Checks a target without the published plugins: completely if all of its resources are collections. Otherwise its own
/// hooks, `bind`, and what params and `env` read, as far as they do not depend on the plugins. Returns the warnings.
///
/// # Errors
/// Returns the errors for which [`plan()`] refuses the target, sorted by position.
pub fn check_target(sandbox: &SandboxDoc) -> Result<Vec<Diagnostic>, Diagnostics> {
    if sandbox.resources.iter().all(|resource| resource.collection.is_some()) {
        return plan(sandbox, &BTreeMap::new()).map(|(_, warnings, _)| warnings);
    }
    let (mut report, mut warnings) = (DiagnosticCollector::new(&sandbox.source, &StepCount::default()), Vec::new());
    for resource in sandbox.resources.iter().filter(|resource| !is_built_in(resource)) {
        resource.params.iter().for_each(|param| drop(report.tree(&param.inner.value, param.inner.at, Scope::Sandbox)));
    }
    // These include what the params read, which may get the same as a variable.
    let (_, uses) = sandbox::env(&mut report, sandbox);
    let outputs = PublicOutputs::unknown(sandbox);
    let own = sandbox::bind_own(&mut report, sandbox, &outputs, &mut warnings);
    sandbox::check_uses(&mut report, sandbox, &own, &outputs, &uses);
    report.check(sandbox.name.at).map(|()| warnings)
}

/// Checks a plugin on its own. Returns the warnings, and what its units request from their clusters, without units whose
/// cluster is a param.
///
/// # Errors
/// Returns all semantic errors, sorted by position.
pub fn check_plugin(plugin: &PluginDoc) -> Result<(Vec<Diagnostic>, Vec<PolicyRequest>), Diagnostics> {
    let (mut warnings, mut requests) = (Vec::new(), Vec::new());
    for plugin in std::iter::once(plugin).chain(plugin.lister.as_deref()) {
        let checked = plugin::check(plugin, PublicOutputs::default(), &StepCount::default())?;
        requests.extend(policy_requests::of_plugin(&checked));
        warnings.extend(checked.warnings);
    }
    Ok((warnings, requests))
}
