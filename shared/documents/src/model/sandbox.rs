//! Targets: `kind: Sandbox` and `kind: Target`, and what route groups are converted to.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Deserializer;

use super::{
    ApiVersion, At, CollectionDoc, DefaultsDoc, Dialect, Entries, HookDoc, Named, PluginDoc, RunnerDoc, SourceText,
    TemplateTree, TtlDoc, TtlSchema, UnitSpec, VariableSchema, VersionRange, collection,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum SandboxKind {
    #[default]
    Sandbox,
    /// A target of the kind in `targetKind`.
    Target,
}

/// A sandbox, or a target of another kind, with its resources and own hooks.
#[serde_with::apply(Entries => #[serde(default)], BTreeMap => #[serde(default)], Vec => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Sandbox", rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxDoc {
    pub api_version: ApiVersion,
    pub kind: SandboxKind,
    /// The kind of the target, such as `namespace`. It is required with `kind: Target`, and only allowed there.
    pub target_kind: Option<At<String>>,
    /// The name of the target.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// The cluster of its pods and objects.
    pub cluster: Option<String>,
    /// The namespace of the target.
    pub namespace: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The time after which it is deleted.
    #[schemars(with = "Option<TtlSchema>")]
    pub ttl: Option<TtlDoc>,
    /// Its resources by name.
    pub resources: Entries<ResourceSpec>,
    /// Its environment: templates such as `${resources.users.outputs.dsn}`.
    #[schemars(with = "BTreeMap<String, VariableSchema>")]
    pub env: Entries<VariableSpec>,
    /// Images and pod templates for the scripts of its own hooks, by name.
    pub runners: Entries<RunnerDoc>,
    /// `timeout` and `retry` of its own units that set none.
    #[serde(default)]
    pub defaults: DefaultsDoc,
    /// Own units that run before the target is ready; it waits for them.
    pub pre_start: Option<HookDoc>,
    /// Own units that run after the target is ready.
    pub post_start: Option<HookDoc>,
    /// Own units that run before the target stops, while it is still there.
    pub pre_stop: Option<HookDoc>,
    /// Own units that run after the target stopped; its removal waits for them.
    pub post_stop: Option<HookDoc>,
    /// Own units that run when the platform sends an event, by the name of the event.
    pub hooks: Entries<Entries<UnitSpec>>,
    /// Secrets and ConfigMaps with outputs for workloads. They exist before the target is ready and until it is removed.
    pub bind: Vec<At<BindDoc>>,
    /// The own hooks. Loading moves them here from the fields above.
    #[serde(skip)]
    pub own: Option<Box<PluginDoc>>,
    /// The units of `bind`. Loading moves them here.
    #[serde(skip)]
    pub bound: Option<Box<PluginDoc>>,
    /// Every `valueFrom.resource` of a Signadot document.
    #[serde(skip)]
    pub consumers: Vec<ConsumerDoc>,
    #[serde(skip)]
    pub dialect: Dialect,
    #[serde(skip)]
    pub source: Arc<SourceText>,
    /// The document as YAML with all `@{…}` expanded.
    #[serde(skip)]
    pub expanded: String,
}

/// A Secret or a ConfigMap with values for workloads. It has exactly one of `secret` and `configMap`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Bind", rename_all = "camelCase", deny_unknown_fields)]
pub struct BindDoc {
    #[serde(rename = "secret", alias = "configMap")]
    #[schemars(flatten)]
    pub object: BoundObjectDoc,
    /// The values by key: templates such as `${resources.db.outputs.dsn}`. Only a Secret can have a sensitive value.
    pub data: Entries<At<String>>,
}

/// The object of a `bind`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub enum BoundObjectDoc {
    /// A Secret.
    Secret(BoundName),
    /// A ConfigMap.
    ConfigMap(BoundName),
}

/// The place of a bound object. Its texts may hold `${target.…}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundName {
    /// A namespace that the policy of the cluster lists as `bindNamespaces`.
    pub namespace: At<String>,
    /// The name. No other object may have it.
    pub name: At<String>,
}

/// A variable of the environment that may be missing.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "FullVariable", deny_unknown_fields)]
pub struct VariableSpec {
    /// The value: a template.
    #[serde(deserialize_with = "any_text")]
    pub value: At<String>,
    /// If `true`, the variable is left out if its value is `null`.
    #[serde(default)]
    pub optional: bool,
}

/// Accepts an empty text, too.
fn any_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<At<String>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A resource with its name.
pub type ResourceDoc = Named<ResourceSpec>;

/// A resource: a plugin with its params, or a collection of InfraKit's resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Resource", deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["plugin"]}, {"required": ["collection"]}]))]
pub struct ResourceSpec {
    /// `name@1.2.3`. `name@1` and `name@1.2` choose the highest version with these numbers at creation, `name` and
    /// `name@latest` the highest of all. `collection` for a collection.
    #[serde(default)]
    pub plugin: At<String>,
    /// Resources of InfraKit's plugins with dependencies, in one of the forms of InfraKit's documents.
    #[serde(default, deserialize_with = "collection::any_form")]
    #[schemars(with = "Option<collection::CollectionSchema>")]
    pub collection: Option<Box<CollectionDoc>>,
    /// If `true`, the resource is neither replaced nor removed, and the target is not deleted, until an update sets `false`.
    /// The default is that of the plugin.
    pub protect: Option<At<bool>>,
    /// Values by name. Their texts may hold `${resources.R.outputs.O}`; `{secret: NAME, key: KEY}` names a Secret.
    #[serde(default)]
    pub params: Entries<At<TemplateTree>>,
    /// The versions in `plugin`. `None` allows all.
    #[serde(skip)]
    pub version: Option<VersionRange>,
}

/// A place where a Signadot sandbox reads an output of a resource.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumerDoc {
    #[serde(rename = "name")]
    pub resource: At<String>,
    /// `<step>.<output>`.
    #[serde(rename = "outputKey")]
    pub output: At<String>,
    /// The workload that gets the value, as in [`Plan::workloads`](crate::plan::Plan::workloads).
    #[serde(skip)]
    pub workload: String,
    #[serde(skip)]
    pub env: Option<String>,
    #[serde(skip)]
    pub container: Option<String>,
    #[serde(skip)]
    pub file: Option<String>,
}

/// A Signadot route group. Ebb gives it resources and own hooks, as a sandbox has them.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteGroupDoc {
    /// The route group as a target. Its `cluster` is absent for all clusters.
    pub target: SandboxDoc,
    /// The start of its `ttl`, with its place.
    pub ttl_from: Option<At<TtlStart>>,
}

/// The start of the `ttl` of a Signadot route group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TtlStart {
    CreatedAt,
    UpdatedAt,
    /// The default: when no sandbox matches the route group.
    #[default]
    NoMatchedSandboxes,
}
