//! Our documents as they are written.
#![allow(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;

/// The version of the format.
#[derive(JsonSchema)]
enum ApiVersion {
    #[schemars(rename = "ebb.dev/v1")]
    V1,
}

#[derive(JsonSchema)]
enum PluginKind {
    Plugin,
}

#[derive(JsonSchema)]
enum SandboxKind {
    Sandbox,
}

/// A plugin: a versioned definition of runners, units, their inputs and outputs, written once.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Plugin")]
pub(super) struct PluginSchema {
    api_version: ApiVersion,
    kind: PluginKind,
    /// `name` or `name@1.2.3`; without a version it is `0.0.0`.
    name: String,
    /// Free text.
    description: Option<String>,
    /// What a sandbox gives to the plugin, by name.
    #[schemars(default)]
    params: BTreeMap<String, ParamSchema>,
    /// What runs scripts, by name.
    #[schemars(default)]
    runners: BTreeMap<String, RunnerSchema>,
    /// What holds for units that do not say otherwise.
    defaults: Option<DefaultsSchema>,
    /// Before the target is ready; it waits.
    #[schemars(default)]
    pre_start: BTreeMap<String, UnitSchema>,
    /// After the target is ready; nothing waits.
    #[schemars(default)]
    post_start: BTreeMap<String, UnitSchema>,
    /// Before the target stops, while it is alive.
    #[schemars(default)]
    pre_stop: BTreeMap<String, UnitSchema>,
    /// After the target stopped; its removal waits.
    #[schemars(default)]
    post_stop: BTreeMap<String, UnitSchema>,
    /// What the plugin gives to the sandbox, by name: templates such as `${units.database.outputs.dsn}`.
    #[schemars(default)]
    outputs: BTreeMap<String, String>,
}

/// A parameter. Without a default a sandbox has to give it, unless `required: false`.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Param")]
struct ParamSchema {
    r#type: ParamType,
    /// Free text.
    description: Option<String>,
    /// The value when the sandbox gives none.
    default: Option<Value>,
    /// `false`: may be missing without a default.
    required: Option<bool>,
    /// The values that are allowed.
    r#enum: Option<Vec<Value>>,
    /// The least number.
    minimum: Option<f64>,
    /// The greatest number.
    maximum: Option<f64>,
    /// The least number of characters.
    min_length: Option<u32>,
    /// The greatest number of characters.
    max_length: Option<u32>,
    /// A regular expression for the whole text.
    pattern: Option<String>,
    /// The value never leaves the cluster.
    sensitive: Option<bool>,
}

/// The type of a parameter.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum ParamType {
    String,
    Integer,
    Number,
    Boolean,
    Object,
    Array,
}

/// What runs scripts.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Runner")]
struct RunnerSchema {
    /// The image of the container `main`.
    image: String,
    /// The namespace of the pods.
    namespace: Option<String>,
    /// A Kubernetes PodTemplateSpec as text, merged onto the default one.
    pod_template: Option<String>,
}

/// What holds for units that do not say otherwise.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Defaults")]
struct DefaultsSchema {
    timeout: Option<DurationSchema>,
    retry: Option<RetrySchema>,
}

/// A number with its unit: `500ms`, `5s`, `5m`, `2h`, `1d`.
#[derive(JsonSchema)]
#[schemars(transparent)]
#[schemars(rename = "Duration")]
struct DurationSchema(#[schemars(regex(pattern = r"^([0-9]+(ms|s|m|h|d)|.*@\{.+\}.*)$"))] String);

/// When and how often a unit is tried again.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Retry")]
struct RetrySchema {
    /// Tries in all.
    #[schemars(range(min = 1, max = 100))]
    attempts: Option<u32>,
    /// The bound of the first wait; it doubles with each try.
    backoff: Option<DurationSchema>,
    /// The bound of every wait.
    max_backoff: Option<DurationSchema>,
    /// Which failures are tried again: `timeout`, `5xx`, `4xx`, `connect`, `exit`, `lost`, `failed`, `imagePull`,
    /// `unschedulable`, `evicted`, `quota`, `outOfMemory`, an HTTP status.
    on: Option<Vec<FailureClass>>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum FailureClass {
    Name(String),
    Status(#[schemars(range(min = 400, max = 599))] u16),
}

/// One thing to run. It has exactly one of `pod`, `webhook` and `object`.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields, extend("oneOf" = [
    {"required": ["pod"]}, {"required": ["webhook"]}, {"required": ["object"]}
]))]
#[schemars(rename = "Unit")]
struct UnitSchema {
    /// A script in an image.
    pod: Option<PodSchema>,
    /// A signed HTTP request.
    webhook: Option<WebhookSchema>,
    /// A Kubernetes object.
    object: Option<ObjectSchema>,
    /// The cluster that its pod or objects go to: a name, or `${params.NAME}`; left out, the sandbox's.
    cluster: Option<String>,
    /// CEL; when it is false, the unit is skipped.
    when: Option<String>,
    /// Units of the same hook to wait for.
    after: Option<NameList>,
    /// Units of earlier hooks that this one takes away; left out, it follows from what it reads.
    undoes: Option<NameList>,
    /// `none`: nothing that it makes has to be undone.
    cleanup: Option<CleanupSchema>,
    /// How long one try may take.
    timeout: Option<DurationSchema>,
    /// When and how often it is tried again.
    retry: Option<RetrySchema>,
    /// What it reads, by name.
    inputs: Option<BTreeMap<String, InputSchema>>,
    /// What it gives, by name.
    outputs: Option<BTreeMap<String, OutputSchema>>,
}

