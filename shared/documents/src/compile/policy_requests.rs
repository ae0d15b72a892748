//! What the units of a document request from their clusters, and its check against the policy of a cluster.
//!
//! The relay checks the same with the same rules when a unit runs. A document has positions, and values that are known
//! only at the run. Nothing is said about these.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_engine::{Hook, ResourceEffect};
use ebb_kube::podspec::{ClusterPolicy, PodspecViolation, bound_violations, full_kind, manifest_violations};
use serde_json::{Value, json};

use super::plan_content::part;
use super::pod_checks::{PodOrigin, pod_violations};
use super::{BoundResource, CheckedPlugin, CompiledUnit, PlanUpdate, UnitCluster, k8s_apply, unit};
use crate::load::yaml;
use crate::model::{ActionDoc, LineColumn, Named, RunnerDoc, TemplateTree};
use crate::{Action, At, Diagnostic, Diagnostics, EmbeddedLines, Plan, PluginDoc, SourceText, UnitPlan};

/// The code of a violation, and of an object without a cluster.
pub const CLUSTER_POLICY: &str = "cluster-policy";
/// The code of a note that a document was not checked, or not against the present policy.
pub const UNCHECKED_POLICY: &str = "unchecked-policy";

const NAMESPACE: &str = "metadata.namespace";
/// Kinds of Kubernetes outside of namespaces, as policies name them. A manifest of another kind without a namespace may
/// be of either sort.
const CLUSTER_WIDE: &str = include_str!("cluster_wide_kinds.txt");

/// Returns true for a kind of Kubernetes outside of namespaces, as policies name it.
pub fn is_cluster_wide(kind: &str) -> bool {
    CLUSTER_WIDE.lines().any(|known| known == kind)
}

#[derive(Clone, Debug)]
pub struct PolicyRequest {
    /// The cluster of the unit. `None` is the default of the control plane, or, for a plugin, the cluster of the target.
    pub cluster: Option<String>,
    source: Arc<SourceText>,
    part: RequestedPart,
}

impl PolicyRequest {
    /// Returns the error of a request that its cluster cannot take.
    pub fn refusal(&self, why: &str) -> Diagnostic {
        Diagnostic::error(CLUSTER_POLICY, &self.source, None, why)
    }
}

#[derive(Clone, Debug)]
enum RequestedPart {
    Script {
        namespace: Option<At<String>>,
        /// The author's pod template. `None` also for one with `$patch`, whose effect depends on the template of Ebb.
        template: Option<At<TemplateTree>>,
    },
    Manifest(At<TemplateTree>),
    Bound(At<TemplateTree>),
    Service(At<String>),
}

type LocatedViolation = (LineColumn, PodspecViolation);

