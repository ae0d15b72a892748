//! The contracts by group and kind, in one table. Each row names the source of its rule.

mod cluster_api;
mod core;
mod operators;
mod pod;
mod workload;

use crate::readiness::conditions::{self, TerminalCondition};
use crate::readiness::object::{ObjectReadiness, ObjectView};
use ContractRule::{Applied, Conditions, Latched, Observed, Own, Phase};

pub use pod::exit_text;

type Texts = &'static [&'static str];

struct ContractRow {
    /// The API group, `""` for the core group. `*.example.org` also matches subdomains.
    group: &'static str,
    /// Kinds. `*` matches all, `*Suffix` matches a suffix.
    kinds: Texts,
    rule: ContractRule,
}

enum ContractRule {
    /// Ready as soon as it is applied.
    Applied,
    /// Ready when `status.observedGeneration` equals the generation.
    Observed,
    /// Ready when all of these conditions are true, failed by a terminal condition.
    Conditions(Texts, &'static [TerminalCondition]),
    /// Judged by `status.phase`: the values of a ready object, and those of a failed one. The reason of a pending
    /// object contains the first value of a ready one.
    Phase(Texts, Texts),
    /// Judged by a latch of Cluster API: the field of `status.initialization`, the field of v1beta1, and a field that must
    /// exist, too.
    Latched(&'static str, &'static str, Option<&'static str>),
    Own(fn(ObjectView<'_>) -> ObjectReadiness),
}

const fn row(group: &'static str, kinds: Texts, rule: ContractRule) -> ContractRow {
    ContractRow { group, kinds, rule }
}

const fn applied(group: &'static str, kinds: Texts) -> ContractRow {
    row(group, kinds, Applied)
}

const fn ends(kind: &'static str, status: &'static str, reasons: Texts) -> TerminalCondition {
    TerminalCondition { kind, status, reasons }
}

/// The first match counts, so special kinds come before `*`.
const ROWS: &[ContractRow] = &[
    // Kinds without a status to wait for. Source: the Kubernetes API reference. These kinds have no status, or their
    // status does not concern their purpose: `CronJob` waits for its time, `HorizontalPodAutoscaler` for metrics, and
    // `ResourceQuota` is enforced before it is counted.
    applied(
        "",
        &["ConfigMap", "Endpoints", "Event", "LimitRange", "PodTemplate", "ResourceQuota", "Secret", "ServiceAccount"],
    ),
    applied("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    applied("apps", &["ControllerRevision"]),
    applied("batch", &["CronJob"]),
    applied("autoscaling", &["HorizontalPodAutoscaler"]),
    applied("discovery.k8s.io", &["EndpointSlice"]),
    applied("coordination.k8s.io", &["Lease"]),
    applied("networking.k8s.io", &["IngressClass", "NetworkPolicy"]),
    applied("node.k8s.io", &["RuntimeClass"]),
    applied("scheduling.k8s.io", &["PriorityClass"]),
    applied("storage.k8s.io", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttributesClass"]),
    applied(
        "admissionregistration.k8s.io",
        &[
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    // core/v1 NamespacePhase. A terminating namespace has a deletionTimestamp and has failed before this rule.
    row("", &["Namespace"], Phase(&["Active"], &["Terminating"])),
    row("", &["PersistentVolumeClaim"], Own(core::claim)),
    // core/v1 PersistentVolumePhase: Available without a claim, Bound with one, Failed if it could not be recycled.
    row("", &["PersistentVolume"], Phase(&["Available", "Bound"], &["Failed"])),
    row("", &["Service"], Own(core::service)),
    // kube-rs `runtime::wait` `is_ingress_provisioned`. For ingress controllers that publish no address, documents set
    // `ready: ${true}`.
    row("networking.k8s.io", &["Ingress"], Own(core::addressed)),
    // policy/v1 PodDisruptionBudgetStatus: `observedGeneration` is the basis of the allowed disruptions.
    row("policy", &["PodDisruptionBudget"], Observed),
    row("", &["Pod"], Own(pod::pod)),
    row("batch", &["Job"], Own(core::job)),
    row("apps", &["Deployment"], Own(workload::deployment)),
    row("apps", &["StatefulSet"], Own(workload::stateful_set)),
    row("apps", &["DaemonSet"], Own(workload::daemon_set)),
    row("apps", &["ReplicaSet"], Own(workload::replica_set)),
    row("", &["ReplicationController"], Own(workload::replica_set)),
    // apiextensions.k8s.io/v1 CustomResourceDefinitionConditionType: served when names are accepted and it is
    // established. A conflict of names stays until the other definition is deleted.
    row(
        "apiextensions.k8s.io",
        &["CustomResourceDefinition"],
        Conditions(&["NamesAccepted", "Established"], &[ends("NamesAccepted", "False", &[])]),
    ),
    // apiregistration.k8s.io/v1 APIServiceConditionType.
    row("apiregistration.k8s.io", &["APIService"], Conditions(&["Available"], &[])),
    row("certificates.k8s.io", &["CertificateSigningRequest"], Own(core::signing)),
    // WorkflowPhase: empty or Pending before the start, then Succeeded, Failed (a step) or Error (the controller).
    row("argoproj.io", &["Workflow"], Phase(&["Succeeded"], &["Failed", "Error"])),
    row("argoproj.io", &["Application"], Own(operators::application)),
    // RolloutPhase: Progressing, Paused, Healthy; Degraded if aborted, invalid or too slow.
    row("argoproj.io", &["Rollout"], Phase(&["Healthy"], &["Degraded"])),
    applied("argoproj.io", &["AppProject", "ClusterWorkflowTemplate", "CronWorkflow", "WorkflowTemplate"]),
    // Templates and classes of Cluster API are only copied.
    applied("infrastructure.cluster.x-k8s.io", &["*Template"]),
    applied("bootstrap.cluster.x-k8s.io", &["*Template"]),
    applied("controlplane.cluster.x-k8s.io", &["*Template"]),
    row("infrastructure.cluster.x-k8s.io", &["*"], Latched("provisioned", "status.ready", None)),
    row(
        "bootstrap.cluster.x-k8s.io",
        &["*"],
        Latched("dataSecretCreated", "status.ready", Some("status.dataSecretName")),
    ),
    row("controlplane.cluster.x-k8s.io", &["*"], Latched("controlPlaneInitialized", "status.initialized", None)),
    row("ipam.cluster.x-k8s.io", &["IPAddressClaim"], Own(cluster_api::address)),
    applied("ipam.cluster.x-k8s.io", &["IPAddress"]),
    row(
        "cluster.x-k8s.io",
        &["Cluster", "Machine", "MachineDeployment", "MachinePool", "MachineSet"],
        Own(cluster_api::core),
    ),
    // Crossplane: packages and definitions. Managed resources and composites can have any group; they are recognized
    // by the condition `Synced` (see `operators::unknown`). Source: crossplane-runtime `apis/common/v1/condition.go`, crossplane
    // `apis/pkg/v1`, `apis/apiextensions/v1`.
    row("pkg.crossplane.io", &["Configuration", "Function", "Provider"], Conditions(&["Installed", "Healthy"], &[])),
    row("apiextensions.crossplane.io", &["CompositeResourceDefinition"], Own(operators::crossplane_definition)),
    applied("apiextensions.crossplane.io", &["Composition", "EnvironmentConfig"]),
    applied("pkg.crossplane.io", &["DeploymentRuntimeConfig", "ImageConfig"]),
    applied("*.crossplane.io", &["ClusterProviderConfig", "ProviderConfig"]),
    applied("*.upbound.io", &["ClusterProviderConfig", "ProviderConfig"]),
    row("kro.run", &["ResourceGraphDefinition"], Own(operators::kro_graph)),
    row("kro.run", &["*"], Own(operators::kro_instance)),
    // Flux made these two static in notification API v1beta3. A status remains from an older version.
    row("*.toolkit.fluxcd.io", &["Alert", "Provider"], Own(operators::flux_static)),
    row("*.toolkit.fluxcd.io", &["HelmRepository"], Own(operators::flux_repository)),
    row("*.toolkit.fluxcd.io", &["*"], Own(operators::flux)),
    // Gateway API GatewayConditionType, GatewayClassConditionType.
    row("gateway.networking.k8s.io", &["Gateway"], Conditions(&["Accepted", "Programmed"], &[])),
    row("gateway.networking.k8s.io", &["GatewayClass"], Conditions(&["Accepted"], &[])),
    // Tekton: one condition, Unknown while it runs.
    row(
        "tekton.dev",
        &["CustomRun", "PipelineRun", "TaskRun"],
        Conditions(&["Succeeded"], &[ends("Succeeded", "False", &[])]),
    ),
    applied("tekton.dev", &["Pipeline", "StepAction", "Task"]),
    // ORC `api/v1alpha1/conditions.go`: complete when both conditions are of this generation. Two reasons are
    // terminal.
    row(
        "openstack.k-orc.cloud",
        &["*"],
        Conditions(&["Available"], &[ends("Progressing", "False", &["InvalidConfiguration", "UnrecoverableError"])]),
    ),
    // AWS Controllers for Kubernetes, `runtime/apis/core/v1alpha1/conditions.go`.
    row("*.services.k8s.aws", &["*"], Conditions(&["ACK.ResourceSynced"], &[ends("ACK.Terminal", "True", &[])])),
    // Azure Service Operator, *Conditions*: the severity `Error` is terminal.
    row("*.azure.com", &["*"], Own(operators::azure)),
];

impl ContractRow {
    fn matches(&self, object: ObjectView<'_>) -> bool {
        let group = match self.group.strip_prefix("*.") {
            Some(domain) => {
                object.group().strip_suffix(domain).is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
            None => object.group() == self.group,
        };
        group
            && self.kinds.iter().any(|kind| match kind.strip_prefix('*') {
                Some(end) => object.kind().ends_with(end),
                None => object.kind() == *kind,
            })
    }
}

impl ContractRule {
    fn judge(&self, object: ObjectView<'_>) -> ObjectReadiness {
        match self {
            Self::Applied => ObjectReadiness::Ready,
            Self::Observed => conditions::unobserved(object).unwrap_or(ObjectReadiness::Ready),
            Self::Conditions(wanted, ends) => conditions::judge(object, wanted, ends),
            Self::Phase(ready, failed) => match object.text("status.phase") {
                now if ready.contains(&now) => ObjectReadiness::Ready,
                now if failed.contains(&now) => ObjectReadiness::failed(now, object.text("status.message")),
                now => ObjectReadiness::awaits("status.phase", now, ready.first().copied().unwrap_or_default()),
            },
            Self::Latched(new, old, also) => cluster_api::latched(object, new, old, *also),
            Self::Own(judge) => judge(object),
        }
    }
}

pub(crate) fn judge(object: ObjectView<'_>) -> ObjectReadiness {
    let row = ROWS.iter().find(|row| row.matches(object));
    row.map_or_else(|| operators::unknown(object), |row| row.rule.judge(object))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_row_hides_another() {
        let mut seen = BTreeSet::new();
        for (number, row) in ROWS.iter().enumerate() {
            assert!(!row.kinds.is_empty());
            for kind in row.kinds {
                assert!(seen.insert((row.group, *kind)), "{} {kind} occurs twice", row.group);
                let group = row.group.trim_start_matches("*.");
                let kind = kind.replace('*', "Any");
                let object = serde_json::json!({"apiVersion": format!("{group}/v1"), "kind": kind});
                let first = ROWS.iter().position(|row| row.matches(ObjectView(&object)));
                assert_eq!(first, Some(number), "{group} {kind} matches an earlier row");
            }
        }
    }
}
