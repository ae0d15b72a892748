//! Signadot's Sandbox and RouteGroup.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::diagnostic::Diagnostic;
use crate::durations;
use crate::escaping;
use crate::load::reader::{DocumentReader, NodePath};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::load::{bind, ebb};
use crate::model::{
    At, BindDoc, ConsumerDoc, DefaultsDoc, Dialect, DurationMs, Entries, HookDoc, Named, ResourceSpec, RouteGroupDoc,
    RunnerDoc, SandboxDoc, TemplateTree, TtlStart, UnitSpec, alternatives,
};

/// A Signadot Sandbox.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Sandbox")]
pub(crate) struct SignadotSandbox {
    /// At most 30 characters.
    name: At<String>,
    spec: SandboxSpec,
    /// The settings that only Ebb reads.
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

#[serde_with::apply(BTreeMap => #[serde(default)], Vec => #[serde(default)])]
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "some parts are used by Signadot alone, and are checked for their type")]
struct SandboxSpec {
    /// The cluster.
    cluster: At<String>,
    /// Free text.
    description: Option<String>,
    /// Labels.
    labels: BTreeMap<String, String>,
    ttl: Option<SignadotTtl<SandboxTtlStart>>,
    /// Its resources.
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

#[derive(Deserialize)]
struct SignadotRouteGroup {
    name: At<String>,
    spec: RouteGroupSpec,
    ebb: Option<SandboxExtension>,
}

/// The parts of Signadot, and the resources and own hooks that Ebb adds.
#[serde_with::apply(Entries => #[serde(default)], Vec => #[serde(default)])]
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "some parts are used by Signadot alone, and are checked for their type")]
struct RouteGroupSpec {
    resources: Vec<SignadotResource>,
    runners: Entries<RunnerDoc>,
    #[serde(default)]
    defaults: DefaultsDoc,
    pre_start: Option<HookDoc>,
    post_start: Option<HookDoc>,
    pre_stop: Option<HookDoc>,
    post_stop: Option<HookDoc>,
    hooks: Entries<Entries<UnitSpec>>,
    cluster: Option<String>,
    description: Option<String>,
    r#match: Option<RouteGroupMatch>,
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

/// Reads a sandbox. Returns `None` after it has reported an error.
pub(super) fn sandbox(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let SignadotSandbox { name, spec, ebb } = reader.read(node)?;
    reader.check_short_name(&name, "the sandbox's name");
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
        ttl: spec.ttl.map(|ttl| lifetime(reader, &ttl, &SandboxTtlStart::UpdatedAt)),
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
        reader.check_short_name(&resource.name, "the resource's name");
        let version = reader.split_reference(&mut resource.plugin);
        let params = resource.params.0.into_iter().map(|Named { name, inner: At { at, value } }| {
            let text = escaping::escape(&value.unwrap_or_default());
            Named { name, inner: At { value: TemplateTree::Text(text), at } }
        });
        let params = Entries(params.collect());
        let spec = ResourceSpec { plugin: resource.plugin, params, version, ..ResourceSpec::default() };
        Named { name: resource.name, inner: spec }
    });
    Entries(resources.collect())
}

/// Reads a route group. Returns `None` after it has reported an error.
pub(super) fn route_group(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<RouteGroupDoc> {
    let SignadotRouteGroup { name, spec, ebb } = reader.read(node)?;
    reader.check_short_name(&name, "the route group's name");
    let (ttl, ttl_from) = match spec.ttl {
        Some(At { value: ttl, at }) => {
            let duration = lifetime(reader, &ttl, &TtlStart::UpdatedAt);
            (Some(duration), Some(ttl.offset_from.unwrap_or(At { value: TtlStart::default(), at })))
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
fn lifetime<S: PartialEq>(reader: &DocumentReader<'_>, ttl: &SignadotTtl<S>, updated: &S) -> DurationMs {
    if let Some(offset) = ttl.offset_from.as_ref().filter(|start| start.value == *updated) {
        let message = "`updatedAt` is taken as `createdAt`";
        let warning = Diagnostic::warning("ttl-offset", reader.source, offset.at, message);
        reader.note(warning.help("the time to live is set when the target is created and stays as it is"));
    }
    DurationMs(ttl.duration.0)
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
                let path = NodePath::Key(path, &key.value);
                match value.get("resource") {
                    Some(resource) if key.value == "valueFrom" => {
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
    let YamlValue::String(text) = &node.find(key)?.value else { return None };
    Some(text.clone())
}
