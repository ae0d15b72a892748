//! `ebb cluster get`: shows one cluster with its policy and registration.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ebb_protocol::api::{ClusterDetail, ClusterRegistration};
use ebb_protocol::listing::ReportedPolicy;

use super::connect::missing;
use super::list;
use super::values::label;
use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs, printable};
use crate::progress::labels;
use crate::timing;

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
        let detail = found.ok_or_else(|| missing(&self.name))?;
        self.output.write(&detail, text)
    }
}

fn text(detail: &ClusterDetail) -> String {
    let (info, registration) = (&detail.info, detail.registration.as_ref());
    let created = |registration: &ClusterRegistration| {
        let ClusterRegistration { created, created_by, .. } = registration;
        format!("{} by {created_by}", timing::clock(created))
    };
    let rows = [
        ("name", Some(info.name.clone())),
        ("state", Some(list::status(info))),
        ("transport", Some(labels::name(&info.transport))),
        ("uid", info.uid.clone()),
        ("version", info.version.clone()),
        ("tasks", info.tasks.map(|tasks| tasks.to_string())),
        ("created", registration.map(created)),
        ("registered", registration.and_then(|it| it.registered.as_deref()).map(timing::clock)),
        ("token until", registration.and_then(|it| it.bootstrap_expires.as_deref()).map(timing::clock)),
    ];
    let mut text = String::new();
    for (key, value) in rows {
        if let Some(value) = value {
            let _ = writeln!(text, "{key:<12}{}", printable(&value));
        }
    }
    // An author does not see the UID, nor the registration.
    if registration.is_none() && info.uid.is_some() {
        text += "This cluster is an entry of EBB_CLUSTERS. It is not registered.\n";
    }
    if let Some(policy) = &info.policy {
        policy_text(&mut text, policy);
    }
    text
}

/// Appends the policy that the relay reports.
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
    if let Some(error) = &policy.error {
        let _ = writeln!(text, "A newer policy is not in force: {}", printable(error));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn a_cluster_with_its_policy() {
        let detail: ClusterDetail = serde_json::from_value(json!({
            "name": "eu", "transport": "pull", "state": "up", "uid": "8c1a", "version": "0.1.0", "upSeconds": 61, "tasks": 2,
            "policy": {
                "digest": "d", "kinds": ["Job.batch"], "services": ["files"], "bindNamespaces": ["web"],
                "namespaces": {"ebb-units": {"level": "restricted"}, "old": {"level": "baseline", "serviceAccounts": ["b"]}},
            },
            "registration": {
                "entrypointImage": "r/entrypoint:1", "runAsNonRoot": false, "created": fixtures::NOW, "createdBy": "ann",
                "registered": fixtures::NOW, "options": {"namespace": "ebb-relay"},
            },
        }))
        .unwrap();
        insta::assert_snapshot!(text(&detail), @r"
        name        eu
        state       up 1m01s
        transport   pull
        uid         8c1a
        version     0.1.0
        tasks       2
        created     2026-11-21 09:00:10Z by ann
        registered  2026-11-21 09:00:10Z

        Policy in force:
        NAMESPACE  LEVEL       SERVICE ACCOUNTS  PULL SECRETS
        ebb-units  restricted
        old        baseline    b
        kinds: Job.batch
        namespaces for `bind`: web
        services: files
        ");
    }
}
