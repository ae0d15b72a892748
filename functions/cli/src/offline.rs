//! Plans of documents, compiled without a server.

use ebb_documents::compile::{self, BoundPlugin, PolicyRequest};
use ebb_documents::model::{Entries, Named, ParamDoc, ParamKind, ResourceDoc, ResourceSpec, TemplateTree};
use ebb_documents::{
    At, Diagnostic, Diagnostics, Document, DocumentVars, NoFiles, Plan, PluginDoc, RouteGroupDoc, SandboxDoc, load,
};
use ebb_protocol::api::PlanPreview;
use semver::Version;

use crate::exit::{CliError, Result};

/// A plan and the warnings of its documents.
#[derive(Debug)]
pub(crate) struct LocalPlan {
    pub(crate) plan: Plan,
    pub(crate) warnings: Vec<Diagnostic>,
    /// What the units request from their clusters.
    pub(crate) requests: Vec<PolicyRequest>,
}

/// Returns the version of a plugin. A name without a version has the version `0.0.0`.
pub(crate) fn version(plugin: &PluginDoc) -> Version {
    plugin.version.clone().unwrap_or(Version::new(0, 0, 0))
}

pub(crate) fn full_name(plugin: &PluginDoc) -> String {
    format!("{}@{}", plugin.name.value, version(plugin))
}

/// Returns true if `plugins` has the plugin of every resource.
pub(crate) fn complete(sandbox: &SandboxDoc, plugins: &[PluginDoc]) -> bool {
    sandbox.resources.iter().all(|resource| candidate(resource, plugins).is_some() || compile::is_built_in(resource))
}

fn candidate<'a>(resource: &ResourceDoc, plugins: &'a [PluginDoc]) -> Option<&'a PluginDoc> {
    let named = || plugins.iter().filter(|plugin| plugin.name.value == resource.plugin.value);
    let published: Vec<Version> = named().map(version).collect();
    let chosen = compile::resolve_version(resource.version.as_ref(), &published)?;
    named().find(|plugin| version(plugin) == *chosen)
}

pub(crate) fn plan(sandbox: &SandboxDoc, plugins: &[PluginDoc]) -> Result<LocalPlan> {
    let mut missing = Diagnostics::default();
    let mut chosen = Vec::new();
    for resource in &sandbox.resources {
        match candidate(resource, plugins) {
            Some(plugin) => chosen.push((resource.name.value.clone(), plugin, version(plugin), load::digest(plugin))),
            None if compile::is_built_in(resource) => {}
            None => {
                let wanted = match &resource.version {
                    Some(version) => format!("{}@{version}", resource.plugin.value),
                    None => resource.plugin.value.clone(),
                };
                let names: Vec<String> = plugins.iter().map(full_name).collect();
                let wrong = Diagnostic::error(
                    "unknown-plugin",
                    &sandbox.source,
                    resource.plugin.at,
                    format!("plugin `{wanted}` is neither published nor in a file of --plugin"),
                );
                let wrong = wrong.help("publish it: ebb apply -f FILE");
                missing.push(wrong.suggest(&wanted, names.iter().map(String::as_str)));
            }
        }
    }
    if missing.has_errors() {
        return Err(missing.into());
    }
    let bound =
        chosen.iter().map(|(name, plugin, version, digest)| (name.clone(), BoundPlugin { plugin, version, digest }));
    let (plan, warnings, requests) = compile::plan(sandbox, &bound.collect())?;
    Ok(LocalPlan { plan, warnings, requests })
}

/// Compiles one plugin in a sandbox with one resource, named like the plugin, without params. A list of `forEach` has one
/// entry.
pub(crate) fn plan_alone(plugin: &PluginDoc) -> Result<LocalPlan> {
    let mut plugin = plugin.clone();
    let units = plugin.hooks().flat_map(|(_, hook)| &hook.inner);
    let lists: Vec<&str> = units.filter_map(|unit| Some(unit.for_each.as_ref()?.value.as_str())).collect();
    let is_list = |param: &&Named<ParamDoc>| {
        let read = format!("params.{}", param.name.value);
        param.kind == ParamKind::Array && param.default.is_none() && lists.iter().any(|list| list.contains(&read))
    };
    let entry = |param: &Named<ParamDoc>| {
        let at = param.name.at;
        let inner =
            At { value: TemplateTree::List(vec![At { value: TemplateTree::Text("entry".to_owned()), at }]), at };
        Named { name: param.name.clone(), inner }
    };
    let params = Entries(plugin.params.iter().filter(is_list).map(entry).collect());
    for param in &mut plugin.params.0 {
        // The picture does not depend on params, so missing ones are allowed.
        param.required = Some(At { value: false, at: param.name.at });
    }
    let value = plugin.name.value.chars().filter(|c| c.is_ascii_alphanumeric()).take(20).collect();
    let name = At { value, at: plugin.name.at };
    // There is one version.
    let resource = ResourceSpec { plugin: plugin.name.clone(), params, ..ResourceSpec::default() };
    let sandbox = SandboxDoc {
        source: plugin.source.clone(),
        name: At { value: "alone".to_owned(), at: plugin.name.at },
        resources: Entries(vec![Named { name, inner: resource }]),
        ..SandboxDoc::default()
    };
    plan(&sandbox, std::slice::from_ref(&plugin))
}

/// Compiles the expanded documents, as the server does, so that the digest equals the server's. The server encrypts literals
/// of sensitive params, so a plan with one has another digest there.
pub(crate) fn as_published(sandbox: &SandboxDoc, plugins: &[PluginDoc]) -> Result<Plan> {
    let vars = DocumentVars::none();
    let mut published = Vec::new();
    for plugin in plugins {
        published.extend(load::plugins(&full_name(plugin), &plugin.expanded, &NoFiles, &vars)?);
    }
    let sandbox = match load::document(&sandbox.name.value, &sandbox.expanded, &NoFiles, &vars)? {
        Document::Sandbox(sandbox) | Document::RouteGroup(RouteGroupDoc { target: sandbox, .. }) => sandbox,
        other => return Err(CliError::broken(format!("the expanded document is {}", other.noun()))),
    };
    Ok(plan(&sandbox, &published)?.plan)
}

/// Returns the preview of a plan in the format of the server.
pub(crate) fn preview(kind: &str, name: &str, plan: Plan) -> Result<PlanPreview> {
    ebb_api::queries::plans::show(kind, name, plan)
        .map_err(|error| CliError::broken("cannot show the plan").with_causes(&error))
}
