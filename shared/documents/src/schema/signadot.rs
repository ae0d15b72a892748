//! Signadot's documents as they are written.
#![allow(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;

/// A Signadot ResourcePlugin.
#[derive(JsonSchema)]
pub(super) struct ResourcePlugin {
    /// `name` or `name@1.2.3`; without a version it is `0.0.0`.
    name: String,
    spec: PluginSpec,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct PluginSpec {
    /// Free text.
    description: Option<String>,
    runner: SignadotRunner,
    /// Steps before the sandbox starts.
    create: Option<Vec<SignadotStep>>,
    /// Steps after the sandbox stopped.
    delete: Option<Vec<SignadotStep>>,
}

/// What runs the scripts of all steps.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Runner")]
struct SignadotRunner {
    /// The image of the container `main`.
    image: String,
    /// The namespace of the pods.
    namespace: Option<String>,
    /// A Kubernetes PodTemplateSpec as text, merged onto the default one.
    pod_template_overlay: Option<String>,
}

/// A script with its inputs and outputs.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Step")]
struct SignadotStep {
    /// Unique over `create` and `delete` together.
    name: SignadotName,
    /// What it reads.
    inputs: Option<Vec<SignadotInput>>,
    /// What it gives.
    outputs: Option<Vec<SignadotOutput>>,
    /// The script, first line `#!`.
    script: String,
}

#[derive(JsonSchema)]
#[schemars(transparent)]
#[schemars(rename = "Name")]
struct SignadotName(#[schemars(length(max = 30), regex(pattern = "^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$"))] String);

/// An input from exactly one source.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Input")]
struct SignadotInput {
    /// Of a sandbox's value, also the key in its `params`.
    name: SignadotName,
    r#type: Option<String>,
    /// The sandbox gives it; it may be missing.
    value_from_sandbox: Option<bool>,
    /// The output of another step.
    value_from_step: Option<FromStep>,
    /// Where it goes; left out, the variable of its name.
    r#as: Option<InputDestination>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct FromStep {
    /// The step.
    name: SignadotName,
    /// Its output.
    output: SignadotName,
}

/// A variable, a file, or both.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct InputDestination {
    /// The environment variable.
    env: Option<String>,
    /// The absolute path of the file.
    path: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Output")]
struct SignadotOutput {
    name: SignadotName,
    r#type: Option<String>,
    /// Free text.
    description: Option<String>,
    /// An absolute path in the pod; its bytes are taken as they are.
    value_from_path: String,
}

/// A Signadot Sandbox.
#[derive(JsonSchema)]
#[schemars(rename = "Sandbox")]
pub(super) struct SignadotSandbox {
    /// At most 30 characters.
    name: String,
    spec: SandboxSpec,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct SandboxSpec {
    /// The cluster.
    cluster: String,
    /// Free text.
    description: Option<String>,
    /// Labels.
    labels: Option<BTreeMap<String, String>>,
    ttl: Option<SandboxTtl>,
    /// Its resources.
    resources: Option<Vec<SignadotResource>>,
    forks: Option<Vec<Value>>,
    local: Option<Vec<Value>>,
    r#virtual: Option<Vec<Value>>,
    default_route_group: Option<BTreeMap<String, Value>>,
    middleware: Option<Vec<Value>>,
    routing: Option<BTreeMap<String, Value>>,
    endpoints: Option<Vec<Value>>,
}

/// How long it lives.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct SandboxTtl {
    /// A whole number and `m`, `h`, `d` or `w`.
    #[schemars(regex(pattern = r"^([0-9]+[mhdw]|.*@\{.+\}.*)$"))]
    duration: String,
    /// `createdAt` or `updatedAt`.
    offset_from: Option<String>,
}

/// One plugin with its params.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[schemars(rename = "Resource")]
struct SignadotResource {
    name: String,
    /// `name`, `name@version` or `name@latest`.
    plugin: String,
    /// Texts by name; numbers and booleans have to be quoted.
    params: Option<BTreeMap<String, String>>,
}
