//! Cluster API, contracts v1beta1 and v1beta2.
//!
//! Source: *Provider contracts* of the Cluster API book. Which contract an object follows is told by what is in its
//! status: `status.initialization` is v1beta2's, `status.ready` and `status.initialized` are v1beta1's, which go with
//! April 2027. All of these are **latches**: they say that it came up, not that it is up. `failureReason` and
//! `failureMessage` are terminal in v1beta1; v1beta2 keeps them below `status.deprecated.v1beta1` and has no terminal
//! failures any more.

use crate::conditions;
use crate::object::Object;
use crate::table::{By, Row};
use crate::verdict::Verdict;

pub(crate) const ROWS: &[Row] = &[
    // Templates and classes are copied from; a class says when its variables are known.
    applied("infrastructure.cluster.x-k8s.io"),
    applied("bootstrap.cluster.x-k8s.io"),
    applied("controlplane.cluster.x-k8s.io"),
    Row {
        name: "capi-infrastructure",
        group: "infrastructure.cluster.x-k8s.io",
        kinds: &["*"],
        by: By::Own(|object| latched(object, "provisioned", "status.ready", None)),
    },
    Row {
        name: "capi-bootstrap",
        group: "bootstrap.cluster.x-k8s.io",
        kinds: &["*"],
        by: By::Own(|object| {
            latched(object, "dataSecretCreated", "status.ready", Some("status.dataSecretName"))
        }),
    },
    Row {
        name: "capi-control-plane",
        group: "controlplane.cluster.x-k8s.io",
        kinds: &["*"],
        by: By::Own(|object| latched(object, "controlPlaneInitialized", "status.initialized", None)),
    },
    Row {
        name: "capi-address-claim",
        group: "ipam.cluster.x-k8s.io",
        kinds: &["IPAddressClaim"],
        by: By::Own(address),
    },
    Row { name: "applied", group: "ipam.cluster.x-k8s.io", kinds: &["IPAddress"], by: By::Applied },
    Row {
        name: "capi",
        group: "cluster.x-k8s.io",
        kinds: &["Cluster", "Machine", "MachineDeployment", "MachinePool", "MachineSet"],
        by: By::Own(core),
    },
];

const fn applied(group: &'static str) -> Row {
    Row { name: "applied", group, kinds: &["*Template"], by: By::Applied }
}

/// Ready when `status.initialization.NEW` is true, or in v1beta1 the field `old`; then `also` has to be there.
fn latched(object: Object<'_>, new: &str, old: &str, also: Option<&str>) -> Verdict {
    if let Some(verdict) = ended(object).or_else(|| paused(object)) {
        return verdict;
    }
    let field = match object.at("status.initialization").is_some() || object.version() == "v1beta2" {
        true => format!("status.initialization.{new}"),
        false => old.to_owned(),
    };
    if !object.says(&field) {
        return not_yet(object, &field);
    }
    match also.filter(|also| object.text(also).is_empty()) {
        Some(also) => Verdict::pending(format!("`{also}` is not there yet")),
        None => Verdict::Ready,
    }
}

/// With what the object's own `Ready` says, if it says something.
fn not_yet(object: Object<'_>, field: &str) -> Verdict {
    match object.condition("Ready").filter(|ready| !ready.is("True")) {
        Some(ready) => Verdict::pending(format!("`{field}` is not true yet; {}", ready.said())),
        None => Verdict::pending(format!("`{field}` is not true yet")),
    }
}

/// IPAM: an address was given.
fn address(object: Object<'_>) -> Verdict {
    if let Some(verdict) = paused(object) {
        return verdict;
    }
    if object.text("status.addressRef.name").is_empty() {
        return not_yet(object, "status.addressRef.name");
    }
    Verdict::Ready
}

/// The objects of Cluster API itself are live: `Available` of v1beta2 (in `status.v1beta2` where the API is still
/// v1beta1), else `Ready` and, where there is one, a phase that fits.
fn core(object: Object<'_>) -> Verdict {
    if let Some(verdict) = ended(object).or_else(|| paused(object)) {
        return verdict;
    }
    let phase = object.text("status.phase");
    if phase == "Failed" {
        return Verdict::failed("Failed", "`status.phase` is `Failed`");
    }
    let path = match object.version() == "v1beta2" {
        true => Some("status.conditions"),
        false => object.at("status.v1beta2.conditions").map(|_| "status.v1beta2.conditions"),
    };
    if let Some(path) = path {
        let missing = conditions::first_missing(object, object.conditions_at(path), &["Available"]);
        return missing.unwrap_or(Verdict::Ready);
    }
    let wanted = match object.kind() {
        "Cluster" => "Provisioned",
        _ => "Running",
    };
    if !phase.is_empty() && phase != wanted {
        return Verdict::awaits("status.phase", phase, wanted);
    }
    conditions::judge(object, &["Ready"], &[])
}

/// v1beta1's terminal failure.
fn ended(object: Object<'_>) -> Option<Verdict> {
    let [reason, message] = ["status.failureReason", "status.failureMessage"].map(|field| object.text(field));
    if reason.is_empty() && message.is_empty() {
        return None;
    }
    Some(Verdict::failed(if reason.is_empty() { "Failed" } else { reason }, message))
}

/// A paused object is not reconciled: what its status says is of before. The annotation counts with any value.
fn paused(object: Object<'_>) -> Option<Verdict> {
    let held = object.annotation("cluster.x-k8s.io/paused").is_some()
        || object.says("spec.paused")
        || object.condition("Paused").is_some_and(|paused| paused.is("True"));
    held.then(|| Verdict::pending("it is paused"))
}
