//! `ebb cluster list`: prints one row per connected cluster.

use std::time::Duration;

use ebb_protocol::api::{ClusterInfo, ClusterState};

use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::progress::labels;
use crate::timing;

pub(crate) async fn run(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let clusters: Vec<ClusterInfo> = client.all("clusters").await?;
    output.write(&clusters, |clusters| text(clusters))
}

fn text(clusters: &[ClusterInfo]) -> String {
    let rows = clusters.iter().map(|cluster| {
        [
            cluster.name.clone(),
            labels::name(&cluster.transport),
            cluster.uid.clone().unwrap_or_default(),
            cluster.version.clone().unwrap_or_default(),
            cluster.tasks.map(|tasks| tasks.to_string()).unwrap_or_default(),
            status(cluster),
        ]
    });
    output::table(&["NAME", "TRANSPORT", "UID", "VERSION", "TASKS", "STATUS"], rows)
}

/// Returns the state of a cluster in words, with the reason.
pub(super) fn status(cluster: &ClusterInfo) -> String {
    let word = match cluster.state {
        Some(ClusterState::WaitingForRelay) => "waits for its relay",
        Some(ClusterState::Denied) => "denied",
        Some(ClusterState::Up | ClusterState::Down) | None => "down",
    };
    match (&cluster.error, &cluster.outage, cluster.up_seconds) {
        (Some(error), None, _) => format!("{word}: {error}"),
        (Some(error), Some(outage), _) => format!("{word} since {}: {error}", timing::clock(&outage.since)),
        // The relay responds, but cannot execute tasks.
        (None, Some(outage), _) => format!("degraded since {}: {}", timing::clock(&outage.since), outage.reason),
        (None, None, Some(up)) => format!("up {}", timing::length(Duration::from_secs(up))),
        // An author sees the state without the reason.
        (None, None, None) => match cluster.state {
            Some(ClusterState::Up) => "up".to_owned(),
            Some(_) => word.to_owned(),
            None => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn one_row_for_each_cluster() {
        let outage = json!({"cluster": "pull", "since": fixtures::NOW, "reason": "the API server is down"});
        let error = "the relay does not respond: no poll returned a response within 5 s";
        let eu = json!({
            "name": "eu", "transport": "push", "uid": "8c1a", "version": "0.1.0", "upSeconds": 3725, "tasks": 3,
        });
        let mut degraded = eu.clone();
        (degraded["name"], degraded["outage"]) = ("degraded".into(), outage.clone());
        let pull = json!({"name": "pull", "transport": "pull", "error": error, "outage": outage});
        let denied = json!({"name": "us", "transport": "pull", "state": "denied", "error": "its polls are denied"});
        let waiting = json!({"name": "west", "transport": "pull", "state": "waitingForRelay", "error": "no relay"});
        let clusters: Vec<ClusterInfo> = serde_json::from_value(json!([degraded, eu, pull, denied, waiting])).unwrap();
        insta::assert_snapshot!(text(&clusters), @r"
        NAME      TRANSPORT  UID   VERSION  TASKS  STATUS
        degraded  push       8c1a  0.1.0    3      degraded since 2026-11-21 09:00:10Z: the API server is down
        eu        push       8c1a  0.1.0    3      up 1h02m
        pull      pull                             down since 2026-11-21 09:00:10Z: the relay does not respond: no poll returned a response within 5 s
        us        pull                             denied: its polls are denied
        west      pull                             waits for its relay: no relay
        ");
    }
}
