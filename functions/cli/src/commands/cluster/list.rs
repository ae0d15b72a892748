//! `ebb cluster list`.

use std::time::Duration;

use ebb_wire::api::{ClusterInfo, Way};

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
}

impl Args {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let clusters = client.clusters().await?;
        self.output.write(&clusters, |clusters| text(clusters))?;
        Ok(Exit::Done)
    }
}

fn text(clusters: &[ClusterInfo]) -> String {
    let rows = clusters.iter().map(|cluster| {
        let way = match cluster.way {
            Way::Push => "push",
            Way::Pull => "pull",
        };
        let online = match (&cluster.trouble, cluster.up_seconds) {
            (Some(trouble), _) => format!("no: {trouble}"),
            (None, Some(up)) => format!("for {}", timing::length(Duration::from_secs(up))),
            (None, None) => String::new(),
        };
        [
            cluster.name.clone(),
            way.to_owned(),
            cluster.uid.clone().unwrap_or_default(),
            cluster.version.clone().unwrap_or_default(),
            cluster.works.map(|works| works.to_string()).unwrap_or_default(),
            online,
        ]
    });
    output::table(&["NAME", "WAY", "UID", "VERSION", "WORKS", "ONLINE"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_for_each() {
        let eu = ClusterInfo {
            name: "eu".to_owned(),
            way: Way::Push,
            uid: Some("8c1a".to_owned()),
            version: Some("0.1.0".to_owned()),
            up_seconds: Some(3725),
            works: Some(3),
            trouble: None,
        };
        let inside = ClusterInfo {
            name: "inside".to_owned(),
            way: Way::Pull,
            uid: None,
            version: None,
            up_seconds: None,
            works: None,
            trouble: Some("the relay does not answer: it polls, and has not answered within 5 s".to_owned()),
        };
        insta::assert_snapshot!(text(&[eu, inside]), @r"
        NAME    WAY   UID   VERSION  WORKS  ONLINE
        eu      push  8c1a  0.1.0    3      for 1h02m
        inside  pull                        no: the relay does not answer: it polls, and has not answered within 5 s
        ");
    }
}
