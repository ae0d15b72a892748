//! `ebb retry`.

use std::fmt::Write as _;

use ebb_protocol::api::{RetryResponse, RetryTarget, TargetInfo, TargetState};

use crate::bulk::{self, YesArgs};
use crate::client::ApiClient;
use crate::dry_run::DryRunArgs;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::selector::{CommandTargets, SelectorArgs};
use crate::target::{KindArgs, TargetRef};

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

impl RetryArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let body = RetryTarget { plugin: self.plugin.clone(), dry_run: self.dry_run.is_set() };
        match self.selector.targets(&self.names, self.kind.kind(), None)? {
            // Without another version, the server has nothing to compare.
            CommandTargets::One(target) if body.plugin.is_some() || !body.dry_run => {
                let done: RetryResponse = client.act(&target, "retry", &body).await?;
                self.output.write_status(&done, |done| text(done, body.dry_run))
            }
            targets => self.retry_all(client, targets, body).await,
        }
    }

    async fn retry_all(&self, client: &ApiClient, targets: CommandTargets, body: RetryTarget) -> Result<Exit> {
        let are_selected = targets.are_selected();
        let (mut found, missing) = bulk::find(client, targets).await?;
        if are_selected {
            // The others have nothing to retry. Only a stuck target can be repaired.
            found.retain(|target| match target.phase {
                TargetState::Stuck => true,
                phase => phase == TargetState::Failed && body.plugin.is_none(),
            });
        }
        if body.dry_run && body.plugin.is_none() {
            return bulk::print_dry_run("retry", &found, missing, self.output);
        }
        if are_selected && !body.dry_run {
            self.yes.confirm("Retry", &found)?;
        }
        let is_dry_run = body.dry_run;
        let sent = bulk::each(found, |target| {
            let (client, body) = (client.clone(), body.clone());
            async move {
                let done: Result<RetryResponse> = client.act(&TargetRef::from(&target), "retry", &body).await;
                (target, done)
            }
        });
        let mut exit = if missing.is_empty() { Exit::Done } else { Exit::Failed };
        let mut all = Vec::new();
        for (TargetInfo { kind, name, .. }, result) in sent.await {
            match result {
                Ok(done) => all.push(done),
                Err(error) if are_selected && error.has_code("plugin-unused") => {}
                // Other targets can be retried although one cannot.
                Err(error) if error.exit() == Exit::Failed => {
                    output::status_line(&format!("{kind}/{name}: {}", output::joined_lines(&error.message())));
                    exit = Exit::Failed;
                }
                Err(error) => return Err(error),
            }
        }
        self.output.write_status(&all, |all| match all.as_slice() {
            [] => "No target was retried".to_owned(),
            all => all.iter().map(|done| text(done, is_dry_run)).collect::<Vec<_>>().join("\n"),
        })?;
        Ok(exit)
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
