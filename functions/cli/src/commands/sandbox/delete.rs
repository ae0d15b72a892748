//! `ebb sandbox delete`: deletes targets, or stops a stuck teardown.

use std::path::PathBuf;
use std::time::Duration;

use ebb_protocol::api::{ForceDeleteTarget, OverrideResponse, TargetDetail, TargetState};

use super::WaitArgs;
use crate::bulk::{self, TargetOutcome, YesArgs};
use crate::client::ApiClient;
use crate::commands::connect;
use crate::commands::unit::override_text;
use crate::documents::{SetArgs, TargetDocument};
use crate::dry_run::DryRunArgs;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::{self, named, wait};
use crate::output::{self, OutputArgs};
use crate::progress::follow::{FollowGoal, WatchedInstance};
use crate::selector::{CommandTargets, SelectorArgs};
use crate::server::ServerArgs;
use crate::target::{KindArgs, TargetRef};
use crate::timing;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb sandbox delete pr-1 pr-2\n  ebb sandbox delete --label team=payments --phase failed --dry-run\n  ebb sandbox delete --owner 'token ci' --yes --wait=false"
)]
pub(crate) struct SandboxDeleteArgs {
    /// Names of the sandboxes to delete
    #[arg(value_name = "SANDBOX", conflicts_with = "file")]
    names: Vec<String>,
    /// File with the sandbox; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Select targets that use this plugin
    #[arg(long, value_name = "NAME[@VERSION]")]
    plugin: Option<String>,
    #[command(flatten)]
    yes: YesArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Longest time to wait until the sandboxes are gone
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "5m")]
    wait_timeout: Duration,
    /// Stop the stuck teardown of one sandbox; resources may remain
    #[arg(long, requires = "reason", conflicts_with = "dry_run")]
    force: bool,
    /// Reason of --force; stored with the units
    #[arg(long, value_name = "TEXT", requires = "force")]
    reason: Option<String>,
    // Not an `env` of clap: a value from there would require `--force` as well.
    /// Person who decided it; by default the environment variable USER
    #[arg(long, value_name = "NAME", requires = "force")]
    by: Option<String>,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SandboxDeleteArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let target = match self.targets()? {
            CommandTargets::One(target) => target,
            targets => return self.delete_all(&connect(server)?, targets).await,
        };
        let client = connect(server)?;
        let seen = client.existing(&target).await?;
        if self.dry_run.is_set() {
            let is_gone = seen.info.phase == TargetState::Gone && seen.waiting_uid.is_none();
            let verb = if is_gone { "not change" } else { "delete" };
            output::status_line(&format!("Would {verb} {target}"));
            return self.output.write_data(&seen);
        }
        if self.force && seen.info.phase != TargetState::Gone {
            return self.force_delete(&client, &target, seen).await;
        }
        let info = &seen.info;
        // Otherwise the waiting instance would start when the present one is gone.
        if let Some(waiting) = &seen.waiting_uid {
            client.delete_target(&target, Some(waiting)).await?;
            withdrawn(&target, &seen);
        }
        if info.phase != TargetState::Gone {
            client.delete_target(&target, Some(&info.uid)).await?;
        } else {
            output::status_line(&format!("{target} was deleted at {}", timing::clock(&info.since)));
            return self.output.write_data(&seen);
        }
        let instance = watched(&target, &seen);
        self.await_gone(&client, &instance, seen).await
    }

    async fn delete_all(&self, client: &ApiClient, targets: CommandTargets) -> Result<Exit> {
        if self.force {
            return Err(CliError::broken("--force needs the name of one sandbox"));
        }
        let begun: Vec<TargetOutcome> = match targets {
            // The request for a name shows whether it exists.
            CommandTargets::Named(names) if !self.dry_run.is_set() => {
                names.into_iter().map(TargetOutcome::named).collect()
            }
            targets => {
                let (found, missing) = bulk::find(client, targets).await?;
                if self.dry_run.is_set() {
                    return bulk::print_dry_run("delete", &found, missing, self.output);
                }
                self.yes.confirm("Delete", &found)?;
                found.iter().map(TargetOutcome::of).collect()
            }
        };
        let limit = self.wait.limit(self.wait_timeout);
        let sent = bulk::each(begun, |outcome: TargetOutcome| {
            let client = client.clone();
            async move {
                let target = outcome.target();
                // Another instance of the name was not selected, also if it waits. A stopping one needs no request.
                let receipt = match outcome.phase {
                    Some(TargetState::Stopping) => None,
                    _ => Some(bulk::repeated(|| client.delete_target(&target, outcome.uid.as_deref())).await?),
                };
                // A wait prints the end of each target.
                if limit.is_none() {
                    output::status_line(&format!("{target} is being deleted"));
                }
                Ok(receipt)
            }
        });
        let sent = sent.await?;
        let answered = sent.responses.into_iter().map(|(outcome, response)| outcome.answered(response));
        let mut outcomes: Vec<TargetOutcome> = answered.collect();
        let end = match (sent.end, limit) {
            (Ok(Exit::Done), Some(timeout)) => {
                let goal = (FollowGoal::Gone, "are gone");
                bulk::wait_for(client, self.kind.kind(), &mut outcomes, goal, timeout).await
            }
            (end, _) => {
                bulk::print_count(bulk::succeeded(&outcomes), outcomes.len(), "are being deleted");
                end
            }
        };
        bulk::print(&outcomes, end, self.output)
    }

    async fn force_delete(&self, client: &ApiClient, target: &TargetRef, seen: TargetDetail) -> Result<Exit> {
        let by = self.by.clone().or_else(|| std::env::var("USER").ok());
        let (uid, reason) = (Some(seen.info.uid.clone()), self.reason.clone().unwrap_or_default());
        let body = ForceDeleteTarget { uid, reason, by };
        if lifecycle::withdraw_waiting(client, target, &seen).await? {
            withdrawn(target, &seen);
        }
        let response: Result<OverrideResponse> = client.act(target, "force-delete", &body).await;
        let response = response.map_err(|error| match error.has_code("not-stuck") && seen.info.phase.is_alive() {
            true => error.with_hint(format!("ebb sandbox delete {}", named(target))),
            false => error,
        })?;
        output::status_line(&override_text(&response));
        let instance = watched(target, &seen);
        self.await_gone(client, &instance, seen).await
    }

    async fn await_gone(&self, client: &ApiClient, instance: &WatchedInstance, seen: TargetDetail) -> Result<Exit> {
        let ended = match self.wait.limit(self.wait_timeout) {
            None => {
                output::status_line(&format!("{} is being deleted", instance.target));
                Ok(Exit::Done)
            }
            Some(timeout) => wait(client, instance, FollowGoal::Gone, timeout, seen.runs.clone()).await,
        };
        if self.output.format().is_some() {
            let last = client.target(&instance.target).await;
            // The error of the wait is more important than this one.
            if last.is_ok() || ended.is_ok() {
                // A new instance may have started under the name.
                let last = last?.filter(|last| last.info.uid == instance.uid);
                self.output.write_data(&last.unwrap_or(seen))?;
            }
        }
        ended
    }

    fn targets(&self) -> Result<CommandTargets> {
        let kind = self.kind.kind();
        let named = || self.selector.targets(&self.names, kind, self.plugin.as_deref());
        match &self.file {
            Some(_) if !self.selector.selection(Some(kind), self.plugin.as_deref()).selects_all() => {
                Err(CliError::broken("-f and a selector exclude each other"))
            }
            Some(file) => Ok(CommandTargets::One(TargetDocument::read(file, &self.sets.vars()?)?.target(kind))),
            None if self.sets.is_empty() => named().map_err(|error| error.with_hint("or its document: -f FILE")),
            None => Err(CliError::broken("--set needs a document: add -f FILE")),
        }
    }
}

/// Reports the deletion of an instance that has waited for the name.
fn withdrawn(target: &TargetRef, seen: &TargetDetail) {
    if let Some(uid) = &seen.waiting_uid {
        output::status_line(&format!("{target} with uid {uid} waited for the name, and does not begin any more"));
    }
}

pub(super) fn watched(target: &TargetRef, seen: &TargetDetail) -> WatchedInstance {
    WatchedInstance {
        target: target.clone(),
        uid: seen.info.uid.clone(),
        generation: seen.pending_generation.unwrap_or(seen.info.generation),
    }
}
