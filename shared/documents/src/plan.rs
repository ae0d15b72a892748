//! The frozen plan of all hooks of a target, compiled once.
//!
//! The plan contains everything that the teardown needs: exact plugin versions, embedded files, checked names and
//! derived edges. Values that differ between two targets of one document (name, UID) are not in the plan.

mod action;
mod unit;

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Graph, Hook, Unit};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::escaping::escape_tree;

pub use action::{
    Action, BoundConnection, DescribePlan, GRAPHQL, InfrakitAction, ManifestConditions, ObjectAction, PluginInterface,
    PodAction, RepeatPlan, UntilPlan, WebhookAction,
};
pub use unit::{
    InputPlan, ListEntry, OutputFrom, OutputPlan, OutputRead, RequiredEvidence, RetryPolicy, SourceLocation, UnitPlan,
    UnitRef,
};

/// The version of the plan's format that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;

/// A compiled document. It is stored, and its digest is computed, in this form.
#[serde_with::apply(BTreeSet => #[serde(default, skip_serializing_if = "BTreeSet::is_empty")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The format version: 1.
    pub v: u32,
    /// The other parts of the target's document.
    pub target: TargetSpec,
    pub resources: BTreeMap<String, Resource>,
    /// The environment of the target: templates over `resources.R.outputs.O`, and `units.U.outputs.O` of own units, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Template>,
    /// The variables of `env` that are left out if they are null.
    pub optional_env: BTreeSet<String>,
    /// The outputs of the target's own units that `env` reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_reads: Vec<OutputRead>,
    /// The outputs that the workloads of a Signadot sandbox read, by workload: `KIND/NAMESPACE/NAME` for the origin of a
    /// fork, `local/NAME` for a local workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workloads: BTreeMap<String, Vec<WorkloadRead>>,
    /// The hooks that have units, in the order of the lifecycle. A hook without units is omitted.
    pub hooks: Vec<HookPlan>,
    /// The state of a plan whose document was changed while the target was alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateState>,
    /// The clusters in which only units of earlier plans of the instance stored sensitive outputs. `None` is the default of
    /// the control plane.
    pub former_secret_clusters: BTreeSet<Option<String>>,
    /// The UIDs of the clusters in which the units run, by the names of [`cluster_name`]. A cluster that was not connected
    /// when the plan was made has none. An update keeps them: what was made in a cluster is removed there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cluster_uids: BTreeMap<String, String>,
    /// The units of `update` of the plugins, in the hook [`PLUGIN_UPDATE`]. The plan of an update that waits has them until
    /// it begins. The plan of an updated target has those that the update has selected, as units of its hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugin_updates: Vec<UnitPlan>,
}

/// A public output that a workload reads as a variable or as a file.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadRead {
    pub env: Option<String>,
    /// The container of the variable. Absent for all containers.
    pub container: Option<String>,
    pub file: Option<String>,
    pub resource: String,
    pub output: String,
}

/// The origin of the resources of a changed plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateState {
    /// The number of the last update with units. 0 if none had units.
    pub number: u32,
    /// The digest of the document's content, without positions and order.
    pub content: String,
    /// The present resources by name, and the own setup units of the target by key, without an entry of `forEach`.
    pub resources: BTreeMap<String, ResourceOrigin>,
    /// The resources that updates have removed or replaced, by their names with the number of the update: `NAME~N`. The
    /// keys of their units begin with this name. A resource whose `update` units read `old.params` has an entry, too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<String, FormerResource>,
}

/// A resource before an update. Its undo reads its params and its outputs, or an update reads its params.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FormerResource {
    /// Absent for own units of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The former resources that it reads, by the names in its document. Own units have their own entries: `target/UNIT`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
}

/// The setup units of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceOrigin {
    /// The digest of params and setup units, without positions and order.
    pub setup: String,
    /// The units that made the resource, by their keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, UnitRef>,
}

