//! `ebb cluster list` and `ebb cluster get`: show connected clusters, and one with its policy and registration.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use ebb_protocol::{ClusterDetail, ClusterInfo, ClusterState, ReportedPolicy};
use serde_json::Value;

use super::values::label;
use crate::commands::kinds;
use crate::{ApiClient, CliError, Exit, OutputArgs, Result, labels, output, printable, timing};

pub(crate) async fn run(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let clusters: Vec<ClusterInfo> = client.all("clusters").await?;
    let with_status = |cluster: &ClusterInfo| {
        let mut data = output::json(cluster);
        data["status"] = status(cluster).into();
        data
    };
    output.write(&clusters, |clusters| {
        let rows: Vec<Value> = clusters.iter().map(with_status).collect();
        kinds::table(&["NAME", "TRANSPORT", "UID", "VERSION", "TASKS", "STATUS"], &rows)
    })
}

pub(super) fn missing(name: &str) -> CliError {
    CliError::failed(format!("the cluster {name} does not exist"))
        .with_hint("ebb cluster list")
        .with_hint(format!("register it with `ebb cluster connect {name} --image IMAGE --entrypoint-image IMAGE`"))
}

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

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterGetArgs {
    /// Name of the cluster
    #[arg(value_parser = label)]
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl ClusterGetArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let found: Option<ClusterDetail> = client.find(&["clusters", &self.name]).await?;
        self.output.write(&found.ok_or_else(|| missing(&self.name))?, text)
    }
}

fn text(detail: &ClusterDetail) -> String {
    let ClusterDetail { info, registration } = detail;
    let created =
        registration.as_ref().map(|known| format!("{} by {}", timing::clock(&known.created), known.created_by));
    let rows = [
        ("name", Some(info.name.clone())),
        ("state", Some(status(info))),
        ("transport", Some(labels::name(&info.transport))),
        ("uid", info.uid.clone()),
        ("version", info.version.clone()),
        ("tasks", info.tasks.map(|tasks| tasks.to_string())),
        ("created", created),
        ("registered", registration.as_ref().and_then(|known| known.registered.as_deref()).map(timing::clock)),
        ("token until", registration.as_ref().and_then(|known| known.bootstrap_expires.as_deref()).map(timing::clock)),
    ];
    let lines = rows.into_iter().filter_map(|(key, value)| Some(format!("{key:<12}{}\n", printable(&value?))));
    let mut text: String = lines.collect();
    // An author does not see the UID, nor the registration.
    if registration.is_none() && info.uid.is_some() {
        text += "This cluster is an entry of EBB_CLUSTERS. It is not registered.\n";
    }
    if let Some(policy) = &info.policy {
        policy_text(&mut text, policy);
    }
    text
}

fn policy_text(text: &mut String, policy: &ReportedPolicy) {
    let joined = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let rows = policy.namespaces.iter().map(|(name, entry)| {
        [name.clone(), entry.level.clone(), joined(&entry.service_accounts), joined(&entry.image_pull_secrets)]
    });
    let table = output::table(&["NAMESPACE", "LEVEL", "SERVICE ACCOUNTS", "PULL SECRETS"], rows);
    let _ = write!(text, "\nPolicy in force:\n{table}");
    for (key, names) in [
        ("kinds", &policy.kinds),
        ("kinds outside of namespaces", &policy.cluster_kinds),
        ("namespaces for `bind`", &policy.bind_namespaces),
        ("services", &policy.services),
    ] {
        if !names.is_empty() {
            let _ = writeln!(text, "{key}: {}", printable(&joined(names)));
        }
    }
}