pub(super) fn of_plan(plan: &Plan, instances: &[BoundResource<'_>]) -> Vec<PolicyRequest> {
    let units = instances.iter().flat_map(|instance| {
        let units = instance.checked.units.iter().zip(&instance.unit_refs);
        units.map(move |(unit, &at)| (instance.checked.plugin, unit, at))
    });
    let requests = units.filter_map(|(plugin, unit, at)| Some(of_unit(plugin, unit, plan.cluster(plan.unit(at)?))));
    requests.flatten().collect()
}

/// Returns the requests of a plugin, without those of units whose cluster is a param. Signadot's `k8s-apply` has none,
/// because Ebb applies the manifests of a sandbox in its place.
pub(super) fn of_plugin(checked: &CheckedPlugin<'_>) -> Vec<PolicyRequest> {
    if k8s_apply::is_signadots(checked.plugin) {
        return Vec::new();
    }
    let requests = checked.units.iter().filter_map(|unit| {
        let cluster = match &unit.cluster {
            None => None,
            Some(UnitCluster::Named(name)) => Some(name.as_str()),
            Some(UnitCluster::Param(_)) => return None,
        };
        Some(of_unit(checked.plugin, unit, cluster))
    });
    requests.flatten().collect()
}

fn of_unit(plugin: &PluginDoc, unit: &CompiledUnit<'_>, cluster: Option<&str>) -> Vec<PolicyRequest> {
    let parts = match &unit.doc.action {
        ActionDoc::Pod(action) => {
            let script = |runner: &Named<RunnerDoc>| RequestedPart::Script {
                namespace: runner.namespace.clone(),
                template: template(&plugin.source, runner.pod_template.as_ref()),
            };
            unit::runner(plugin, action).map(script).into_iter().collect()
        }
        ActionDoc::Webhook(_) => Vec::new(),
        ActionDoc::Object(object) => match &object.manifest.value {
            _ if object.data.is_some() => vec![RequestedPart::Bound(object.manifest.clone())],
            TemplateTree::List(manifests) => manifests.iter().cloned().map(RequestedPart::Manifest).collect(),
            _ => vec![RequestedPart::Manifest(object.manifest.clone())],
        },
        ActionDoc::Infrakit(instance) => vec![RequestedPart::Service(instance.plugin.clone())],
    };
    let request =
        |part| PolicyRequest { cluster: cluster.map(str::to_owned), source: Arc::clone(&plugin.source), part };
    parts.into_iter().map(request).collect()
}

/// Returns the requests without which `update` cannot make again what it undoes of replaced resources: those of their setup
/// units, and of the setup units that make what these read. `is_lost` selects the replaced resources. A unit with a `when`
/// has none, because it may never run. A request has the position of its unit.
pub fn replacement_requests(update: &PlanUpdate, is_lost: impl Fn(&str) -> bool) -> Vec<PolicyRequest> {
    let PlanUpdate { plan, resources, number, .. } = update;
    let Some(made) = number.and_then(|number| plan.hook_plan(Hook::Update(number))) else { return Vec::new() };
    let replaced = resources.iter().filter(|(name, change)| **change == ResourceEffect::Replaced && is_lost(name));
    let mut needed: BTreeSet<&str> = replaced.map(|(name, _)| name.as_str()).collect();
    loop {
        // The undos have the names of former resources.
        let units = made.units.iter().filter(|unit| needed.contains(part(unit)));
        let reads = units.clone().flat_map(|unit| &unit.reads).filter(|read| read.at.hook == made.hook);
        let read = reads.filter_map(|read| plan.unit(read.at)).map(part);
        let more: BTreeSet<&str> = read.filter(|name| !needed.contains(name)).collect();
        if more.is_empty() {
            let certain = units.filter(|unit| unit.when.is_none());
            return certain.flat_map(|unit| of_planned(unit, plan.cluster(unit))).collect();
        }
        needed.extend(more);
    }
}

/// Returns the requests of a unit of a plan that a policy can refuse.
fn of_planned(unit: &UnitPlan, cluster: Option<&str>) -> Vec<PolicyRequest> {
    let at = LineColumn { line: unit.source.line, column: unit.source.column };
    let source = SourceText::new(unit.source.file.as_str(), "");
    // JSON is YAML, and no line of it is in the source.
    let tree = |text: String| template(&source, Some(&At { at, value: text }));
    let parts: Vec<RequestedPart> = match &unit.action {
        Action::Pod(pod) => {
            let namespace = pod.namespace.clone().map(|value| At { at, value });
            vec![RequestedPart::Script { namespace, template: pod.pod_template.clone().and_then(tree) }]
        }
        Action::Object(object) => {
            let part = if object.bound { RequestedPart::Bound } else { RequestedPart::Manifest };
            object.manifests().iter().filter_map(|manifest| tree(manifest.to_string()).map(part)).collect()
        }
        Action::Infrakit(action) => vec![RequestedPart::Service(At { value: action.plugin.clone(), at })],
        Action::Webhook(_) | Action::Removal | Action::Destroy => Vec::new(),
    };
    let request = |part| PolicyRequest { cluster: cluster.map(str::to_owned), source: Arc::clone(&source), part };
    parts.into_iter().map(request).collect()
}

/// Returns a text of YAML, such as a pod template, with its positions in the document.
fn template(source: &Arc<SourceText>, text: Option<&At<String>>) -> Option<At<TemplateTree>> {
    let At { value: text, at } = text.filter(|text| !text.value.contains("$patch"))?;
    let inner = SourceText::new("podTemplate", text.as_str());
    let lines = EmbeddedLines::of(source, &inner, *at);
    // Loading has reported a template that is not YAML.
    yaml::parse(&inner).ok()?.first().map(|node| k8s_apply::tree(&lines, node))
}

/// Returns the violations of requests, as errors. `policy_of` returns the name and the policy of a cluster. Requests to a
/// cluster without a known policy are not checked.
pub fn policy_violations<'p>(
    requests: &[PolicyRequest],
    policy_of: impl Fn(Option<&str>) -> Option<(&'p str, &'p ClusterPolicy)>,
) -> Diagnostics {
    let (mut found, mut seen) = (Diagnostics::default(), BTreeSet::new());
    for PolicyRequest { cluster, source, part, .. } in requests {
        let Some((name, policy)) = policy_of(cluster.as_deref()) else { continue };
        for (at, PodspecViolation { why, help, .. }) in violations(part, policy) {
            // Units share runners, and resources share plugins.
            if seen.insert((source.name.as_str(), at, why.clone())) {
                let help = help.replace(" connect NAME ", &format!(" connect {name} "));
                found.push(Diagnostic::error(CLUSTER_POLICY, source, at, why).help(help));
            }
        }
    }
    found.sorted()
}

