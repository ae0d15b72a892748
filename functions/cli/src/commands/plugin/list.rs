//! `ebb plugin list`.

use ebb_wire::api::PluginInfo;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;

use crate::client::{Client, ClientError};
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};
use crate::timing;

/// Questions under way at a time.
const AT_ONCE: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Every version, not only the highest
    #[arg(short = 'A', long)]
    all_versions: bool,
    #[command(flatten)]
    output: Output,
}

/// A version and how many resources hold it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Held {
    #[serde(flatten)]
    pub(super) info: PluginInfo,
    pub(super) resources: usize,
}

impl Args {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let mut all = client.plugins().await?;
        sort(&mut all);
        let several = all.windows(2).any(|pair| pair[0].name == pair[1].name);
        if !self.all_versions {
            // The highest version of each name comes first.
            all.dedup_by(|later, first| later.name == first.name);
        }
        let held = held(client, all).await?;
        self.output.write(&held, |held| text(held))?;
        if several && !self.all_versions && self.output.format().is_none() {
            output::tell("Some plugins have more versions: ebb plugin list -A");
        }
        Ok(Exit::Done)
    }
}

/// By name, and highest version first.
fn sort(all: &mut [PluginInfo]) {
    let version = |info: &PluginInfo| info.version.parse::<semver::Version>().ok();
    all.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| version(b).cmp(&version(a))));
}

/// Asks who holds each version.
pub(super) async fn held(client: &Client, all: Vec<PluginInfo>) -> Result<Vec<Held>, ClientError> {
    futures::stream::iter(all)
        .map(|info| async move {
            let detail = client.plugin(&info.name, &info.version).await?;
            Ok(Held { info, resources: detail.map_or(0, |detail| detail.in_use.len()) })
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// `N resources`.
pub(super) fn status(resources: usize) -> String {
    if resources == 1 { "1 resource".to_owned() } else { format!("{resources} resources") }
}

fn text(held: &[Held]) -> String {
    let rows = held.iter().map(|held| {
        let info = &held.info;
        [info.name.clone(), info.version.clone(), timing::clock(&info.created), status(held.resources)]
    });
    output::table(&["NAME", "VERSION", "CREATED", "STATUS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_version_first() {
        let info = |name: &str, version: &str| PluginInfo {
            name: name.to_owned(),
            version: version.to_owned(),
            dialect: "ebb".to_owned(),
            digest: "sha256:0".to_owned(),
            created: "2026-11-21T09:00:00Z".to_owned(),
        };
        let mut all = vec![info("db", "1.9.0"), info("aws", "0.0.0"), info("db", "1.10.0")];
        sort(&mut all);
        let held: Vec<Held> =
            all.into_iter().enumerate().map(|(resources, info)| Held { info, resources }).collect();
        insta::assert_snapshot!(text(&held), @r"
        NAME  VERSION  CREATED               STATUS
        aws   0.0.0    2026-11-21 09:00:00Z  0 resources
        db    1.10.0   2026-11-21 09:00:00Z  1 resource
        db    1.9.0    2026-11-21 09:00:00Z  2 resources
        ");
    }
}
