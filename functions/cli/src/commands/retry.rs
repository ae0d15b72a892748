//! `ebb retry`.

use std::fmt::Write as _;
use std::path::PathBuf;

use ebb_protocol::api::{RetryResponse, RetryTarget, TargetAction};

use crate::{
    ApiClient, CliError, CommandTargets, DryRunArgs, Exit, KindArgs, OutputArgs, Result, SelectorArgs, SetArgs,
    TargetRef, TargetsCommand, YesArgs, bulk, documents, output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// Names of the targets, also as KIND/NAME
    #[arg(value_name = "SANDBOX")]
    names: Vec<String>,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Published version whose undo scripts and requests the teardown of a stuck target gets
    #[arg(long, value_name = "NAME@VERSION")]
    plugin: Option<String>,
    /// Corrected document of one stuck target, whose teardown gets the undos of its own hooks
    #[arg(long, short, value_name = "FILE", conflicts_with = "plugin")]
    file: Option<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    yes: YesArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl RetryArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let vars = self.sets.vars()?;
        let document = self.file.as_ref().map(|file| documents::single_target(file, &vars)).transpose()?;
        let document = document.map(|document| document.expanded);
        let body = RetryTarget { uid: None, plugin: self.plugin.clone(), document, dry_run: self.dry_run.dry_run };
        match self.selector.targets(&self.names, self.kind.of(&self.names)?, None)? {
            // Without another version, the server has nothing to compare.
            CommandTargets::One(target) if body != RetryTarget { dry_run: true, ..RetryTarget::default() } => {
                let done: RetryResponse = client.act(&target, "retry", &body).await?;
                if body.dry_run {
                    return self.output.write(&done, |done| text(done, true));
                }
                self.output.write_status(&done, |done| {
                    let next = (!done.units.is_empty())
                        .then(|| format!("\nnext step: ebb get {} {} --watch", target.kind, target.name));
                    text(done, false) + &next.unwrap_or_default()
                })
            }
            _ if body.document.is_some() => Err(CliError::broken("--file repairs one target: give its name")),
            targets => self.retry_all(client, targets).await,
        }
    }

    async fn retry_all(&self, client: &ApiClient, targets: CommandTargets) -> Result<Exit> {
        let is_dry_run = self.dry_run.dry_run;
        let action = TargetAction::Retry { plugin: self.plugin.clone() };
        let command = TargetsCommand { client, action, verb: "Retry", is_dry_run, output: self.output };
        let answered = command.run(targets, self.yes, |outcome, _| match &outcome.retry {
            Some(done) => format!("{}: {}", TargetRef::from(outcome), text(done, is_dry_run)),
            None => bulk::would("retry", outcome),
        });
        answered.await?.finish(&command, "are retried", None).await
    }
}

/// Returns the lines of a retry and of the undos that it changes.
fn text(done: &RetryResponse, is_dry_run: bool) -> String {
    let mut text = match (is_dry_run, done.units.as_slice()) {
        (true, _) if done.changes.is_empty() => format!("Would change no undo in {}", done.run),
        (true, _) => format!("Would change in {}:", done.run),
        (false, []) => format!("Nothing to retry in {}", done.run),
        (false, units) => format!("Retrying {} (run {})", units.join(", "), done.run),
    };
    for change in &done.changes {
        let _ = write!(text, "\n{}: {} → {}", change.unit, change.from, change.to);
        text.extend(change.changes.iter().map(|change| format!("\n  {}", output::change_line(change))));
    }
    let ignored = |unit: &String| format!("{unit} does not run: the plan of the target does not have it");
    let notes = done.kept.iter().cloned().chain(done.ignored.iter().map(ignored));
    text.extend(notes.map(|note| format!("\n{note}")));
    text
}