/// Returns an error for each requested object, for a control plane without clusters. Its scripts and plugins run on its
/// machine.
pub fn objects_without_cluster(requests: &[PolicyRequest]) -> Diagnostics {
    let (mut found, mut seen) = (Diagnostics::default(), BTreeSet::new());
    for PolicyRequest { source, part, .. } in requests {
        let (RequestedPart::Manifest(At { at, .. }) | RequestedPart::Bound(At { at, .. })) = part else { continue };
        if seen.insert((source.name.as_str(), *at)) {
            let why = "objects need a cluster, and this control plane runs units on its machine";
            let help = "start it with a cluster: `ebb dev --kubeconfig FILE`, or `ebb dev --clusters`";
            found.push(Diagnostic::error(CLUSTER_POLICY, source, *at, why).help(help));
        }
    }
    found.sorted()
}

fn violations(part: &RequestedPart, policy: &ClusterPolicy) -> Vec<LocatedViolation> {
    match part {
        RequestedPart::Script { namespace, template } => {
            let refused = |name: &At<String>| Some((name.at, policy.namespace_violation(&name.value)?));
            let mut found: Vec<LocatedViolation> = namespace.as_ref().and_then(refused).into_iter().collect();
            let place = namespace.as_ref().map(|name| &name.value).or(policy.unit_namespace.as_ref());
            if let (Some(template), Some(place)) = (template, place) {
                let pods = pod_violations(&template.value.to_json(), place, policy, PodOrigin::Script);
                found.extend(located(template, pods));
            }
            found
        }
        RequestedPart::Manifest(tree) => located(tree, manifest(&tree.value.to_json(), policy)),
        RequestedPart::Bound(tree) => {
            let manifest = tree.value.to_json();
            let is_known = known(&manifest["metadata"]["namespace"]).is_some();
            let mut found = bound_violations(&manifest, policy);
            found.retain(|violation| {
                violation.path.starts_with("metadata.") && (is_known || violation.path != NAMESPACE)
            });
            located(tree, found)
        }
        RequestedPart::Service(plugin) => {
            let name = plugin.value.split_once('/').map_or(plugin.value.as_str(), |(name, _)| name);
            match policy.services.contains_key(name) {
                true => Vec::new(),
                false => vec![(plugin.at, policy.service_refusal(name))],
            }
        }
    }
}

fn known(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.contains("${"))
}

fn manifest(manifest: &Value, policy: &ClusterPolicy) -> Vec<PodspecViolation> {
    let Some((version, kind)) = known(&manifest["apiVersion"]).zip(known(&manifest["kind"])) else { return Vec::new() };
    let namespace = &manifest["metadata"]["namespace"];
    let refusal = |metadata: Value| {
        let header = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        manifest_violations(&header, policy).into_iter().find(|violation| violation.path == "kind")
    };
    // What the relay refuses in every cluster.
    let reserved = || {
        manifest_violations(manifest, policy).into_iter().filter(|it| !["kind", NAMESPACE].contains(&it.path.as_str()))
    };
    // The relay ignores the namespace of a kind outside of namespaces, and fills in that of the others.
    let (outside, inside) = (refusal(json!({})), refusal(json!({"namespace": "any"})));
    if is_cluster_wide(&full_kind(version, kind)) {
        return outside.into_iter().chain(reserved()).collect();
    }
    let mut found: Vec<PodspecViolation> = inside.filter(|_| outside.is_some()).into_iter().collect();
    let name = known(namespace);
    if let (Some(name), Some(_)) = (name, &outside) {
        found.extend(policy.namespace_violation(name));
    }
    found.extend(reserved());
    if let Some(place) = name.or_else(|| policy.unit_namespace.as_deref().filter(|_| namespace.is_null())) {
        found.extend(pod_violations(manifest, place, policy, PodOrigin::Manifest));
    }
    found
}

fn located(tree: &At<TemplateTree>, found: Vec<PodspecViolation>) -> Vec<LocatedViolation> {
    found.into_iter().map(|violation| (tree.place(&violation.path), violation)).collect()
}
