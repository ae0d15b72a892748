//! `ebb sandbox apply`: creates or updates a target.

use std::path::PathBuf;
use std::time::Duration;

use ebb_protocol::api::{ApplyTarget, TargetDetail, TargetReceipt};
use ebb_protocol::lifecycle::LifecycleResult;

use super::WaitArgs;
use crate::cluster_policy;
use crate::commands::connect;
use crate::documents::{SetArgs, TargetDocument};
use crate::dry_run::DryRunArgs;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::{named, wait};
use crate::output::{self, OutputArgs};
use crate::progress::follow::{FollowGoal, WatchedInstance, waiting_line};
use crate::progress::labels;
use crate::refusal::in_document;
use crate::server::ServerArgs;
use crate::target::{KindArgs, TargetRef};
use crate::{timing, why};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb sandbox apply -f sandbox.yaml --wait-timeout 10m\n  ebb sandbox apply -f sandbox.yaml --wait=false\n  ebb sandbox apply -f \
                  sandbox.yaml --dry-run"
)]
pub(crate) struct SandboxApplyArgs {
    /// File with the sandbox or route group; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Longest time to wait until the sandbox is ready
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "3m")]
    wait_timeout: Duration,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SandboxApplyArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let document = TargetDocument::read(&self.file, &self.sets.vars()?)?;
        let client = connect(server)?;
        let target = document.target(self.kind.kind());
        let request = ApplyTarget {
            kind: target.kind.clone(),
            name: target.name.clone(),
            document: document.expanded().to_owned(),
            uid: None,
            generation: None,
            routing_key: None,
        };
        let shown = |error| in_document(error, document.source());
        if self.dry_run.is_set() {
            let receipt = client.preview_target(&request).await.map_err(shown)?;
            if let Some(error) = receipt.plan.as_ref().and_then(|plan| cluster_policy::found(plan, document.source())) {
                return Err(error);
            }
            output::status_line(&planned(receipt.result, &target));
            warn_of_end(&target, receipt.expires.as_deref());
            return self.output.write(&receipt, effect);
        }
        // An error of the preview is that of the request itself.
        let preview = Box::pin(client.preview_target(&request)).await.ok();
        let plan = preview.as_ref().and_then(|preview| preview.plan.as_ref());
        let violations = plan.and_then(|plan| cluster_policy::found(plan, document.source()));
        let limit = self.wait.limit(self.wait_timeout);
        let is_new = preview.as_ref().is_none_or(|preview| preview.result == LifecycleResult::Starting);
        let before = match limit.is_some() && !is_new {
            true => client.target(&target).await.ok().flatten().map(|seen| seen.runs).unwrap_or_default(),
            false => Vec::new(),
        };
        let response = client.apply_target(&request).await.map_err(shown)?;
        if let Some(violations) = violations {
            // The policy may be another one when the units run.
            output::status_line(&violations.text(output::drawing()).replacen("error:", "warning:", 1));
        }
        let uid = response.uid.unwrap_or_default();
        let instance = WatchedInstance { target, uid, generation: response.generation };
        let result = begun(response.result);
        let WatchedInstance { target, uid, generation } = &instance;
        output::status_line(&format!("{result} {target} (uid {uid}, generation {generation})"));
        if matches!(response.result, LifecycleResult::Updated | LifecycleResult::Updating | LifecycleResult::Waiting) {
            let seen = client.target(&instance.target).await?.filter(|seen| seen.info.uid == instance.uid);
            warn_of_end(&instance.target, seen.and_then(|seen| seen.info.expires).as_deref());
        }
        let ended = match limit {
            None => Ok(Exit::Done),
            Some(timeout) => wait(&client, &instance, FollowGoal::Ready, timeout, before).await,
        };
        let seen = client.target(&instance.target).await;
        let ended = match &seen {
            Ok(Some(seen)) if limit.is_some() => not_replaced(&instance, seen, ended),
            _ => ended,
        };
        let prints = self.output.format().is_some() || matches!(ended, Ok(Exit::Done));
        // The error of the wait is more important than that of the last request.
        if seen.is_err() && ended.is_err() {
            return ended;
        }
        if let Some(mut seen) = seen?.filter(|_| prints) {
            if seen.info.uid != instance.uid {
                hide_values(&mut seen);
                if seen.waiting_uid.as_ref() == Some(&instance.uid) {
                    output::status_line(&waiting_line(&instance, &seen));
                }
            }
            self.output.write(&seen, |seen| why::output_lines(&seen.resources))?;
        }
        ended
    }
}

/// Returns an error instead of a success if the target has a later document than the applied one.
fn not_replaced(
    WatchedInstance { target, uid, generation }: &WatchedInstance,
    seen: &TargetDetail,
    ended: Result<Exit>,
) -> Result<Exit> {
    let present = seen.info.generation;
    match ended {
        Ok(Exit::Done) if seen.info.uid == *uid && present > *generation => Err(CliError::failed(format!(
            "another request has replaced the document: {target} has generation {present}, and this command has applied \
             generation {generation}"
        ))
        .with_hint(format!("ebb sandbox get {}", named(target)))),
        ended => ended,
    }
}

/// Removes the values of an instance that is not the applied one.
fn hide_values(seen: &mut TargetDetail) {
    seen.resources.values_mut().for_each(|resource| resource.outputs.clear());
    seen.env.clear();
    seen.workloads.clear();
}

/// Warns of a `ttl` that is shorter than the age of the target.
fn warn_of_end(target: &TargetRef, expires: Option<&str>) {
    if let Some(expires) = expires.filter(|at| timing::until(at, timing::now()).is_some_and(|left| left.is_zero())) {
        output::status_line(&format!(
            "warning: the `ttl` of {target} counts from its creation and ended at {}: the update deletes the target and \
             its resources",
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
        LifecycleResult::Updating => format!("Would update {target} by a run"),
        LifecycleResult::Updated => format!("Would update {target} without a run"),
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
    changes.chain(resources.map(|(name, effect)| format!("resource {name}: {}\n", labels::name(effect)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn a_replaced_document_is_no_success() {
        let instance = WatchedInstance {
            target: TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() },
            uid: "a".to_owned(),
            generation: 2,
        };
        for (uid, generation, is_success) in [("a", 2, true), ("a", 3, false), ("b", 3, true)] {
            let mut seen = fixtures::target("ready", fixtures::NOW);
            (seen.info.uid, seen.info.generation) = (uid.to_owned(), generation);
            let ended = not_replaced(&instance, &seen, Ok(Exit::Done));
            assert_eq!(ended.is_ok(), is_success, "{uid} {generation}");
        }
    }
}
