//! `ebb plugin apply`: publishes plugins.

use std::path::PathBuf;

use ebb_documents::model::PluginDoc;
use ebb_documents::{compile, load};
use ebb_protocol::api::PluginInfo;
use reqwest::StatusCode;

use super::immutable;
use crate::client::ApiClient;
use crate::cluster_policy;
use crate::commands::connect;
use crate::documents::{self, SetArgs};
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{Exit, Result};
use crate::offline;
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginApplyArgs {
    /// File with plugins; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    /// With `--dry-run`: check the plugins also against the policy of this cluster
    #[arg(long, value_name = "NAME", requires = "dry_run")]
    cluster: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginApplyArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let plugins = documents::plugins(&self.file, &self.sets.vars()?)?;
        for plugin in &plugins {
            documents::warn(&compile::check_plugin(plugin)?);
        }
        let client = connect(server)?;
        if self.dry_run.is_set() {
            if let Some(name) = &self.cluster
                && let Some(policy) = cluster_policy::of(&client, name).await?
            {
                for plugin in &plugins {
                    cluster_policy::check_plugin(plugin, name, &policy)?;
                }
            }
            let mut changes = Vec::new();
            for plugin in &plugins {
                changes.push(planned(&client, plugin).await?);
            }
            return dry_run::print(&changes, self.output);
        }
        let mut published: Vec<PluginInfo> = Vec::new();
        for plugin in &plugins {
            match client.publish(&plugin.expanded).await {
                Ok((status, info)) => {
                    let word = if status == StatusCode::OK { "Unchanged" } else { "Created" };
                    output::status_line(&format!("{word} plugin {}@{}", info.name, info.version));
                    published.push(info);
                }
                Err(error) if error.has_status(409) => return Err(immutable(plugin)),
                Err(error) => return Err(error),
            }
        }
        self.output.write_data(&published)
    }
}

/// Returns the change that publishing a plugin would make.
async fn planned(client: &ApiClient, plugin: &PluginDoc) -> Result<DocumentChange> {
    let full = offline::full_name(plugin);
    let version = offline::version(plugin).to_string();
    let change = match client.plugin(&plugin.name.value, &version).await? {
        None => ChangeKind::Create,
        Some(found) if found.info.digest == load::digest(plugin) => ChangeKind::None,
        Some(_) => return Err(immutable(plugin)),
    };
    Ok(DocumentChange::planned("plugin", full, change))
}
