//! The frozen plan of all hooks of a target, compiled once.
//!
//! The plan contains everything that the teardown needs: exact plugin versions, embedded files, checked names and
//! derived edges. Values that differ between two targets of one document (name, UID) are not in the plan.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Backoff, Graph, Hook, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the plan's format that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;

/// A compiled document. It is stored, and its digest is computed, in this form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The format version: 1.
    pub v: u32,
    /// The other parts of the target's document.
    pub target: TargetSpec,
    /// The resources by name.
    pub resources: BTreeMap<String, Resource>,
    /// The environment of the target: templates over `resources.R.outputs.O` by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Template>,
    /// The variables of `env` that are left out if they are null.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub optional_env: BTreeSet<String>,
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
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadRead {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The container of the variable. Absent for all containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The path of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// The present resources by name, and [`HookOwner::TARGET`](crate::model::HookOwner::TARGET) for own units.
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
    /// The former resources that it reads, by the names in its document.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSpec {
    /// The cluster for pods and objects. Absent for the default of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The namespace of the target, the value of `target.namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The time to live in milliseconds, from the creation of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// A plugin that is bound to the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// `name@version` with the exact version.
    pub plugin: String,
    /// The digest of the plugin's document after embedding: `sha256:…`.
    pub digest: String,
    /// The version `name@version` whose teardown units an operator has chosen for a stuck target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired_by: Option<String>,
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

/// A public output of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublicOutput {
    pub value: Template,
    /// True if the value stays in the cluster and is passed on as a reference, or is stored encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// The outputs of setup units that the template reads.
    pub reads: Vec<OutputRead>,
}

/// The hook of the units of `update` of all plugins, before a change of the document selects some of them. It never runs.
pub const PLUGIN_UPDATE: Hook = Hook::Update(0);

/// The stored form of a hook, which a field may lack. The engine has no serde.
mod hook_text {
    use ebb_engine::Hook;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<'a, S: Serializer>(
        hook: impl Into<Option<&'a Hook>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match hook.into() {
            Some(hook) => serializer.collect_str(hook),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: From<Hook>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        // No run has this hook, so its text is not that of a hook elsewhere.
        let hook = if text == super::PLUGIN_UPDATE.to_string() { Ok(super::PLUGIN_UPDATE) } else { text.parse() };
        hook.map(T::from).map_err(Error::custom)
    }
}

/// The units of one hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookPlan {
    #[serde(with = "hook_text")]
    pub hook: Hook,
    /// The units in the order of the documents. [`Unit`] is the position in this list.
    pub units: Vec<UnitPlan>,
}

/// A compiled unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitPlan {
    /// `resource/unit`, unique over all hooks of the plan.
    pub key: String,
    pub action: Action,
    /// The cluster that the document sets for the unit. Absent for the target's cluster, see [`Plan::cluster`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The units of the same hook that must end first: because of references, `after`, or the order of teardown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<u32>,
    /// All outputs of this hook or earlier hooks that the unit reads, including those behind params and resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<OutputRead>,
    /// The params that the unit reads as `old.params`. Only units of `update` have some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old_params: Vec<String>,
    /// A CEL condition. The unit is skipped if it is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The inputs of a pod, in the order of the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputPlan>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputPlan>,
    /// The units of earlier hooks that this unit undoes. A unit that undoes none always runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<UnitRef>,
    /// The dependencies on units of the same resource that only the order of teardown requires. Without this list, they
    /// could not be told from those of `after`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered_after: Vec<u32>,
    /// In an update: the hook of the document to which the unit belongs.
    #[serde(default, with = "hook_text", skip_serializing_if = "Option::is_none")]
    pub stage: Option<Hook>,
    /// In preStop and postStop: the units of updates that did the same. If one of them is done, this unit is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unless: Vec<UnitRef>,
    /// True for the `verify` of an undo: it shows whether what it undoes is gone, and removes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verifies: bool,
    /// The least evidence that an undo has to give, as its plugin requires. Absent if none is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<RequiredEvidence>,
    /// The timeout of one attempt, in milliseconds.
    pub timeout_ms: u64,
    /// The retry policy.
    pub retry: RetryPolicy,
    /// The position of the unit in its document.
    pub source: SourceLocation,
}

/// The least evidence of a removal that a plugin accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RequiredEvidence {
    /// The receiver or the script has reported the removal.
    Reported,
    /// A question after the removal was answered: the resource does not exist.
    Confirmed,
}

