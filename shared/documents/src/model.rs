//! Documents as they were written: both dialects in one shape, each part with its place.
//!
//! `load` makes these from text and checks what one part can tell by itself (keys, types, name patterns);
//! `compile` checks what needs several parts (references, cycles, sensitivity) and makes the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::HookName;

/// A place in a document; both from 1, counted in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineColumn {
    pub line: u32,
    pub column: u32,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    pub value: T,
    pub at: LineColumn,
}

/// A document's text and what to call it in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The path as it was given, `<stdin>`, or `name@version` for a stored plugin.
    pub name: String,
    /// What was read, before `@{…}` is expanded: places refer to it.
    pub text: String,
    /// The byte at which each line begins.
    pub(crate) starts: Vec<usize>,
    /// Where its lines stand in the file of its author, if it was written again.
    pub(crate) runs: Vec<crate::load::LineRun>,
}

/// Which format a document is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Signadot's `ResourcePlugin` and `Sandbox`: `name` and `spec` at the top.
    Signadot,
    /// Ours: `apiVersion: ebb.dev/v1`.
    Ebb,
}

/// A plugin document.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginDoc {
    pub source: Arc<SourceText>,
    pub dialect: Dialect,
    /// Name without version.
    pub name: At<String>,
    /// Version; a bare name has none, and is published as `0.0.0`.
    pub version: Option<semver::Version>,
    pub description: Option<String>,
    /// The document as YAML with all `@{…}` expanded: what is stored and digested, and loads again to the same.
    pub expanded: String,
    /// Declared parameters in the order of the document. Signadot's inputs with `valueFromSandbox` appear here as
    /// optional strings.
    pub params: Vec<(At<String>, ParamDoc)>,
    /// Runners by name. Signadot's one runner is called `default`.
    pub runners: Vec<(At<String>, RunnerDoc)>,
    /// The units of each hook in the order of the document. Signadot's `create` is `preStart`, `delete` `postStop`.
    pub hooks: Vec<HookDoc>,
    /// The public contract, names to templates. Signadot's has one per step output, `step.output`.
    pub outputs: Vec<(At<String>, At<TemplateText>)>,
}

/// A declared parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamDoc {
    pub kind: ParamKind,
    /// Value when the sandbox gives none. `None` and not `optional`: the sandbox has to give one.
    pub default: Option<At<serde_json::Value>>,
    /// A missing value is no error (Signadot).
    pub optional: bool,
    /// True if its value never leaves the cluster.
    pub sensitive: bool,
    /// Allowed values; empty: all.
    pub one_of: Vec<serde_json::Value>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    /// A regular expression that the whole value has to match.
    pub pattern: Option<At<String>>,
    pub description: Option<String>,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    String,
    Integer,
    Number,
    /// `true` or `false`.
    Boolean,
    Object,
    Array,
}

/// What runs scripts.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerDoc {
    /// The image; required.
    pub image: At<String>,
    pub namespace: Option<At<String>>,
    /// A pod template as YAML text.
    pub pod_template: Option<At<String>>,
}

/// One hook's units.
#[derive(Clone, Debug, PartialEq)]
pub struct HookDoc {
    /// `preStart`, `postStart`, `preStop` or `postStop`.
    pub name: At<String>,
    pub hook: HookName,
    pub units: Vec<UnitDoc>,
}

/// One unit as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitDoc {
    /// Its name; unique over all hooks of the plugin.
    pub name: At<String>,
    pub action: ActionDoc,
    /// The cluster of a pod or objects: a name, or `${params.NAME}`. `None`: the target's.
    pub cluster: Option<At<TemplateText>>,
    /// CEL with or without `${…}` around it.
    pub when: Option<At<TemplateText>>,
    /// Units of the same hook to wait for.
    pub after: Vec<At<String>>,
    /// Units of earlier hooks that it takes away. `None`: inferred from what it reads.
    pub undoes: Option<Vec<At<String>>>,
    /// Nothing that it makes has to be undone: `cleanup: none`.
    pub leaves_nothing: bool,
    /// Inputs in the order of the document.
    pub inputs: Vec<InputDoc>,
    /// Outputs in the order of the document.
    pub outputs: Vec<OutputDoc>,
    /// Milliseconds; `None`: the plugin's `defaults`, then the hook's default.
    pub timeout_ms: Option<u64>,
    /// `None`: the plugin's `defaults`, then the hook's default.
    pub retry: Option<RetryDoc>,
}

