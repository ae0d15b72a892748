//! A relay that runs as a child of another program, as `ebb dev --kubeconfig` starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anyhow::Context as _;
use ebb_protocol::sign::WebhookKeys;
use ebb_relay_core::{ClusterPolicy, PodSecurityLevel};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// The kinds that are allowed without `--policy`. All of them are namespaced.
const KINDS: [&str; 14] = [
    "ConfigMap",
    "Secret",
    "Service",
    "ServiceAccount",
    "PersistentVolumeClaim",
    "Pod",
    "Job.batch",
    "CronJob.batch",
    "Deployment.apps",
    "StatefulSet.apps",
    "DaemonSet.apps",
    "Ingress.networking.k8s.io",
    "NetworkPolicy.networking.k8s.io",
    "PodDisruptionBudget.policy",
];

/// Reads the secrets from the first line of standard input. A thread ends the program when standard input ends, which
/// also happens when the parent is killed.
pub(crate) fn keys() -> anyhow::Result<WebhookKeys> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("standard input")?;
    std::thread::spawn(|| {
        // An error counts as the end.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    WebhookKeys::parse(&line).context("the first line of standard input")
}

/// Returns the default policy: level `baseline`, one namespace, and kinds that need no rights outside of it.
pub(crate) fn default_policy(units: &str) -> ClusterPolicy {
    ClusterPolicy {
        pod_security_level: PodSecurityLevel::Baseline,
        namespaces: BTreeMap::from([(units.to_owned(), BTreeSet::from(["default".to_owned()]))]),
        kinds: KINDS.map(str::to_owned).into(),
        ..ClusterPolicy::default()
    }
}

/// Creates a namespace that is missing.
pub(crate) async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    if api.get_opt(name).await?.is_none() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.patch(name, &PatchParams::apply("ebb"), &Patch::Apply(namespace)).await?;
    }
    Ok(())
}
