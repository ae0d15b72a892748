//! Gives targets another version of a plugin, for the tool of agents and for the command line.
//!
//! For each target: read the document that it has from its history, write the version into it, and apply it. The effect is
//! read by a dry run before.

use std::collections::BTreeMap;

use ebb_documents::compile::CLUSTER_POLICY;
use ebb_documents::pinned_version::{PinError, with_version};
use ebb_protocol::api::{ApplyTarget, PluginDetail, ResourceEffect, TargetDetail, TargetReceipt};
use ebb_protocol::history::{HistoryDetail, HistoryPage};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::mcp::answer::{Answer, pick};
use crate::mcp::api_calls::{ApiCalls, ToolError};
use crate::mcp::document_tools::offload;
use crate::mcp::target_outcomes::{TargetOutcomes, distinct};
use crate::mcp::target_tools::sandbox;

/// Maximum pages of a history, of 20 entries each, in which the document of a target is looked for.
const MAX_PAGES: usize = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpgradePlugin {
    /// The published version, as NAME@VERSION. Without VERSION, the highest one.
    plugin: String,
    /// The names of the targets, at most 20.
    names: Vec<String>,
    /// The kind of the targets.
    #[serde(default = "sandbox")]
    kind: String,
    /// Shows the effect and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Applies the documents of targets again, with another version of a plugin. A target that refuses it has its reason in the
/// answer.
pub(crate) async fn upgrade_plugin(api: &ApiCalls, arguments: UpgradePlugin) -> Result<Answer, ToolError> {
    let UpgradePlugin { plugin, names, kind, dry_run } = arguments;
    let names = distinct(names)?;
    let full = published(api, &plugin).await?;
    let mut outcomes = TargetOutcomes::begin();
    let mut changed = 0;
    for name in &names {
        let target = format!("{kind}/{name}");
        let shown = ["target", "uid", "generation", "result", "resources", "changes"];
        let upgrade = async {
            Ok(match upgrade_target(api, [&kind, name], &full, dry_run).await? {
                Some(receipt) => {
                    changed += 1;
                    pick(&json!(receipt), &shown)
                }
                None => json!({"target": &target, "result": "unchanged", "why": format!("it has {full} already")}),
            })
        };
        outcomes.add(target.clone(), upgrade).await?;
    }
    let (lines, refused) = outcomes.finish()?;
    let title = match (dry_run, refused) {
        (true, 0) => format!("This would be changed by {full}:"),
        (true, refused) => format!("This would be changed by {full}; refused by {refused}:"),
        (false, 0) => format!("The targets get {full}:"),
        (false, refused) => format!("The targets get {full}; refused by {refused}:"),
    };
    let next = match dry_run {
        _ if changed == 0 => "nothing changes; list_targets with \"plugin\" shows the versions that targets use",
        true => "ask a person if resources are replaced; upgrade_plugin without \"dry_run\" makes the change",
        false => "get_target with each name until it is ready; if not, why_not_ready",
    };
    let rest = |shown| format!("Only {shown} targets are shown: call upgrade_plugin with fewer names.");
    Ok(Answer::new(title, next).with(lines, rest))
}

/// Returns the version that new targets can use, as `NAME@VERSION`.
async fn published(api: &ApiCalls, plugin: &str) -> Result<String, ToolError> {
    let (name, version) = plugin.split_once('@').unwrap_or((plugin, "latest"));
    let found: PluginDetail = api.get(&["plugins", name, "versions", version], &[]).await?;
    let full = format!("{}@{}", found.info.name, found.info.version);
    match found.withdrawn {
        None => Ok(full),
        Some(at) => Err(ToolError::Arguments(format!("{full} was withdrawn at {at}; list_plugins shows the others"))),
    }
}

/// Applies the stored document of a target again, with another version of a plugin. `full` is the version, as `NAME@VERSION`.
/// With `is_dry_run`, nothing is changed. Returns the effect, or `None` if the target has the version.
///
/// # Errors
/// Returns an error if the target does not live, if its document is not stored or cannot get the version, if the policy of a
/// cluster refuses the result, or if a request fails.
pub async fn upgrade_target(
    api: &ApiCalls,
    [kind, name]: [&str; 2],
    full: &str,
    is_dry_run: bool,
) -> Result<Option<TargetReceipt>, ToolError> {
    let seen: TargetDetail = api.get(&["targets", kind, name], &[]).await?;
    if !seen.info.phase.is_alive() {
        let reason = format!("the target is {}; only living targets get another version", seen.info.phase.name());
        return Err(ToolError::Arguments(reason));
    }
    let generation = seen.pending_generation.unwrap_or(seen.info.generation);
    let text = stored_document(api, [kind, name], &seen.info.uid, generation).await?;
    let plugins: BTreeMap<String, String> =
        seen.resources.iter().map(|(name, resource)| (name.clone(), resource.plugin.clone())).collect();
    let wanted = full.to_owned();
    let edited = offload(move || with_version(&text, &wanted, &plugins).map_err(ToolError::from)).await?;
    let Some(document) = edited else { return Ok(None) };
    let request = ApplyTarget {
        kind: kind.to_owned(),
        name: name.to_owned(),
        document,
        uid: Some(seen.info.uid),
        generation: Some(generation),
        routing_key: None,
    };
    let body = json!(request);
    let dry_run = [("dryRun", Some("true"))];
    let preview: TargetReceipt = api.send(Method::POST, &["targets"], &dry_run, Some(body.clone())).await?;
    if is_dry_run {
        // The update itself is refused if it would undo a resource that the cluster then refuses.
        let replaces = preview.resources.values().any(|effect| *effect == ResourceEffect::Replaced);
        let mut warnings = preview.plan.iter().flat_map(|plan| &plan.warnings);
        return match warnings.find(|warning| replaces && warning.code == CLUSTER_POLICY) {
            Some(warning) => Err(ToolError::Arguments(warning.message.clone())),
            None => Ok(Some(preview)),
        };
    }
    let done: TargetReceipt = api.send(Method::POST, &["targets"], &[], Some(body)).await?;
    Ok(Some(TargetReceipt { generation: done.generation, result: done.result, ..preview }))
}

/// Returns the document of a generation from the history.
async fn stored_document(
    api: &ApiCalls,
    [kind, name]: [&str; 2],
    uid: &str,
    generation: u64,
) -> Result<String, ToolError> {
    let mut after: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let page: HistoryPage =
            api.get(&["targets", kind, name, "history"], &[("nextToken", after.as_deref())]).await?;
        // The newest one, because a withdrawn update can have had the same generation.
        let mut own = page.entries.iter().filter(|entry| entry.uid == uid && entry.generation == generation);
        if let Some(entry) = own.find(|entry| entry.document.is_some()) {
            let found: HistoryDetail = api.get(&["targets", kind, name, "history", &entry.id], &[]).await?;
            if let Some(text) = found.text {
                return Ok(text);
            }
            break;
        }
        after = page.next_token;
        if after.is_none() {
            break;
        }
    }
    Err(ToolError::Arguments("its document is not stored: apply it from its file".to_owned()))
}

impl From<PinError> for ToolError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Document(errors) => errors.into(),
            other => Self::Arguments(other.to_string()),
        }
    }
}
