//! `ebb plugin versions`.

use super::never_published;
use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plugin
    name: String,
    #[command(flatten)]
    output: Output,
}

impl Args {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let versions = client.versions(&self.name).await?.filter(|versions| !versions.is_empty());
        let versions = versions.ok_or_else(|| never_published(&self.name))?;
        self.output.write(&versions, |versions| {
            let rows = versions.iter().map(|info| [info.version.clone(), timing::clock(&info.created)]);
            output::table(&["VERSION", "CREATED"], rows)
        })?;
        Ok(Exit::Done)
    }
}
