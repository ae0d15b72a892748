//! A relay that is part of the program that has started it, as `ebb dev --kubeconfig` does: the two share a machine, a
//! person and an end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anyhow::Context as _;
use ebb_protocol::sign::WebhookKeys;
use ebb_relay_core::{ClusterPolicy, PodSecurityLevel};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// The kinds of objects that a relay allows without `--policy`: those of a namespace, none that reach out of it.
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

/// The secrets of batches: the first line of standard input. When standard input ends, this program does, whatever it
/// is doing: the system closes it also for a program that was killed.
///
/// # Errors
/// Returns an error if the line is not a secret.
pub(crate) fn keys() -> anyhow::Result<WebhookKeys> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("standard input")?;
    std::thread::spawn(|| {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    WebhookKeys::parse(&line).context("the first line of standard input")
}

/// The level `baseline`, the namespace of units, and the kinds of objects that need no rights outside of a namespace.
pub(crate) fn default_policy(units: &str) -> ClusterPolicy {
    ClusterPolicy {
        pod_security_level: PodSecurityLevel::Baseline,
        namespaces: BTreeMap::from([(units.to_owned(), BTreeSet::from(["default".to_owned()]))]),
        kinds: KINDS.map(str::to_owned).into(),
        ..ClusterPolicy::default()
    }
}

/// Makes a namespace that is missing.
///
/// # Errors
/// When the cluster does not answer, or does not let it.
pub(crate) async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    if api.get_opt(name).await?.is_none() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.patch(name, &PatchParams::apply("ebb"), &Patch::Apply(namespace)).await?;
    }
    Ok(())
}
