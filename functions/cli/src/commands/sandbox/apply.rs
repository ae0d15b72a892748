//! `ebb sandbox apply`: creates or updates a target.

use std::path::PathBuf;
use std::time::Duration;

use ebb_protocol::api::TargetDetail;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleResult;

use super::WaitArgs;
use crate::commands::connect;
use crate::documents::{SetArgs, TargetDocument};
use crate::exit::{CliError, Exit};
use crate::lifecycle::{is_alive, request, wait};
use crate::output::{self, OutputArgs};
use crate::progress::follow::{FollowGoal, WatchedInstance};
use crate::server::ServerArgs;
use crate::target::{KindArgs, fresh_uid};
use crate::{timing, why};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb sandbox apply -f sandbox.yaml --wait-timeout 10m\n  ebb sandbox apply -f sandbox.yaml --wait=false"
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
    output: OutputArgs,
}

impl SandboxApplyArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let document = TargetDocument::read(&self.file, &self.sets.vars()?)?;
        let client = connect(server)?;
        let target = document.target(self.kind.kind());
        let seen = client.target(&target).await?;
        let uid = seen.as_ref().and_then(current_uid).map_or_else(fresh_uid, str::to_owned);
        let known = seen.as_ref().filter(|seen| current_uid(seen).is_some());
        let (change, generation) = match known {
            Some(seen) => (LifecycleType::Updated, seen.info.generation + 1),
            None => (LifecycleType::Created, 1),
        };
        let mut instance = WatchedInstance { target, uid, generation };
        let response = request(&client, change, &instance, Some(document.expanded())).await?;
        instance.generation = response.generation;
        let result = match response.result {
            LifecycleResult::Unchanged => "Unchanged",
            LifecycleResult::Retrying => "Retrying",
            LifecycleResult::Waiting => "Waiting",
            LifecycleResult::Updating => "Updating",
            LifecycleResult::Updated => "Updated",
            LifecycleResult::Starting | LifecycleResult::Running | LifecycleResult::Stopping => "Created",
        };
        output::status_line(&format!(
            "{result} {} (uid {}, generation {})",
            instance.target, instance.uid, instance.generation
        ));
        let ended = match self.wait.limit(self.wait_timeout) {
            None => Ok(Exit::Done),
            Some(timeout) => wait(&client, &instance, FollowGoal::Ready, timeout).await,
        };
        let prints = self.output.format().is_some() || matches!(ended, Ok(Exit::Done));
        match client.target(&instance.target).await {
            Ok(Some(seen)) if prints => self.output.write(&seen, |seen| {
                let resources = &seen.resources;
                why::output_lines(resources.iter().map(|(name, resource)| (name, &resource.outputs)))
            })?,
            Ok(_) => {}
            // The error of the wait is more important than this one.
            Err(error) if ended.is_ok() => return Err(error),
            Err(_) => {}
        }
        ended
    }
}

/// Returns the uid to update. It is that of the instance that waits for the name, or otherwise that of an instance that
/// is not being deleted.
fn current_uid(seen: &TargetDetail) -> Option<&str> {
    let active = || is_alive(seen).then_some(seen.info.uid.as_str());
    seen.waiting_uid.as_deref().or_else(active)
}
