//! Namespaces, volumes, services, routes.

use serde_json::Value;

use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule, PhaseField};

pub(crate) const ROWS: &[ContractRow] = &[
    // core/v1 NamespacePhase. A terminating namespace has a deletionTimestamp and has failed before this rule.
    ContractRow {
        name: "namespace",
        group: "",
        kinds: &["Namespace"],
        rule: ContractRule::Phase(PhaseField {
            path: "status.phase",
            ready: &["Active"],
            failed: &["Terminating"],
            message: "status.message",
        }),
    },
    ContractRow { name: "claim", group: "", kinds: &["PersistentVolumeClaim"], rule: ContractRule::Own(claim) },
    // core/v1 PersistentVolumePhase: Available without a claim, Bound with one, Failed if it could not be recycled.
    ContractRow {
        name: "volume",
        group: "",
        kinds: &["PersistentVolume"],
        rule: ContractRule::Phase(PhaseField {
            path: "status.phase",
            ready: &["Available", "Bound"],
            failed: &["Failed"],
            message: "status.message",
        }),
    },
    ContractRow { name: "service", group: "", kinds: &["Service"], rule: ContractRule::Own(service) },
    // kube-rs `runtime::wait` `is_ingress_provisioned`. For ingress controllers that publish no address, documents set
    // `ready: ${true}`.
    ContractRow {
        name: "ingress",
        group: "networking.k8s.io",
        kinds: &["Ingress"],
        rule: ContractRule::Own(addressed),
    },
    // policy/v1 PodDisruptionBudgetStatus: `observedGeneration` is the basis of the allowed disruptions.
    ContractRow { name: "budget", group: "policy", kinds: &["PodDisruptionBudget"], rule: ContractRule::Observed },
];

/// core/v1 PersistentVolumeClaimPhase. A claim with `WaitForFirstConsumer` stays pending until a pod uses it. The
/// claim does not show this: its document sets `ready: ${true}` or comes after the pod.
fn claim(object: ObjectView<'_>) -> ObjectReadiness {
    match object.text("status.phase") {
        "Bound" => ObjectReadiness::Ready,
        "Lost" => ObjectReadiness::failed("Lost", "its volume is gone"),
        "Pending" => ObjectReadiness::pending(
            "`status.phase` is `Pending`, `Bound` is awaited (a class that waits for the first consumer binds when a pod uses it)",
        ),
        other => ObjectReadiness::awaits("status.phase", other, "Bound"),
    }
}

/// Only a load balancer needs an address (core/v1 LoadBalancerStatus). kstatus calls it current without one.
fn service(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("spec.type") == "LoadBalancer" { addressed(object) } else { ObjectReadiness::Ready }
}

fn addressed(object: ObjectView<'_>) -> ObjectReadiness {
    let named = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    let entries = object.list("status.loadBalancer.ingress");
    if entries.iter().any(|entry| named(entry, "ip") || named(entry, "hostname")) {
        return ObjectReadiness::Ready;
    }
    ObjectReadiness::pending("`status.loadBalancer.ingress` has no address yet")
}
