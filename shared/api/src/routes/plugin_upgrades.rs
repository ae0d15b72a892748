//! Gives a target another version of a plugin: reads the document that the target has from its history, writes the version
//! into it, and applies it.

use std::collections::BTreeMap;

use ebb_documents::compile::CLUSTER_POLICY;
use ebb_documents::pinned_version::{PinError, with_version};
use ebb_engine::RequestSender;
use ebb_flow::{Env, TargetRequest, offload};
use ebb_protocol::history::HistoryEntry;
use ebb_protocol::{ApplyTarget, ErrorCode, LifecycleResponse, LifecycleResult, ResourceEffect, TargetReceipt};
use ebb_store::TargetHead;

use super::target_requests::{self, AcceptedChange};
use crate::queries::{plugins, target_history};
use crate::{ApiPermission, HttpProblem, HttpResult, Permitted, WriteTargets};

/// Maximum pages of a history in which the document of a target is looked for.
const MAX_PAGES: usize = 50;

/// Returns the version `NAME@VERSION` that new targets can use, of a text `NAME` or `NAME@VERSION`.
///
/// # Errors
/// Returns 404 if it is not published, or was withdrawn, and 403 if the text does not name a whole version and the caller
/// may not read plugins.
pub(super) async fn published(server: &Permitted<WriteTargets>, plugin: &str) -> HttpResult<String> {
    let (name, version) = plugin.split_once('@').unwrap_or((plugin, "latest"));
    if version.parse::<semver::Version>().is_err() {
        server.caller.require(ApiPermission::ReadPlugins)?;
    }
    let found = plugins::get(&server.env.store, name, version).await?;
    let unknown = |detail: String| HttpProblem::new(ErrorCode::UnknownVersion, detail);
    let found = found.ok_or_else(|| unknown(format!("plugin {name}@{version} is not published")))?;
    let full = format!("{}@{}", found.info.name, found.info.version);
    match found.withdrawn {
        None => Ok(full),
        Some(at) => Err(unknown(format!("plugin {full} was withdrawn at {at}"))),
    }
}

/// Gives a living target the version `full` of a plugin, `NAME@VERSION`. With `is_dry_run`, changes nothing. Returns the rest
/// of the request and the effect.
///
/// # Errors
/// Returns a problem if the target does not live, if its document is not stored or cannot get the version, if the policy of a
/// cluster refuses the result, or if the update is refused.
pub(super) async fn upgraded(
    server: &Permitted<WriteTargets>,
    head: &TargetHead,
    (full, allow_replace): (&str, Option<bool>),
    is_dry_run: bool,
) -> HttpResult<AcceptedChange> {
    if !head.phase.is_alive() {
        let detail = format!("the target is {}; only living targets get another version", head.phase.name());
        return Err(HttpProblem::new(ErrorCode::Stale, detail));
    }
    let Some(text) = stored_document(&server.env, head).await? else {
        return Err(HttpProblem::new(ErrorCode::NotFound, "its document is not stored: apply it from its file"));
    };
    let present = server.env.plan_of(head).await?;
    let versions = present.plan.resources.iter().map(|(name, resource)| (name.clone(), resource.plugin.clone()));
    let (versions, wanted) = (versions.collect::<BTreeMap<_, _>>(), full.to_owned());
    let Some(pinned) = offload(move || with_version(&text, &wanted, &versions)).await?.map_err(refused)? else {
        let (target, uid) = (head.target_key().to_string(), head.uid.clone());
        let (generation, result) = (head.newest_generation(), LifecycleResult::Unchanged);
        let unchanged = LifecycleResponse { target, uid, generation, result };
        return Ok((None, TargetReceipt::of(unchanged, server.env.target_url(head.target_key()))));
    };
    if let Some(source) = head.source.as_ref().filter(|_| !pinned.is_allowed) {
        let detail = format!(
            "the document of source {source} excludes {full}, so the next event would bring the former version back: write a \
             range such as NAME@1 or {full} into it, and send the event of the target again, such as by a push"
        );
        return Err(HttpProblem::new(ErrorCode::OtherOwner, detail));
    }
    let target = ApplyTarget {
        kind: head.kind.clone(),
        name: head.name.clone(),
        document: pinned.text,
        uid: Some(head.uid.clone()),
        generation: Some(head.newest_generation()),
        allow_replace: allow_replace.filter(|_| !is_dry_run),
        ..ApplyTarget::default()
    };
    let request = TargetRequest { target, key: None, access: server.access(), source: head.source.clone() };
    let mut preview = target_requests::previewed(server, request.clone()).await?;
    let plan = preview.plan.take();
    if is_dry_run {
        // The update itself is refused if it would undo a resource that the cluster then refuses.
        let replaces = preview.resources.values().any(|effect| *effect == ResourceEffect::Replaced);
        let mut warnings = plan.into_iter().flat_map(|plan| plan.warnings);
        return match warnings.find(|warning| replaces && warning.code == CLUSTER_POLICY) {
            Some(warning) => Err(HttpProblem::new(ErrorCode::InvalidDocument, warning.message)),
            None => Ok((None, preview)),
        };
    }
    let (rest, done) = target_requests::applied(server, &request).await?;
    Ok((rest, TargetReceipt { generation: done.generation, result: done.result, ..preview }))
}

/// Returns the document of the newest generation of a target, if its history has it. That of a source counts as the source has
/// written it, without the versions of earlier upgrades.
async fn stored_document(env: &Env, head: &TargetHead) -> HttpResult<Option<String>> {
    let (key, only) = (head.target_key(), Some(head.uid.as_str()));
    let mut after: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let page = target_history::list(env, key, after.as_deref(), only).await?;
        // The newest one, because a withdrawn update can have had the same generation.
        let is_newest = |entry: &&HistoryEntry| match &head.source {
            Some(source) => entry.by == RequestSender::Source(source).owner(),
            None => entry.generation == head.newest_generation(),
        };
        if let Some(entry) = page.entries.iter().filter(is_newest).find(|entry| entry.document.is_some()) {
            let found = target_history::get(env, key, &entry.id, only).await?;
            return Ok(found.and_then(|found| found.text));
        }
        after = page.next_token;
        if after.is_none() {
            break;
        }
    }
    Ok(None)
}

fn refused(error: PinError) -> HttpProblem {
    match error {
        PinError::Document(errors) => errors.into(),
        PinError::Unused(_) => HttpProblem::new(ErrorCode::PluginUnused, error.to_string()),
        other => HttpProblem::new(ErrorCode::InvalidDocument, other.to_string()),
    }
}