/// The parts of the target's document other than its resources.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSpec {
    /// The cluster for pods and objects. Absent for the default of the control plane.
    pub cluster: Option<String>,
    /// The namespace of the target, the value of `target.namespace`.
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The time to live in milliseconds.
    pub ttl_ms: Option<u64>,
    /// True if the time to live counts from the last accepted document or event, and not from the creation of the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ttl_slides: bool,
}

/// A plugin that is bound to the target.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// `name@version` with the exact version.
    pub plugin: String,
    /// The digest of the plugin's document after embedding: `sha256:…`.
    pub digest: String,
    /// The slots of the plugin. Absent without `maxConcurrent`.
    pub max_concurrent: Option<u32>,
    /// True if no update replaces or removes the resource, and the target is not deleted. False if the document says so.
    pub protect: Option<bool>,
    /// The version `name@version` whose teardown units an operator has chosen for a stuck target.
    pub repaired_by: Option<String>,
    /// The number of the update that has made the resource in place of a former one of its name. Its key differs from those.
    #[serde(default, skip_serializing_if = "is_default")]
    pub incarnation: u32,
    /// The values of the declared params: literals, templates over other resources, Secrets, or encrypted literals. A
    /// param without a value and without a default is absent.
    pub params: BTreeMap<String, Template>,
    /// The params that may be null. A missing one is null.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub optional_params: BTreeSet<String>,
    /// The public outputs: `<step>.<output>` for Signadot's plugins, the `outputs` map for Ebb's. Their templates read
    /// the `units` of this resource.
    pub outputs: BTreeMap<String, PublicOutput>,
}

#[serde_with::apply(bool => #[serde(default, skip_serializing_if = "std::ops::Not::not")])]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublicOutput {
    pub value: Template,
    /// True if the value stays in the cluster and is passed on as a reference, or is stored encrypted.
    pub sensitive: bool,
    /// True if messages about the target link to the value.
    pub link: bool,
    /// The outputs of setup units that the template reads.
    pub reads: Vec<OutputRead>,
}

/// The hook of the units of `update` of all plugins, before a change of the document selects some of them. It never runs.
pub const PLUGIN_UPDATE: Hook = Hook::Update(0);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookPlan {
    pub hook: Hook,
    /// The units in the order of the documents. [`Unit`] is the position in this list.
    pub units: Vec<UnitPlan>,
}

/// A value, or a template that is rendered to one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Template {
    Literal(serde_json::Value),
    Secret {
        name: String,
        key: String,
    },
    /// A text with `${…}`. A text that is exactly one expression keeps the type of its value.
    Text(String),
    /// A list or mapping whose strings are templates.
    Tree(serde_json::Value),
    /// The encrypted literal of a sensitive param.
    Sealed(String),
    /// The same literal before the control plane encrypts it. JSON does not have the value, so no plan stores it.
    Plain(#[serde(skip)] PlainLiteral),
}

impl Template {
    /// Returns the template as a document writes it. A sensitive value is a reference or a mask.
    pub fn shown(&self) -> serde_json::Value {
        match self {
            Self::Literal(value) => escape_tree(value.clone()),
            Self::Tree(value) => value.clone(),
            Self::Text(text) => text.as_str().into(),
            Self::Secret { name, key } => json!({"secret": name, "key": key}),
            Self::Sealed(_) | Self::Plain(_) => json!({"sensitive": true}),
        }
    }
}

/// The literal of a sensitive param. [`Debug`](std::fmt::Debug) does not have the value.
#[derive(Clone, Default, PartialEq)]
pub struct PlainLiteral(pub serde_json::Value);

impl std::fmt::Debug for PlainLiteral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainLiteral")
    }
}

impl HookPlan {
    pub fn places(&self) -> impl Iterator<Item = (UnitRef, &UnitPlan)> {
        (0..).zip(&self.units).map(|(unit, planned)| (UnitRef { hook: self.hook, unit }, planned))
    }

    /// Returns the graph of this hook.
    ///
    /// # Errors
    /// Returns an error if the dependencies are not a valid graph. The compiler creates only valid graphs.
    pub fn graph(&self) -> Result<Graph, ebb_engine::GraphError> {
        let lists = self.units.iter().map(|unit| unit.dependencies.iter().map(|&n| Unit(n)).collect());
        let tolerated = self.places().filter(|(_, unit)| unit.tolerated).map(|(at, _)| Unit(at.unit));
        Ok(Graph::new(lists.collect())?.tolerating(tolerated))
    }
}

