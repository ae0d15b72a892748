//! `ebb sandbox delete`: deletes a target, or stops a stuck teardown.

use std::path::PathBuf;
use std::time::Duration;

use ebb_protocol::api::{ForceDeleteTarget, OverrideResponse, TargetDetail, TargetState};

use super::WaitArgs;
use crate::client::ApiClient;
use crate::commands::connect;
use crate::commands::unit::override_text;
use crate::documents::{SetArgs, TargetDocument};
use crate::dry_run::DryRunArgs;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::{is_alive, named, wait};
use crate::output::{self, OutputArgs};
use crate::progress::follow::{FollowGoal, WatchedInstance};
use crate::server::ServerArgs;
use crate::target::{KindArgs, TargetRef};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct SandboxDeleteArgs {
    /// Name of the sandbox to delete
    #[arg(value_name = "SANDBOX", required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// File with the sandbox; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Longest time to wait until the sandbox is gone
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "5m")]
    wait_timeout: Duration,
    /// Stop a stuck teardown; resources may remain
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
        let target = self.target()?;
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
        if seen.waiting_uid.is_some() || info.phase != TargetState::Gone {
            client.delete_target(&target).await?;
            withdrawn(&target, &seen);
        }
        if info.phase == TargetState::Gone {
            output::status_line(&format!("{target} was deleted at {}", timing::clock(&info.since)));
            return self.output.write_data(&seen);
        }
        let instance = watched(&target, &seen);
        self.await_gone(&client, &instance, seen).await
    }

    async fn force_delete(&self, client: &ApiClient, target: &TargetRef, seen: TargetDetail) -> Result<Exit> {
        let by = self.by.clone().or_else(|| std::env::var("USER").ok());
        let body = ForceDeleteTarget { reason: self.reason.clone().unwrap_or_default(), by };
        if seen.waiting_uid.is_some() && !is_alive(&seen) {
            // It would begin as soon as the present instance is gone.
            client.delete_target(target).await?;
            withdrawn(target, &seen);
        }
        let response: Result<OverrideResponse> = client.act(target, "force-delete", &body).await;
        let response = response.map_err(|error| match error.has_code("not-stuck") && is_alive(&seen) {
            true => error.with_hint(format!("ebb sandbox delete {}", named(target))),
            false => error,
        })?;
        output::status_line(&override_text(&response));
        let instance = watched(target, &seen);
        self.await_gone(client, &instance, seen).await
    }

    async fn await_gone(&self, client: &ApiClient, instance: &WatchedInstance, seen: TargetDetail) -> Result<Exit> {
        let exit = match self.wait.limit(self.wait_timeout) {
            None => {
                output::status_line(&format!("{} is being deleted", instance.target));
                Exit::Done
            }
            Some(timeout) => wait(client, instance, FollowGoal::Gone, timeout).await?,
        };
        if self.output.format().is_some() {
            // A new instance may have started under the name.
            let last = client.target(&instance.target).await?.filter(|last| last.info.uid == instance.uid);
            self.output.write_data(&last.unwrap_or(seen))?;
        }
        Ok(exit)
    }

    fn target(&self) -> Result<TargetRef> {
        match (&self.name, &self.file) {
            (Some(name), _) if self.sets.is_empty() => {
                Ok(TargetRef { kind: self.kind.kind().to_owned(), name: name.clone() })
            }
            (Some(_), _) => Err(CliError::broken("--set needs a document: add -f FILE")),
            (None, Some(file)) => Ok(TargetDocument::read(file, &self.sets.vars()?)?.target(self.kind.kind())),
            (None, None) => Err(CliError::broken("no sandbox: expected NAME or -f FILE")),
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
