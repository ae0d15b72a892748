//! `ebb plugin upgrade`: gives living targets another version of a plugin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_api::mcp::{ApiCalls, upgrade_target};
use ebb_protocol::api::{DocumentChange, ResourceEffect, TargetInfo, TargetReceipt};
use ebb_protocol::lifecycle::LifecycleResult;
use semver::Version;
use serde::Serialize;

use super::VersionedName;
use crate::bulk::{self, TargetOutcome, YesArgs};
use crate::client::ApiClient;
use crate::commands::apply_target::{begun, effect, planned};
use crate::dry_run::DryRunArgs;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::WaitArgs;
use crate::output::{self, OutputArgs};
use crate::progress::follow::FollowGoal;
use crate::selector::SelectorArgs;
use crate::target::{KindArgs, TargetRef};
use crate::timing;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb plugin upgrade db@1.1.0 --dry-run\n  ebb plugin upgrade db@1.1.0 pr-1 pr-2\n  ebb plugin upgrade db@1.1.0 --label team=payments --yes --wait=false"
)]
pub(crate) struct PluginUpgradeArgs {
    /// Published version for the targets; without VERSION, the highest one
    #[arg(value_name = "NAME[@VERSION]")]
    plugin: VersionedName,
    /// Names of the targets; by default all that use the plugin in another version
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
    /// Longest time to wait until the targets are ready
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "10m")]
    wait_timeout: Duration,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The version that targets get.
#[derive(Debug)]
struct NewVersion {
    name: String,
    version: Version,
}

/// A target of the command, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UpgradeOutcome {
    #[serde(flatten)]
    target: TargetOutcome,
    /// Absent if the update was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<LifecycleResult>,
    /// The differences from the present document.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<DocumentChange>,
    /// The effect on each changed resource.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    resources: BTreeMap<String, ResourceEffect>,
}

impl PluginUpgradeArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let new = Arc::new(self.published(client).await?);
        // Without names, the plugin is a part of the selector.
        let used = self.names.is_empty().then_some(new.name.as_str());
        let targets = self.selector.targets(&self.names, Some(self.kind.kind()), used)?;
        let (are_selected, is_dry_run) = (targets.are_selected(), self.dry_run.is_set());
        let (mut found, mut outcomes) = bulk::find(client, targets).await?;
        if are_selected && !found.is_empty() {
            found.retain(|target| new.changes(target));
            if found.is_empty() {
                output::status_line(&format!("No selected target has another version than {}", new.full()));
            }
        }
        if are_selected && !is_dry_run {
            self.yes.confirm("Upgrade", &found)?;
        }
        let sent = bulk::each(found, |seen: TargetInfo| {
            let (client, new) = (client.clone(), Arc::clone(&new));
            async move { bulk::repeated(|| Box::pin(upgrade(&client, &seen, &new, is_dry_run))).await }
        });
        let sent = sent.await?;
        let mut effects: Vec<Option<TargetReceipt>> = outcomes.iter().map(|_| None).collect();
        for (seen, response) in sent.responses {
            let outcome = TargetOutcome { dry_run: is_dry_run, ..TargetOutcome::of(&seen) };
            let (outcome, effect) = match response {
                Some(Ok(effect)) => {
                    output::status_line(&text(&TargetRef::from(&seen), effect.as_ref(), &new, is_dry_run));
                    (outcome, effect)
                }
                Some(Err(error)) => (outcome.with_error(&error.message()), None),
                None => (outcome.unanswered(), None),
            };
            outcomes.push(outcome);
            effects.push(effect);
        }
        let end = match (sent.end, self.wait.limit(self.wait_timeout).filter(|_| !is_dry_run)) {
            (Ok(Exit::Done), Some(timeout)) => {
                let goal = (FollowGoal::Ready, "are ready with the version");
                bulk::wait_for(client, &mut outcomes, goal, timeout).await
            }
            (end, _) => {
                let state = if is_dry_run { bulk::WOULD_CHANGE } else { "are updated or have the version" };
                bulk::print_count(bulk::succeeded(&outcomes), outcomes.len(), state);
                end
            }
        };
        let end = end.map(|exit| bulk::exit_of(&outcomes, exit));
        let all: Vec<UpgradeOutcome> =
            outcomes.into_iter().zip(effects).map(|(target, effect)| UpgradeOutcome::new(target, effect)).collect();
        self.output.write_data(&all)?;
        end
    }

    /// Returns the version if new targets can use it.
    async fn published(&self, client: &ApiClient) -> Result<NewVersion> {
        let plugin = &self.plugin;
        let found = client.plugin(&plugin.name, &plugin.version()).await?.ok_or_else(|| plugin.unknown())?;
        let version = found.info.version.parse::<Version>().map_err(|error: semver::Error| {
            CliError::broken("the version in the response is invalid").with_causes(&error)
        })?;
        let new = NewVersion { name: found.info.name, version };
        match found.withdrawn {
            None => Ok(new),
            Some(_) => Err(CliError::failed(format!("{} is withdrawn", new.full()))
                .with_hint(format!("ebb get plugin {} --all", new.name))),
        }
    }
}

impl NewVersion {
    fn full(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Returns true for a living target with another version.
    fn changes(&self, target: &TargetInfo) -> bool {
        let is_other = |used: &String| {
            used.rsplit_once('@')
                .is_some_and(|(name, version)| name == self.name && version != self.version.to_string())
        };
        target.phase.is_alive() && target.plugins.iter().any(is_other)
    }
}

impl UpgradeOutcome {
    fn new(target: TargetOutcome, effect: Option<TargetReceipt>) -> Self {
        let unchanged = || target.error.is_none().then_some(LifecycleResult::Unchanged);
        let result = effect.as_ref().map(|effect| effect.result).or_else(unchanged);
        let (changes, resources) = effect.map(|effect| (effect.changes, effect.resources)).unwrap_or_default();
        Self { target, result, changes, resources }
    }
}

/// Gives a target another version. Returns the effect, or `None` if the target has the version.
async fn upgrade(
    client: &ApiClient,
    TargetInfo { kind, name, .. }: &TargetInfo,
    new: &NewVersion,
    is_dry_run: bool,
) -> Result<Option<TargetReceipt>> {
    let upgraded = upgrade_target(&ApiCalls::new(client.clone()), [kind, name], &new.full(), is_dry_run).await;
    upgraded.map_err(|error| client.tool_error(error))
}

/// Returns the line of a target, with one below for each change.
fn text(target: &TargetRef, effect_of: Option<&TargetReceipt>, new: &NewVersion, is_dry_run: bool) -> String {
    let Some(receipt) = effect_of else { return format!("{target} has {} already", new.full()) };
    let line = match is_dry_run {
        true => planned(receipt.result, target),
        false => format!("{} {target} (generation {})", begun(receipt.result), receipt.generation),
    };
    effect(receipt).lines().fold(line, |text, change| format!("{text}\n  {change}"))
}
