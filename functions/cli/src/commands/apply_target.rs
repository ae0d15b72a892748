//! The targets of `ebb apply`.

use std::io::{IsTerminal as _, stdin};
use std::time::Duration;

use ebb_documents::model::{PluginDoc, SandboxDoc};
use ebb_protocol::{ApplyTarget, LifecycleResult, ResourceEffect, RunDetail, TargetDetail, TargetReceipt};
use serde_json::{Value, json};

use crate::{
    ApiClient, ChangeKind, CliError, DocumentChange, Exit, FollowGoal, Result, TargetRef, WatchedInstance,
    cluster_policy, confirm, documents, in_document, labels, named, offline, output, printable, timing, wait,
    waiting_line,
};

/// A target whose document the server has accepted.
pub(super) struct AppliedTarget {
    instance: WatchedInstance,
    /// The runs before the request.
    before: Vec<RunDetail>,
}

fn request(document: &SandboxDoc, target: &TargetRef, generation: Option<u64>) -> ApplyTarget {
    let TargetRef { kind, name } = target.clone();
    ApplyTarget { kind, name, document: document.expanded.clone(), generation, ..ApplyTarget::default() }
}

/// Returns the effect of a document as data and as text. `new` has the plugins of the call, if it would store documents
/// before this one.
pub(super) async fn preview(
    client: &ApiClient,
    document: &SandboxDoc,
    target: TargetRef,
    (generation, key, new): (Option<u64>, Option<&str>, Option<&[PluginDoc]>),
) -> Result<(Value, String)> {
    let receipt = match (client.preview_target(&request(document, &target, generation), key).await, new) {
        (Ok(receipt), _) => receipt,
        (Err(error), Some(plugins)) if error.problem().is_some() && !error.has_status(403) => {
            if offline::complete(document, plugins) {
                documents::warn(&offline::plan(document, plugins)?.warnings);
            } else {
                output::status_line(&format!(
                    "note: {target} is not checked: it needs documents that are not stored yet"
                ));
            }
            let is_alive = client.target(&target).await?.is_some_and(|seen| seen.info.phase.is_alive());
            let (verb, change) =
                if is_alive { ("update", ChangeKind::Replace) } else { ("create", ChangeKind::Create) };
            let text = format!("Would {verb} {target}");
            if is_alive {
                output::status_line("note: its effect is not known before the documents of this call are stored");
            }
            let change = DocumentChange::planned(&target.kind, target.name, change);
            return Ok((output::json(&change), text));
        }
        (Err(error), _) => return Err(in_document(error, &document.source)),
    };
    if let Some(error) = receipt.plan.as_ref().and_then(|plan| cluster_policy::found(plan, &document.source)) {
        return Err(error);
    }
    let end = if document.ttl.is_some() { "its `ttl` ends" } else { "its deletion follows, which was refused" };
    let end = receipt.expires.as_ref().map(|at| format!("{end} at {}\n", timing::clock(at)));
    let text = format!("{}\n{}{}", planned(receipt.result, &target), end.unwrap_or_default(), effect(&receipt));
    warn_of_end(&target, receipt.expires.as_deref(), (Some(&receipt), document));
    Ok((output::json(&receipt), text))
}

