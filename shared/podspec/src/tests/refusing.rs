//! Tests violations of a policy: escape attempts with their expected path, and templates from practice.

use serde_json::{Value, json};

use super::base::{base, yaml};
use crate::{
    ClusterPolicy, PodSecurityLevel, PodspecViolation, manifest_violations, merge, parse, template_violations,
};

fn allowed(level: PodSecurityLevel) -> ClusterPolicy {
    let mut allowed: ClusterPolicy = serde_json::from_value(json!({
        "namespaces": {"units": ["deployer"], "other": ["admin"]},
        "kinds": ["ConfigMap", "Secret", "Pod", "PodTemplate", "ReplicationController", "Service", "*.apps", "*.batch", "*.cache.example.org"],
        "clusterKinds": ["Namespace"],
        "runtimeClasses": ["gvisor"],
        "priorityClasses": ["low"],
        "secrets": ["ebb-out-own"],
    }))
    .expect("an allow-list");
    allowed.pod_security_level = level;
    allowed
}

fn of_overlay(overlay: &str, level: PodSecurityLevel) -> Vec<PodspecViolation> {
    let merged = merge(&base(), &parse(overlay).expect(overlay)).expect(overlay);
    template_violations(&merged, &base(), "units", &allowed(level))
}

/// Asserts exactly one violation at this path, with a reason and help.
fn refused(attempts: &[(&str, &str)], refuse: impl Fn(&str) -> Vec<PodspecViolation>) {
    let mut wrong = Vec::new();
    for (attempt, path) in attempts {
        let found = refuse(attempt);
        let told = found.iter().all(|it| it.why.len() > 10 && it.help.len() >= "remove it".len());
        if found.len() != 1 || found[0].path != *path || !told {
            wrong.push(format!("{attempt}\n  {path}\n  {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn attempts_to_get_out_of_a_pod() {
    let main = |of: &str| format!("spec: {{containers: [{{name: main, {of}}}]}}");
    let volume = |of: &str| format!("spec: {{volumes: [{{name: v, {of}}}]}}");
    let of_main = [
        ("securityContext: {privileged: true}", "securityContext.privileged"),
        ("securityContext: {allowPrivilegeEscalation: true}", "securityContext.allowPrivilegeEscalation"),
        ("securityContext: {capabilities: {add: [SYS_ADMIN]}}", "securityContext.capabilities.add"),
        ("securityContext: {capabilities: {add: [NET_BIND_SERVICE, NET_RAW]}}", "securityContext.capabilities.add"),
        ("securityContext: {procMount: Unmasked}", "securityContext.procMount"),
        ("securityContext: {seccompProfile: {type: Unconfined}}", "securityContext.seccompProfile.type"),
        ("securityContext: {appArmorProfile: {type: Unconfined}}", "securityContext.appArmorProfile.type"),
        ("securityContext: {seLinuxOptions: {type: spc_t}}", "securityContext.seLinuxOptions.type"),
        ("securityContext: {seLinuxOptions: {user: system_u}}", "securityContext.seLinuxOptions.user"),
        ("securityContext: {seLinuxOptions: {role: system_r}}", "securityContext.seLinuxOptions.role"),
        ("securityContext: {windowsOptions: {hostProcess: true}}", "securityContext.windowsOptions.hostProcess"),
        ("ports: [{containerPort: 80, hostPort: 80}]", "ports[0].hostPort"),
        ("ports: [{name: web, containerPort: 80, hostIP: 0.0.0.0}]", "ports[web].hostIP"),
        (
            "volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]",
            "volumeMounts[v].mountPropagation",
        ),
        ("resources: {claims: [{name: gpu}]}", "resources.claims"),
        ("livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}", "livenessProbe.httpGet.host"),
        ("readinessProbe: {tcpSocket: {host: db, port: 1}}", "readinessProbe.tcpSocket.host"),
        ("lifecycle: {preStop: {httpGet: {host: db, port: 1}}}", "lifecycle.preStop.httpGet.host"),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: ebb-out-theirs, key: k}}}]",
            "env[A].valueFrom.secretKeyRef.name",
        ),
        ("env: [{name: A, valueFrom: {secretKeyRef: {name: ebb-u-1, key: k}}}]", "env[A].valueFrom.secretKeyRef.name"),
        ("envFrom: [{secretRef: {name: ebb-out-theirs}}]", "envFrom[0].secretRef.name"),
        ("envFrom: [{configMapRef: {name: ebb-out-theirs}}]", "envFrom[0].configMapRef.name"),
    ];
    let of_volume = [
        ("hostPath: {path: /}", "hostPath"),
        ("csi: {driver: any}", "csi"),
        ("nfs: {server: a, path: /}", "nfs"),
        ("gitRepo: {repository: a}", "gitRepo"),
        ("image: {reference: a}", "image"),
        ("projected: {sources: [{serviceAccountToken: {path: t}}]}", "projected.sources[0].serviceAccountToken"),
        (
            "projected: {sources: [{configMap: {name: a}}, {clusterTrustBundle: {name: a, path: p}}]}",
            "projected.sources[1].clusterTrustBundle",
        ),
        ("projected: {sources: [{secret: {name: ebb-out-theirs}}]}", "projected.sources[0].secret.name"),
        ("secret: {secretName: ebb-out-theirs}", "secret.secretName"),
        ("configMap: {name: ebb-x}", "configMap.name"),
        ("persistentVolumeClaim: {claimName: ebb-x}", "persistentVolumeClaim.claimName"),
        (
            "ephemeral: {volumeClaimTemplate: {metadata: {finalizers: [a/b]}}}",
            "ephemeral.volumeClaimTemplate.metadata.finalizers",
        ),
    ];
    let of_pod = [
        ("spec: {hostNetwork: true}", "spec.hostNetwork"),
        ("spec: {hostPID: true}", "spec.hostPID"),
        ("spec: {hostIPC: true}", "spec.hostIPC"),
        ("spec: {hostUsers: true}", "spec.hostUsers"),
        ("spec: {automountServiceAccountToken: null}", "spec.automountServiceAccountToken"),
        ("spec: {securityContext: null}", "spec.securityContext.seccompProfile"),
        ("spec: {securityContext: {$patch: replace, runAsUser: 1}}", "spec.securityContext.seccompProfile"),
        (
            "spec: {containers: [{name: main, securityContext: {$patch: delete}}]}",
            "spec.containers[main].securityContext.allowPrivilegeEscalation",
        ),
        ("spec: {nodeName: master}", "spec.nodeName"),
        ("spec: {runtimeClassName: kata}", "spec.runtimeClassName"),
        ("spec: {priorityClassName: system-node-critical}", "spec.priorityClassName"),
        ("spec: {priority: 2000000000}", "spec.priority"),
        ("spec: {overhead: {cpu: 1}}", "spec.overhead"),
        ("spec: {resourceClaims: [{name: gpu}]}", "spec.resourceClaims"),
        ("spec: {schedulingGates: [{name: a}]}", "spec.schedulingGates"),
        ("spec: {serviceAccountName: admin}", "spec.serviceAccountName"),
        ("spec: {serviceAccount: admin}", "spec.serviceAccount"),
        (
            "spec: {serviceAccountName: default, automountServiceAccountToken: true}",
            "spec.automountServiceAccountToken",
        ),
        ("spec: {automountServiceAccountToken: true}", "spec.automountServiceAccountToken"),
        ("spec: {securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}}", "spec.securityContext.sysctls"),
        ("spec: {securityContext: {seccompProfile: {type: Unconfined}}}", "spec.securityContext.seccompProfile.type"),
        ("spec: {securityContext: {appArmorProfile: {type: Unconfined}}}", "spec.securityContext.appArmorProfile.type"),
        (
            "spec: {securityContext: {windowsOptions: {hostProcess: true}}}",
            "spec.securityContext.windowsOptions.hostProcess",
        ),
        (
            "spec: {ephemeralContainers: [{name: debug, image: a, targetContainerName: main}]}",
            "spec.ephemeralContainers",
        ),
        ("spec: {tolerations: [{operator: Exists}]}", "spec.tolerations[0]"),
        ("spec: {tolerations: [{key: node-role.kubernetes.io/control-plane}]}", "spec.tolerations[0]"),
        ("spec: {imagePullSecrets: [{name: ebb-x}]}", "spec.imagePullSecrets[ebb-x].name"),
        (
            "spec: {containers: [{name: side, image: a, securityContext: {privileged: true}}]}",
            "spec.containers[side].securityContext.privileged",
        ),
        (
            "spec: {initContainers: [{name: early, image: a, securityContext: {privileged: true}}]}",
            "spec.initContainers[early].securityContext.privileged",
        ),
        ("metadata: {ownerReferences: [{uid: a, kind: Node, name: nn, apiVersion: v1}]}", "metadata.ownerReferences"),
        ("metadata: {finalizers: [a/b]}", "metadata.finalizers"),
        ("metadata: {namespace: kube-system}", "metadata.namespace"),
        ("metadata: {name: mine}", "metadata.name"),
        ("metadata: {labels: {batch.kubernetes.io/job-name: other}}", "metadata.labels[batch.kubernetes.io/job-name]"),
        (
            "metadata: {annotations: {kubernetes.io/config.mirror: x}}",
            "metadata.annotations[kubernetes.io/config.mirror]",
        ),
        (
            "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/main: unconfined}}",
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]",
        ),
        (
            "metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}}",
            "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]",
        ),
        (
            "metadata: {annotations: {k8s.v1.cni.cncf.io/networks: host}}",
            "metadata.annotations[k8s.v1.cni.cncf.io/networks]",
        ),
        (
            "metadata: {annotations: {io.kubernetes.cri-o.Devices: /dev/kvm}}",
            "metadata.annotations[io.kubernetes.cri-o.Devices]",
        ),
        ("metadata: {annotations: {iam.amazonaws.com/role: admin}}", "metadata.annotations[iam.amazonaws.com/role]"),
        (
            "metadata: {annotations: {sidecar.istio.io/userVolume: '[]'}}",
            "metadata.annotations[sidecar.istio.io/userVolume]",
        ),
    ];
    let mut attempts: Vec<(String, String)> = of_pod.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    attempts.extend(of_main.map(|(attempt, path)| (main(attempt), format!("spec.containers[main].{path}"))));
    attempts.extend(of_volume.map(|(attempt, path)| (volume(attempt), format!("spec.volumes[v].{path}"))));
    let attempts: Vec<_> = attempts.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    refused(&attempts, |overlay| of_overlay(overlay, PodSecurityLevel::Baseline));
}

