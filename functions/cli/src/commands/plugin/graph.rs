//! `ebb plugin graph`.

use std::path::PathBuf;

use crate::documents::{self, SetArgs};
use crate::drawing::{Graph, Picture};
use crate::exit::{Exit, Trouble};
use crate::{offline, output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The document; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    /// What to draw for
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    format: Picture,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Trouble> {
        let mut pictures = Vec::new();
        for plugin in documents::plugins(&self.file, &self.sets.vars()?)? {
            let planned = offline::plan_alone(&plugin)?;
            pictures.push(Graph::new(&offline::full_name(&plugin), &planned.plan).draw(self.format));
        }
        output::print(&pictures.join("\n"))?;
        Ok(Exit::Done)
    }
}
