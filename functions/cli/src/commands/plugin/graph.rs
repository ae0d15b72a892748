//! `ebb plugin graph`: draws the units of plugins.

use std::path::PathBuf;

use crate::documents::{self, SetArgs};
use crate::drawing::{DiagramFormat, PlanDiagram};
use crate::exit::{CliError, Exit};
use crate::{offline, output};

#[derive(Debug, clap::Args)]
pub(crate) struct PluginGraphArgs {
    /// File with plugins; `-` reads standard input
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    /// Format of the picture
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    format: DiagramFormat,
}

impl PluginGraphArgs {
    pub(crate) fn run(self) -> Result<Exit, CliError> {
        let mut pictures = Vec::new();
        for plugin in documents::plugins(&self.file, &self.sets.vars()?)? {
            let planned = offline::plan_alone(&plugin)?;
            pictures.push(PlanDiagram::new(&offline::full_name(&plugin), &planned.plan).draw(self.format));
        }
        output::print(&pictures.join("\n"))?;
        Ok(Exit::Done)
    }
}
