//! `ebb plan`: prints the plan of a sandbox.

use std::path::PathBuf;

use crate::documents::{self, SetArgs};
use crate::drawing;
use crate::exit::{CliError, Exit};
use crate::offline;
use crate::output::OutputArgs;
use crate::pretend;
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb plan sandbox.yaml\n  ebb plan sandbox.yaml --plugin plugin.yaml")]
pub(crate) struct PlanArgs {
    /// File with the sandbox; `-` reads standard input
    file: PathBuf,
    /// File with plugins; repeatable. With it, the server is not used
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    /// Ask the InfraKit plugins of this machine what they would do; nothing is made
    #[arg(long)]
    pretend: bool,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PlanArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let vars = self.sets.vars()?;
        let document = documents::TargetDocument::read(&self.file, &vars)?;
        let target = document.target("sandbox");
        let sandbox = document.0;
        // Collections need no plugins of the server.
        let needs_plugins = sandbox.resources.iter().any(|resource| resource.collection.is_none());
        let mut preview = if self.plugins.is_empty() && needs_plugins {
            super::connect_for_plugins(server)?.preview(&sandbox.expanded).await?
        } else {
            let plugins = documents::all_plugins(&self.plugins, &vars)?;
            let planned = offline::plan(&sandbox, &plugins)?;
            documents::warn(&planned.warnings);
            offline::preview(&target.kind, &target.name, offline::as_published(&sandbox, &plugins)?)?
        };
        if self.pretend {
            pretend::ask(&mut preview).await?;
        }
        let title = format!("{}  {}", target.name, preview.digest);
        self.output.write(&preview, |preview| drawing::text(&title, preview))?;
        Ok(Exit::Done)
    }
}
