//! `ebb plugin diff`: compares the documents of two versions.

use ebb_api::queries::plugins::difference;
use ebb_protocol::api::PluginDetail;
use serde::Serialize;

use super::VersionedName;
use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb plugin diff db@1.0.0\n  ebb plugin diff db@1.0.0 db@2.0.0")]
pub(crate) struct PluginDiffArgs {
    /// Version to compare
    #[arg(value_name = "NAME@VERSION")]
    from: VersionedName,
    /// Version to compare it with; by default the highest one of the plugin
    #[arg(value_name = "NAME[@VERSION]")]
    to: Option<VersionedName>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The difference of two versions, for `-o json`.
#[derive(Debug, Serialize)]
struct VersionDifference {
    from: String,
    to: String,
    /// A unified diff. Empty if the documents are equal.
    diff: String,
}

impl PluginDiffArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let Self { from, to, output } = self;
        let to = to.unwrap_or_else(|| VersionedName { name: from.name.clone(), version: None });
        let (old, new) = (find(client, &from).await?, find(client, &to).await?);
        let full = |PluginDetail { info, .. }: &PluginDetail| format!("{}@{}", info.name, info.version);
        let found = VersionDifference { from: full(&old), to: full(&new), diff: difference(&old, &new) };
        if found.diff.is_empty() {
            output::status_line(&format!("The documents of {} and {} are equal", found.from, found.to));
        }
        output.write(&found, |found| found.diff.clone())
    }
}

async fn find(client: &ApiClient, plugin: &VersionedName) -> Result<PluginDetail> {
    client.plugin(&plugin.name, &plugin.version()).await?.ok_or_else(|| plugin.unknown())
}