/// The cleanup of a unit.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(rename = "Cleanup")]
enum CleanupSchema {
    None,
}

/// One name or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum NameList {
    One(String),
    Several(Vec<String>),
}

/// A script in an image.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Pod")]
struct PodSchema {
    /// Which of the plugin's `runners`; left out, `default` or the only one.
    runner: Option<String>,
    /// The script, first line `#!`. It is never templated.
    script: String,
}

/// A signed HTTP request.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Webhook")]
struct WebhookSchema {
    /// The URL; its host is literal, other pieces may have `${…}`.
    url: String,
    /// `POST` if left out.
    method: Option<MethodSchema>,
    /// Headers by name.
    headers: Option<BTreeMap<String, String>>,
    /// The body; left out, the inputs as an object.
    body: Option<Value>,
    /// The longest time for which the receiver processes a request without an answer; left out, the unit's `timeout`.
    max_processing_time: Option<DurationSchema>,
    /// `false`: the request is not sent again while its outcome is unknown. `true` if left out.
    idempotent: Option<bool>,
    /// How to find out what a request with an unknown outcome has made. It needs `idempotent: false` and a
    /// `maxProcessingTime` below the `timeout`.
    describe: Option<DescribeSchema>,
}

/// A signed `GET` request: 2xx with the outputs if the thing exists, 404 if it does not.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Describe")]
struct DescribeSchema {
    /// The URL; its host is literal, other pieces may have `${…}`.
    url: String,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "UPPERCASE")]
#[schemars(rename = "Method")]
enum MethodSchema {
    Post,
    Put,
    Patch,
    Delete,
    Get,
}

/// A Kubernetes object.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Object")]
struct ObjectSchema {
    /// The manifest, its texts with `${…}` in them, or a list of manifests, which are applied in its order.
    manifest: ManifestSchema,
    /// CEL over `object`, the first one: when it is ready.
    ready: Option<String>,
    /// CEL over `object`, the first one: when it has failed.
    fail: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[schemars(rename = "Manifest")]
enum ManifestSchema {
    Inline(BTreeMap<String, Value>),
    Several(#[schemars(length(min = 1))] Vec<BTreeMap<String, Value>>),
    Embedded(#[schemars(regex(pattern = r"^@\{ *embed *\[ *yaml *\] *:.+\}$"))] String),
}

/// An input: its value, or the value and where it goes.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[schemars(rename = "Input")]
enum InputSchema {
    Text(String),
    Number(f64),
    Boolean(bool),
    Full(FullInput),
}

/// An input with where it goes: a variable, a file, or both. With neither: the variable of its name.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct FullInput {
    /// The value; texts with `${…}` in them.
    value: Value,
    /// The environment variable.
    env: Option<String>,
    /// The absolute path of the file.
    path: Option<String>,
}

/// An output: a pod's `file`, `value` over `response` or over `object` and `objects`, or a `secret` that objects bring.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields, extend("oneOf" = [
    {"required": ["file"]}, {"required": ["value"]}, {"required": ["secret"]}
]))]
#[schemars(rename = "Output")]
struct OutputSchema {
    /// An absolute path in the pod; its bytes are taken as they are.
    file: Option<String>,
    /// CEL over `response` (webhook), or over `object`, the first one, and `objects`.
    value: Option<String>,
    /// A key of a Secret in the namespace of the first object.
    secret: Option<SecretOutput>,
    /// The value stays in the cluster; left out, that of a `secret` does.
    sensitive: Option<bool>,
    /// Free text.
    description: Option<String>,
}

/// A key of a Secret.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct SecretOutput {
    /// The Secret's name, or `${…}` over `object` and `objects` that gives it.
    name: String,
    /// The key in it.
    key: String,
}

/// A sandbox: a target and the resources it gets.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sandbox")]
pub(super) struct SandboxSchema {
    api_version: ApiVersion,
    kind: SandboxKind,
    /// The target's name.
    name: String,
    /// Free text.
    description: Option<String>,
    /// The cluster that pods and objects go to.
    cluster: Option<String>,
    /// The namespace of the target.
    namespace: Option<String>,
    /// Labels.
    #[schemars(default)]
    labels: BTreeMap<String, String>,
    /// How long it lives.
    ttl: Option<DurationSchema>,
    /// Its resources by name.
    #[schemars(default)]
    resources: BTreeMap<String, ResourceSchema>,
    /// Its environment: templates such as `${resources.users.outputs.dsn}`.
    #[schemars(default)]
    env: BTreeMap<String, String>,
}

/// One plugin with its params.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Resource")]
struct ResourceSchema {
    /// `name@version`; `name` or `name@latest` for the highest at creation.
    plugin: String,
    /// Values by name; texts with `${resources.R.outputs.O}` in them, or `{secret: NAME, key: KEY}`.
    #[schemars(default)]
    params: BTreeMap<String, Value>,
}
