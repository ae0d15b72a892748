//! Tools about documents, plugins and clusters.

use ebb_documents::{Diagnostics, Document, DocumentVars, NoFiles, PluginDoc, RouteGroupDoc, compile, load};
use ebb_protocol::{
    ApplyTarget, ClusterDetail, ClusterList, DocumentBody, DocumentError, HistoryDetail, LifecycleResult, PlanPreview,
    PluginDetail, PluginInfo, PluginList, TargetReceipt,
};
use http::Method;
use serde_json::{Value, json};

use crate::mcp::api_calls::with_tools;
use crate::mcp::arguments::tool_arguments;
use crate::mcp::docs_search::EXAMPLE;
use crate::mcp::target_tools::{MAX_NAMED, first, no_document, sandbox};
use crate::mcp::{Answer, ApiCalls, ToolError, invalid, pick, yaml};

/// The name of a document in errors.
const DOCUMENT: &str = "document";

impl From<Diagnostics> for ToolError {
    fn from(errors: Diagnostics) -> Self {
        Self::Document(errors.to_string().lines().map(with_tools).collect())
    }
}

/// Runs a computation on a document on a thread that serves no requests.
async fn offload<T: Send + 'static>(
    compute: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let computed = tokio::task::spawn_blocking(compute).await;
    computed.unwrap_or_else(|error| Err(ToolError::Arguments(format!("the document cannot be read: {error}"))))
}

fn warning_lines(warnings: &[DocumentError]) -> impl Iterator<Item = String> + '_ {
    warnings.iter().map(|warning| {
        let line = warning.line.map(|line| format!("{line}: ")).unwrap_or_default();
        format!("warning: {line}[{}] {}", warning.code, warning.message)
    })
}

tool_arguments! { PlanDocument:
    /// The document of a sandbox or another target, as YAML or JSON.
    document: String,
    /// Shows the rendered request, manifests or inputs of this unit, RESOURCE/UNIT, only. get_plugin shows scripts.
    unit: Option<String>,
}

pub(crate) async fn plan_document(api: &ApiCalls, arguments: PlanDocument) -> Result<Answer, ToolError> {
    let body = json!(DocumentBody { document: arguments.document });
    let plan: PlanPreview = api.send(Method::POST, &["plans"], &[], Some(body)).await?;
    let units = || plan.hooks.iter().flat_map(|hook| hook.units.iter().map(move |unit| (&hook.hook, unit)));
    if let Some(wanted) = &arguments.unit {
        let found: Vec<Value> = units().filter(|(_, unit)| unit.key == *wanted).map(|(_, unit)| json!(unit)).collect();
        if found.is_empty() {
            let keys: Vec<&str> = units().map(|(_, unit)| unit.key.as_str()).take(MAX_NAMED).collect();
            let (all, keys) = (units().count(), keys.join(", "));
            return invalid(format!("the plan has no unit {wanted:?}; the first of its {all} units: {keys}"));
        }
        let rest = |_| "More was left out: `ebb plan FILE -o json` prints all.".to_owned();
        return Ok(Answer::new(
            format!("The unit {wanted}, rendered:"),
            "get_plugin shows the script of a pod; plan_document without \"unit\" shows the order",
        )
        .with(found.iter().flat_map(yaml), rest));
    }
    let steps = units().map(|(hook, unit)| {
        let after: Vec<String> = unit.after.iter().map(|edge| format!("{} ({})", edge.key, edge.reason)).collect();
        let after = if after.is_empty() { String::new() } else { format!(", after {}", after.join(", ")) };
        format!("{hook} {} ({}){after}", unit.key, unit.kind)
    });
    let lines: Vec<String> = warning_lines(&plan.warnings).chain(steps).collect();
    let rest = |_| "More units were left out: `ebb plan FILE` prints all.".to_owned();
    let next = "plan_document with \"unit\" shows one rendered; apply_document with \"dry_run\": true compares with the \
                living target";
    Ok(Answer::new("The document is valid. Its units, by hook:", next).with(lines, rest))
}

tool_arguments! { ValidatePlugin:
    /// The document of one plugin, or of several, separated by `---`.
    document: String,
}

pub(crate) async fn validate_plugin(_: &ApiCalls, arguments: ValidatePlugin) -> Result<Answer, ToolError> {
    let lines = offload(move || {
        let mut lines = Vec::new();
        for plugin in load::plugins(DOCUMENT, &arguments.document, &NoFiles, &DocumentVars::none())? {
            let (warnings, _) = compile::check_plugin(&plugin)?;
            let version = plugin.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
            lines.push(format!("{}{version} is valid", plugin.name.value));
            lines.extend(warnings.iter().map(|warning| warning.plain()));
        }
        Ok(lines)
    });
    let rest = |_| "More was left out: `ebb validate FILE` prints all.".to_owned();
    let next = "apply_document publishes one plugin; plan_document shows its units in a target";
    Ok(Answer::new("The document is valid:", next).with(lines.await?, rest))
}

