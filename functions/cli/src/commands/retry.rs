//! `ebb retry`.

use std::fmt::Write as _;

use ebb_protocol::api::{RetryResponse, RetryTarget, TargetState};

use crate::client::ApiClient;
use crate::dry_run::DryRunArgs;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::selector::TargetSelection;
use crate::target::{KindArgs, TargetRef};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb retry pr-1\n  ebb retry pr-1 --plugin db@1.0.1 --dry-run\n  ebb retry --all-stuck --plugin db@1.0.1"
)]
pub(crate) struct RetryArgs {
    /// Name of the target
    #[arg(value_name = "SANDBOX", required_unless_present = "all_stuck")]
    name: Option<String>,
    #[command(flatten)]
    kind: KindArgs,
    /// Published version whose undo scripts and requests the teardown of a stuck target gets
    #[arg(long, value_name = "NAME@VERSION")]
    plugin: Option<String>,
    /// Repair every stuck target of the kind that uses the plugin
    #[arg(long, requires = "plugin", conflicts_with = "name")]
    all_stuck: bool,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl RetryArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let body = RetryTarget { plugin: self.plugin.clone(), dry_run: self.dry_run.is_set() };
        let target = |name: &str| TargetRef { kind: self.kind.kind().to_owned(), name: name.to_owned() };
        if let Some(name) = &self.name {
            let done: RetryResponse = client.act(&target(name), "retry", &body).await?;
            return self.output.write_status(&done, |done| text(done, body.dry_run));
        }
        let all = TargetSelection { kind: Some(self.kind.kind().to_owned()), ..TargetSelection::default() };
        let (targets, _) = client.targets(&all).await?;
        let (mut all, mut exit) = (Vec::<RetryResponse>::new(), Exit::Done);
        for stuck in targets.iter().filter(|target| target.phase == TargetState::Stuck) {
            match client.act(&target(&stuck.name), "retry", &body).await {
                Ok(done) => all.push(done),
                Err(error) if error.has_code("plugin-unused") => {}
                // Other targets can be repaired although one cannot.
                Err(error) if error.has_code("not-repairable") || error.has_code("not-stuck") => {
                    output::status_line(&format!("{}: {}", stuck.name, error.message()));
                    exit = Exit::Failed;
                }
                Err(error) => return Err(error),
            }
        }
        self.output.write_status(&all, |all| match all.as_slice() {
            [] => "No stuck target was repaired".to_owned(),
            all => all.iter().map(|done| text(done, body.dry_run)).collect::<Vec<_>>().join("\n"),
        })?;
        Ok(exit)
    }
}

/// Returns the lines of a retry and of the undos that it changes.
fn text(done: &RetryResponse, is_dry_run: bool) -> String {
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
