//! `ebb graph`.

use std::path::PathBuf;

use ebb_spec::load::Document;

use crate::documents::{self, SetArgs, Source};
use crate::drawing::{Graph, Picture};
use crate::exit::{Exit, Trouble};
use crate::{offline, output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A sandbox or a plugin; `-` is standard input
    file: PathBuf,
    /// A file with plugins that the sandbox names; may be given more than once
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// What to draw for
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    format: Picture,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Trouble> {
        let vars = self.sets.vars()?;
        let source = Source::read(&self.file)?;
        let mut pictures = Vec::new();
        for document in source.documents(&vars)? {
            match document {
                Document::Plugin(plugin) => {
                    let planned = offline::plan_alone(&plugin)?;
                    pictures.push(Graph::new(&offline::full_name(&plugin), &planned.plan).draw(self.format));
                }
                Document::Sandbox(sandbox) => {
                    let plugins = documents::all_plugins(&self.plugins, &vars)?;
                    let planned = offline::plan(&sandbox, &plugins)?;
                    pictures.push(Graph::new(&sandbox.name.value, &planned.plan).draw(self.format));
                }
                Document::RouteGroup(group) => {
                    return Err(Trouble::failed(format!(
                        "{} is a route group, which has no resources and no units",
                        group.name.value
                    )));
                }
            }
        }
        output::print(&pictures.join("\n"))?;
        Ok(Exit::Done)
    }
}