tool_arguments! { ApplyDocument:
    /// The document of a sandbox, another target or a plugin, as YAML or JSON. Without it, `name` and `entry` are needed.
    document: Option<String>,
    /// The name of the target whose history has the entry.
    name: Option<String>,
    /// The kind of the target, if its document names none.
    #[serde(default = "sandbox")]
    kind: String,
    /// The id of an entry of its history, whose document is applied again.
    entry: Option<String>,
    /// Shows the effect and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// Also if complete resources are removed or replaced, so that what they hold is lost. Ask a person first.
    #[serde(default)]
    allow_replace: bool,
}

enum AppliedDocument {
    Target(ApplyTarget),
    Plugin(CheckedPlugin),
}

/// A plugin without errors.
struct CheckedPlugin {
    name: String,
    version: String,
    digest: String,
    /// The document with all `@{…}` expanded.
    text: String,
    warnings: Vec<String>,
}

impl CheckedPlugin {
    fn new(plugin: &PluginDoc) -> Result<Self, ToolError> {
        let warnings = compile::check_plugin(plugin)?.0.iter().map(|warning| warning.plain()).collect();
        // The API publishes a plugin without a version as this one.
        let version = plugin.version.as_ref().map_or_else(|| "0.0.0".to_owned(), ToString::to_string);
        let (name, text) = (plugin.name.value.clone(), plugin.expanded.clone());
        Ok(Self { name, version, digest: load::digest(plugin), text, warnings })
    }

    /// Publishes the plugin, or shows whether that is possible.
    async fn publish(self, api: &ApiCalls, is_dry_run: bool) -> Result<Answer, ToolError> {
        let Self { name, version, digest, text, warnings } = self;
        let full = format!("{name}@{version}");
        let rest = |_| "More warnings were left out: `ebb validate FILE` prints all.".to_owned();
        let used = format!("name {full} in `resources` of a target, or upgrade_plugin gives it to living targets");
        if !is_dry_run {
            let body = json!(DocumentBody { document: text });
            let _: PluginInfo = api.send(Method::POST, &["plugins"], &[], Some(body)).await?;
            return Ok(Answer::new(format!("The version {full} is published."), used).with(warnings, rest));
        }
        let found: Result<PluginDetail, ToolError> = api.get(&["plugins", &name, "versions", &version], &[]).await;
        let title = match found {
            Ok(found) if found.info.digest == digest && found.withdrawn.is_none() => {
                return Ok(Answer::new(format!("The version {full} is published already."), used).with(warnings, rest));
            }
            Ok(found) if found.info.digest == digest => {
                format!("The withdrawn version {full} would be published again.")
            }
            Ok(_) => {
                return invalid(format!("{full} is published with another document: write a new version into `name`"));
            }
            Err(ToolError::Refused(problem)) if problem.status == 404 => {
                format!("The version {full} would be published.")
            }
            Err(error) => return Err(error),
        };
        Ok(Answer::new(title, "apply_document without \"dry_run\" publishes it").with(warnings, rest))
    }
}

/// Returns a document in the form in which it is sent. `kind` is the kind of a target that names none.
fn loaded(text: &str, kind: String) -> Result<AppliedDocument, ToolError> {
    let document = load::document(DOCUMENT, text, &NoFiles, &DocumentVars::none())?;
    let target = match &document {
        Document::Plugin(plugin) => return CheckedPlugin::new(plugin).map(AppliedDocument::Plugin),
        Document::Sandbox(target) | Document::RouteGroup(RouteGroupDoc { target, .. }) => target,
        other => return invalid(format!("the document is {}; expected a target or a plugin", other.noun())),
    };
    let kind = target.target_kind.as_ref().map_or(kind, |own| own.value.clone());
    let name = target.name.value.clone();
    let document = document.expanded().to_owned();
    Ok(AppliedDocument::Target(ApplyTarget { kind, name, document, ..ApplyTarget::default() }))
}

