//! Namespaces, volumes, services, routes.

use serde_json::Value;

use crate::object::Object;
use crate::table::{By, Phase, Row};
use crate::verdict::Verdict;

pub(crate) const ROWS: &[Row] = &[
    // core/v1 NamespacePhase. One that is ending has a deletionTimestamp and is failed before it comes here.
    Row {
        name: "namespace",
        group: "",
        kinds: &["Namespace"],
        by: By::Phase(Phase {
            path: "status.phase",
            ready: &["Active"],
            failed: &["Terminating"],
            message: "status.message",
        }),
    },
    Row { name: "claim", group: "", kinds: &["PersistentVolumeClaim"], by: By::Own(claim) },
    // core/v1 PersistentVolumePhase: Available waits for a claim, Bound has one, Failed could not be recycled.
    Row {
        name: "volume",
        group: "",
        kinds: &["PersistentVolume"],
        by: By::Phase(Phase {
            path: "status.phase",
            ready: &["Available", "Bound"],
            failed: &["Failed"],
            message: "status.message",
        }),
    },
    Row { name: "service", group: "", kinds: &["Service"], by: By::Own(service) },
    // kube-rs `runtime::wait` `is_ingress_provisioned`. Where the ingress controller publishes no address, the document
    // says so by `ready: ${true}`.
    Row { name: "ingress", group: "networking.k8s.io", kinds: &["Ingress"], by: By::Own(addressed) },
    // policy/v1 PodDisruptionBudgetStatus: `observedGeneration` is what the disruptions allowed were computed from.
    Row { name: "budget", group: "policy", kinds: &["PodDisruptionBudget"], by: By::Observed },
];

/// core/v1 PersistentVolumeClaimPhase. A claim of a class that waits for its first consumer stays pending until a pod
/// uses it; the claim does not say so, so neither can we: its document says `ready: ${true}` or comes after the pod.
fn claim(object: Object<'_>) -> Verdict {
    match object.text("status.phase") {
        "Bound" => Verdict::Ready,
        "Lost" => Verdict::failed("Lost", "its volume is gone"),
        "Pending" => Verdict::pending(
            "`status.phase` is `Pending`, `Bound` is awaited (a class that waits for the first consumer binds when a pod uses it)",
        ),
        other => Verdict::awaits("status.phase", other, "Bound"),
    }
}

/// Only a load balancer has something to wait for (core/v1 LoadBalancerStatus); kstatus calls it current before it has
/// an address.
fn service(object: Object<'_>) -> Verdict {
    if object.text("spec.type") == "LoadBalancer" { addressed(object) } else { Verdict::Ready }
}

fn addressed(object: Object<'_>) -> Verdict {
    let named =
        |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    let entries = object.list("status.loadBalancer.ingress");
    if entries.iter().any(|entry| named(entry, "ip") || named(entry, "hostname")) {
        return Verdict::Ready;
    }
    Verdict::pending("`status.loadBalancer.ingress` has no address yet")
}