impl Plan {
    /// Returns a plan without resources and hooks.
    pub fn empty() -> Self {
        Self { v: PLAN_VERSION, ..Self::default() }
    }

    /// Returns the names of the resources with `protect: true`.
    pub fn protected(&self) -> impl Iterator<Item = &String> {
        self.resources.iter().filter(|(_, resource)| resource.protect == Some(true)).map(|(name, _)| name)
    }

    /// Returns a present or former resource by the name in the keys of its units.
    pub fn resource(&self, name: &str) -> Option<&Resource> {
        let former = || self.former(name).and_then(|former| former.resource.as_ref());
        self.resources.get(name).or_else(former)
    }

    /// Returns a former resource by its name `NAME~N`.
    pub fn former(&self, name: &str) -> Option<&FormerResource> {
        self.update.as_ref()?.former.get(name)
    }

    /// Returns a resource before an update, with its name as the reader of its values.
    pub(crate) fn resource_before(&self, name: &str, update: u32) -> Option<(&str, &Resource)> {
        let (name, former) = self.update.as_ref()?.former.get_key_value(&former_name(document_name(name), update))?;
        Some((name, former.resource.as_ref()?))
    }

    /// Returns the resource that the resource `reader` calls `name`, with the name in the keys of its units.
    pub(crate) fn resource_read(&self, reader: &str, name: &str) -> Option<(&str, &Resource)> {
        match self.former(reader).and_then(|former| former.names.get(name)) {
            Some(name) => Some((name, self.resource(name)?)),
            None => self.resources.get_key_value(name).map(|(name, resource)| (name.as_str(), resource)),
        }
    }

    /// Returns the cluster for the pods, objects and requests of a unit: its own, or the target's. `None` means the default of
    /// the control plane.
    pub fn cluster<'a>(&'a self, unit: &'a UnitPlan) -> Option<&'a str> {
        unit.cluster.as_deref().or(self.target.cluster.as_deref())
    }

    /// Returns the clusters in which units of this plan or of an earlier one store sensitive outputs.
    pub fn secret_clusters(&self) -> BTreeSet<Option<&str>> {
        let units = self.hooks.iter().flat_map(|hook| &hook.units);
        let keepers =
            units.filter(|unit| unit.action.is_relayed() && unit.outputs.values().any(|output| output.sensitive));
        let former = self.former_secret_clusters.iter().map(Option::as_deref);
        keepers.map(|unit| self.cluster(unit)).chain(former).collect()
    }

    /// Returns the clusters of the units that run in one. `None` is the default of the control plane.
    pub fn unit_clusters(&self) -> BTreeSet<Option<&str>> {
        let units = self.hooks.iter().flat_map(|hook| &hook.units).chain(&self.plugin_updates);
        let in_cluster = |unit: &&UnitPlan| unit.cluster.is_some() || !matches!(unit.action, Action::Webhook(_));
        units.filter(in_cluster).map(|unit| self.cluster(unit)).collect()
    }

    /// Returns the UID of a cluster, if it was connected when the plan was made.
    pub fn cluster_uid(&self, cluster: Option<&str>) -> Option<&str> {
        self.cluster_uids.get(cluster_name(cluster)).map(String::as_str)
    }

    /// Keeps the clusters of the plan that the instance had before this one, and adds its secret clusters.
    pub(crate) fn keep_clusters(&mut self, before: &Self) {
        self.cluster_uids.extend(before.cluster_uids.clone());
        let lost: BTreeSet<Option<String>> =
            before.secret_clusters().difference(&self.secret_clusters()).map(|name| name.map(str::to_owned)).collect();
        self.former_secret_clusters.extend(lost);
    }

    /// Returns the name of `owner` in the key of the own unit that the resource `reader` calls `unit`.
    pub(crate) fn owner_read<'a>(&'a self, reader: &str, owner: &'a str, unit: &str) -> &'a str {
        let former = self.former(reader).and_then(|former| former.names.get(&format!("{owner}/{unit}")));
        former.map_or(owner, String::as_str)
    }

