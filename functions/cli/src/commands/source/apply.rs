//! `ebb source apply`: creates or replaces a source.

use std::path::PathBuf;

use ebb_documents::{compile, load};

use super::local_secret;
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
        let secret = &source.verify().secret().value;
        for plugin in compile::named_plugins(&source) {
            let version = plugin.version.as_ref().map_or("latest".to_owned(), ToString::to_string);
            if client.plugin(&plugin.name, &version).await?.is_none_or(|found| found.withdrawn.is_some()) {
                output::status_line(&format!(
                    "warning: plugin {plugin} is not published; events that need it are rejected until it is"
                ));
            }
        }
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
        match (client.state_folder(), local_secret(&client, secret)) {
            (_, Ok(Some(_))) => {}
            (Some(state), Ok(None)) => output::status_line(&format!(
                "The secret {secret} is missing: add it to {}, with mode 600",
                state.join("secrets.json").display()
            )),
            (Some(_), Err(error)) => output::status_line(&format!("warning: {}", error.message())),
            (None, _) => output::status_line(&format!("The deployment needs the secret {secret}")),
        }
        self.output.write_data(&detail)?;
        Ok(Exit::Done)
    }
}
