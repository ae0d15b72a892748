//! `ebb schema`.

use clap::ValueEnum;
use ebb_spec::schema;

use crate::exit::{Exit, Trouble};
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The document
    document: Document,
    /// Signadot's format of it
    #[arg(long)]
    signadot: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Document {
    /// A plugin
    Plugin,
    /// A sandbox
    Sandbox,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Trouble> {
        let schema = match (self.document, self.signadot) {
            (Document::Plugin, false) => schema::plugin(),
            (Document::Sandbox, false) => schema::sandbox(),
            (Document::Plugin, true) => schema::signadot_plugin(),
            (Document::Sandbox, true) => schema::signadot_sandbox(),
        };
        output::print(&format!("{schema:#}\n"))?;
        Ok(Exit::Done)
    }
}
