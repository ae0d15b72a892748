//! `ebb plugin upgrade`: gives living targets another version of a plugin.

use std::time::Duration;

use ebb_protocol::{LifecycleResult, TargetAction, TargetOutcome};

use super::batches::BatchArgs;
use super::versioned_name::VersionedName;
use crate::commands::apply_target::{begun, effect, planned};
use crate::{
    ApiClient, CliError, DryRunArgs, Exit, FollowGoal, KindArgs, OutputArgs, Result, SelectorArgs, TargetRef,
    TargetsCommand, WaitArgs, YesArgs, timing,
};

#[derive(Debug, clap::Args)]
pub(crate) struct PluginUpgradeArgs {
    /// Published version for the targets; without VERSION, the highest one
    #[arg(value_name = "NAME[@VERSION]")]
    plugin: VersionedName,
    /// Names of the targets, also as KIND/NAME; by default all that use the plugin in another version
    #[arg(value_name = "SANDBOX")]
    names: Vec<String>,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    #[command(flatten)]
    yes: YesArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Longest time to wait until the targets are ready, those of a batch with `--batch`
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "10m")]
    wait_timeout: Duration,
    #[command(flatten)]
    batches: BatchArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginUpgradeArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let VersionedName { name, .. } = &self.plugin;
        // Without names, the plugin is a part of the selector.
        let used = self.names.is_empty().then_some(name.as_str());
        let targets = self.selector.targets(&self.names, self.kind.of(&self.names)?, used)?;
        let is_dry_run = self.dry_run.dry_run;
        // The targets of a selector are shown before, and confirmed. So are those that lose data in a batch.
        let allow_replace = Some(self.yes.yes || self.names.is_empty() || self.batches.batch.is_some());
        let action = TargetAction::Upgrade { plugin: format!("{name}@{}", self.plugin.version()), allow_replace };
        let command = TargetsCommand { client, action, verb: "Upgrade", is_dry_run, output: self.output };
        let show = |outcome: &TargetOutcome, full: &str| text(outcome, full, is_dry_run);
        if let (Some(batch), false) = (self.batches.batch, is_dry_run) {
            if !self.wait.wait {
                return Err(CliError::broken("`--batch` waits for each batch: leave out `--wait=false`"));
            }
            let (targets, timeout) = ((targets, self.yes), self.wait_timeout);
            return Box::pin(self.batches.upgrade(&command, targets, batch.get(), timeout, show)).await;
        }
        let answered = command.run(targets, self.yes, show);
        let wait = self.wait.wait.then_some(((FollowGoal::Ready, "are ready with the version"), self.wait_timeout));
        Box::pin(answered).await?.finish(&command, "are updated or have the version", wait).await
    }
}

/// Returns the line of a target that gets the version `full`, with one below for each change.
fn text(outcome: &TargetOutcome, full: &str, is_dry_run: bool) -> String {
    let target = TargetRef::from(outcome);
    let line = match &outcome.update {
        Some(receipt) if receipt.result == LifecycleResult::Unchanged => format!("{target} has {full} already"),
        Some(receipt) if is_dry_run => planned(receipt.result, &target),
        Some(receipt) => format!("{} {target} (generation {})", begun(receipt.result), receipt.generation),
        None => target.to_string(),
    };
    let changes = outcome.update.as_ref().map(effect).unwrap_or_default();
    changes.lines().fold(line, |text, change| format!("{text}\n  {change}"))
}
