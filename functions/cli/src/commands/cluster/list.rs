//! `ebb cluster list`.

use std::time::Duration;

use ebb_protocol::api::{ClusterInfo, TransportKind};

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl ClusterListArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let clusters = client.clusters().await?;
        self.output.write(&clusters, |clusters| text(clusters))?;
        Ok(Exit::Done)
    }
}

fn text(clusters: &[ClusterInfo]) -> String {
    let rows = clusters.iter().map(|cluster| {
        let way = match cluster.transport {
            TransportKind::Push => "push",
            TransportKind::Pull => "pull",
        };
        let silence = cluster.outage.as_ref();
        let online = match (&cluster.error, silence, cluster.up_seconds) {
            (Some(trouble), None, _) => format!("no: {trouble}"),
            (Some(trouble), Some(silence), _) => {
                format!("no, since {}: {trouble}", timing::clock(&silence.since))
            }
            // Its relay is there, and cannot do what it is asked for.
            (None, Some(silence), _) => {
                format!("of no use since {}: {}", timing::clock(&silence.since), silence.reason)
            }
            (None, None, Some(up)) => format!("for {}", timing::length(Duration::from_secs(up))),
            (None, None, None) => String::new(),
        };
        [
            cluster.name.clone(),
            way.to_owned(),
            cluster.uid.clone().unwrap_or_default(),
            cluster.version.clone().unwrap_or_default(),
            cluster.tasks.map(|works| works.to_string()).unwrap_or_default(),
            online,
        ]
    });
    output::table(&["NAME", "WAY", "UID", "VERSION", "WORKS", "ONLINE"], rows)
}

#[cfg(test)]
mod tests {
    use ebb_protocol::api::RelayOutage;

    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn one_row_for_each() {
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
        let silence = RelayOutage {
            cluster: "inside".to_owned(),
            since: fixtures::NOW.to_owned(),
            reason: "the API server is away".to_owned(),
            units: vec![],
        };
        let alone = ClusterInfo { name: "alone".to_owned(), outage: Some(silence.clone()), ..eu.clone() };
        let inside = ClusterInfo {
            name: "inside".to_owned(),
            transport: TransportKind::Pull,
            uid: None,
            version: None,
            up_seconds: None,
            tasks: None,
            error: Some("the relay does not answer: it polls, and has not answered within 5 s".to_owned()),
            outage: Some(silence),
        };
        insta::assert_snapshot!(text(&[alone, eu, inside]), @r"
        NAME    WAY   UID   VERSION  WORKS  ONLINE
        alone   push  8c1a  0.1.0    3      of no use since 2026-11-21 09:00:10Z: the API server is away
        eu      push  8c1a  0.1.0    3      for 1h02m
        inside  pull                        no, since 2026-11-21 09:00:10Z: the relay does not answer: it polls, and has not answered within 5 s
        ");
    }
}