#[test]
fn what_people_write() {
    for overlay in [
        "",
        // Plugins that Signadot publishes.
        "spec:\n  containers:\n  - name: main\n    volumeMounts:\n    - name: aws-auth\n      mountPath: /root/.aws\n  volumes:\n  - name: aws-auth\n    secret:\n      secretName: aws-auth",
        "spec: {containers: [{name: main, env: [{name: TFSTATE_BUCKET, value: b}], volumeMounts: [{name: aws-auth, mountPath: /root/.aws}]}], volumes: [{name: aws-auth, secret: {secretName: aws-auth}}]}",
        "spec: {serviceAccountName: deployer}",
        "metadata: {annotations: {vault.hashicorp.com/agent-inject: 'true', vault.hashicorp.com/role: db}}",
        "spec: {serviceAccountName: deployer, automountServiceAccountToken: true}",
        "spec: {serviceAccountName: default, runtimeClassName: gvisor, priorityClassName: low}",
        "metadata: {namespace: units, labels: {team: a, sidecar.istio.io/inject: 'false'}}",
        "spec: {nodeSelector: {pool: spot}, tolerations: [{key: spot, operator: Exists, effect: NoSchedule}], affinity: {podAntiAffinity: {}}}",
        "spec: {containers: [{name: main, resources: {limits: {cpu: 1, memory: 1Gi, ephemeral-storage: 2G}}, envFrom: [{secretRef: {name: creds}}], securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}}]}",
        "spec: {containers: [{name: postgres, image: postgres:17, ports: [{containerPort: 5432}], readinessProbe: {tcpSocket: {port: 5432}}}]}",
        "spec: {initContainers: [{name: fetch, image: curl, volumeMounts: [{name: work, mountPath: /w}]}], volumes: [{name: work, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}",
        "spec: {volumes: [{name: a, configMap: {name: c}}, {name: b, downwardAPI: {items: []}}, {name: c, persistentVolumeClaim: {claimName: d}}, {name: e, projected: {sources: [{secret: {name: s}}, {configMap: {name: c}}, {downwardAPI: {}}]}}]}",
        "spec: {imagePullSecrets: [{name: registry}], dnsConfig: {searches: [a.b]}, hostAliases: [{ip: 10.0.0.1, hostnames: [db]}], shareProcessNamespace: true, terminationGracePeriodSeconds: 60}",
        "spec: {containers: [{name: main, env: [{name: DSN, valueFrom: {secretKeyRef: {name: ebb-out-own, key: dsn}}}]}]}",
    ] {
        assert_eq!(of_overlay(overlay, PodSecurityLevel::Baseline), [], "{overlay}");
    }
}

