//! The commands of documents that a deployment stores by name: sources, connections and subscriptions.

use std::path::PathBuf;

use ebb_documents::load::DocumentVars;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::ApiClient;
use crate::documents::{DocumentSource, SetArgs};
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{CliError, Exit, Result};
use crate::output::{self, OutputArgs, OutputFormat};
use crate::timing;

/// A kind of document that a deployment stores by name.
pub(crate) trait NamedDocument: Sized {
    /// The kind in messages and in the names of commands.
    const KIND: &'static str;
    /// The path of the kind below `/v1/`, and the member of its list.
    const COLLECTION: &'static str;
    /// The effect of a deletion on existing targets.
    const DELETED: &'static str;
    /// The header of the table.
    const COLUMNS: &'static [&'static str];
    /// A row of the list.
    type Info: Serialize + DeserializeOwned;
    /// The stored data.
    type Detail: Serialize + DeserializeOwned;

    /// Loads a document and checks everything that needs no server.
    fn load(file: &DocumentSource, vars: &DocumentVars) -> Result<Self>;

    /// Returns the name and the text with all `@{…}` expanded.
    fn content(&self) -> (&str, &str);

    /// Prints warnings that need a server.
    async fn warn(&self, _client: &ApiClient) -> Result<()> {
        Ok(())
    }

    /// Prints the next steps after the document was stored.
    fn report(&self, client: &ApiClient, detail: &Self::Detail);

    /// Returns the cells of a row.
    fn row(info: &Self::Info) -> Vec<String>;

    /// Returns the text of the stored document.
    fn document(detail: &Self::Detail) -> &str;

    /// Returns the stored data as text for people.
    fn text(detail: &Self::Detail) -> String;
}

/// Returns the error if a document does not exist.
fn unknown<D: NamedDocument>(name: &str) -> CliError {
    CliError::failed(format!("no {} {name} exists", D::KIND)).with_hint(format!("ebb {} list", D::KIND))
}

/// Returns a stored document.
pub(crate) async fn stored<D: NamedDocument>(client: &ApiClient, name: &str) -> Result<D::Detail> {
    client.find(&[D::COLLECTION, name]).await?.ok_or_else(|| unknown::<D>(name))
}

/// Stores a document.
pub(crate) async fn put<D: NamedDocument>(client: &ApiClient, document: &D) -> Result<D::Detail> {
    let (name, text) = document.content();
    client.put(D::COLLECTION, name, text).await
}

/// Returns the text of a stored document that the server cannot read.
pub(crate) fn unreadable(name: &str, reason: &str, changed: &str) -> String {
    let (reason, changed) = (output::printable(reason), timing::clock(changed));
    format!("Name:        {name}\nChanged:     {changed}\nUnreadable:  {reason}\n")
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamedApplyArgs {
    /// File with the document; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl NamedApplyArgs {
    pub(crate) async fn run<D: NamedDocument>(self, client: impl FnOnce() -> Result<ApiClient>) -> Result<Exit> {
        let document = D::load(&DocumentSource::read(&self.file)?, &self.sets.vars()?)?;
        let client = client()?;
        document.warn(&client).await?;
        if self.dry_run.is_set() {
            let (name, text) = document.content();
            let found: Option<D::Detail> = client.find(&[D::COLLECTION, name]).await?;
            let change = match found {
                None => ChangeKind::Create,
                Some(found) if D::document(&found) == text => ChangeKind::None,
                Some(_) => ChangeKind::Replace,
            };
            return dry_run::print(&[DocumentChange::planned(D::KIND, name.to_owned(), change)], self.output);
        }
        let detail = put(&client, &document).await?;
        document.report(&client, &detail);
        self.output.write_data(&detail)
    }
}

/// Prints one row for each document of a kind.
pub(crate) async fn list<D: NamedDocument>(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let all: Vec<D::Info> = client.all(D::COLLECTION).await?;
    output.write(&all, |all| output::table(D::COLUMNS, all.iter().map(D::row)))
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamedGetArgs {
    /// Name of the document
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl NamedGetArgs {
    pub(crate) async fn run<D: NamedDocument>(self, client: &ApiClient) -> Result<Exit> {
        let detail = stored::<D>(client, &self.name).await?;
        match self.output.format() {
            Some(OutputFormat::Yaml) => output::print_data(D::document(&detail)),
            Some(OutputFormat::Json) | None => self.output.write(&detail, D::text),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamedDeleteArgs {
    /// Name of the document
    name: String,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl NamedDeleteArgs {
    pub(crate) async fn run<D: NamedDocument>(self, client: &ApiClient) -> Result<Exit> {
        let change = DocumentChange::planned(D::KIND, self.name.clone(), ChangeKind::Delete);
        if self.dry_run.is_set() {
            stored::<D>(client, &self.name).await?;
            return dry_run::print(&[change], self.output);
        }
        client.delete(D::COLLECTION, &self.name).await?.ok_or_else(|| unknown::<D>(&self.name))?;
        output::status_line(&format!("Deleted {} {}; {}", D::KIND, self.name, D::DELETED));
        self.output.write_data(&[DocumentChange { dry_run: false, ..change }])
    }
}
