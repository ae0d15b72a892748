//! Kinds without a status to wait for. They are ready as soon as they are stored.
//!
//! Source: the Kubernetes API reference. These kinds have no status, or their status does not concern their purpose:
//! `CronJob` waits for its time, `HorizontalPodAutoscaler` for metrics, and `ResourceQuota` is enforced before it is
//! counted.

use crate::table::{ContractRow, ContractRule};

const fn applied(group: &'static str, kinds: &'static [&'static str]) -> ContractRow {
    ContractRow { name: "applied", group, kinds, rule: ContractRule::Applied }
}

pub(crate) const ROWS: &[ContractRow] = &[
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
];
