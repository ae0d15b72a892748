//! `ebb cluster list`: prints one row per connected cluster.

use std::time::Duration;

use ebb_protocol::api::{ClusterInfo, TransportKind};

use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl ClusterListArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let clusters: Vec<ClusterInfo> = client.all("clusters").await?;
        self.output.write(&clusters, |clusters| text(clusters))
    }
}

fn text(clusters: &[ClusterInfo]) -> String {
    let rows = clusters.iter().map(|cluster| {
        let transport = match cluster.transport {
            TransportKind::Push => "push",
            TransportKind::Pull => "pull",
        };
        let outage = cluster.outage.as_ref();
        let status = match (&cluster.error, outage, cluster.up_seconds) {
            (Some(error), None, _) => format!("down: {error}"),
            (Some(error), Some(outage), _) => {
                format!("down since {}: {error}", timing::clock(&outage.since))
            }
            // The relay responds, but cannot execute tasks.
            (None, Some(outage), _) => {
                format!("degraded since {}: {}", timing::clock(&outage.since), outage.reason)
            }
            (None, None, Some(up)) => format!("up {}", timing::length(Duration::from_secs(up))),
            (None, None, None) => String::new(),
        };
        [
            cluster.name.clone(),
            transport.to_owned(),
            cluster.uid.clone().unwrap_or_default(),
            cluster.version.clone().unwrap_or_default(),
            cluster.tasks.map(|tasks| tasks.to_string()).unwrap_or_default(),
            status,
        ]
    });
    output::table(&["NAME", "TRANSPORT", "UID", "VERSION", "TASKS", "STATUS"], rows)
}

#[cfg(test)]
mod tests {
    use ebb_protocol::api::RelayOutage;

    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn one_row_for_each_cluster() {
        let eu = ClusterInfo {
            name: "eu".to_owned(),
            transport: TransportKind::Push,
            uid: Some("8c1a".to_owned()),
            version: Some("0.1.0".to_owned()),
            up_seconds: Some(3725),
            tasks: Some(3),
            error: None,
            outage: None,
        };
        let outage = RelayOutage {
            cluster: "pull".to_owned(),
            since: fixtures::NOW.to_owned(),
            reason: "the API server is down".to_owned(),
            units: vec![],
        };
        let degraded = ClusterInfo { name: "degraded".to_owned(), outage: Some(outage.clone()), ..eu.clone() };
        let pull = ClusterInfo {
            name: "pull".to_owned(),
            transport: TransportKind::Pull,
            uid: None,
            version: None,
            up_seconds: None,
            tasks: None,
            error: Some("the relay does not respond: no poll returned a response within 5 s".to_owned()),
            outage: Some(outage),
        };
        insta::assert_snapshot!(text(&[degraded, eu, pull]), @r"
        NAME      TRANSPORT  UID   VERSION  TASKS  STATUS
        degraded  push       8c1a  0.1.0    3      degraded since 2026-11-21 09:00:10Z: the API server is down
        eu        push       8c1a  0.1.0    3      up 1h02m
        pull      pull                             down since 2026-11-21 09:00:10Z: the relay does not respond: no poll returned a response within 5 s
        ");
    }
}
