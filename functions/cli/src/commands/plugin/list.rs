//! `ebb plugin list` and `ebb plugin versions`: print one row per plugin or version.

use ebb_protocol::api::PluginInfo;

use super::never_published;
use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginListArgs {
    /// List all versions, not only the highest
    #[arg(short = 'A', long)]
    all_versions: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginListArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let mut all: Vec<PluginInfo> = client.all("plugins").await?;
        sort(&mut all);
        let several = all.windows(2).any(|pair| pair[0].name == pair[1].name);
        if !self.all_versions {
            // The highest version of each name comes first.
            all.dedup_by(|later, first| later.name == first.name);
        }
        self.output.write(&all, |all| text(all))?;
        if several && !self.all_versions && self.output.format().is_none() {
            output::status_line("Some plugins have more versions: ebb plugin list -A");
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct PluginVersionsArgs {
    /// Name of the plugin
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginVersionsArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let versions = client.versions(&self.name).await?.filter(|versions| !versions.is_empty());
        let versions = versions.ok_or_else(|| never_published(&self.name))?;
        self.output.write(&versions, |versions| {
            let rows = versions.iter().map(|info| [info.version.clone(), timing::clock(&info.created)]);
            output::table(&["VERSION", "CREATED"], rows)
        })
    }
}

/// Sorts by name, then from the highest version to the lowest.
fn sort(all: &mut [PluginInfo]) {
    let version = |info: &PluginInfo| info.version.parse::<semver::Version>().ok();
    all.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| version(b).cmp(&version(a))));
}

fn text(all: &[PluginInfo]) -> String {
    let rows = all.iter().map(|info| [info.name.clone(), info.version.clone(), timing::clock(&info.created)]);
    output::table(&["NAME", "VERSION", "CREATED"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_is_first() {
        let info = |name: &str, version: &str| PluginInfo {
            name: name.to_owned(),
            version: version.to_owned(),
            dialect: "ebb".to_owned(),
            digest: "sha256:0".to_owned(),
            created: "2026-11-21T09:00:00Z".to_owned(),
        };
        let mut all = vec![info("db", "1.9.0"), info("aws", "0.0.0"), info("db", "1.10.0")];
        sort(&mut all);
        insta::assert_snapshot!(text(&all), @r"
        NAME  VERSION  CREATED
        aws   0.0.0    2026-11-21 09:00:00Z
        db    1.10.0   2026-11-21 09:00:00Z
        db    1.9.0    2026-11-21 09:00:00Z
        ");
    }
}