impl AppliedTarget {
    /// Creates or updates a target. `is_awaited` is true if its end is awaited. Asks before the update of a living target
    /// removes or replaces complete resources, unless `allow_replace` is true.
    pub(super) async fn apply(
        client: &ApiClient,
        document: &SandboxDoc,
        target: TargetRef,
        (is_awaited, allow_replace, generation, key): (bool, bool, Option<u64>, Option<&str>),
    ) -> Result<Self> {
        let request = request(document, &target, generation);
        // An error of the preview is that of the request itself.
        let preview = Box::pin(client.preview_target(&request, None)).await.ok();
        let plan = preview.as_ref().and_then(|preview| preview.plan.as_ref());
        let violations = plan.and_then(|plan| cluster_policy::found(plan, &document.source));
        let is_new = preview.as_ref().is_none_or(|preview| preview.result == LifecycleResult::Starting);
        let before = match is_awaited && !is_new {
            true => client.target(&target).await.ok().flatten().map(|seen| seen.runs).unwrap_or_default(),
            false => Vec::new(),
        };
        let mut request = ApplyTarget { allow_replace: Some(allow_replace), ..request };
        let ends = |preview: &&TargetReceipt| {
            matches!(preview.result, LifecycleResult::Updating | LifecycleResult::Updated)
                && (!preview.lost.is_empty() || ends_soon(preview.expires.as_deref(), (Some(*preview), document)))
        };
        if let Some(preview) = preview.as_ref().filter(ends) {
            output::status_line(&format!("{target} of {}:", preview.owner.as_deref().unwrap_or("no owner")));
            output::status_line(effect(preview).trim_end());
            warn_of_end(&target, preview.expires.as_deref(), (Some(preview), document));
            // Without a terminal, the server refuses the loss: its answer has the resources and a code.
            if !allow_replace && (preview.lost.is_empty() || stdin().is_terminal()) {
                confirm("Apply the document?", "--allow-replace", &format!("{target} was not changed"))?;
                // The answer is about the present document only.
                request.generation = Some(preview.generation.saturating_sub(1));
                request.allow_replace = Some(true);
            }
        }
        let response = client.apply_target(&request, key).await.map_err(|e| in_document(e, &document.source))?;
        if let Some(violations) = violations {
            // The policy may be another one when the units run.
            output::status_line(&violations.text(output::drawing()).replacen("error:", "warning:", 1));
        }
        let (result, uid, generation) = (response.result, response.uid.unwrap_or_default(), response.generation);
        let changes = matches!(result, LifecycleResult::Updated | LifecycleResult::Updating);
        let owner = preview.as_ref().and_then(|preview| preview.owner.as_ref()).filter(|_| changes);
        let owner = owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
        output::status_line(&format!("{} {target} (uid {uid}, generation {generation}){owner}", begun(result)));
        if matches!(result, LifecycleResult::Updated | LifecycleResult::Updating | LifecycleResult::Waiting) {
            let seen = client.target(&target).await?.filter(|seen| seen.info.uid == uid);
            warn_of_end(&target, seen.and_then(|seen| seen.info.expires).as_deref(), (preview.as_ref(), document));
        }
        Ok(Self { instance: WatchedInstance { target, uid, generation }, before })
    }

    /// Returns the target as its request was accepted.
    pub(super) fn accepted(&self) -> Value {
        let WatchedInstance { target: TargetRef { kind, name }, uid, generation } = &self.instance;
        json!({"kind": kind, "name": name, "uid": uid, "generation": generation})
    }

    /// Waits until the target is ready, if there is a limit. Returns the target, and the end of the wait.
    pub(super) async fn finish(
        self,
        client: &ApiClient,
        limit: Option<Duration>,
    ) -> (Option<TargetDetail>, Result<Exit>) {
        let Self { instance, before } = self;
        let ended = match limit {
            None => Ok(Exit::Done),
            Some(timeout) => wait(client, &instance, FollowGoal::Ready, timeout, before).await,
        };
        let mut seen = match client.target(&instance.target).await {
            Ok(Some(seen)) => seen,
            Ok(None) => return (None, ended),
            // The error of the wait is more important than this one.
            Err(error) => return (None, ended.and(Err(error))),
        };
        let ended = if limit.is_some() { not_replaced(client, &instance, &seen, ended).await } else { ended };
        if seen.info.uid != instance.uid {
            // Its values are not those of the applied one.
            seen.resources.values_mut().for_each(|resource| resource.outputs.clear());
            seen.env.clear();
            seen.workloads.clear();
            if seen.waiting_uid.as_ref() == Some(&instance.uid) {
                output::status_line(&waiting_line(&instance, &seen));
            }
        }
        (Some(seen), ended)
    }
}

