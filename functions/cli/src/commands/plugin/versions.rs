//! `ebb plugin versions`: lists the versions of a plugin.

use super::never_published;
use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginVersionsArgs {
    /// Name of the plugin
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginVersionsArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let versions = client.versions(&self.name).await?.filter(|versions| !versions.is_empty());
        let versions = versions.ok_or_else(|| never_published(&self.name))?;
        self.output.write(&versions, |versions| {
            let rows = versions.iter().map(|info| [info.version.clone(), timing::clock(&info.created)]);
            output::table(&["VERSION", "CREATED"], rows)
        })?;
        Ok(Exit::Done)
    }
}