#[test]
fn the_restricted_level() {
    let strict = "{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}";
    let context = "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}";
    let pod = |pod: &str, container: &str| {
        let pod = yaml(&format!(
            "spec: {{securityContext: {pod}, containers: [{{name: main, securityContext: {container}}}]}}"
        ));
        let found = template_violations(&pod, &Value::Null, "units", &allowed(PodSecurityLevel::Restricted));
        found.into_iter().map(|it| it.path.replace("spec.containers[main].securityContext.", "")).collect::<Vec<_>>()
    };
    assert_eq!(pod(strict, context), [] as [&str; 0]);
    assert_eq!(pod("{}", "{}"), ["runAsNonRoot", "allowPrivilegeEscalation", "capabilities.drop", "seccompProfile"]);
    for (of_pod, of_container, wanted) in [
        (strict, "{runAsNonRoot: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}", "runAsNonRoot"),
        (strict, "{runAsUser: 0, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}", "runAsUser"),
        (strict, "{allowPrivilegeEscalation: false, capabilities: {drop: [CHOWN]}}", "capabilities.drop"),
        (strict, "{capabilities: {drop: [ALL]}}", "allowPrivilegeEscalation"),
        ("{runAsNonRoot: true}", context, "seccompProfile"),
    ] {
        assert_eq!(pod(of_pod, of_container), [wanted], "{of_pod} {of_container}");
    }
    assert_eq!(ClusterPolicy::default().pod_security_level, PodSecurityLevel::Restricted);
}

