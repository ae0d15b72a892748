//! `ebb schema`: prints the JSON Schema of a document.

use clap::ValueEnum;
use ebb_documents::schema;

use crate::{CliError, Exit, Result, output};

#[derive(Debug, clap::Args)]
pub(crate) struct SchemaArgs {
    /// Document to describe
    document: SchemaDocument,
    /// Describe Signadot's format of the document
    #[arg(long)]
    signadot: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaDocument {
    /// A plugin
    Plugin,
    /// A sandbox
    Sandbox,
    /// A collection of InfraKit's resources
    Collection,
    /// A source of events
    Source,
    /// A connection for outgoing requests
    Connection,
    /// A subscription to notifications
    Subscription,
}

impl SchemaArgs {
    pub(crate) fn run(self) -> Result<Exit> {
        let schema = match (self.document, self.signadot) {
            (SchemaDocument::Plugin, true) => schema::signadot_plugin(),
            (SchemaDocument::Sandbox, true) => schema::signadot_sandbox(),
            (_, true) => {
                return Err(CliError::failed("Signadot has no such document").with_hint("leave out `--signadot`"));
            }
            (SchemaDocument::Plugin, false) => schema::plugin(),
            (SchemaDocument::Sandbox, false) => schema::sandbox(),
            (SchemaDocument::Collection, false) => schema::collection(),
            (SchemaDocument::Source, false) => schema::event_source(),
            (SchemaDocument::Connection, false) => schema::connection(),
            (SchemaDocument::Subscription, false) => schema::subscription(),
        };
        output::print_data(&format!("{schema:#}\n"))
    }
}