/// Returns an error instead of a success if the target has a later document than the applied one.
async fn not_replaced(
    client: &ApiClient,
    WatchedInstance { target, uid, generation }: &WatchedInstance,
    seen: &TargetDetail,
    ended: Result<Exit>,
) -> Result<Exit> {
    let present = seen.info.generation;
    if !matches!(ended, Ok(Exit::Done)) || seen.info.uid != *uid || present <= *generation {
        return ended;
    }
    let newest = client.history(target, 20).await.unwrap_or_default().entries;
    // Retries and events have later entries with the generation.
    let replaced = newest.into_iter().rfind(|entry| entry.uid == *uid && entry.generation == present);
    let by = replaced.and_then(|entry| entry.by).map_or("another request".to_owned(), |by| printable(&by));
    Err(CliError::failed(format!(
        "{by} has replaced the document: {target} has generation {present}, and this command has applied generation \
         {generation}"
    ))
    .with_hint(format!("ebb history {}", named(target))))
}

/// Returns true for an end within a minute or before, unless it is that of a `ttl` which the update does not change.
fn ends_soon(expires: Option<&str>, (preview, document): (Option<&TargetReceipt>, &SandboxDoc)) -> bool {
    let has_new = |preview: &TargetReceipt| preview.changes.iter().any(|change| change.path.starts_with("ttl"));
    let moves_end = document.ttl.is_none() || preview.is_none_or(has_new);
    moves_end && expires.and_then(|at| timing::until(at, timing::now())).is_some_and(|left| left.as_secs() < 60)
}

/// Warns of a `ttl` that is not longer than the age of the target, and of the end of a protection that prevents a deletion.
fn warn_of_end(target: &TargetRef, expires: Option<&str>, of: (Option<&TargetReceipt>, &SandboxDoc)) {
    if let Some(expires) = expires.filter(|at| ends_soon(Some(at), of)) {
        let cause = if of.1.ttl.is_some() { "its `ttl`, counted from its creation" } else { "the refused deletion" };
        output::status_line(&format!(
            "warning: {target} ends at {}, by {cause}: the update deletes the target and its resources",
            timing::clock(expires)
        ));
    }
}

/// Returns the first word of the line about a request that the server has accepted.
pub(crate) fn begun(result: LifecycleResult) -> &'static str {
    match result {
        LifecycleResult::Unchanged => "Unchanged",
        LifecycleResult::Retrying => "Retrying",
        LifecycleResult::Waiting => "Waiting",
        LifecycleResult::Updating => "Updating",
        LifecycleResult::Updated => "Updated",
        LifecycleResult::Starting | LifecycleResult::Running | LifecycleResult::Stopping => "Created",
    }
}

/// Returns the line about a request that was not made.
pub(crate) fn planned(result: LifecycleResult, target: &TargetRef) -> String {
    match result {
        LifecycleResult::Starting => format!("Would create {target}"),
        LifecycleResult::Waiting => format!("Would create {target} when its present instance is gone"),
        LifecycleResult::Updating => format!("Would update {target}; units run"),
        LifecycleResult::Updated => format!("Would update {target}; nothing runs"),
        LifecycleResult::Retrying => format!("Would retry the failed units of {target}"),
        LifecycleResult::Unchanged | LifecycleResult::Running | LifecycleResult::Stopping => {
            format!("Would not change {target}")
        }
    }
}

/// Returns a line for each changed path and each changed resource.
pub(crate) fn effect(receipt: &TargetReceipt) -> String {
    let changes = receipt.changes.iter().map(|change| output::change_line(change) + "\n");
    let resources = receipt.resources.iter();
    let line = |(name, effect): (&String, &ResourceEffect)| {
        let loss = if receipt.lost.contains(name) { "; what it holds is lost" } else { "" };
        format!("resource {name}: {}{loss}\n", labels::name(effect))
    };
    changes.chain(resources.map(line)).collect()
}
