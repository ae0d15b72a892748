//! Reads Signadot's documents, which have `name` and `spec` at the top and no `kind`, and converts them to Ebb's.
//!
//! Unknown keys at the top are ignored, as in Signadot. Below `spec` and `ebb` they are errors. Parts that only
//! Signadot uses (forks, local workloads, routing) are kept unchanged. The outputs of resources in them are checked, and
//! resolved for the platform.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::diagnostic::Diagnostic;
use crate::durations;
use crate::load::names::{MAX_SIGNADOT_NAME, NameSyntax};
use crate::load::reader::{DocumentReader, NodePath};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::load::{Document, bind, ebb};
use crate::model::{
    ActionDoc, At, BindDoc, ConsumerDoc, DefaultsDoc, Dialect, DurationMs, Entries, HookDoc, InputDoc, InputSpec,
    NameList, Named, OutputFromDoc, OutputSpec, ParamDoc, ParamValue, PluginDoc, PodDoc, ResourceSpec, RouteGroupDoc,
    RunnerDoc, SandboxDoc, TemplateTree, TtlStart, UnitDoc, UnitSpec, alternatives,
};
use crate::template;

/// The kinds of Signadot's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignadotKind {
    Plugin,
    Sandbox,
    RouteGroup,
    /// The format before the first release.
    Alpha,
}

/// A Signadot ResourcePlugin.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ResourcePlugin {
    /// `name` or `name@1.2.3`. A plugin without a version is published as `0.0.0`.
    name: At<String>,
    spec: PluginSpec,
    /// What only Ebb reads.
    ebb: Option<PluginExtension>,
}

/// The keys that Ebb adds to a plugin. Signadot ignores them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PluginExtension {
    /// The outputs that Ebb stores and shows in clear, each as `STEP.OUTPUT`, or `open` for all. The others stay in the
    /// cluster.
    #[serde(default)]
    outputs: NameList,
}

/// The value of `outputs` that opens all outputs.
const ALL_OUTPUTS: &str = "open";

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PluginSpec {
    /// Free text.
    description: Option<String>,
    runner: At<SignadotRunner>,
    /// Steps before the sandbox starts.
    create: Option<Named<Vec<SignadotStep>>>,
    /// Steps after the sandbox stopped.
    delete: Option<Named<Vec<SignadotStep>>>,
}

/// The image and the pod template for the scripts of all steps.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Runner")]
struct SignadotRunner {
    /// The image of the container `main`.
    image: At<String>,
    /// The namespace of the pods.
    namespace: Option<At<String>>,
    /// A Kubernetes PodTemplateSpec as YAML text. It is merged onto the default pod.
    pod_template_overlay: Option<At<String>>,
}

/// A script with its inputs and outputs.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Step")]
struct SignadotStep {
    /// A name that is unique over `create` and `delete` together.
    #[schemars(with = "SignadotName")]
    name: At<String>,
    /// The values that the step reads.
    #[serde(default)]
    inputs: Vec<SignadotInput>,
    /// The values that the step makes.
    #[serde(default)]
    outputs: Vec<SignadotOutput>,
    /// The script. Its first line begins with `#!`.
    script: At<String>,
}

