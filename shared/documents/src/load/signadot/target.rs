//! Signadot's Sandbox and RouteGroup.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::load::{bind, ebb};
use crate::{
    At, BindDoc, BoundName, BoundObjectDoc, ConsumerDoc, DefaultsDoc, Dialect, DocumentReader, DurationMs, Entries,
    HookDoc, Named, NodePath, ReferenceSource, ResourceSpec, RouteGroupDoc, RunnerDoc, SandboxDoc, TemplateTree,
    TtlDoc, TtlFrom, TtlStart, UnitSpec, YamlNode, YamlValue, durations, escaping,
};

/// A Signadot Sandbox.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Sandbox")]
pub(crate) struct SignadotSandbox {
    /// At most 30 characters.
    name: At<String>,
    spec: SandboxSpec,
    /// The settings that only Ebb reads.
    ebb: Option<TargetExtension>,
}

/// The keys that Ebb adds to a sandbox or a route group, so that one document serves both. Signadot ignores them.
#[serde_with::apply(Entries => #[serde(default)], Vec => #[serde(default)])]
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TargetExtension {
    /// Resources that only Ebb makes, in the form of Signadot.
    resources: Vec<SignadotResource>,
    /// By the name of a resource: `true` protects it, `false` ends the protection by its plugin.
    protect: Entries<At<bool>>,
    /// Secrets and ConfigMaps with outputs for workloads, as in a sandbox of Ebb.
    bind: Vec<At<BindDoc>>,
    /// If `true`, a Secret for each fork has the variables that it reads from resources, in its namespace.
    #[serde(default)]
    bind_forks: bool,
    /// The runners of the own hooks.
    runners: Entries<RunnerDoc>,
    /// `timeout` and `retry` of own units that set none.
    #[serde(default)]
    defaults: DefaultsDoc,
    pre_start: Option<HookDoc>,
    post_start: Option<HookDoc>,
    pre_stop: Option<HookDoc>,
    post_stop: Option<HookDoc>,
    hooks: Entries<Entries<UnitSpec>>,
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
    ebb: Option<TargetExtension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "some parts are used by Signadot alone, and are checked for their type")]
struct RouteGroupSpec {
    cluster: Option<String>,
    description: Option<String>,
    r#match: Option<RouteGroupMatch>,
    #[serde(default)]
    endpoints: Vec<RouteGroupEndpoint>,
    ttl: Option<At<SignadotTtl<TtlStart>>>,
}

#[derive(Deserialize)]
#[serde(rename = "Match", rename_all = "camelCase")]
#[expect(dead_code, reason = "it is used by Signadot alone, and is checked for its type")]
enum RouteGroupMatch {
    Label(MatchLabel),
    All(Vec<RouteGroupMatch>),
    Any(Vec<RouteGroupMatch>),
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
    let binds_forks = ebb.as_ref().is_some_and(|ebb| ebb.bind_forks);
    let mut sandbox = SandboxDoc {
        name,
        description: spec.description,
        cluster: Some(spec.cluster.value),
        labels: spec.labels,
        ttl: spec.ttl.map(|ttl| lifetime(&ttl, &SandboxTtlStart::UpdatedAt)),
        consumers,
        ..extended(reader, spec.resources, ebb, expanded)
    };
    if binds_forks {
        sandbox.bind.extend(fork_secrets(reader, &sandbox.consumers));
    }
    Some(completed(reader, node, sandbox))
}

/// Returns a Secret for each workload of a namespace with the variables that its forks read, by their names, or by
/// `CONTAINER.NAME`. Reports two values of one name.
fn fork_secrets(reader: &DocumentReader<'_>, consumers: &[ConsumerDoc]) -> Vec<At<BindDoc>> {
    let mut forks: BTreeMap<(&str, &str), Entries<At<String>>> = BTreeMap::new();
    for ConsumerDoc { resource, output, workload, env, container, .. } in consumers {
        let parts: Vec<&str> = workload.split('/').collect();
        // A local workload has no namespace.
        let ([_, namespace, name], Some(env)) = (parts.as_slice(), env) else { continue };
        let key = container.as_ref().map_or_else(|| env.clone(), |container| format!("{container}.{env}"));
        let read = ReferenceSource::Resource { resource: resource.value.clone(), output: output.value.clone() };
        let data = forks.entry((*namespace, *name)).or_default();
        let (value, text) = (format!("${{{read}}}"), |value| At { value, at: output.at });
        match data.iter().find(|first| first.name.value == key) {
            None => data.0.push(Named { name: text(key), inner: text(value) }),
            Some(first) if first.inner.value != value => {
                let message = format!("the Secret of the forks of `{namespace}/{name}` gets two values of `{key}`");
                let wrong = reader.wrong("duplicate", output.at, message).related(first.name.at, "the first one");
                reader.note(wrong.help("rename a variable, or list the Secrets below `bind`, without `bindForks`"));
            }
            Some(_) => {}
        }
    }
    let secret = |((namespace, name), data): ((&str, &str), Entries<At<String>>)| {
        let at = data.first().map(|first| first.name.at).unwrap_or_default();
        let text = |value| At { value, at };
        let name = text(format!("${{target.name.lowerAscii()}}-{}", escaping::escape(name)));
        let object = BoundObjectDoc::Secret(BoundName { namespace: text(escaping::escape(namespace)), name });
        At { value: BindDoc { object, data }, at }
    };
    forks.into_iter().map(secret).collect()
}

