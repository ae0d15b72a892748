//! Checks of pods before they are applied, for authors. The API server makes them again, and decides.
//!
//! The rules are those of Pod Security and of the chart's admission policy (`infra/relay/chart/rules.yaml`).
//! They are checked as far as a template decides: the user of an image is unknown here.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ebb_kube::podspec::{
    ClusterPolicy, PodSecurityLevel, PodspecViolation, ViolationList, ask_operator, items, listed, named_account, shown,
};
use serde_json::Value;

const TOKEN: &str = "automountServiceAccountToken";
const CONTEXT: &str = "securityContext";
/// The container of a script. Its runner has the image.
const MAIN: &str = "main";
/// Fields of a pod that the admission policy allows.
const POD_FIELDS: &str = "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig \
    dnsPolicy enableServiceLinks hostAliases hostUsers hostname imagePullSecrets initContainers nodeSelector os \
    preemptionPolicy priorityClassName readinessGates resources restartPolicy runtimeClassName schedulerName \
    securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain \
    terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes";
/// Fields that the admission of a pod sets.
const OF_ADMISSION: [&str; 2] = ["overhead", "priority"];
/// Fields of a volume: its name, and sources within the namespace.
const VOLUME_FIELDS: [&str; 8] =
    ["name", "configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
/// Sources of a projected volume within the namespace.
const PROJECTED: [&str; 3] = ["configMap", "downwardAPI", "secret"];

/// What the level `restricted` requires of a container: a field, the text about a container `NAME`, and the fix.
static REQUIRED: LazyLock<Vec<[String; 3]>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("pod_checks/required.yaml")).expect("the table is YAML"));

/// The origin of a pod, which decides what fills in its missing fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodOrigin {
    /// The pod template of a script. Ebb fills in a part of the missing fields.
    Script,
    /// A manifest. Nothing is filled in.
    Manifest,
}

/// Returns the path of the pod in a manifest whose pods the admission policy checks.
fn pod_path(manifest: &Value) -> Option<&'static str> {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => Some("spec"),
        ("v1", "PodTemplate") => Some("template.spec"),
        ("batch/v1", "CronJob") => Some("spec.jobTemplate.spec.template.spec"),
        ("v1", "ReplicationController")
        | ("apps/v1", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch/v1", "Job") => Some("spec.template.spec"),
        _ => None,
    }
}

/// Returns the violations of the pods of a manifest, or of a script's pod template, in a namespace of the policy. Texts
/// with `${` are values that are not known yet: nothing is said about them.
pub(super) fn pod_violations(
    manifest: &Value,
    namespace: &str,
    allowed: &ClusterPolicy,
    origin: PodOrigin,
) -> Vec<PodspecViolation> {
    let path = match origin {
        PodOrigin::Script => Some("spec"),
        PodOrigin::Manifest => pod_path(manifest),
    };
    let (Some(path), Some(entry)) = (path, allowed.namespaces.get(namespace)) else { return Vec::new() };
    let Some(pod) = manifest.pointer(&format!("/{}", path.replace('.', "/"))).filter(|pod| pod.is_object()) else {
        return Vec::new();
    };
    let level = allowed.level(namespace);
    let mut check = PodCheck { path, namespace, level, origin, report: ViolationList::default() };
    check.fields(pod);
    check.account(pod, &entry.service_accounts);
    if allowed.unit_namespace.is_some() {
        check.class(pod, "runtime", &allowed.runtime_classes);
        check.class(pod, "priority", &allowed.priority_classes);
    }
    check.volumes(&pod["volumes"]);
    check.node(pod);
    check.context("pod", CONTEXT, &pod[CONTEXT]);
    for list in ["initContainers", "containers"] {
        for (number, container) in items(&pod[list]).enumerate() {
            let name = container["name"].as_str().map_or_else(|| number.to_string(), shown);
            check.container(&format!("{list}[{name}]"), &name, container);
            let has_image = container["image"].as_str().is_some_and(|image| !image.is_empty());
            let of_runner = origin == PodOrigin::Script && list == "containers" && name == MAIN;
            if container.is_object() && !has_image && !of_runner {
                check.add(&format!("{list}[{name}]"), format!("the container {name} has no image"), "add `image`");
            }
            if origin == PodOrigin::Manifest {
                check.missing(&format!("{list}[{name}]"), &name, &container[CONTEXT], &pod[CONTEXT]);
            }
        }
    }
    check.report.0
}

