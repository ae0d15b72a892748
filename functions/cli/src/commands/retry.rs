//! `ebb retry`.

use std::fmt::Write as _;

use ebb_protocol::api::{RetryResponse, RetryTarget, TargetState};
use serde::Serialize;

use crate::bulk::{self, TargetOutcome, YesArgs};
use crate::client::ApiClient;
use crate::dry_run::DryRunArgs;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::selector::{CommandTargets, SelectorArgs};
use crate::target::KindArgs;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb retry pr-1 pr-2\n  ebb retry --phase failed --label team=payments --dry-run\n  ebb retry pr-1 --plugin db@1.0.1 --dry-run\n  ebb retry --phase stuck --plugin db@1.0.1 --yes"
)]
pub(crate) struct RetryArgs {
    /// Names of the targets
    #[arg(value_name = "SANDBOX")]
    names: Vec<String>,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Published version whose undo scripts and requests the teardown of a stuck target gets
    #[arg(long, value_name = "NAME@VERSION")]
    plugin: Option<String>,
    #[command(flatten)]
    yes: YesArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The retry of one of several targets, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct TargetRetry {
    #[serde(flatten)]
    target: TargetOutcome,
    /// Absent if the retry was refused. Its UID is that of the target.
    #[serde(flatten)]
    retry: Option<RetryResponse>,
}

impl RetryArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let body = RetryTarget { uid: None, plugin: self.plugin.clone(), dry_run: self.dry_run.is_set() };
        match self.selector.targets(&self.names, Some(self.kind.kind()), None)? {
            // Without another version, the server has nothing to compare.
            CommandTargets::One(target) if body.plugin.is_some() || !body.dry_run => {
                let done: RetryResponse = client.act(&target, "retry", &body).await?;
                self.output.write_status(&done, |done| {
                    let next = (!body.dry_run && !done.units.is_empty())
                        .then(|| format!("\nnext step: ebb get {} {} --watch", target.kind, target.name));
                    text(done, body.dry_run) + &next.unwrap_or_default()
                })
            }
            targets => self.retry_all(client, targets, body).await,
        }
    }

    async fn retry_all(&self, client: &ApiClient, targets: CommandTargets, body: RetryTarget) -> Result<Exit> {
        let (are_selected, is_dry_run) = (targets.are_selected(), body.dry_run);
        let begun: Vec<TargetOutcome> = match targets {
            // The request for a name shows whether it exists.
            CommandTargets::Named(names) if body.plugin.is_some() || !is_dry_run => {
                names.into_iter().map(TargetOutcome::named).collect()
            }
            targets => {
                let (mut found, missing) = bulk::find(client, targets).await?;
                if are_selected {
                    // The others have nothing to retry. Only a stuck target can be repaired.
                    found.retain(|target| match target.phase {
                        TargetState::Stuck => true,
                        phase => phase == TargetState::Failed && body.plugin.is_none(),
                    });
                }
                if is_dry_run && body.plugin.is_none() {
                    return bulk::print_dry_run("retry", &found, missing, self.output);
                }
                if !is_dry_run {
                    self.yes.confirm("Retry", &found)?;
                }
                found.iter().map(TargetOutcome::of).collect()
            }
        };
        let sent = bulk::each(begun, |outcome: TargetOutcome| {
            let (client, target) = (client.clone(), outcome.target());
            let body = RetryTarget { uid: outcome.uid, ..body.clone() };
            async move {
                let send = || client.act::<RetryResponse>(&target, "retry", &body);
                let done = bulk::repeated(send).await?;
                output::status_line(&format!("{target}: {}", text(&done, is_dry_run)));
                Ok(done)
            }
        });
        let sent = sent.await?;
        let mut all = Vec::new();
        for (outcome, response) in sent.responses {
            let outcome = TargetOutcome { dry_run: is_dry_run, ..outcome };
            let (target, retry) = match response {
                Some(Ok(mut retry)) => {
                    let uid = retry.uid.take().or(outcome.uid);
                    (TargetOutcome { uid, ..outcome }, Some(retry))
                }
                Some(Err(error)) if are_selected && error.has_code("plugin-unused") => continue,
                // Other targets can be retried although one cannot.
                Some(Err(error)) => (outcome.with_error(&error.message()), None),
                None => (outcome.unanswered(), None),
            };
            all.push(TargetRetry { target, retry });
        }
        let outcomes = || all.iter().map(|retry| &retry.target);
        match (all.len(), is_dry_run) {
            (0, _) => output::status_line("No target was retried"),
            (count, true) => bulk::print_count(bulk::succeeded(outcomes()), count, bulk::WOULD_CHANGE),
            (count, false) => bulk::print_count(bulk::succeeded(outcomes()), count, "are retried"),
        }
        self.output.write_data(&all)?;
        Ok(bulk::exit_of(outcomes(), sent.end?))
    }
}

/// Returns the lines of a retry and of the undos that it changes.
pub(super) fn text(done: &RetryResponse, is_dry_run: bool) -> String {
    let mut text = match (is_dry_run, done.units.as_slice()) {
        (true, _) if done.changes.is_empty() => format!("Would change no undo in {}", done.run),
        (true, _) => format!("Would change in {}:", done.run),
        (false, []) => format!("Nothing to retry in {}", done.run),
        (false, units) => format!("Retrying in {}: {}", done.run, units.join(", ")),
    };
    for change in &done.changes {
        let _ = write!(text, "\n{}: {} → {}", change.unit, change.from, change.to);
        for change in &change.changes {
            let _ = write!(text, "\n  {}", output::change_line(change));
        }
    }
    for unit in &done.ignored {
        let _ = write!(text, "\n{unit} does not run: the plan of the target does not have it");
    }
    text
}
