//! Pods of authors, checked with the policy of a cluster.

use serde_json::{Value, json};

use super::base::yaml;
use crate::podspec::pod_checks::POD_FIELDS;
use crate::podspec::{ClusterPolicy, PodOrigin, pod_violations};

/// The rules that the API server enforces.
const RULES: &str = include_str!("../../../../../infra/relay/chart/rules.yaml");

fn policy() -> ClusterPolicy {
    yaml("namespaces: {units: [builder], base: {level: baseline}, open: {level: privileged}}")
}

fn violations(manifest: &Value, namespace: &str, origin: PodOrigin) -> Vec<String> {
    let found = pod_violations(manifest, namespace, &policy(), origin);
    found.iter().map(ToString::to_string).collect()
}

fn script(spec: &str, namespace: &str) -> Vec<String> {
    violations(&json!({"spec": yaml::<Value>(spec)}), namespace, PodOrigin::Script)
}

#[test]
fn access_to_nodes_and_kernels_is_reported() {
    let spec = "{tolerations: [{operator: Exists}], securityContext: {sysctls: [{name: a, value: b}], seccompProfile: \
                {type: Unconfined}}, containers: [{name: main, securityContext: {appArmorProfile: {type: Unconfined}}}]}";
    let found = script(spec, "base");
    for (text, at) in [
        (
            "spec.tolerations: tolerations may not allow nodes of the control plane; name the taint of the nodes that you mean",
            0,
        ),
        ("spec.securityContext.sysctls: pods may not change kernel settings; remove sysctls", 1),
        (
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\"); remove it, or ask",
            2,
        ),
        ("appArmorProfile (container \"main\" must not set securityContext.appArmorProfile.type", 3),
    ] {
        assert!(found[at].contains(text), "{found:?}");
    }
    assert_eq!(found.len(), 4);
    assert_eq!(script(spec, "open").len(), 2, "the level privileged permits the profiles");
    assert!(script("{tolerations: [{key: gpu, operator: Exists}, {key: '${a}'}]}", "base").is_empty());
}

#[test]
fn what_a_template_decides_is_reported() {
    let hostile = "{hostNetwork: true, volumes: [{name: d, hostPath: {path: /}}], containers: [{name: main, \
                   ports: [{hostPort: 80}], securityContext: {privileged: true, allowPrivilegeEscalation: true, \
                   runAsUser: 0, capabilities: {add: [SYS_ADMIN]}}}]}";
    let always = [
        "spec.hostNetwork: pods may not set hostNetwork; remove it",
        "spec.volumes[d].hostPath: the source of the volume d is not allowed; use configMap, downwardAPI, emptyDir, \
         ephemeral, persistentVolumeClaim, secret, or a projection of configMap, downwardAPI and secret",
        "spec.containers[main].securityContext.allowPrivilegeEscalation: containers may not gain rights; remove \
         allowPrivilegeEscalation, and all added capabilities except NET_BIND_SERVICE",
        "spec.containers[main].securityContext.capabilities.add: containers may not gain rights; remove \
         allowPrivilegeEscalation, and all added capabilities except NET_BIND_SERVICE",
        "spec.containers[main].ports: pods may not use ports of the node; remove hostPort and hostIP",
    ];
    assert_eq!(script(hostile, "open"), always);
    let mut baseline = always.map(str::to_owned).to_vec();
    baseline.insert(
        2,
        "spec.containers[main].securityContext.privileged: violates PodSecurity \"baseline:latest\": privileged \
         (container \"main\" must not set securityContext.privileged=true); remove it, or ask its operator to run: ebb \
         cluster connect NAME --apply --namespace base:privileged"
            .to_owned(),
    );
    assert_eq!(script(hostile, "base"), baseline);
    let restricted = script(hostile, "units");
    assert_eq!(restricted.len(), baseline.len() + 1);
    assert!(restricted.last().unwrap().ends_with(
        "runAsUser=0 (container \"main\" must not set runAsUser=0); use another user, or ask its operator to run: ebb \
         cluster connect NAME --apply --namespace units:baseline"
    ));
    assert_eq!(script(hostile, "unknown"), [""; 0]);
    let root = script("{securityContext: {runAsNonRoot: false}}", "units");
    assert!(root[0].contains("(pod must not set securityContext.runAsNonRoot=false)"), "{root:?}");
}

#[test]
fn accounts_and_their_tokens_are_those_of_the_policy() {
    assert_eq!(script("{serviceAccountName: builder}", "units"), [""; 0]);
    let refused = "spec.serviceAccountName: pods in units may not run as the service account admin by the policy of the \
                   cluster (`serviceAccounts`: builder); ask its operator to run: ebb cluster connect NAME --apply \
                   --service-account units/admin";
    assert_eq!(script("{serviceAccountName: admin}", "units"), [refused]);
    assert!(script("{serviceAccount: a;reboot}", "base")[0].ends_with("(`serviceAccounts`: none); ask its operator"));
    // The relay fills in that a script has no token.
    assert_eq!(script("{serviceAccountName: default}", "units"), [""; 0]);
    let refused = "spec.automountServiceAccountToken: pods in units may not have the token of the service account default; \
                   write automountServiceAccountToken: false";
    assert_eq!(script("{automountServiceAccountToken: true}", "units"), [refused]);
}