/// What a unit runs, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionDoc {
    Pod {
        /// A runner's name; `None`: `default`, or the only one.
        runner: Option<At<String>>,
        script: At<String>,
    },
    Webhook {
        /// `POST` if absent.
        method: Option<At<String>>,
        /// The URL, a template with a literal host.
        url: At<TemplateText>,
        headers: Vec<(At<String>, At<TemplateText>)>,
        /// Body as a tree whose strings are templates.
        body: Option<At<TemplateTree>>,
        /// The longest time for which its receiver processes a request without an answer; the unit's timeout if absent.
        max_processing_time_ms: Option<u64>,
        /// True if the request may be sent again while its outcome is unknown.
        idempotent: bool,
        /// The URL that tells what it has made.
        describe: Option<At<TemplateText>>,
    },
    Object {
        /// Manifest as a tree whose strings are templates, or a list of manifests.
        manifest: At<TemplateTree>,
        ready: Option<At<TemplateText>>,
        fail: Option<At<TemplateText>>,
    },
}

/// A tree whose strings are templates, each with its place.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplateTree {
    /// `null`, booleans and numbers.
    Scalar(serde_json::Value),
    Text(TemplateText),
    List(Vec<At<TemplateTree>>),
    /// A mapping in the order of the document; keys are never templates.
    Map(Vec<(String, At<TemplateTree>)>),
}

/// A string that may hold `${…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateText {
    /// Taken as it is, whatever is in it (all of Signadot's values).
    Literal(String),
    /// `${…}` are expressions, `$${` is a literal `${`.
    Template(String),
}

/// An input as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct InputDoc {
    pub name: At<String>,
    /// Its value: a template or a literal tree.
    pub value: At<TemplateTree>,
    /// Environment variable. With neither `env` nor `path`: the name in upper case, `-` as `_`.
    pub env: Option<At<String>>,
    pub path: Option<At<String>>,
    /// A missing value leaves it unset (Signadot's `valueFromSandbox`).
    pub optional: bool,
}

/// An output as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputDoc {
    pub name: At<String>,
    pub from: OutputFromDoc,
    /// True if it stays where it was made.
    pub sensitive: bool,
    pub description: Option<String>,
}

/// Where an output comes from, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputFromDoc {
    /// An absolute path in the pod.
    File(At<String>),
    /// CEL over `response`, or `object` and `objects`.
    Value(At<TemplateText>),
    /// A key of a Secret that the objects bring.
    Secret {
        /// The Secret's name, or CEL over `object` and `objects` that gives it.
        name: At<TemplateText>,
        key: At<String>,
    },
}

/// `retry`, as it was written; absent parts take the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryDoc {
    pub attempts: Option<u32>,
    pub backoff_ms: Option<u64>,
    pub max_backoff_ms: Option<u64>,
    pub on: Vec<At<String>>,
}

/// A sandbox document: the target and its resources.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxDoc {
    pub source: Arc<SourceText>,
    pub dialect: Dialect,
    pub name: At<String>,
    /// The document as YAML with all `@{…}` expanded.
    pub expanded: String,
    pub cluster: Option<String>,
    pub namespace: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub ttl_ms: Option<u64>,
    /// The resources in the order of the document.
    pub resources: Vec<ResourceDoc>,
    /// Environment over `resources.R.outputs.O` (ours).
    pub env: Vec<(At<String>, At<TemplateText>)>,
    /// Every `valueFrom.resource` of a Signadot document: resource and output key, to be checked.
    pub consumers: Vec<ConsumerDoc>,
}

/// A place where a Signadot sandbox takes a resource's output.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerDoc {
    pub resource: At<String>,
    /// `<step>.<output>`.
    pub output: At<String>,
}

/// A resource as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceDoc {
    pub name: At<String>,
    pub plugin: At<String>,
    /// Exact version; `None` (bare or `@latest`): the highest at creation.
    pub version: Option<semver::Version>,
    /// What it gives to the plugin's params.
    pub params: Vec<(At<String>, At<ParamValue>)>,
}

/// What a sandbox gives to a param.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// A value; strings of our dialect may be templates over `resources`.
    Tree(TemplateTree),
    Secret {
        name: String,
        key: String,
    },
}

/// A Signadot route group: a target that has no resources.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteGroupDoc {
    pub source: Arc<SourceText>,
    pub name: At<String>,
    /// The document as YAML with all `@{…}` expanded.
    pub expanded: String,
    /// Cluster; `None`: all.
    pub cluster: Option<String>,
    /// Milliseconds after creation, if `ttl_from` does not say otherwise.
    pub ttl_ms: Option<u64>,
    /// The start of `ttl`, with its place; without `offsetFrom` that is [`Self::NO_MATCHED_SANDBOXES`].
    pub ttl_from: Option<At<String>>,
}

impl RouteGroupDoc {
    /// The `offsetFrom` that counts from when no sandbox matches the route group.
    pub const NO_MATCHED_SANDBOXES: &'static str = "noMatchedSandboxes";
}
