//! `ebb plugin delete`: withdraws a plugin version.

use super::VersionedName;
use crate::client::ApiClient;
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct PluginDeleteArgs {
    /// Plugin to withdraw; without VERSION, its highest version
    #[arg(value_name = "NAME[@VERSION]")]
    plugin: VersionedName,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginDeleteArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let Self { plugin, dry_run, output } = self;
        let detail = client.plugin(&plugin.name, &plugin.version()).await?.ok_or_else(|| plugin.unknown())?;
        let full = format!("{}@{}", detail.info.name, detail.info.version);
        if dry_run.is_set() {
            let change = if detail.withdrawn.is_some() { ChangeKind::None } else { ChangeKind::Delete };
            return dry_run::print(&[DocumentChange::planned("plugin", full, change)], output);
        }
        client.delete_plugin(&detail.info.name, &detail.info.version).await?;
        let remaining = match client.versions(&plugin.name).await?.map_or(0, |versions| versions.len()) {
            0 => String::new(),
            1 => "; 1 version remains".to_owned(),
            count => format!("; {count} versions remain"),
        };
        output::status_line(&format!("Withdrew plugin {full}{remaining}"));
        let change = DocumentChange::planned("plugin", full, ChangeKind::Delete);
        output.write_data(&[DocumentChange { dry_run: false, ..change }])
    }
}