    /// Returns the public outputs with their resources and names: all, those of the resource `only`, or the one that
    /// `only` names as `RESOURCE/OUTPUT`.
    pub fn public_outputs<'a>(
        &'a self,
        only: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a PublicOutput)> {
        let outputs = self.resources.iter().flat_map(|(resource, plan)| {
            plan.outputs.iter().map(move |(name, output)| (resource.as_str(), name.as_str(), output))
        });
        outputs.filter(move |(resource, name, _)| {
            only.is_none_or(|only| only == *resource || only.split_once('/') == Some((*resource, *name)))
        })
    }

    /// Returns the setup outputs that are visible outside of the plan: those that the public outputs of `only` read. Without
    /// `only`, the `env` of the target can be rendered with them.
    pub fn visible_outputs<'a>(&'a self, only: Option<&'a str>) -> BTreeMap<UnitRef, BTreeSet<&'a str>> {
        let mut shown: BTreeMap<UnitRef, BTreeSet<&str>> = BTreeMap::new();
        let own = self.env_reads.iter().filter(|_| only.is_none());
        for read in self.public_outputs(only).flat_map(|(_, _, output)| &output.reads).chain(own) {
            shown.entry(read.at).or_default().insert(read.output.as_str());
        }
        shown
    }

    /// Returns the plan of a hook, or `None` if the hook has no units.
    pub fn hook_plan(&self, hook: Hook) -> Option<&HookPlan> {
        self.hooks.iter().find(|planned| planned.hook == hook)
    }

    pub fn unit(&self, at: UnitRef) -> Option<&UnitPlan> {
        self.hook_plan(at.hook)?.units.get(at.unit as usize)
    }

    /// Marks the undos that only look: another undo of one of their units, or a `DELETE` of a unit without undo, acts on their
    /// outputs, or on those of a `GET` that reads them.
    pub fn mark_looks(&mut self) {
        let is_undo = |unit: &UnitPlan| !unit.undoes.is_empty() && !unit.verifies;
        let acts = |unit: &UnitPlan| match &unit.action {
            Action::Webhook(webhook) if unit.undoes.is_empty() => webhook.method == "DELETE",
            action => is_undo(unit) && !action.is_get(),
        };
        let mut open: Vec<UnitRef> =
            self.hooks.iter().flat_map(HookPlan::places).filter(|(_, unit)| acts(unit)).map(|(at, _)| at).collect();
        let mut looks = BTreeSet::new();
        while let Some(unit) = open.pop().and_then(|at| self.unit(at)) {
            let undoes = &unit.undoes;
            let is_shared = |read: &UnitPlan| {
                is_undo(read) && (undoes.is_empty() || read.undoes.iter().any(|undone| undoes.contains(undone)))
            };
            // A unit without undo can pass on what an undo has found.
            let passes =
                |at: UnitRef| self.unit(at).is_some_and(|unit| unit.undoes.is_empty() && !unit.is_setup(at.hook));
            let read = unit.reads.iter().map(|read| read.at);
            let read = read.filter(|at| passes(*at) || self.unit(*at).is_some_and(is_shared));
            open.extend(read.filter(|&at| looks.insert(at)));
        }
        for HookPlan { hook, units } in &mut self.hooks {
            for (at, unit) in (0..).zip(units) {
                unit.looks = is_undo(unit) && looks.contains(&UnitRef { hook: *hook, unit: at });
            }
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the name that an update gives to the state of a resource before it.
pub(crate) fn former_name(resource: &str, update: u32) -> String {
    format!("{resource}~{update}")
}

/// Returns the name of a resource in its document, without the number of the update that has ended it.
pub fn document_name(resource: &str) -> &str {
    resource.split_once('~').map_or(resource, |(name, _)| name)
}

/// Returns the name of a cluster. The default is `default`.
pub fn cluster_name(cluster: Option<&str>) -> &str {
    cluster.unwrap_or("default")
}
