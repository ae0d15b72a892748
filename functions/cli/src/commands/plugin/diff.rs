//! `ebb plugin diff`: compares the documents of two versions.

use ebb_api::queries::plugins::{difference, with_other};
use ebb_protocol::api::PluginDetail;
use serde::Serialize;

use super::versioned_name::VersionedName;
use crate::{ApiClient, CliError, Exit, OutputArgs, Result, output};

#[derive(Debug, clap::Args)]
pub(crate) struct PluginDiffArgs {
    /// Version to compare; without VERSION, the highest one of the plugin
    #[arg(value_name = "NAME[@VERSION]")]
    from: VersionedName,
    /// Version to compare it with; by default the highest other one of the plugin
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
        let given = from.find(client).await?;
        let (old, new) = match to {
            Some(to) => (given, to.find(client).await?),
            None => with_highest(client, &from, given).await?,
        };
        let full = |PluginDetail { info, .. }: &PluginDetail| format!("{}@{}", info.name, info.version);
        let found = VersionDifference { from: full(&old), to: full(&new), diff: difference(&old, &new) };
        if found.diff.is_empty() {
            output::status_line(&format!("The documents of {} and {} are equal", found.from, found.to));
        }
        output.write(&found, |found| found.diff.clone())
    }
}

/// Returns a version and the highest other one, the lower one first, and prints their names.
async fn with_highest(
    client: &ApiClient,
    from: &VersionedName,
    given: PluginDetail,
) -> Result<(PluginDetail, PluginDetail)> {
    let (name, version) = (&from.name, &given.info.version);
    let listed = client.versions(name).await?.unwrap_or_default();
    let Some((lower, higher)) = with_other(&listed, version) else {
        return Err(CliError::failed(format!("plugin {name} has no other version than {version}"))
            .with_hint(format!("ebb get plugin {name} --all")));
    };
    let highest = if from.version.is_none() { "the two highest versions: " } else { "" };
    output::status_line(&format!("Comparing {highest}{name}@{lower} and {name}@{higher}"));
    let is_lower = *version == lower;
    let other = if is_lower { higher } else { lower };
    let other = client.plugin(name, &other).await?.ok_or_else(|| from.unknown())?;
    Ok(if is_lower { (given, other) } else { (other, given) })
}
