//! The frozen plan: everything that a target's four hooks need, compiled once and stored under its digest.
//!
//! Teardown needs nothing that is not in here: plugins are resolved to exact versions, files embedded, names
//! checked, edges derived. Values that differ between two targets of one document (name, uid) are not in the plan.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Backoff, Graph, Unit};
use serde::{Deserialize, Serialize};

/// The version of the plan's format that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;

/// A compiled document: what is stored, and what its digest is taken of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Version of this format; 1.
    pub v: u32,
    /// The other parts of the target's document.
    pub target: TargetSpec,
    /// The resources by name: which plugin, what it gives to the outside.
    pub resources: BTreeMap<String, Resource>,
    /// The target's own environment: names to templates over `resources.R.outputs.O`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Template>,
    /// The hooks that have units, in the order of a life. A hook without units is not listed.
    pub hooks: Vec<HookPlan>,
}

/// The parts of the target's document beside its resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSpec {
    /// The cluster where pods and objects go; the control plane's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The namespace of the target, for `target.namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Milliseconds after creation at which the target is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// One plugin bound to the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// `name@version`, always with the exact version.
    pub plugin: String,
    /// Digest of the plugin's document after embedding, `sha256:…`.
    pub digest: String,
    /// Each declared parameter's value: literal, template over other resources, or secret. A param that is not
    /// given and has no default is absent.
    pub params: BTreeMap<String, Template>,
    /// Public outputs: `<step>.<output>` for Signadot's plugins, the `outputs` map for ours. The template is over
    /// `units` of this resource.
    pub outputs: BTreeMap<String, PublicOutput>,
}

/// One public output of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublicOutput {
    pub value: Template,
    /// True if the value stays in the cluster; it is handed on as a reference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// The setup units that it reads.
    pub reads: Vec<OutputRead>,
}

/// A hook: a point in the lifecycle of a target at which units run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookName {
    /// Before the target is ready; it waits.
    PreStart,
    /// After it is ready; nothing waits.
    PostStart,
    /// Before it stops, while it is still alive; the stop waits.
    PreStop,
    /// After it stopped; the removal waits.
    PostStop,
}

/// The units of one hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookPlan {
    pub hook: HookName,
    /// In the order of the documents; [`Unit`] is the position here.
    pub units: Vec<UnitPlan>,
}

/// One unit, ready to be rendered and sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitPlan {
    /// `resource/unit`; unique in the plan over all hooks.
    pub key: String,
    pub action: Action,
    /// The cluster that it names; the target's if absent, see [`Plan::cluster`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The units of the same hook that it waits for, for any reason (references, `after`, reverse order of undo).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<u32>,
    /// Outputs that it reads, in this hook or an earlier one; complete, through params and resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<OutputRead>,
    /// CEL; false skips the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The inputs of a pod, in the order of the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputPlan>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputPlan>,
    /// Units of earlier hooks that it undoes. If there are none, it always runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<UnitRef>,
    /// Milliseconds that one try may take.
    pub timeout_ms: u64,
    /// When and how often it is tried again.
    pub retry: RetryPolicy,
    /// Its place in its document.
    pub source: SourceLocation,
}

/// A unit of any hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitRef {
    pub hook: HookName,
    pub unit: u32,
}

/// An output that is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputRead {
    #[serde(flatten)]
    pub at: UnitRef,
    pub output: String,
    /// Read with `.?` or `has()`: a skipped producer does not skip the reader.
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
    /// Removes the objects of the unit that this one undoes. The compiler adds it; no document has it.
    Removal,
}

impl Action {
    /// Returns whether it is a request that is not sent again while its outcome is unknown.
    pub fn is_non_idempotent(&self) -> bool {
        matches!(self, Self::Webhook(webhook) if webhook.non_idempotent)
    }

    /// `pod`, `webhook`, `object` or `removal`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pod",
            Self::Webhook(_) => "webhook",
            Self::Object(_) => "object",
            Self::Removal => "removal",
        }
    }

    /// Returns true if a relay sees to it, which keeps its deadline and can end it at any time.
    pub fn is_relayed(&self) -> bool {
        match self {
            Self::Pod(_) | Self::Object(_) | Self::Removal => true,
            Self::Webhook(_) => false,
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
    /// A `PodTemplateSpec` as YAML text, merged onto the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<String>,
    /// The script, untouched, first line `#!`.
    pub script: String,
}

/// A signed HTTP request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAction {
    /// `POST` unless the document says otherwise.
    pub method: String,
    /// The host is literal; path and query pieces are templates.
    pub url: Template,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Template>,
    /// The body as a tree whose strings are templates; absent: the inputs as an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
    /// The longest time for which its receiver processes a request without an answer; absent: the unit's timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processing_time_ms: Option<u64>,
    /// True if it is not sent again while its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub non_idempotent: bool,
    /// The URL that tells what a request with an unknown outcome has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub describe: Option<Template>,
}

/// Kubernetes objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectAction {
    /// The manifest as a tree whose strings are templates, or a list of manifests, which are applied in its order.
    pub manifest: serde_json::Value,
    /// CEL over `object`, the first one: when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// CEL over `object`, the first one: when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
}

