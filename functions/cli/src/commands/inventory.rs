//! `ebb inventory`: compares what a plugin lists with what Ebb knows. Only the target that lists is made and deleted.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ebb_documents::{Document, DocumentVars, NoFiles, PluginDoc, load};
use ebb_protocol::OutputValue;
use ebb_protocol::api::{PluginDetail, PluginInfo, TargetDetail, TargetInfo, TargetPhase, TargetSelector};
use ebb_protocol::words::commands;
use serde_json::{Map, Value, json};

use super::apply_target::AppliedTarget;
use super::plugin::VersionedName;
use crate::client::UNREAD;
use crate::selector::pair;
use crate::{ApiClient, CliError, Exit, InterruptCount, OutputArgs, Result, TargetRef, named, output, timing};

/// The resource of the target that lists.
const RESOURCE: &str = "listed";
/// The characters of the digest at the end of each key.
const DIGEST: usize = 16;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb inventory neon-branch --param project=quiet-sea-1")]
pub(crate) struct InventoryArgs {
    /// Plugin with `inventory`; without VERSION, the highest one
    #[arg(value_name = "NAME[@VERSION]")]
    plugin: VersionedName,
    /// Value of a param, as in a sandbox; repeatable
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = param)]
    params: Vec<(String, Value)>,
    /// Cluster of its pods; by default `default`
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Longest time to wait for the list
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "10m")]
    wait_timeout: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

/// Parses a param. A value that is not a text in YAML keeps its type.
fn param(text: &str) -> Result<(String, Value), String> {
    let (name, value) = pair(text)?;
    let parsed = serde_saphyr::from_str::<Value>(&value).ok();
    let typed = parsed.filter(|parsed| parsed.is_object() || parsed.is_array() || format!("{parsed}") == value);
    Ok((name, typed.unwrap_or(Value::String(value))))
}

fn incomplete(why: &str) -> CliError {
    CliError::failed(format!("the inventory is incomplete: {why}"))
}

impl InventoryArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let PluginDetail { info: PluginInfo { name, version, .. }, .. } = self.plugin.find(client).await?;
        let short: String = name.chars().take(63).collect();
        let target = TargetRef { kind: PluginDoc::INVENTORY.to_owned(), name: short.trim_end_matches('-').to_owned() };
        let params: Map<String, Value> = self.params.into_iter().collect();
        let resource = json!({"plugin": format!("{name}@{version}"), "params": params});
        let mut document = json!({
            "apiVersion": "ebb.dev/v1", "kind": "Target", "targetKind": target.kind, "name": target.name, "ttl": "1h",
            "resources": {RESOURCE: resource},
        });
        if let Some(cluster) = self.cluster {
            document["cluster"] = cluster.into();
        }
        let document = load::document("inventory", &document.to_string(), &NoFiles, &DocumentVars::none())?;
        let Document::Sandbox(document) = document else { return Err(incomplete("its target is none")) };
        // A signal before the server has answered must not leave the target.
        let interrupts = InterruptCount::listen()?;
        // Generation 0 updates no living target.
        let applying = AppliedTarget::apply(client, &document, target.clone(), (true, false, Some(0), None));
        let applied = tokio::select! {
            applied = applying => applied,
            () = interrupts.more_than(1) => return Ok(Exit::Interrupted),
        };
        let applied = applied.map_err(|error| match error.has_code("outdated") {
            true => error.with_hint("another list is read").with_hint(commands::delete(&target.kind, &target.name)),
            false => error,
        })?;
        let uid = applied.accepted()["uid"].take();
        let limit = Some(self.wait_timeout).filter(|_| interrupts.count() == 0);
        let (seen, ended) = Box::pin(applied.finish(client, limit)).await;
        // Its name can be that of a later target by now.
        let deleted = client.delete_target(&target, uid.as_str(), false).await;
        match ended? {
            Exit::Done if interrupts.count() == 0 => deleted?,
            Exit::Done | Exit::Interrupted => return Ok(Exit::Interrupted),
            _ => return Err(incomplete("its units have failed")),
        };
        let seen = seen.ok_or_else(|| incomplete("its target is not shown"))?;
        let things = things(&seen)?;
        // The targets are read after the things, and those that end meanwhile are among the gone ones.
        let mut targets = Vec::new();
        for flags in [&["keys"][..], &["keys", "gone"]] {
            let (found, warnings) = client.targets(&TargetSelector::default(), flags).await?;
            if let Some(unread) = warnings.iter().find(|warning| warning.starts_with(UNREAD)) {
                return Err(incomplete(unread));
            }
            targets.extend(found);
        }
        let entries = compared(things, &targets, &seen.info.created);
        self.output.write(&entries, |entries| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let row = |entry: &Value| ["thing", "state", "target", "command"].map(|cell| text(&entry[cell]));
            output::table(&["THING", "STATE", "TARGET", "COMMAND"], entries.iter().map(row))
        })?;
        if entries.iter().all(|entry| entry["state"] == "alive") {
            return Ok(Exit::Done);
        }
        output::status_line("Ebb deletes nothing that is gone or unknown. Another deployment may have what is unknown");
        Ok(Exit::Failed)
    }
}

/// Returns the things of a target that has listed them.
fn things(seen: &TargetDetail) -> Result<BTreeSet<String>> {
    let output = seen.resources.get(RESOURCE).and_then(|resource| resource.outputs.get(PluginDoc::THINGS));
    let things = match output {
        Some(OutputValue::Value(Value::Array(list))) => list.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
        Some(OutputValue::Value(Value::String(lines))) => {
            Some(lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
        }
        _ => None,
    };
    let wrong = seen.outputs_error.as_deref().unwrap_or("`things` is not a list of texts");
    things.ok_or_else(|| incomplete(wrong))
}

/// Finds the target of each thing by the digest of a key in its name: a living one, if there are several. One that has ended
/// since `begun` still had its things.
fn compared(things: BTreeSet<String>, targets: &[TargetInfo], begun: &str) -> Vec<Value> {
    let digest = |key: &'_ String| key.as_bytes().last_chunk::<DIGEST>().copied();
    let digests = targets.iter().flat_map(|target| target.keys.iter().filter_map(digest).map(move |key| (key, target)));
    let by_digest: HashMap<[u8; DIGEST], &TargetInfo> = digests.collect();
    let is_gone = |of: &TargetInfo| of.phase == TargetPhase::Gone && of.since.as_str() < begun;
    let entry = |thing: String| {
        // Some providers write names in capitals.
        let lower = thing.to_ascii_lowercase();
        let found = lower.as_bytes().windows(DIGEST).filter_map(|part| by_digest.get(part));
        let Some(of) = found.min_by_key(|of| is_gone(of)) else {
            return json!({"thing": thing, "state": "unknown"});
        };
        let target = TargetRef::from(*of);
        let (state, command) = match is_gone(of) {
            true => ("gone", commands::why(&named(&target))),
            false => ("alive", format!("{} --uid {}", commands::delete(&of.kind, &of.name), of.uid)),
        };
        let target = target.to_string();
        json!({"thing": thing, "state": state, "target": target, "uid": of.uid, "command": command})
    };
    things.into_iter().map(entry).collect()
}
