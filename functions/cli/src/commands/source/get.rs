//! `ebb source list`, `ebb source get` and `ebb source delete`.

use std::fmt::Write as _;

use ebb_protocol::api::SourceDetail;

use crate::client::ApiClient;
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs, OutputFormat};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct SourceListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl SourceListArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        self.output.write(&client.sources().await?, |sources| {
            let rows = sources.iter().map(|source| {
                let rejected = source.rejected.as_deref().map(timing::clock).unwrap_or_default();
                [source.name.clone(), timing::clock(&source.changed), rejected]
            });
            output::table(&["NAME", "CHANGED", "REJECTED"], rows)
        })?;
        Ok(Exit::Done)
    }
}

/// Show a source and its rejected events. `-o yaml` prints the document, `-o json` all stored data
#[derive(Debug, clap::Args)]
pub(crate) struct SourceGetArgs {
    /// Name of the source
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl SourceGetArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let detail = client.source(&self.name).await?.ok_or_else(|| unknown(&self.name))?;
        match self.output.format() {
            Some(OutputFormat::Yaml) => output::print(&detail.document)?,
            Some(OutputFormat::Json) | None => self.output.write(&detail, text)?,
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SourceDeleteArgs {
    /// Name of the source
    name: String,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SourceDeleteArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let change = DocumentChange::planned("source", self.name.clone(), ChangeKind::Delete);
        if self.dry_run.is_set() {
            client.source(&self.name).await?.ok_or_else(|| unknown(&self.name))?;
            dry_run::print(&[change], self.output)?;
            return Ok(Exit::Done);
        }
        client.delete_source(&self.name).await?.ok_or_else(|| unknown(&self.name))?;
        output::status_line(&format!("Deleted source {}; its targets stay", self.name));
        self.output.write_data(&[DocumentChange { dry_run: false, ..change }])?;
        Ok(Exit::Done)
    }
}

pub(super) fn unknown(name: &str) -> CliError {
    CliError::failed(format!("no source {name} exists")).with_hint("ebb source list")
}

fn text(detail: &SourceDetail) -> String {
    let changed = timing::clock(&detail.changed);
    let mut text = format!("Name:     {}\nChanged:  {changed}\nPath:     {}\n", detail.name, detail.path);
    if !detail.failed.is_empty() {
        let rows = detail.failed.iter().map(|failed| {
            let target = failed.outcome.target.clone().unwrap_or_default();
            [
                timing::clock(&failed.rejected),
                target,
                failed.delivery.clone(),
                failed.outcome.detail.split('\n').map(str::trim).collect::<Vec<_>>().join("; "),
            ]
        });
        let table = output::table(&["REJECTED", "TARGET", "DELIVERY", "REASON"], rows);
        let _ = write!(text, "\n{table}");
    }
    text
}

#[cfg(test)]
mod tests {
    use ebb_protocol::api::{FailedDelivery, SourceResponse, SourceResult};

    use super::*;

    #[test]
    fn rejected_events_are_listed() {
        let outcome = SourceResponse {
            result: SourceResult::Rejected,
            target: Some("sandbox/pr-7".to_owned()),
            uid: None,
            detail: "no plugin \"db\" is published\n  help: publish it".to_owned(),
        };
        let time = "2026-11-21T09:00:00Z".to_owned();
        let detail = SourceDetail {
            name: "previews".to_owned(),
            changed: time.clone(),
            document: String::new(),
            path: "/v1/sources/previews".to_owned(),
            failed: vec![FailedDelivery {
                delivery: "d-1".to_owned(),
                time: "2026-11-21T08:00:00Z".to_owned(),
                rejected: time,
                outcome,
            }],
        };
        insta::assert_snapshot!(text(&detail), @r#"
        Name:     previews
        Changed:  2026-11-21 09:00:00Z
        Path:     /v1/sources/previews

        REJECTED              TARGET        DELIVERY  REASON
        2026-11-21 09:00:00Z  sandbox/pr-7  d-1       no plugin "db" is published; help: publish it
        "#);
    }
}
