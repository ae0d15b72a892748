//! `ebb plugin delete`: withdraws plugin versions.

use std::path::{Path, PathBuf};

use ebb_documents::load::{self, DocumentVars, NoFiles};
use serde_json::Value;

use super::VersionedName;
use crate::client::ApiClient;
use crate::commands::connect;
use crate::documents::{DocumentSource, SetArgs};
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginDeleteArgs {
    /// Plugin to withdraw; without VERSION, its highest version
    #[arg(value_name = "NAME[@VERSION]", required_unless_present = "file", conflicts_with = "file")]
    plugin: Option<VersionedName>,
    /// File with the plugin; only `name` is read, `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginDeleteArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let all = match (&self.plugin, &self.file) {
            (Some(_), _) if !self.sets.is_empty() => {
                return Err(CliError::broken("--set needs a document: add -f FILE"));
            }
            (Some(named), _) => vec![named.clone()],
            (None, Some(file)) => named_in(file, &self.sets.vars()?)?,
            (None, None) => {
                return Err(CliError::broken("no plugin: expected NAME[@VERSION] or -f FILE"));
            }
        };
        let client = connect(server)?;
        let mut changes = Vec::new();
        for named in &all {
            changes.push(delete(&client, named, self.dry_run).await?);
        }
        match self.dry_run.is_set() {
            true => dry_run::print(&changes, self.output)?,
            false => self.output.write_data(&changes)?,
        }
        Ok(Exit::Done)
    }
}

async fn delete(client: &ApiClient, named: &VersionedName, dry_run: DryRunArgs) -> Result<DocumentChange, CliError> {
    let detail = client.plugin(&named.name, &named.version()).await?.ok_or_else(|| named.unknown())?;
    let full = format!("{}@{}", detail.info.name, detail.info.version);
    let change = DocumentChange::planned("plugin", full.clone(), ChangeKind::Delete);
    if dry_run.is_set() {
        let is_withdrawn = detail.withdrawn.is_some();
        return Ok(if is_withdrawn { DocumentChange { change: ChangeKind::None, ..change } } else { change });
    }
    client.delete_plugin(&detail.info.name, &detail.info.version).await?;
    let remaining = client.versions(&named.name).await?.map_or(0, |versions| versions.len());
    let remaining = match (remaining, &named.version) {
        (0, _) => String::new(),
        (1, _) => "; 1 version remains".to_owned(),
        (count, _) => format!("; {count} versions remain"),
    };
    output::status_line(&format!("Withdrew resource plugin {full}{remaining}"));
    Ok(DocumentChange { dry_run: false, ..change })
}

/// Returns the names of the plugins in a file. Other fields are not read, so embedded files need not exist.
fn named_in(file: &Path, vars: &DocumentVars) -> Result<Vec<VersionedName>, CliError> {
    let source = DocumentSource::read(file)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&source.text)
        .map_err(|error| CliError::failed(format!("cannot read {}", source.name)).with_causes(&error))?;
    let mut all = Vec::new();
    for document in documents {
        let Some(name) = document["name"].as_str() else {
            return Err(CliError::failed(format!("{}: missing name", source.name)).with_hint("add `name:` at the top"));
        };
        let reduced = serde_json::json!({"name": name, "spec": {"runner": {"image": "none"}, "create": []}});
        let mut plugins = load::plugins(&source.name, &reduced.to_string(), &NoFiles, vars)?;
        if let Some(plugin) = plugins.pop() {
            all.push(VersionedName { name: plugin.name.value.clone(), version: plugin.version });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        std::fs::write(&file, "name: \"db-@{who}@1.2.0\"\nspec: {create: [{script: \"@{embed: gone.sh}\"}]}\n")
            .unwrap();
        let named = named_in(&file, &DocumentVars::parse(["who=me"]).unwrap()).unwrap();
        assert_eq!(named, [VersionedName { name: "db-me".to_owned(), version: Some("1.2.0".parse().unwrap()) }]);
    }
}
