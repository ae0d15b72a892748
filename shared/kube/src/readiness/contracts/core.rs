//! Namespaces, volumes, services, routes.

use serde_json::Value;

use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// core/v1 PersistentVolumeClaimPhase. A claim with `WaitForFirstConsumer` stays pending until a pod uses it. The
/// claim does not show this: its document sets `ready: ${true}` or comes after the pod.
pub(super) fn claim(object: ObjectView<'_>) -> ObjectReadiness {
    match object.text("status.phase") {
        "Bound" => ObjectReadiness::Ready,
        "Lost" => ObjectReadiness::failed("Lost", "its volume is gone"),
        "Pending" => ObjectReadiness::pending(
            "`status.phase` is `Pending`, `Bound` is awaited (a class that waits for the first consumer binds when a pod uses it)",
        ),
        other => ObjectReadiness::awaits("status.phase", other, "Bound"),
    }
}

/// Judges a service. Only a load balancer needs an address (core/v1 LoadBalancerStatus). For kstatus, it is current
/// without one.
pub(super) fn service(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("spec.type") == "LoadBalancer" { addressed(object) } else { ObjectReadiness::Ready }
}

pub(super) fn addressed(object: ObjectView<'_>) -> ObjectReadiness {
    let named = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    let entries = object.list("status.loadBalancer.ingress");
    if entries.iter().any(|entry| named(entry, "ip") || named(entry, "hostname")) {
        return ObjectReadiness::Ready;
    }
    ObjectReadiness::pending("`status.loadBalancer.ingress` has no address yet")
}