/// A unit of any hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitRef {
    #[serde(with = "hook_text")]
    pub hook: Hook,
    pub unit: u32,
}

/// An output that is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputRead {
    #[serde(flatten)]
    pub at: UnitRef,
    pub output: String,
    /// True if the output is read with `.?` or `has()`. A skipped producer then does not skip the reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The action of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    Pod(PodAction),
    Webhook(WebhookAction),
    Object(ObjectAction),
    /// Removes the objects of the unit that this one undoes. Only the compiler adds it.
    Removal,
    /// A resource of an InfraKit plugin.
    Infrakit(InfrakitAction),
    /// Destroys the resource of the InfraKit unit that this one undoes. Only the compiler adds it.
    Destroy,
}

impl Action {
    /// Returns true for a request that must not be repeated while its outcome is unknown.
    pub fn is_non_idempotent(&self) -> bool {
        match self {
            Self::Webhook(webhook) => webhook.non_idempotent,
            Self::Infrakit(_) => true,
            Self::Pod(_) | Self::Object(_) | Self::Removal | Self::Destroy => false,
        }
    }

    /// Returns the connection of a webhook.
    pub fn connection(&self) -> Option<&BoundConnection> {
        match self {
            Self::Webhook(webhook) => webhook.connection.as_ref(),
            _ => None,
        }
    }

    /// Returns true for a webhook with the method `GET`. Its request removes nothing.
    pub fn only_asks(&self) -> bool {
        matches!(self, Self::Webhook(webhook) if webhook.method == "GET")
    }

    /// Returns true for a unit that only the compiler adds. It undoes exactly one setup unit.
    pub fn is_added(&self) -> bool {
        matches!(self, Self::Removal | Self::Destroy)
    }

    /// Returns `pod`, `webhook`, `object`, `removal`, `infrakit` or `destroy`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pod",
            Self::Webhook(_) => "webhook",
            Self::Object(_) => "object",
            Self::Removal => "removal",
            Self::Infrakit(_) => "infrakit",
            Self::Destroy => "destroy",
        }
    }

    /// Returns true if a relay executes the action. The relay enforces its timeout and can cancel it at any time.
    pub fn is_relayed(&self) -> bool {
        match self {
            Self::Pod(_) | Self::Object(_) | Self::Removal => true,
            Self::Webhook(_) | Self::Infrakit(_) | Self::Destroy => false,
        }
    }
}

/// A script in an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodAction {
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A `PodTemplateSpec` as YAML text, which is merged onto the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<String>,
    /// The unmodified script. Its first line begins with `#!`.
    pub script: String,
}

/// A signed HTTP request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAction {
    /// The HTTP method. The default is `POST`.
    pub method: String,
    /// The connection that authorizes the request. Absent for a request that Ebb signs for the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<BoundConnection>,
    /// The URL. Its host is literal, and parts of path and query can be templates. With a connection, it is the path
    /// after the origin.
    pub url: Template,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Template>,
    /// The body as a tree whose strings are templates. If absent, the inputs are sent as an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
    /// The longest time for which the receiver processes a request without a response. The default is the unit's
    /// timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processing_time_ms: Option<u64>,
    /// True if the request must not be repeated while its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub non_idempotent: bool,
    /// The URL that returns the result of a request with an unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub describe: Option<Template>,
    /// A CEL condition over the answer of `describe`. False means that the request has made nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub describe_found: Option<String>,
    /// The state for which the unit waits after the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilPlan>,
    /// For a verification: a CEL condition over a response 2xx. True if the thing does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// The maximum of the default of `maxProcessingTime` for a webhook with `until`, in milliseconds: 5 minutes.
const MAX_PROCESSING_MS: u64 = 5 * 60 * 1000;

impl WebhookAction {
    /// Returns the longest time for which the receiver processes a request of a unit without a response, in milliseconds.
    /// The timeout of a unit that waits for a state is longer than that of its request.
    pub fn processing_ms(&self, unit_timeout_ms: u64) -> u64 {
        let most = if self.until.is_some() { unit_timeout_ms.min(MAX_PROCESSING_MS) } else { unit_timeout_ms };
        self.max_processing_time_ms.unwrap_or(most)
    }
}

/// Questions that are repeated until a provider reports a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UntilPlan {
    /// The URL of the question, as that of the webhook. It may read `response`.
    pub url: Template,
    /// A CEL condition over `poll` and `response`. Absent if only the answer 404 or 410 ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// True if the answer 404 or 410 ends the wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// A CEL expression over `poll` and `response`: true, or the reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The wait before the first question, in milliseconds.
    pub every_ms: u64,
    /// The maximum of every wait, in milliseconds.
    pub max_every_ms: u64,
}