#[test]
fn manifests_of_pods_must_be_complete() {
    let deployment = |pod: &str| {
        let pod: Value = yaml(pod);
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}})
    };
    let found = violations(&deployment("{containers: [{name: c, image: i}]}"), "units", PodOrigin::Manifest);
    let starts = ["automount", "containers[c].securityContext.runAs", "containers[c].securityContext.allow"];
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(&format!("spec.template.spec.{start}")), "{found}");
    }
    assert_eq!(found.len(), 5, "{found:?}");
    let complete = "{automountServiceAccountToken: false, securityContext: {runAsNonRoot: true, seccompProfile: {type: \
                    RuntimeDefault}}, containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, \
                    capabilities: {drop: [ALL]}}}]}";
    assert_eq!(violations(&deployment(complete), "units", PodOrigin::Manifest), [""; 0]);
    // Values that are not known yet.
    let open = "{automountServiceAccountToken: '${params.t}', serviceAccountName: '${params.a}', securityContext: \
                '${params.s}', hostNetwork: '${params.h}', priorityClassName: '${params.p}', containers: [{name: c, image: \
                '${params.i}', securityContext: '${params.s}'}]}";
    assert_eq!(violations(&deployment(open), "units", PodOrigin::Manifest), [""; 0]);
    let other =
        json!({"apiVersion": "example.org/v1", "kind": "Job", "spec": {"template": {"spec": {"hostPID": true}}}});
    assert_eq!(violations(&other, "units", PodOrigin::Manifest), [""; 0]);
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"hostPID": true, "automountServiceAccountToken": false}});
    assert_eq!(violations(&pod, "base", PodOrigin::Manifest), ["spec.hostPID: pods may not set hostPID; remove it"]);
}

/// The API server refuses these, whatever the policy says.
#[test]
fn fields_that_pods_lack_and_missing_images_are_reported() {
    let wrong = "{nodeName: node-1, container: {}, hostIPC: false, volumes: [{name: t, projected: {sources: [{configMap: {}}, \
                 {serviceAccountToken: {path: t}}]}}], initContainers: [{name: main}], containers: [{name: main}, \
                 {name: side, image: ''}]}";
    assert_eq!(
        script(wrong, "open"),
        [
            "spec.nodeName: pods may not set nodeName; remove it",
            "spec.container: pods may not set container; remove it",
            "spec.volumes[t].projected.sources: the source of the volume t is not allowed; use configMap, downwardAPI, \
             emptyDir, ephemeral, persistentVolumeClaim, secret, or a projection of configMap, downwardAPI and secret",
            "spec.initContainers[main]: the container main has no image; add `image`",
            "spec.containers[side]: the container side has no image; add `image`",
        ]
    );
    // The admission of a pod sets its priority.
    let spec = json!({"priority": 5, "automountServiceAccountToken": false});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
    assert_eq!(violations(&pod, "base", PodOrigin::Manifest), [""; 0]);
    assert_eq!(script("{priority: 5}", "base"), ["spec.priority: pods may not set priority; remove it"]);
}

#[test]
fn classes_are_those_of_the_policy() {
    let wanted = json!({"spec": {"priorityClassName": "high", "runtimeClassName": "gvisor"}});
    let mut allowed: ClusterPolicy = yaml("{namespaces: {units: []}, runtimeClasses: [gvisor]}");
    // A relay of an earlier version reports no classes.
    assert_eq!(pod_violations(&wanted, "units", &allowed, PodOrigin::Script), []);
    allowed.unit_namespace = Some("units".to_owned());
    let found = pod_violations(&wanted, "units", &allowed, PodOrigin::Script);
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["spec.priorityClassName: the priority class high is not allowed by the policy of the cluster \
          (`priorityClasses`: none); ask its operator to add it to the value `policy.priorityClasses` of the chart"]
    );
}

/// The texts are those of the API server.
#[test]
fn the_texts_are_those_of_the_admission_policy() {
    let rules: String = RULES.split_whitespace().collect::<Vec<_>>().join(" ");
    let fields: Vec<_> = POD_FIELDS.split(' ').map(|field| format!("'{field}'")).collect();
    for text in [
        format!("[{}]", fields.join(", ")).as_str(),
        "'pods may not set ' + variables.fields.join(', ') + '; remove it'",
        "' may not run as the service account ' + variables.account + ' by the policy of the cluster \
         (`serviceAccounts`: ' + (size(variables.allowed) == 0 ? 'none' : variables.allowed.join(', '))",
        "(`runtimeClasses`: ' + (size(variables.runtimeClasses) == 0 ? 'none' : variables.runtimeClasses.join(', ')) + '); \
         ask its operator to add it to the value `policy.runtimeClasses` of the chart'",
        "(`priorityClasses`: ' + (size(variables.priorityClasses) == 0 ? 'none' : variables.priorityClasses.join(', ')) + \
         '); ask its operator to add it to the value `policy.priorityClasses` of the chart'",
        "'); ask its operator to run: ebb cluster connect NAME --apply --service-account ' + request.namespace + '/' + \
         variables.account",
        "' may not have the token of the service account ' + variables.account + '; write \
         automountServiceAccountToken: false'",
        "' is not allowed; use configMap, downwardAPI, emptyDir, ephemeral, persistentVolumeClaim, secret, or a \
         projection of configMap, downwardAPI and secret'",
        "containers may not gain rights; remove allowPrivilegeEscalation, and all added capabilities except \
         NET_BIND_SERVICE",
        "pods may not use ports of the node; remove hostPort and hostIP",
        "tolerations may not allow nodes of the control plane; name the taint of the nodes that you mean",
        "pods may not change kernel settings; remove sysctls",
    ] {
        assert!(rules.contains(text), "{text}");
    }
}
