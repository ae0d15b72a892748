//! A relay that runs as a child of another program, as `ebb dev --kubeconfig` starts it.

use std::collections::BTreeMap;
use std::io;

use anyhow::Context as _;
use ebb_protocol::{WebhookKeys, short_digest};
use ebb_relay::{ClusterPolicy, RelaySettings};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// The kinds that are allowed without `--policy`. All of them are namespaced.
const KINDS: &str = "ConfigMap Secret Service ServiceAccount PersistentVolumeClaim Pod Job.batch CronJob.batch \
    Deployment.apps StatefulSet.apps DaemonSet.apps Ingress.networking.k8s.io NetworkPolicy.networking.k8s.io \
    PodDisruptionBudget.policy";

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
    let kinds: Vec<&str> = KINDS.split(' ').collect();
    let policy = json!({"podSecurityLevel": "baseline", "namespaces": {units: ["default"]}, "kinds": kinds});
    serde_json::from_value(policy).expect("the policy is valid")
}

/// The rules of the chart. Its template completes them in the same way.
const RULES: &str = include_str!("../../../../../infra/relay/chart/rules.yaml");

/// Creates the namespaces that are missing, and the admission policy for the user of the kubeconfig, or replaces it.
pub(crate) async fn prepare(client: &Client, settings: &RelaySettings, policy: &ClusterPolicy) -> anyhow::Result<()> {
    let (level, forced) = (policy.level(&settings.default_namespace).name(), PatchParams::apply("ebb").force());
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    for (name, labels) in [(&settings.own_namespace, json!({})), (&settings.default_namespace, labels)] {
        let api: Api<Namespace> = Api::all(client.clone());
        if api.get_opt(name).await?.is_none() {
            let metadata = json!({"name": name, "labels": labels});
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            api.patch(name, &forced, &Patch::Apply(&namespace)).await?;
        }
    }
    let review: SelfSubjectReview = serde_json::from_value(json!({"metadata": {}}))?;
    let review = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    let user = review.status.and_then(|status| status.user_info?.username).unwrap_or_default();
    let levels: BTreeMap<_, _> = policy.namespaces.keys().map(|name| (name, policy.level(name).enforced())).collect();
    let accounts: BTreeMap<_, _> =
        policy.namespaces.iter().map(|(name, entry)| (name, &entry.service_accounts)).collect();
    let variables = [
        ("levels", json!(levels)),
        ("accounts", json!(accounts)),
        ("runtimeClasses", json!(policy.runtime_classes)),
        ("priorityClasses", json!(policy.priority_classes)),
    ];
    let mut spec: Value = serde_saphyr::from_str(RULES)?;
    let variables = variables.map(|(name, value)| json!({"name": name, "expression": value.to_string()}));
    let rules = spec["variables"].as_array().into_iter().flatten().cloned();
    spec["variables"] = variables.into_iter().chain(rules).collect();
    let condition = format!("request.userInfo.username == {}", json!(user));
    spec["matchConditions"] = json!([{"name": "relay", "expression": condition}]);
    // The name differs from that of the chart, whose relay may be in this cluster.
    let name = format!("ebb-dev-{}", short_digest(&[&user, &settings.default_namespace], 12));
    // In the `bindNamespaces`, the user has workloads of their own. The relay checks what `bind` applies there.
    let namespaces: Vec<_> = policy.namespaces.keys().collect();
    let selector = json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]);
    let binding = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchExpressions": selector}},
    });
    let manifest = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        })
    };
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let hint = "units need an admission policy, which your user must be allowed to create";
    let (rules, binding) =
        (manifest("ValidatingAdmissionPolicy", spec), manifest("ValidatingAdmissionPolicyBinding", binding));
    policies.patch(&name, &forced, &Patch::Apply(&rules)).await.context(hint)?;
    bindings.patch(&name, &forced, &Patch::Apply(&binding)).await.context(hint)?;
    Ok(())
}