impl UntilPlan {
    /// Returns the wait before the next question, `elapsed_ms` after the response. It doubles with each question.
    pub fn interval_ms(&self, elapsed_ms: u64) -> u64 {
        elapsed_ms.saturating_add(self.every_ms).min(self.max_every_ms)
    }
}

/// A connection with the origin that it had when the plan was made. Its credential is read for each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundConnection {
    pub name: String,
    /// Empty until [`connections::bind`](crate::compile::connection::bind).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
}

/// Kubernetes objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectAction {
    /// The manifest as a tree whose strings are templates, or a list of manifests. They are applied in this order.
    pub manifest: serde_json::Value,
    /// True if an object is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ManifestConditions>,
    /// True if an object has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<ManifestConditions>,
    /// True for an object of `bind`. The strings in its `data` are templates of texts, also in a Secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound: bool,
    /// True if the unit fails as soon as an object cannot become ready, instead of at its timeout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
}

/// CEL conditions over `object`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ManifestConditions {
    /// The condition of the first manifest.
    First(String),
    /// The condition of each manifest. `None` means the contract of its kind.
    Each(Vec<Option<String>>),
}

impl ManifestConditions {
    /// Returns the condition of the manifest at a position.
    pub fn of(&self, manifest: usize) -> Option<&str> {
        match self {
            Self::First(text) => Some(text.as_str()).filter(|_| manifest == 0),
            Self::Each(texts) => texts.get(manifest)?.as_deref(),
        }
    }

    /// Returns all conditions.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::First(text) => vec![text],
            Self::Each(texts) => texts.iter().flatten().map(String::as_str).collect(),
        }
    }
}

/// A resource of an InfraKit plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InfrakitAction {
    /// The name of the plugin: a Service of the cluster's policy, or a socket of the machine.
    pub plugin: String,
    /// The type of the resource within the plugin: the `TYPE` of `NAME/TYPE`. Empty without one.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub instance_type: String,
    #[serde(default, skip_serializing_if = "PluginInterface::is_default")]
    pub interface: PluginInterface,
    /// The configuration as a tree whose strings are templates. For a controller, it is the whole `Spec`.
    pub properties: serde_json::Value,
    /// The boot script of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Template>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Template>,
    #[serde(rename = "logicalID", default, skip_serializing_if = "Option::is_none")]
    pub logical_id: Option<Template>,
    /// The `Attachments` of the instance as a tree whose strings are templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<serde_json::Value>,
    /// The longest time for which the plugin processes a request to provision without a response, in milliseconds.
    pub max_processing_time_ms: u64,
}

/// The interface of an InfraKit plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PluginInterface {
    /// `Instance/0.6.1`: Validate, Provision, DescribeInstances and Destroy.
    #[default]
    Instance,
    /// `Resource/0.1.1`: Commit, DescribeResources and Destroy of a whole collection.
    Resource,
    /// `Controller/0.1.1`: Plan, Commit and Describe of a whole `Spec`.
    Controller,
}

impl PluginInterface {
    /// Returns true for `instance`.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An input of a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputPlan {
    pub name: String,
    pub value: Template,
    /// The environment variable of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The absolute path of the input file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// True if the input is unset when its value is missing (Signadot). Otherwise the unit fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// True if the value is declared as sensitive. It is passed on whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

/// A declared output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputPlan {
    pub from: OutputFrom,
    /// True if the value stays in the cluster in which it was created, or is stored encrypted if no relay made it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// True if the value is sensitive only because the document, which is Signadot's, does not open it. An update does
    /// not replace a resource for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive_by_default: bool,
    /// True if the value may be null. A missing value then is null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The description from the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The source of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum OutputFrom {
    /// A file of the pod with unmodified bytes.
    File(String),
    /// A CEL expression over `response` (webhook), over `object` and `objects`, or over `instance` (InfraKit).
    Expression(String),
    /// A key of a Secret in the namespace of the first object.
    #[serde(rename_all = "camelCase")]
    Secret {
        /// A CEL expression over `object` and `objects` for the name of the Secret.
        name: String,
        key: String,
    },
}