/// Returns the fields of a mapping whose values the API server keeps: it omits null, false and what is empty. Texts that
/// are not known yet may be one of these.
fn set_fields(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty() && !is_unknown(text),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    };
    map.as_object().into_iter().flatten().filter(move |(_, value)| is_set(value))
}

fn is_unknown(text: &str) -> bool {
    text.contains("${")
}

struct PodCheck<'a> {
    path: &'static str,
    namespace: &'a str,
    level: PodSecurityLevel,
    origin: PodOrigin,
    report: ViolationList,
}

impl PodCheck<'_> {
    fn add(&mut self, path: &str, why: impl Into<String>, help: impl Into<String>) {
        self.report.add(format!("{}.{path}", self.path), why, help);
    }

    /// Adds a violation of Pod Security, unless the level of the namespace permits it. `needed` is the strictest that does.
    fn insecure(&mut self, path: &str, why: &str, fix: &str, needed: PodSecurityLevel) {
        if self.level >= needed {
            return;
        }
        let option = format!("--namespace {}:{}", self.namespace, needed.name());
        let help = format!("{fix}, or {}", ask_operator(&option, self.namespace));
        self.add(path, format!("violates PodSecurity \"{}:latest\": {why}", self.level.name()), help);
    }

    fn fields(&mut self, pod: &Value) {
        let is_pod = self.origin == PodOrigin::Manifest && self.path == "spec";
        let may_be_set = |field: &str| {
            POD_FIELDS.split(' ').any(|allowed| allowed == field) || (is_pod && OF_ADMISSION.contains(&field))
        };
        for (field, _) in set_fields(pod).filter(|(field, _)| !may_be_set(field)) {
            let field = shown(field);
            self.add(&field, format!("pods may not set {field}"), "remove it");
        }
    }

    fn class(&mut self, pod: &Value, sort: &str, allowed: &BTreeSet<String>) {
        let field = format!("{sort}ClassName");
        let class = pod[&field].as_str().unwrap_or_default();
        if class.is_empty() || is_unknown(class) || allowed.contains(class) {
            return;
        }
        let (class, listed) = (shown(class), listed(allowed.iter()));
        let why =
            format!("the {sort} class {class} is not allowed by the policy of the cluster (`{sort}Classes`: {listed})");
        self.add(&field, why, format!("ask its operator to add it to the value `policy.{sort}Classes` of the chart"));
    }

    fn account(&mut self, pod: &Value, allowed: &BTreeSet<String>) {
        let named = named_account(pod);
        let account = named.unwrap_or("default");
        if is_unknown(account) || allowed.contains(account) {
            return;
        }
        let (namespace, shown) = (self.namespace, shown(account));
        if named.is_some() {
            let field = if pod["serviceAccountName"] == account { "serviceAccountName" } else { "serviceAccount" };
            let why = format!(
                "pods in {namespace} may not run as the service account {shown} by the policy of the cluster \
                 (`serviceAccounts`: {})",
                listed(allowed.iter())
            );
            let option = format!("--service-account {namespace}/{account}");
            return self.add(field, why, ask_operator(&option, &format!("{namespace}.{account}")));
        }
        let token = &pod[TOKEN];
        if *token == true || (token.is_null() && self.origin == PodOrigin::Manifest) {
            let why = format!("pods in {namespace} may not have the token of the service account {shown}");
            self.add(TOKEN, why, "write automountServiceAccountToken: false");
        }
    }

    fn volumes(&mut self, volumes: &Value) {
        for (number, volume) in items(volumes).enumerate() {
            let name = volume["name"].as_str().map_or_else(|| number.to_string(), shown);
            let outside =
                set_fields(volume).map(|(field, _)| field.as_str()).find(|field| !VOLUME_FIELDS.contains(field));
            let mut projected = items(&volume["projected"]["sources"]).flat_map(set_fields);
            let is_outside = projected.any(|(field, _)| !PROJECTED.contains(&field.as_str()));
            if let Some(field) = outside.or(is_outside.then_some("projected.sources")) {
                let why = format!("the source of the volume {name} is not allowed");
                let help = "use configMap, downwardAPI, emptyDir, ephemeral, persistentVolumeClaim, secret, or a \
                            projection of configMap, downwardAPI and secret";
                self.add(&format!("volumes[{name}].{}", shown(field)), why, help);
            }
        }
    }

    /// Checks access to nodes and their kernel, as `infra/relay/chart/rules.yaml` does.
    fn node(&mut self, pod: &Value) {
        let of_control_plane = |key: &str| key.is_empty() || key.starts_with("node-role.kubernetes.io/");
        let key = |toleration: &Value| toleration["key"].as_str().unwrap_or_default().to_owned();
        if items(&pod["tolerations"]).map(key).any(|key| of_control_plane(&key) && !is_unknown(&key)) {
            let why = "tolerations may not allow nodes of the control plane";
            self.add("tolerations", why, "name the taint of the nodes that you mean");
        }
        if items(&pod[CONTEXT]["sysctls"]).next().is_some() {
            self.add(&format!("{CONTEXT}.sysctls"), "pods may not change kernel settings", "remove sysctls");
        }
    }

    /// Checks profiles and user in the security context at `path`. `owner` is its pod or container, for people.
    fn context(&mut self, owner: &str, path: &str, context: &Value) {
        for field in ["seccompProfile", "appArmorProfile"] {
            if context[field]["type"] == "Unconfined" {
                let why = format!("{field} ({owner} must not set securityContext.{field}.type to \"Unconfined\")");
                self.insecure(&format!("{path}.{field}"), &why, "remove it", PodSecurityLevel::Privileged);
            }
        }
        if context["runAsNonRoot"] == false {
            let why = format!("runAsNonRoot != true ({owner} must not set securityContext.runAsNonRoot=false)");
            self.insecure(&format!("{path}.runAsNonRoot"), &why, "remove it", PodSecurityLevel::Baseline);
        }
        if context["runAsUser"] == 0 {
            let why = format!("runAsUser=0 ({owner} must not set runAsUser=0)");
            self.insecure(&format!("{path}.runAsUser"), &why, "use another user", PodSecurityLevel::Baseline);
        }
    }

    fn container(&mut self, path: &str, name: &str, container: &Value) {
        let context = &container[CONTEXT];
        if context["privileged"] == true {
            let why = format!("privileged (container \"{name}\" must not set securityContext.privileged=true)");
            self.insecure(&format!("{path}.{CONTEXT}.privileged"), &why, "remove it", PodSecurityLevel::Privileged);
        }
        let gains = "containers may not gain rights";
        let help = "remove allowPrivilegeEscalation, and all added capabilities except NET_BIND_SERVICE";
        if context["allowPrivilegeEscalation"] == true {
            self.add(&format!("{path}.{CONTEXT}.allowPrivilegeEscalation"), gains, help);
        }
        let mut added = items(&context["capabilities"]["add"]).filter_map(Value::as_str);
        if added.any(|capability| capability != "NET_BIND_SERVICE" && !is_unknown(capability)) {
            self.add(&format!("{path}.{CONTEXT}.capabilities.add"), gains, help);
        }
        let is_set = |port: &Value, field: &str| !port[field].is_null() && port[field] != 0 && port[field] != "";
        if items(&container["ports"]).any(|port| is_set(port, "hostPort") || is_set(port, "hostIP")) {
            self.add(&format!("{path}.ports"), "pods may not use ports of the node", "remove hostPort and hostIP");
        }
        self.context(&format!("container \"{name}\""), &format!("{path}.{CONTEXT}"), context);
    }

    /// Reports what the level `restricted` requires and a container lacks.
    fn missing(&mut self, path: &str, name: &str, own: &Value, pod: &Value) {
        // A context that is a text is not known yet.
        if own.is_string() || pod.is_string() {
            return;
        }
        let drop = &own["capabilities"]["drop"];
        let drops = |text: &str| text == "ALL" || is_unknown(text);
        for [field, why, fix] in REQUIRED.iter() {
            let is_missing = match field.as_str() {
                "allowPrivilegeEscalation" => own[field].is_null(),
                "capabilities" => {
                    drop.is_null() || (drop.is_array() && !items(drop).filter_map(Value::as_str).any(drops))
                }
                _ => own[field].is_null() && pod[field].is_null(),
            };
            if is_missing {
                let (path, why) = (format!("{path}.{CONTEXT}.{field}"), why.replace("NAME", name));
                self.insecure(&path, &why, fix, PodSecurityLevel::Baseline);
            }
        }
    }
}

#[cfg(test)]
mod tests;