/// Returns a target that has only what is the same in a sandbox and a route group: the resources of its `spec`, and what
/// Ebb adds.
fn extended(
    reader: &DocumentReader<'_>,
    of_spec: Vec<SignadotResource>,
    ebb: Option<TargetExtension>,
    expanded: String,
) -> SandboxDoc {
    let ebb = ebb.unwrap_or_default();
    let mut all = resources(reader, of_spec, escaping::escape);
    // Signadot does not read these, so their texts are templates, as in a sandbox of Ebb.
    all.0.extend(resources(reader, ebb.resources, str::to_owned).0);
    for Named { name, inner } in ebb.protect.0 {
        match all.iter_mut().find(|resource| resource.name.value == name.value) {
            Some(resource) => resource.protect = Some(inner),
            None => {
                let message = format!("the resource `{}` does not exist", name.value);
                let known = all.iter().map(|resource| resource.name.value.as_str());
                reader.note_near(reader.wrong("unknown-resource", name.at, message), &name.value, known);
            }
        }
    }
    SandboxDoc {
        resources: all,
        bind: ebb.bind,
        runners: ebb.runners,
        defaults: ebb.defaults,
        pre_start: ebb.pre_start,
        post_start: ebb.post_start,
        pre_stop: ebb.pre_stop,
        post_stop: ebb.post_stop,
        hooks: ebb.hooks,
        dialect: Dialect::Signadot,
        source: reader.source.clone(),
        expanded,
        ..SandboxDoc::default()
    }
}

/// Returns a target with its own hooks and the units of `bind`.
fn completed(reader: &DocumentReader<'_>, node: &YamlNode, mut target: SandboxDoc) -> SandboxDoc {
    ebb::take_own_hooks(reader, node.find("ebb").unwrap_or(node), &mut target);
    bind::take(reader, &mut target);
    target
}

/// Returns the resources. `template` returns the template of a param.
fn resources(
    reader: &DocumentReader<'_>,
    resources: Vec<SignadotResource>,
    template: fn(&str) -> String,
) -> Entries<ResourceSpec> {
    let resources = resources.into_iter().map(|mut resource| {
        reader.check_short_name(&resource.name, "the resource's name");
        let version = reader.split_reference(&mut resource.plugin);
        let params = resource.params.0.into_iter().map(|Named { name, inner: At { at, value } }| {
            let text = template(&value.unwrap_or_default());
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
            let duration = lifetime(&ttl, &TtlStart::UpdatedAt);
            (Some(duration), Some(ttl.offset_from.unwrap_or(At { value: TtlStart::default(), at })))
        }
        None => (None, None),
    };
    let target = SandboxDoc {
        target_kind: Some(At { value: "routegroup".to_owned(), at: name.at }),
        name,
        cluster: spec.cluster,
        ttl,
        ..extended(reader, Vec::new(), ebb, expanded)
    };
    Some(RouteGroupDoc { target: completed(reader, node, target), ttl_from })
}

/// Returns a `ttl`. One that counts from the last update counts from the last activity.
fn lifetime<S: PartialEq>(ttl: &SignadotTtl<S>, updated: &S) -> TtlDoc {
    let is_sliding = ttl.offset_from.as_ref().is_some_and(|start| start.value == *updated);
    let from = if is_sliding { TtlFrom::Activity } else { TtlFrom::Creation };
    TtlDoc { after: DurationMs(ttl.duration.0), from }
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
    node.find(key)?.text().map(str::to_owned)
}