/// The retry policy of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of attempts, at least 1.
    pub attempts: u32,
    /// The maximum of the first wait, in milliseconds.
    pub backoff_ms: u64,
    /// The maximum of every wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// The failures that are retried: [`RETRY_CLASSES`](crate::compile::defaults::RETRY_CLASSES), or an exact status
    /// such as `503`. If empty, all failures that can be transient are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
}

impl RetryPolicy {
    /// Returns the backoff for the engine.
    pub fn backoff(&self) -> Backoff {
        Backoff { base: ebb_engine::Millis(self.backoff_ms), max: ebb_engine::Millis(self.max_backoff_ms) }
    }
}

/// A position in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceLocation {
    /// The name of the file as the user wrote it, or the plugin's `name@version`.
    pub file: String,
    pub line: u32,
    pub column: u32,
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
    /// The same literal before the control plane encrypts it.
    Plain(PlainLiteral),
}

/// The literal of a sensitive param. Neither JSON nor [`Debug`](std::fmt::Debug) has the value, so no plan stores it.
#[derive(Clone, PartialEq)]
pub struct PlainLiteral(pub serde_json::Value);

impl std::fmt::Debug for PlainLiteral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainLiteral")
    }
}

impl Serialize for PlainLiteral {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for PlainLiteral {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self(serde_json::Value::Null))
    }
}

impl UnitPlan {
    /// Returns the name of the unit's resource.
    pub fn resource(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(resource, _)| resource)
    }

    /// Returns true for a unit of preStop in `hook` that undoes no other unit.
    pub fn is_plain_pre_stop(&self, hook: Hook) -> bool {
        self.stage.unwrap_or(hook) == Hook::PreStop && self.undoes.is_empty()
    }

    /// Returns true for a unit of `hook` that makes a resource.
    pub fn is_setup(&self, hook: Hook) -> bool {
        self.stage.unwrap_or(hook).is_setup()
    }
}

impl HookPlan {
    /// Returns the units with their places in the plan.
    pub fn places(&self) -> impl Iterator<Item = (UnitRef, &UnitPlan)> {
        (0..).zip(&self.units).map(|(unit, planned)| (UnitRef { hook: self.hook, unit }, planned))
    }

    /// Returns the graph of this hook.
    ///
    /// # Errors
    /// Returns an error if the dependencies are not a valid graph. The compiler creates only valid graphs.
    pub fn graph(&self) -> Result<Graph, ebb_engine::GraphError> {
        Graph::new(self.units.iter().map(|unit| unit.dependencies.iter().map(|&n| Unit(n)).collect()).collect())
    }
}

impl Plan {
    /// Returns a plan without resources and hooks.
    pub fn empty() -> Self {
        Self {
            v: PLAN_VERSION,
            target: TargetSpec::default(),
            resources: BTreeMap::new(),
            env: BTreeMap::new(),
            optional_env: BTreeSet::new(),
            workloads: BTreeMap::new(),
            hooks: Vec::new(),
            update: None,
            former_secret_clusters: BTreeSet::new(),
            cluster_uids: BTreeMap::new(),
            plugin_updates: Vec::new(),
        }
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

    /// Returns the cluster for the pods and objects of a unit: its own, or the target's. `None` means the default of
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
        let in_cluster = |unit: &&UnitPlan| !matches!(unit.action, Action::Webhook(_));
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

    /// Returns the setup outputs that are visible outside of the plan: those that the public outputs of `only` read. The
    /// `env` of the target reads only public outputs.
    pub fn visible_outputs<'a>(&'a self, only: Option<&'a str>) -> BTreeMap<UnitRef, BTreeSet<&'a str>> {
        let mut shown: BTreeMap<UnitRef, BTreeSet<&str>> = BTreeMap::new();
        for read in self.public_outputs(only).flat_map(|(_, _, output)| &output.reads) {
            shown.entry(read.at).or_default().insert(read.output.as_str());
        }
        shown
    }

    /// Returns the plan of a hook, or `None` if the hook has no units.
    pub fn hook_plan(&self, hook: Hook) -> Option<&HookPlan> {
        self.hooks.iter().find(|planned| planned.hook == hook)
    }

    /// Returns a unit, or `None` if the plan does not contain it.
    pub fn unit(&self, at: UnitRef) -> Option<&UnitPlan> {
        self.hook_plan(at.hook)?.units.get(at.unit as usize)
    }

    pub(crate) fn unit_mut(&mut self, at: UnitRef) -> Option<&mut UnitPlan> {
        self.hooks.iter_mut().find(|planned| planned.hook == at.hook)?.units.get_mut(at.unit as usize)
    }
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