#[derive(JsonSchema)]
#[schemars(transparent, rename = "Name")]
#[expect(dead_code, reason = "only its schema is used")]
struct SignadotName(#[schemars(length(max = 30), regex(pattern = "^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$"))] String);

/// An input from exactly one source.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Input")]
struct SignadotInput {
    /// The name. For a value of the sandbox, it is also the key in its `params`.
    #[schemars(with = "SignadotName")]
    name: At<String>,
    #[expect(dead_code, reason = "Signadot ignores it too")]
    r#type: Option<String>,
    /// If `true`, the sandbox sets the value. It may be missing.
    value_from_sandbox: Option<At<bool>>,
    /// The output of another step.
    value_from_step: Option<At<FromStep>>,
    /// The destination. The default is the variable of its name.
    #[serde(default)]
    r#as: InputDestination,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FromStep {
    /// The step.
    #[schemars(with = "SignadotName")]
    name: At<String>,
    /// Its output.
    #[schemars(with = "SignadotName")]
    output: At<String>,
}

/// A variable, a file, or both.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputDestination {
    /// The environment variable.
    env: Option<At<String>>,
    /// The absolute path of the file.
    path: Option<At<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Output")]
struct SignadotOutput {
    #[schemars(with = "SignadotName")]
    name: At<String>,
    #[expect(dead_code, reason = "Signadot ignores it too")]
    r#type: Option<String>,
    /// Free text.
    description: Option<String>,
    /// An absolute path in the pod. The bytes of the file are taken as they are.
    value_from_path: At<String>,
}

/// A Signadot Sandbox.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Sandbox")]
pub(crate) struct SignadotSandbox {
    /// At most 30 characters.
    name: At<String>,
    spec: SandboxSpec,
    /// What only Ebb reads.
    ebb: Option<SandboxExtension>,
}

/// The keys that Ebb adds to a sandbox. Signadot ignores them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SandboxExtension {
    /// Secrets and ConfigMaps with outputs for workloads, as in a sandbox of Ebb.
    #[serde(default)]
    bind: Vec<At<BindDoc>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "some parts are used by Signadot alone, and are checked for their type")]
struct SandboxSpec {
    /// The cluster.
    cluster: At<String>,
    /// Free text.
    description: Option<String>,
    /// Labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    ttl: Option<SignadotTtl<SandboxTtlStart>>,
    /// Its resources.
    #[serde(default)]
    resources: Vec<SignadotResource>,
    forks: Option<Vec<Value>>,
    local: Option<Vec<Value>>,
    r#virtual: Option<Vec<Value>>,
    default_route_group: Option<BTreeMap<String, Value>>,
    middleware: Option<Vec<Value>>,
    routing: Option<BTreeMap<String, Value>>,
    endpoints: Option<Vec<Value>>,
}

/// The lifetime of a sandbox.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "SandboxTtl")]
struct SignadotTtl<S> {
    /// A whole number and `m`, `h`, `d` or `w`.
    duration: SignadotDuration,
    /// The start of the duration.
    offset_from: Option<At<S>>,
}

#[derive(PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum SandboxTtlStart {
    CreatedAt,
    UpdatedAt,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct SignadotDuration(#[schemars(with = "String", regex(pattern = r"^([0-9]+[mhdw]|.*@\{.+\}.*)$"))] u64);

impl<'de> Deserialize<'de> for SignadotDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let help = "a whole number with its unit: 30m, 4h, 2d or 1w";
        durations::deserialize(deserializer, &durations::SIGNADOT_UNITS, help).map(Self)
    }
}

/// A plugin with its params.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Resource")]
struct SignadotResource {
    name: At<String>,
    /// `name`, `name@version` or `name@latest`.
    plugin: At<String>,
    /// Texts by name. Numbers and booleans have to be quoted.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    params: Entries<At<Option<String>>>,
}

/// A Signadot RouteGroup.
#[derive(Deserialize)]
struct SignadotRouteGroup {
    name: At<String>,
    spec: RouteGroupSpec,
    ebb: Option<SandboxExtension>,
}

