//! `ebb source apply`: creates or replaces a source.

use std::path::PathBuf;

use ebb_documents::{compile, load};

use crate::commands::connect;
use crate::documents::{self, DocumentSource, SetArgs};
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct SourceApplyArgs {
    /// File with the source; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SourceApplyArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let file = DocumentSource::read(&self.file)?;
        let doc = load::event_source(&file.name, &file.text, &file.folder, &self.sets.vars()?)?;
        let (source, warnings) = compile::event_source(&doc)?;
        documents::warn(&warnings);
        let client = connect(server)?;
        if self.dry_run.is_set() {
            let change = match client.source(source.name()).await? {
                None => ChangeKind::Create,
                Some(found) if found.document == doc.expanded => ChangeKind::None,
                Some(_) => ChangeKind::Replace,
            };
            dry_run::print(&[DocumentChange::planned("source", source.name().to_owned(), change)], self.output)?;
            return Ok(Exit::Done);
        }
        let detail = client.put_source(source.name(), &doc.expanded).await?;
        output::status_line(&format!(
            "Applied source {}. Send its events to {}",
            detail.name,
            client.address(&detail.path)
        ));
        output::status_line(&format!("The deployment needs the secret {}", source.verify().secret().value));
        self.output.write_data(&detail)?;
        Ok(Exit::Done)
    }
}