#[test]
fn namespaces() {
    let of = |namespace, overlay: &str| {
        let merged = merge(&base(), &parse(overlay).unwrap()).unwrap();
        let found = template_violations(&merged, &base(), namespace, &allowed(PodSecurityLevel::Baseline));
        found.into_iter().map(|it| it.path).collect::<Vec<_>>()
    };
    let admin = "spec: {serviceAccountName: admin}";
    assert_eq!(of("other", admin), [] as [&str; 0]);
    assert_eq!(of("units", admin), ["spec.serviceAccountName"]);
    assert_eq!(of("kube-system", "{}"), ["metadata.namespace"]);
    assert_eq!(of("", admin), ["metadata.namespace", "spec.serviceAccountName"]);
}

#[test]
fn objects() {
    let of = |text: &str| manifest_violations(&yaml(text), &allowed(PodSecurityLevel::Baseline));
    for fine in [
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: units}, data: {a: b}}",
        "{apiVersion: cache.example.org/v1, kind: Redis, metadata: {name: a, namespace: units, labels: {a: b}}, spec: {hostPath: x}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: a}}",
        "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: units}, type: Opaque}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: units}, spec: {template: {metadata: {labels: {a: b}}, spec: {serviceAccountName: deployer, containers: [{name: main, image: x, env: [{name: D, valueFrom: {secretKeyRef: {name: ebb-out-own, key: d}}}]}]}}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: units}, spec: {containers: [{name: c, image: x}]}}",
    ] {
        assert_eq!(of(fine), [], "{fine}");
    }
    let deployment = |spec: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: a, namespace: units}}, spec: {{template: {{spec: {spec}}}}}}}"
        )
    };
    let hosts = deployment("{hostNetwork: true}");
    let reads = deployment("{volumes: [{name: v, secret: {secretName: ebb-out-theirs}}]}");
    let unknown = deployment("{hostnetwork: true}");
    let retains = deployment("{$retainKeys: [containers]}");
    refused(
        &[
            (&hosts, "spec.template.spec.hostNetwork"),
            (&reads, "spec.template.spec.volumes[v].secret.secretName"),
            (&unknown, "spec.template.spec.hostnetwork"),
            (&retains, "spec.template.spec.$retainKeys"),
            (
                "{apiVersion: v1, kind: PodTemplate, metadata: {name: a, namespace: units}, template: {spec: {hostPID: true}}}",
                "template.spec.hostPID",
            ),
            (
                "{apiVersion: batch/v1, kind: CronJob, metadata: {name: a, namespace: units}, spec: {jobTemplate: {spec: {template: {spec: {hostPID: true}}}}}}",
                "spec.jobTemplate.spec.template.spec.hostPID",
            ),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: units}, spec: {nodeName: n}}",
                "spec.nodeName",
            ),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: units, annotations: {kubernetes.io/config.mirror: a}}}",
                "metadata.annotations[kubernetes.io/config.mirror]",
            ),
            (
                "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: units}}",
                "kind",
            ),
            ("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}}", "kind"),
            ("{apiVersion: evil.org/v1, kind: ConfigMap, metadata: {name: a, namespace: units}}", "kind"),
            ("{apiVersion: x.cache.example.org/v1, kind: Redis, metadata: {name: a, namespace: units}}", "kind"),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "kind"),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}", "metadata.namespace"),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: ebb-script, namespace: units}}", "metadata.name"),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a, namespace: units}}",
                "metadata.generateName",
            ),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: units, finalizers: [a/b]}}",
                "metadata.finalizers",
            ),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: units, ownerReferences: []}}",
                "metadata.ownerReferences",
            ),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: units, labels: {ebb.dev/run: r}}}",
                "metadata.labels[ebb.dev/run]",
            ),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: units}, status: {a: b}}", "status"),
            ("{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: a, namespace: units}}", "data"),
            (
                "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: units}, spec: {template: {metadata: {labels: {ebb.dev/unit: victim}}}}}",
                "spec.template.metadata.labels[ebb.dev/unit]",
            ),
            (
                "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: units}, spec: {template: {spec: {$patch: replace}}}}",
                "spec.template.spec.$patch",
            ),
            (
                "{apiVersion: batch/v1, kind: CronJob, metadata: {name: a, namespace: units}, spec: {jobTemplate: {metadata: {finalizers: [a/b]}}}}",
                "spec.jobTemplate.metadata.finalizers",
            ),
            (
                "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a, namespace: units}, spec: {volumeClaimTemplates: [{metadata: {name: c, finalizers: [a/b]}}]}}",
                "spec.volumeClaimTemplates[0].metadata.finalizers",
            ),
            (
                "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: units}, spec: {externalIPs: [1.1.1.1]}}",
                "spec.externalIPs",
            ),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: units}, type: kubernetes.io/service-account-token}",
                "type",
            ),
        ],
        of,
    );
    for (version, kind) in [
        ("v1", "ReplicationController"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
    ] {
        let manifest = format!(
            "{{apiVersion: {version}, kind: {kind}, metadata: {{name: a, namespace: units}}, spec: {{template: {{spec: {{hostPID: true}}}}}}}}"
        );
        refused(&[(&manifest, "spec.template.spec.hostPID")], of);
    }
    for field in ["creationTimestamp", "deletionGracePeriodSeconds", "managedFields", "resourceVersion", "uid"] {
        let manifest =
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: units, {field}: x}}}}");
        refused(&[(&manifest, &format!("metadata.{field}"))], of);
    }
    assert_eq!(manifest_violations(&Value::Null, &ClusterPolicy::default()).len(), 1);
}