/// The parts of Signadot, and the resources and own hooks that Ebb adds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "some parts are used by Signadot alone, and are checked for their type")]
struct RouteGroupSpec {
    #[serde(default)]
    resources: Vec<SignadotResource>,
    #[serde(default)]
    runners: Entries<RunnerDoc>,
    #[serde(default)]
    defaults: DefaultsDoc,
    pre_start: Option<HookDoc>,
    post_start: Option<HookDoc>,
    pre_stop: Option<HookDoc>,
    post_stop: Option<HookDoc>,
    #[serde(default)]
    hooks: Entries<Entries<UnitSpec>>,
    cluster: Option<String>,
    description: Option<String>,
    r#match: Option<RouteGroupMatch>,
    #[serde(default)]
    endpoints: Vec<RouteGroupEndpoint>,
    ttl: Option<At<SignadotTtl<TtlStart>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is used by Signadot alone, and is checked for its type")]
struct RouteGroupMatch {
    #[serde(rename = "label", alias = "all", alias = "any")]
    rule: MatchRule,
}

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
#[allow(dead_code, reason = "it is used by Signadot alone, and is checked for its type")]
enum MatchRule {
    Label(MatchLabel),
    All(Vec<RouteGroupMatch>),
    Any(Vec<RouteGroupMatch>),
}

alternatives! {
    MatchRule: "none of `label`, `all` and `any`\nadd one of them";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is used by Signadot alone, and is checked for its type")]
struct MatchLabel {
    key: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is used by Signadot alone, and is checked for its type")]
struct RouteGroupEndpoint {
    name: String,
    target: String,
    cluster: Option<Value>,
}

/// Returns the kind of a document by the keys of its `spec`, or `None` if it is not one of Signadot's.
pub(crate) fn shape(document: &YamlNode) -> Option<SignadotKind> {
    if let Some(YamlValue::String(version)) = document.get("apiVersion").map(|node| &node.value) {
        return version.starts_with("signadot.com/").then_some(SignadotKind::Alpha);
    }
    let spec = document.get("spec")?;
    let sandbox = "cluster description labels ttl resources forks local virtual defaultRouteGroup middleware routing \
        endpoints";
    let kinds = [
        ("runner create delete", SignadotKind::Plugin),
        ("image provisioner deprovisioner provision deprovision template pod container", SignadotKind::Alpha),
        ("match", SignadotKind::RouteGroup),
        (sandbox, SignadotKind::Sandbox),
    ];
    kinds.into_iter().find(|(keys, _)| keys.split(' ').any(|key| spec.get(key).is_some())).map(|(_, kind)| kind)
}

/// Reads a document. Returns `None` after it has reported an error.
pub(crate) fn document(
    reader: &DocumentReader<'_>,
    kind: SignadotKind,
    node: &YamlNode,
    expanded: String,
) -> Option<Document> {
    match kind {
        SignadotKind::Plugin => plugin(reader, node, expanded).map(Document::Plugin),
        SignadotKind::Sandbox => sandbox(reader, node, expanded).map(Document::Sandbox),
        SignadotKind::RouteGroup => route_group(reader, node, expanded).map(Document::RouteGroup),
        SignadotKind::Alpha => alpha(reader, node),
    }
}

/// Returns the document without the keys that the platform adds.
pub(crate) fn kept(document: &YamlNode) -> YamlNode {
    let mut kept = document.clone();
    if let YamlValue::Map(entries) = &mut kept.value {
        entries.retain(|(key, _)| ["name", "spec", "ebb"].iter().any(|kept| key.name.eq_ignore_ascii_case(kept)));
    }
    kept
}

/// Reports the conversion that a document of the old format needs. Returns no document.
fn alpha(reader: &DocumentReader<'_>, document: &YamlNode) -> Option<Document> {
    let at = document.get("apiVersion").map_or(document.at, |node| node.at);
    let wrong = reader.wrong("old-format", at, "this is Signadot's format from before its API, which is not read");
    let plugin = document.get("kind").is_none_or(|kind| kind.value == YamlValue::String("ResourcePlugin".to_owned()));
    reader.note(wrong.help(if plugin {
        "write `name:` and `spec:` at the top, with `spec.runner.image` for the image and each provisioning program \
         as the `script` of a step under `spec.create` and `spec.delete`; a step's files become \
         `outputs[].valueFromPath`, the sandbox's params `inputs[].valueFromSandbox: true`"
    } else {
        "write `name:` and `spec:` at the top, without `apiVersion`, `kind` and `metadata`"
    }));
    None
}

/// Checks the name of a step, an input, an output or a target.
fn short_name(reader: &DocumentReader<'_>, name: &At<String>, what: &str) {
    reader.check_name(name, what, NameSyntax::Signadot, MAX_SIGNADOT_NAME);
}

fn plugin(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<PluginDoc> {
    let ResourcePlugin { mut name, spec, ebb } = reader.read(node)?;
    let version = reader.split_version(&mut name);
    let SignadotRunner { image, namespace, pod_template_overlay } = spec.runner.value;
    let runner = RunnerDoc { image, namespace, pod_template: pod_template_overlay };
    let template = node.find("spec").and_then(|spec| spec.find("runner")?.find("podTemplateOverlay"));
    if let Some(template) = template {
        reader.check_pod_template(template, "spec.runner.podTemplateOverlay", &runner);
    }
    let mut params = Entries::default();
    let mut hook = |steps: Named<Vec<SignadotStep>>, hook: &str| HookDoc {
        name: At { value: hook.to_owned(), at: steps.name.at },
        inner: Entries(steps.inner.into_iter().map(|step| unit(reader, step, &mut params)).collect()),
    };
    let mut pre_start = spec.create.map(|steps| hook(steps, "preStart"));
    let mut post_stop = spec.delete.map(|steps| hook(steps, "postStop"));
    let units = [&mut pre_start, &mut post_stop].into_iter().flatten().flat_map(|hook| hook.iter_mut());
    close_outputs(reader, &ebb.unwrap_or_default().outputs.0, units);
    let outputs = pre_start.iter().flat_map(|hook| hook.iter()).flat_map(|unit| {
        unit.outputs.iter().map(|Named { name, .. }| Named {
            name: At { value: format!("{}.{}", unit.name.value, name.value), at: name.at },
            inner: At { value: template::of_output(&unit.name.value, &name.value), at: name.at },
        })
    });
    Some(PluginDoc {
        outputs: Entries(outputs.collect()),
        name,
        version,
        description: spec.description,
        params,
        runners: Entries(vec![Named { name: At { value: "default".to_owned(), at: spec.runner.at }, inner: runner }]),
        pre_start,
        post_stop,
        dialect: Dialect::Signadot,
        source: reader.source.clone(),
        expanded,
        ..PluginDoc::default()
    })
}

/// Makes all outputs sensitive except the `opened` ones. Signadot, too, keeps outputs in Secrets of the cluster.
fn close_outputs<'u>(reader: &DocumentReader<'_>, opened: &[At<String>], units: impl Iterator<Item = &'u mut UnitDoc>) {
    let is_all = matches!(opened, [all] if all.value == ALL_OUTPUTS);
    let names: BTreeSet<&str> = opened.iter().map(|name| name.value.as_str()).collect();
    let mut known = BTreeSet::new();
    for unit in units {
        let step = unit.name.value.clone();
        for output in &mut unit.outputs.0 {
            let name = format!("{step}.{}", output.name.value);
            output.sensitive = Some(!is_all && !names.contains(name.as_str()));
            known.insert(name);
        }
    }
    for name in opened.iter().filter(|name| !is_all && !known.contains(&name.value)) {
        let wrong = reader.wrong("unknown-output", name.at, format!("no step has the output `{}`", name.value));
        reader.note_near(wrong, &name.value, known.iter().map(String::as_str));
    }
}

fn unit(reader: &DocumentReader<'_>, step: SignadotStep, params: &mut Entries<ParamDoc>) -> Named<UnitSpec> {
    short_name(reader, &step.name, "the step's name");
    reader.check_script(&step.script);
    let outputs = step.outputs.into_iter().map(|output| {
        short_name(reader, &output.name, "the output's name");
        let from = OutputFromDoc::File(output.value_from_path);
        let inner = OutputSpec { from, sensitive: None, optional: false, description: output.description };
        Named { name: output.name, inner }
    });
    let inputs = step.inputs.into_iter().filter_map(|one| input(reader, one, params)).collect();
    let spec = UnitSpec {
        action: ActionDoc::Pod(PodDoc { runner: None, script: step.script }),
        inputs: Entries(inputs),
        outputs: Entries(outputs.collect()),
        ..UnitSpec::default()
    };
    Named { name: step.name, inner: spec }
}

fn input(reader: &DocumentReader<'_>, input: SignadotInput, params: &mut Entries<ParamDoc>) -> Option<InputDoc> {
    let name = input.name;
    short_name(reader, &name, "the input's name");
    let wrong = |at, message| reader.wrong("value-source", at, format!("the input `{}` {message}", name.value));
    let nowhere = input.value_from_sandbox.as_ref().map_or(name.at, |given| given.at);
    let (text, at, optional) = match (input.value_from_sandbox.filter(|given| given.value), input.value_from_step) {
        (Some(given), None) => {
            if !params.iter().any(|known| known.name.value == name.value) {
                let required = Some(At { value: false, at: name.at });
                params.push(Named { name: name.clone(), inner: ParamDoc { required, ..ParamDoc::default() } });
            }
            (format!("${{params[?\"{}\"]}}", name.value), given.at, true)
        }
        (None, Some(At { value: step, .. })) => {
            short_name(reader, &step.name, "the step's name");
            short_name(reader, &step.output, "the output's name");
            (template::of_output(&step.name.value, &step.output.value), step.output.at, false)
        }
        (Some(_), Some(step)) => {
            reader.note(wrong(step.at, "has two sources").help("keep one of `valueFromSandbox` and `valueFromStep`"));
            return None;
        }
        (None, None) => {
            let wrong = wrong(nowhere, "has no source");
            reader.note(wrong.help("add `valueFromSandbox: true` or `valueFromStep: {name: STEP, output: OUTPUT}`"));
            return None;
        }
    };
    // Signadot's decoder, as usual in Go, does not distinguish an empty text from an absent one.
    let given = |text: Option<At<String>>| text.filter(|text| !text.value.is_empty());
    let value = At { value: TemplateTree::Text(text), at };
    Some(Named { name, inner: InputSpec { value, env: given(input.r#as.env), path: given(input.r#as.path), optional } })
}

fn sandbox(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let SignadotSandbox { name, spec, ebb } = reader.read(node)?;
    short_name(reader, &name, "the sandbox's name");
    let mut consumers = Vec::new();
    for key in ["forks", "local"] {
        if let Some(below) = node.find("spec").and_then(|spec| spec.find(key)) {
            let spec = NodePath::Key(&NodePath::Root, "spec");
            consume(reader, below, &NodePath::Key(&spec, key), "", &mut consumers);
        }
    }
    let mut sandbox = SandboxDoc {
        name,
        description: spec.description,
        cluster: Some(spec.cluster.value),
        labels: spec.labels,
        ttl: spec.ttl.map(|ttl| lifetime(reader, &ttl.duration, ttl.offset_from.as_ref(), &SandboxTtlStart::UpdatedAt)),
        resources: resources(reader, spec.resources),
        bind: ebb.unwrap_or_default().bind,
        consumers,
        dialect: Dialect::Signadot,
        source: reader.source.clone(),
        expanded,
        ..SandboxDoc::default()
    };
    bind::take(reader, &mut sandbox);
    Some(sandbox)
}

fn resources(reader: &DocumentReader<'_>, resources: Vec<SignadotResource>) -> Entries<ResourceSpec> {
    let resources = resources.into_iter().map(|mut resource| {
        short_name(reader, &resource.name, "the resource's name");
        let version = reader.split_reference(&mut resource.plugin);
        let params = resource.params.0.into_iter().map(|Named { name, inner: At { at, value } }| {
            let text = template::escape(&value.unwrap_or_default());
            Named { name, inner: At { value: ParamValue::Tree(TemplateTree::Text(text)), at } }
        });
        let params = Entries(params.collect());
        let spec = ResourceSpec { plugin: resource.plugin, params, version, ..ResourceSpec::default() };
        Named { name: resource.name, inner: spec }
    });
    Entries(resources.collect())
}

fn route_group(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<RouteGroupDoc> {
    let SignadotRouteGroup { name, spec, ebb } = reader.read(node)?;
    short_name(reader, &name, "the route group's name");
    let (ttl, ttl_from) = match spec.ttl {
        Some(At { value: SignadotTtl { duration, offset_from }, at }) => {
            let ttl = lifetime(reader, &duration, offset_from.as_ref(), &TtlStart::UpdatedAt);
            (Some(ttl), Some(offset_from.unwrap_or(At { value: TtlStart::default(), at })))
        }
        None => (None, None),
    };
    let mut target = SandboxDoc {
        target_kind: Some(At { value: "routegroup".to_owned(), at: name.at }),
        name,
        cluster: spec.cluster,
        ttl,
        resources: resources(reader, spec.resources),
        runners: spec.runners,
        defaults: spec.defaults,
        pre_start: spec.pre_start,
        post_start: spec.post_start,
        pre_stop: spec.pre_stop,
        post_stop: spec.post_stop,
        hooks: spec.hooks,
        bind: ebb.unwrap_or_default().bind,
        dialect: Dialect::Signadot,
        source: reader.source.clone(),
        expanded,
        ..SandboxDoc::default()
    };
    ebb::take_own_hooks(reader, node.find("spec").unwrap_or(node), &mut target);
    bind::take(reader, &mut target);
    Some(RouteGroupDoc { target, ttl_from })
}

/// Returns the duration of a `ttl`. Warns of a start that Ebb does not support.
fn lifetime<S: PartialEq>(
    reader: &DocumentReader<'_>,
    duration: &SignadotDuration,
    start: Option<&At<S>>,
    updated: &S,
) -> DurationMs {
    if let Some(offset) = start.filter(|start| start.value == *updated) {
        let message = "`updatedAt` is taken as `createdAt`";
        let warning = Diagnostic::warning("ttl-offset", reader.source, offset.at, message);
        reader.note(warning.help("the time to live is set when the target is created and stays as it is"));
    }
    DurationMs(duration.0)
}

/// Collects every `valueFrom.resource` at or below a node of `workload`.
fn consume(
    reader: &DocumentReader<'_>,
    node: &YamlNode,
    path: &NodePath<'_>,
    workload: &str,
    consumers: &mut Vec<ConsumerDoc>,
) {
    match &node.value {
        YamlValue::List(items) => {
            for (number, item) in items.iter().enumerate() {
                let workload = if workload.is_empty() { workload_name(item) } else { workload.to_owned() };
                consume(reader, item, &NodePath::Item(path, number), &workload, consumers);
            }
        }
        YamlValue::Map(entries) => {
            for (key, value) in entries {
                let path = NodePath::Key(path, &key.name);
                match value.get("resource") {
                    Some(resource) if key.name == "valueFrom" => {
                        let read = reader.read_below(resource, &NodePath::Key(&path, "resource"));
                        consumers.extend(read.map(|read| ConsumerDoc {
                            workload: workload.to_owned(),
                            env: text(node, "name"),
                            container: text(node, "container"),
                            file: text(node, "path"),
                            ..read
                        }));
                    }
                    _ => consume(reader, value, &path, workload, consumers),
                }
            }
        }
        _ => {}
    }
}

/// Returns the name of an entry of `forks` or `local`, as in [`Plan::workloads`](crate::plan::Plan::workloads).
fn workload_name(entry: &YamlNode) -> String {
    let part = |node: &YamlNode, key| text(node, key).unwrap_or_else(|| "-".to_owned());
    match entry.find("forkOf") {
        Some(origin) => ["kind", "namespace", "name"].map(|key| part(origin, key)).join("/"),
        None => format!("local/{}", part(entry, "name")),
    }
}

fn text(node: &YamlNode, key: &str) -> Option<String> {
    match &node.find(key)?.value {
        YamlValue::String(text) => Some(text.clone()),
        _ => None,
    }
}