pub(crate) async fn apply_document(api: &ApiCalls, arguments: ApplyDocument) -> Result<Answer, ToolError> {
    let ApplyDocument { document, name, kind, entry, dry_run, allow_replace } = arguments;
    let text = match (document, name, entry) {
        (Some(document), None, None) => document,
        (None, Some(name), Some(entry)) => {
            let found: HistoryDetail = api.get(&["targets", &kind, &name, "history", &entry], &[]).await?;
            found.text.ok_or_else(|| no_document(&entry))?
        }
        _ => return invalid("`document` is needed, or `name` and `entry` of a history, and not both"),
    };
    let request = match offload(move || loaded(&text, kind)).await? {
        AppliedDocument::Target(request) if dry_run => request,
        AppliedDocument::Target(request) => ApplyTarget { allow_replace: Some(allow_replace), ..request },
        AppliedDocument::Plugin(plugin) => return plugin.publish(api, dry_run).await,
    };
    let named = json!({"name": request.name, "kind": request.kind});
    let query = [("dryRun", dry_run.then_some("true"))];
    let receipt: TargetReceipt = api.send(Method::POST, &["targets"], &query, Some(json!(request))).await?;
    let shown = pick(
        &json!(receipt),
        &["target", "uid", "generation", "result", "owner", "changes", "resources", "lost", "expires"],
    );
    let warnings = receipt.plan.iter().flat_map(|plan| warning_lines(&plan.warnings));
    let lines: Vec<String> = yaml(&shown).into_iter().chain(warnings).collect();
    let (title, next) = match (dry_run, receipt.result) {
        (true, _) if !receipt.lost.is_empty() => {
            let next = "ask a person whether what is in `lost` may be lost; apply_document with \"allow_replace\": true and \
                        without \"dry_run\" makes the change";
            ("This would be changed:", next.to_owned())
        }
        (true, _) => ("This would be changed:", "apply_document without \"dry_run\" makes the change".to_owned()),
        (false, LifecycleResult::Waiting) => {
            ("The change is accepted and waits:", format!("why_not_ready {named} shows what it waits for"))
        }
        (false, _) => {
            ("The change is accepted:", format!("get_target {named} until it is ready; if not, why_not_ready"))
        }
    };
    let rest = |_| "More was left out: `ebb apply -f FILE --dry-run` prints all.".to_owned();
    Ok(Answer::new(title, next).with(lines, rest))
}

tool_arguments! { ListPlugins:
    /// The name of a plugin. Without it, all plugins.
    name: Option<String>,
}

pub(crate) async fn list_plugins(api: &ApiCalls, arguments: ListPlugins) -> Result<Answer, ToolError> {
    let path: Vec<&str> = ["plugins"].into_iter().chain(arguments.name.as_deref()).collect();
    let PluginList { plugins } = api.get(&path, &[]).await?;
    // They are ordered by name, the highest version first.
    let lines = plugins.chunk_by(|one, other| one.name == other.name).map(|versions| {
        let numbers: Vec<&str> = versions.iter().map(|version| version.version.as_str()).collect();
        format!("{}: {}", versions[0].name, numbers.join(", "))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        let example = json!({"section": EXAMPLE});
        let next = format!("apply_document publishes one; search_docs {example} shows a whole one");
        return Ok(Answer::new("No plugin is published.", next));
    }
    let rest = |_| "More plugins were left out: `ebb get plugins` prints all.".to_owned();
    let next = "get_plugin with a name shows the parameters and outputs";
    Ok(Answer::new("Plugins with their versions:", next).with(lines, rest))
}

fn latest() -> String {
    "latest".to_owned()
}

tool_arguments! { GetPlugin:
    /// The name of the plugin, or NAME@VERSION.
    name: String,
    /// A version such as `2.1.0` or `2`, or `latest`.
    #[serde(default = "latest")]
    version: String,
    /// The first line of the document to show, from 1.
    #[serde(default = "first")]
    from_line: usize,
}

pub(crate) async fn get_plugin(api: &ApiCalls, arguments: GetPlugin) -> Result<Answer, ToolError> {
    let GetPlugin { name, version, from_line } = arguments;
    // Lists show a plugin with its version.
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name.to_owned(), version.to_owned()),
        None => (name, version),
    };
    let plugin: PluginDetail = api.get(&["plugins", &name, "versions", &version], &[]).await?;
    let (name, version) = (plugin.info.name, plugin.info.version);
    let withdrawn = plugin.withdrawn.map(|at| format!(", withdrawn at {at}")).unwrap_or_default();
    let title = format!("The document of {name}@{version}{withdrawn}");
    let call = ("get_plugin", json!({"name": name, "version": version}));
    Answer::of_text((title, "search_docs explains fields of documents"), &plugin.document, from_line, call)
        .map_err(ToolError::Arguments)
}

tool_arguments! { ListClusters:
    /// The name of a cluster, to see what its policy allows. Without it, all clusters with the state of their relays.
    name: Option<String>,
}

pub(crate) async fn list_clusters(api: &ApiCalls, arguments: ListClusters) -> Result<Answer, ToolError> {
    if let Some(name) = arguments.name {
        let cluster: ClusterDetail = api.get(&["clusters", &name], &[]).await?;
        let rest = move |_| format!("More was left out: `ebb cluster get {name}` prints all.");
        let next = "plan_document warns of what the policy refuses";
        return Ok(Answer::new("The cluster:", next).with(yaml(&json!(cluster)), rest));
    }
    let ClusterList { clusters } = api.get(&["clusters"], &[]).await?;
    let keys = ["name", "state", "transport", "version", "tasks", "error", "outage"];
    let lines: Vec<String> = clusters.iter().map(|cluster| pick(&json!(cluster), &keys).to_string()).collect();
    let (title, next) = match lines.is_empty() {
        true => ("No cluster is connected.", "ask a person to connect one: `ebb cluster connect NAME`"),
        false => ("Clusters:", "list_clusters with a name shows what its policy allows"),
    };
    let rest = |_| "More clusters were left out: `ebb cluster list` prints all.".to_owned();
    Ok(Answer::new(title, next).with(lines, rest))
}
