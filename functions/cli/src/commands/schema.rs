//! `ebb schema`: prints the JSON Schema of a document.

use clap::builder::{PossibleValue, PossibleValuesParser};
use ebb_documents::schema;
use serde_json::Value;

use crate::{CliError, Exit, Result, output};

#[derive(Debug, clap::Args)]
pub(crate) struct SchemaArgs {
    /// Document to describe
    #[arg(value_parser = documents())]
    document: String,
    /// Describe Signadot's format of the document
    #[arg(long)]
    signadot: bool,
}

type WrittenSchema = fn() -> Value;

/// The documents, each with its meaning, its schema, and that of Signadot's format.
const DOCUMENTS: [(&str, &str, WrittenSchema, Option<WrittenSchema>); 6] = [
    ("plugin", "A plugin", schema::plugin, Some(schema::signadot_plugin)),
    ("sandbox", "A sandbox", schema::sandbox, Some(schema::signadot_sandbox)),
    ("collection", "A collection of InfraKit's resources", schema::collection, None),
    ("source", "A source of events", schema::event_source, None),
    ("connection", "A connection for outgoing requests", schema::connection, None),
    ("subscription", "A subscription to notifications", schema::subscription, None),
];

fn documents() -> PossibleValuesParser {
    PossibleValuesParser::new(DOCUMENTS.map(|(name, meaning, ..)| PossibleValue::new(name).help(meaning)))
}

impl SchemaArgs {
    pub(crate) fn run(self) -> Result<Exit> {
        let found = DOCUMENTS.into_iter().find(|(name, ..)| *name == self.document);
        let (.., own, of_signadot) = found.expect("the argument takes the names of documents");
        let none = || CliError::failed("Signadot has no such document").with_hint("leave out `--signadot`");
        let schema = if self.signadot { of_signadot.ok_or_else(none)? } else { own };
        output::print_data(&format!("{:#}\n", schema()))
    }
}