/// An input of a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputPlan {
    pub name: String,
    pub value: Template,
    /// The environment variable that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The absolute path of the file that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// An input whose value is missing is unset (Signadot); otherwise the unit fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// True if its value is sensitive: it is passed on as a reference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

/// A declared output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputPlan {
    pub from: OutputFrom,
    /// True if its value stays where it was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// Its description in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The source of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum OutputFrom {
    /// A file of the pod, bytes untouched.
    File(String),
    /// CEL over `response` (webhook) or `object` and `objects`.
    Expression(String),
    /// A key of a Secret in the namespace of the first object.
    #[serde(rename_all = "camelCase")]
    Secret {
        /// CEL over `object` and `objects` that gives the Secret's name.
        name: String,
        key: String,
    },
}

/// When and how often a unit is tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Tries in all, at least 1.
    pub attempts: u32,
    /// Milliseconds; the bound of the first wait.
    pub backoff_ms: u64,
    /// Milliseconds; no wait is longer.
    pub max_backoff_ms: u64,
    /// The failures that are tried again: [`RETRY_CLASSES`](crate::compile::defaults::RETRY_CLASSES), an exact status such as
    /// `503`. Empty: all that can pass by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
}

impl RetryPolicy {
    /// The engine's arithmetic for it.
    pub fn backoff(&self) -> Backoff {
        Backoff { base: ebb_engine::Millis(self.backoff_ms), max: ebb_engine::Millis(self.max_backoff_ms) }
    }
}

/// A place in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceLocation {
    /// The file's name as it was given, or the plugin's `name@version`.
    pub file: String,
    pub line: u32,
    pub column: u32,
}

/// A value, or the way in which it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Template {
    Literal(serde_json::Value),
    Secret {
        name: String,
        key: String,
    },
    /// Text with `${…}` in it. One expression that is the whole text keeps its type.
    Text(String),
    /// A list or mapping whose strings are such texts.
    Tree(serde_json::Value),
}

impl HookName {
    /// All hooks in the order of the lifecycle.
    pub const ALL: [Self; 4] = [Self::PreStart, Self::PostStart, Self::PreStop, Self::PostStop];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreStart => "preStart",
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
            Self::PostStop => "postStop",
        }
    }
}

impl UnitPlan {
    /// The resource that it belongs to.
    pub fn resource(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(resource, _)| resource)
    }
}

impl HookPlan {
    /// The graph of this hook. The compiler has checked it, so this fails only for a plan that was tampered with.
    ///
    /// # Errors
    /// The engine's, for a plan that this crate did not make.
    pub fn graph(&self) -> Result<Graph, ebb_engine::GraphError> {
        Graph::new(self.units.iter().map(|unit| unit.dependencies.iter().map(|&n| Unit(n)).collect()).collect())
    }
}

impl Plan {
    /// The plan of a target for which nothing was ever asked: no resources, no hooks.
    pub fn empty() -> Self {
        Self {
            v: PLAN_VERSION,
            target: TargetSpec::default(),
            resources: BTreeMap::new(),
            env: BTreeMap::new(),
            hooks: Vec::new(),
        }
    }

    /// The cluster where a unit's pods and objects go: the one that it names, or the target's. `None`: the control
    /// plane's default.
    pub fn cluster<'a>(&'a self, unit: &'a UnitPlan) -> Option<&'a str> {
        unit.cluster.as_deref().or(self.target.cluster.as_deref())
    }

    /// The clusters that hold values which units of it have made.
    pub fn secret_clusters(&self) -> BTreeSet<Option<&str>> {
        let units = self.hooks.iter().flat_map(|hook| &hook.units);
        let keepers =
            units.filter(|unit| unit.action.is_relayed() && unit.outputs.values().any(|output| output.sensitive));
        keepers.map(|unit| self.cluster(unit)).collect()
    }

    /// The setup outputs that the target shows: those that the public outputs of its resources read. The target's
    /// `env` reads public outputs only.
    pub fn visible_outputs(&self) -> BTreeMap<UnitRef, BTreeSet<&str>> {
        let mut shown: BTreeMap<UnitRef, BTreeSet<&str>> = BTreeMap::new();
        let outputs = self.resources.values().flat_map(|resource| resource.outputs.values());
        for read in outputs.flat_map(|output| &output.reads) {
            shown.entry(read.at).or_default().insert(read.output.as_str());
        }
        shown
    }

    /// The units of a hook, if it has any.
    pub fn hook_plan(&self, hook: HookName) -> Option<&HookPlan> {
        self.hooks.iter().find(|planned| planned.hook == hook)
    }

    /// One unit, if it is there.
    pub fn unit(&self, at: UnitRef) -> Option<&UnitPlan> {
        self.hook_plan(at.hook)?.units.get(at.unit as usize)
    }
}

/// The name of a cluster. The default is `default`.
pub fn cluster_name(cluster: Option<&str>) -> &str {
    cluster.unwrap_or("default")
}

// Both list the hooks in the order of the lifecycle.
impl From<HookName> for ebb_engine::Hook {
    fn from(hook: HookName) -> Self {
        Self::ALL[hook as usize]
    }
}

impl From<ebb_engine::Hook> for HookName {
    fn from(hook: ebb_engine::Hook) -> Self {
        Self::ALL[hook as usize]
    }
}
