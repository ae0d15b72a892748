//! What a plugin that wants more than it may have would write: each attempt is refused with its place, before anything is
//! made. The list of what is allowed is one that the chart has rendered, with more kinds than an operator would name.

use ebb_wire::callback::ReasonCode;
use ebb_wire::relay::{Answer, ObjectOutput, ObjectOutputFrom, Objects, Request, Until, WorkState};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster};
use crate::requests::{Script, name};
use crate::world::World;

/// All that an attempt could have left behind in the namespace of units.
const KINDS: [(&str, &str); 12] = [
    ("v1", "Pod"),
    ("v1", "PodTemplate"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("apps/v1", "ControllerRevision"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
];

/// What the chart makes of a list.
fn rendered(cluster: &Cluster, units: &str) -> String {
    let kinds = [
        "Pod",
        "PodTemplate",
        "ReplicationController",
        "Secret",
        "Service",
        "ConfigMap",
        "*.apps",
        "*.batch",
    ];
    let values = json!({
        "image": "i", "units": units, "callbackHosts": ["h"], "signing": {"existingSecret": "s"},
        "allowed": {"level": "restricted", "kinds": kinds},
    });
    let arguments = ["template", "eu", "infra/relay/chart", "--kube-version=1.34", "--values=-"];
    let only = ["--show-only=templates/settings.yaml", "--namespace=elsewhere"];
    let text = cluster.run("helm", &[&arguments[..], &only].concat(), &values.to_string()).unwrap();
    let map: Value = serde_saphyr::from_str(&text).unwrap();
    map["data"]["allowed.yaml"].as_str().expect("the chart has a list").to_owned()
}

/// What is tried with a script's pod, and the place in `spec.template` that is refused.
fn of_pods() -> Vec<(&'static str, Value)> {
    let secured = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let main = |more: Value| json!({"containers": [{"name": "main", "securityContext": more}]});
    let of_main = |field: &str, more: Value| json!({"containers": [{"name": "main", field: more}]});
    let volume = |source: Value| json!({"volumes": [source]});
    let from = |key: &str, name: &str| json!([{"name": "A", "valueFrom": {key: {"name": name, "key": "k"}}}]);
    let no_host = json!({"httpGet": {"host": "169.254.169.254", "port": 80}});
    vec![
        ("spec.volumes[v].hostPath", volume(json!({"name": "v", "hostPath": {"path": "/"}}))),
        ("spec.volumes[v].csi", volume(json!({"name": "v", "csi": {"driver": "any"}}))),
        ("spec.volumes[v].image", volume(json!({"name": "v", "image": {"reference": "i"}}))),
        ("spec.volumes[v].nfs", volume(json!({"name": "v", "nfs": {"server": "s", "path": "/"}}))),
        (
            "spec.volumes[v].projected.sources[0].serviceAccountToken",
            volume(json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
        ),
        (
            "spec.volumes[v].projected.sources[0].secret.name",
            volume(json!({"name": "v", "projected": {"sources": [{"secret": {"name": "ebb-other-1"}}]}})),
        ),
        (
            "spec.volumes[v].secret.secretName",
            volume(json!({"name": "v", "secret": {"secretName": "ebb-output.other.1.0"}})),
        ),
        (
            "spec.volumes[v].ephemeral.volumeClaimTemplate.metadata.finalizers",
            volume(
                json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"finalizers": ["a/b"]}}}}),
            ),
        ),
        (
            "spec.containers[main].env[A].valueFrom.secretKeyRef.name",
            of_main("env", from("secretKeyRef", "ebb-other-1")),
        ),
        (
            "spec.containers[main].envFrom[0].secretRef.name",
            of_main("envFrom", json!([{"secretRef": {"name": "ebb-other-1"}}])),
        ),
        ("spec.imagePullSecrets[ebb-other-1].name", json!({"imagePullSecrets": [{"name": "ebb-other-1"}]})),
        ("spec.containers[main].securityContext.privileged", main(json!({"privileged": true}))),
        ("spec.containers[main].securityContext.privileged", main(json!({"privileged": "true"}))),
        (
            "spec.containers[main].securityContext.allowPrivilegeEscalation",
            main(json!({"allowPrivilegeEscalation": null})),
        ),
        (
            "spec.containers[main].securityContext.capabilities.add",
            main(json!({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}})),
        ),
        (
            "spec.containers[main].securityContext.capabilities.drop",
            main(json!({"capabilities": {"drop": ["CHOWN"]}})),
        ),
        ("spec.containers[main].securityContext.procMount", main(json!({"procMount": "Unmasked"}))),
        ("spec.containers[main].securityContext.runAsUser", main(json!({"runAsUser": 0}))),
        ("spec.containers[main].securityContext.runAsNonRoot", main(json!({"runAsNonRoot": false}))),
        (
            "spec.containers[main].securityContext.seccompProfile.type",
            main(json!({"seccompProfile": {"type": "Unconfined"}})),
        ),
        (
            "spec.containers[main].securityContext.appArmorProfile.type",
            main(json!({"appArmorProfile": {"type": "Unconfined"}})),
        ),
        (
            "spec.containers[main].securityContext.seLinuxOptions.type",
            main(json!({"seLinuxOptions": {"type": "spc_t"}})),
        ),
        (
            "spec.containers[main].securityContext.windowsOptions.hostProcess",
            main(json!({"windowsOptions": {"hostProcess": true}})),
        ),
        (
            "spec.containers[main].ports[0].hostPort",
            of_main("ports", json!([{"containerPort": 80, "hostPort": 80}])),
        ),
        (
            "spec.containers[main].volumeMounts[v].mountPropagation",
            of_main(
                "volumeMounts",
                json!([{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]),
            ),
        ),
        ("spec.containers[main].livenessProbe.httpGet.host", of_main("livenessProbe", no_host.clone())),
        (
            "spec.containers[main].lifecycle.preStop.httpGet.host",
            of_main("lifecycle", json!({"preStop": no_host})),
        ),
        (
            "spec.containers[main].resources.claims",
            of_main("resources", json!({"claims": [{"name": "gpu"}]})),
        ),
        (
            "spec.initContainers[ebb-install].securityContext.privileged",
            json!({"initContainers": [{"name": "ebb-install", "securityContext": {"privileged": true}}]}),
        ),
        (
            "spec.ephemeralContainers",
            json!({"ephemeralContainers": [{"name": "e", "image": "i", "securityContext": secured}]}),
        ),
        ("spec.hostNetwork", json!({"hostNetwork": true})),
        ("spec.hostNetwork", json!({"hostNetwork": "true"})),
        ("spec.hostPID", json!({"hostPID": true})),
        ("spec.hostIPC", json!({"hostIPC": true})),
        ("spec.hostUsers", json!({"hostUsers": true})),
        ("spec.hostnetwork", json!({"hostnetwork": true})),
        ("spec.serviceAccountName", json!({"serviceAccountName": "admin"})),
        ("spec.serviceAccount", json!({"serviceAccount": "admin"})),
        ("spec.automountServiceAccountToken", json!({"automountServiceAccountToken": true})),
        (
            "spec.securityContext.sysctls",
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
        ),
        (
            "spec.securityContext.seccompProfile.type",
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        ),
        ("spec.nodeName", json!({"nodeName": "node"})),
        ("spec.priorityClassName", json!({"priorityClassName": "system-node-critical"})),
        ("spec.priority", json!({"priority": 2_000_000_000})),
        ("spec.runtimeClassName", json!({"runtimeClassName": "none"})),
        ("spec.overhead", json!({"overhead": {"cpu": "1"}})),
        ("spec.tolerations[0]", json!({"tolerations": [{"operator": "Exists"}]})),
        ("spec.resourceClaims", json!({"resourceClaims": [{"name": "gpu"}]})),
        ("spec.schedulingGates", json!({"schedulingGates": [{"name": "a/b"}]})),
        ("spec.$patch", json!({"$patch": "replace"})),
        ("spec.$retainKeys", json!({"$retainKeys": ["containers"]})),
        ("spec.$setElementOrder/containers", json!({"$setElementOrder/containers": [{"name": "main"}]})),
    ]
}

/// Fields put over a value: items of lists by their names.
fn put(over: &mut Value, fields: &Value) {
    match fields {
        Value::Object(map) => {
            for (key, inner) in map {
                put(&mut over[key], inner);
            }
        }
        Value::Array(items) if items.iter().all(|item| item["name"].is_string()) => {
            if over.is_null() {
                *over = json!([]);
            }
            let list = over.as_array_mut().unwrap();
            for item in items {
                match list.iter_mut().find(|it| it["name"] == item["name"]) {
                    Some(known) => put(known, item),
                    None => list.push(item.clone()),
                }
            }
        }
        other => *over = other.clone(),
    }
}

/// A script's work, changed.
fn script(change: impl FnOnce(&mut Objects)) -> Objects {
    let mut work = Script::new(&name("unit", 1), "#").objects(&name("unit", 1));
    change(&mut work);
    work
}

/// Manifests that are applied and waited for.
fn objects(manifest: Value) -> Objects {
    Objects {
        life: "life-1".to_owned(),
        apply: vec![manifest],
        until: Until::Ready(vec![]),
        ..Objects::default()
    }
}

/// The same pod in everything that makes pods, and what holds them otherwise.
fn of_kinds() -> Vec<(String, Objects)> {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": true, "containers": []}});
    let labelled = json!({"metadata": {"labels": {"ebb.dev/unit": "victim"}}, "spec": {"containers": []}});
    let made = |version: &str, kind: &str, more: Value| {
        let mut manifest = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
        put(&mut manifest, &more);
        objects(manifest)
    };
    let mut all = vec![
        ("spec.hostPID", made("v1", "Pod", json!({"spec": template["spec"]}))),
        ("template.spec.hostPID", made("v1", "PodTemplate", json!({"template": template}))),
        (
            "spec.jobTemplate.spec.template.spec.hostPID",
            made("batch/v1", "CronJob", json!({"spec": {"jobTemplate": {"spec": {"template": template}}}})),
        ),
        (
            "spec.jobTemplate.metadata.labels[ebb.dev/unit]",
            made("batch/v1", "CronJob", json!({"spec": {"jobTemplate": labelled}})),
        ),
        (
            "spec.volumeClaimTemplates[0].metadata.ownerReferences",
            made(
                "apps/v1",
                "StatefulSet",
                json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "c", "ownerReferences": [{"uid": "u"}]}}]}}),
            ),
        ),
        ("data: ", made("apps/v1", "ControllerRevision", json!({"data": {}, "revision": 1}))),
        ("spec.externalIPs", made("v1", "Service", json!({"spec": {"externalIPs": ["1.1.1.1"]}}))),
        ("type: ", made("v1", "Secret", json!({"type": "kubernetes.io/service-account-token"}))),
        ("kind `List`", made("v1", "List", json!({"items": [{"kind": "Pod"}]}))),
        ("kind `PodList`", made("v1", "PodList", json!({"items": [{"kind": "Pod"}]}))),
        ("kind `TokenRequest`", made("authentication.k8s.io/v1", "TokenRequest", json!({}))),
        ("kind: ", made("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", json!({}))),
        ("kind: ", made("rbac.authorization.k8s.io/v1", "RoleBinding", json!({}))),
        ("kind: ", made("v1", "PersistentVolume", json!({"spec": {"hostPath": {"path": "/"}}}))),
        ("kind: ", made("v1", "ServiceAccount", json!({}))),
        ("kind: ", made("v1", "Namespace", json!({}))),
        ("kind: ", made("v1", "Node", json!({}))),
        ("kind: ", made("v1", "Binding", json!({"target": {"kind": "Node", "name": "n"}}))),
    ];
    for (version, kind) in [
        ("v1", "ReplicationController"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
    ] {
        all.push((
            "spec.template.spec.hostPID",
            made(version, kind, json!({"spec": {"template": template}})),
        ));
        let path = "spec.template.metadata.labels[ebb.dev/unit]";
        all.push((path, made(version, kind, json!({"spec": {"template": labelled}}))));
    }
    all.into_iter().map(|(path, work)| (path.to_owned(), work)).collect()
}

/// What else a manifest, or the work around it, may say.
fn of_works() -> Vec<(String, Objects)> {
    let mut all = Vec::new();
    for (path, value) in [
        ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}])),
        ("finalizers", json!(["ebb.dev/result"])),
        ("generateName", json!("ebb-")),
        ("uid", json!("u")),
        ("resourceVersion", json!("1")),
        ("managedFields", json!([])),
        ("creationTimestamp", json!("2020-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(0)),
    ] {
        let work = script(|work| work.apply[0]["metadata"][path] = value.clone());
        all.push((format!("metadata.{path}"), work));
        if path != "generateName" {
            let path = format!("spec.template.metadata.{path}");
            let at = format!("/{}", path.replace('.', "/"));
            let work = script(|work| {
                let (above, key) = at.rsplit_once('/').unwrap();
                work.apply[0]["spec"]["template"]["metadata"] = json!({});
                work.apply[0].pointer_mut(above).unwrap()[key] = value;
            });
            all.push((path, work));
        }
    }
    for part in ["metadata", "spec.template.metadata"] {
        let at = format!("/{}", part.replace('.', "/"));
        for (kind, key) in [
            ("labels", "ebb.dev/attempt"),
            ("annotations", "ebb.dev/life"),
            ("annotations", "container.apparmor.security.beta.kubernetes.io/main"),
            ("annotations", "k8s.v1.cni.cncf.io/networks"),
        ] {
            if part == "metadata" && !key.starts_with("ebb.dev") {
                continue;
            }
            let work = script(|work| {
                put(&mut work.apply[0], &json!({"spec": {"template": {"metadata": {}}}}));
                let metadata = work.apply[0].pointer_mut(&at).unwrap();
                metadata[kind] = json!({key: "x"});
            });
            all.push((format!("{part}.{kind}[{key}]"), work));
        }
    }
    for namespace in ["kube-system", "default"] {
        let why = format!("the namespace `{namespace}` is not allowed");
        all.push((why.clone(), script(|work| work.apply[0]["metadata"]["namespace"] = namespace.into())));
        all.push((why, script(|work| work.namespace = Some(namespace.to_owned()))));
    }
    all.push(("status: ".to_owned(), script(|work| work.apply[0]["status"] = json!({"succeeded": 1}))));
    all.push((
        "`ebb-other-1` is reserved".to_owned(),
        script(|work| work.apply[0]["metadata"]["name"] = "ebb-other-1".into()),
    ));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn escalations() {
    let cluster = cluster().await;
    let world = World::allowing("hostile", &[], |units| rendered(cluster, units)).await;
    let of_pods = of_pods().into_iter().map(|(path, fields)| {
        let work = script(|work| {
            let template = &mut work.apply[0]["spec"]["template"];
            put(template, &json!({"spec": fields}));
        });
        (format!("spec.template.{path}"), work)
    });
    let own = format!("{}-relay", world.units);
    let records = script(|work| work.apply[0]["metadata"]["namespace"] = own.into());
    let nobodys = ("the relay's own namespace is nobody's".to_owned(), records);
    let attempts: Vec<_> = of_pods.chain(of_kinds()).chain(of_works()).chain([nobodys]).collect();
    let mut through = Vec::new();
    for attempts in attempts.chunks(50) {
        let requests = attempts
            .iter()
            .map(|(_, work)| Request::Ensure(Box::new(world.ensure_of(&name("unit", 1), work.clone()))));
        let answers = world.ask_all(requests.collect()).await;
        for ((path, _), answer) in attempts.iter().zip(answers) {
            if !matches!(&answer, Answer::Refused(why) if why.contains(path)) {
                through.push(format!("{path}: {answer:?}"));
            }
        }
    }
    assert!(through.is_empty(), "{} of {}:\n{}", through.len(), attempts.len(), through.join("\n"));
    assert!(attempts.len() > 25);
    assert_eq!(world.get(&name("unit", 1)).await, WorkState::Unknown);
    assert!(world.records().list(&ListParams::default()).await.unwrap().items.is_empty());
    for (version, kind) in KINDS {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let (resource, _) = oneshot::pinned_kind(&world.client, &kind).await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.units, &resource);
        assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty(), "{kind:?}");
    }
    world.close().await;
}

/// What was not tried is taken: the list above refuses what is changed, and not what it is changed in.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_may() {
    let world = World::new("friendly", &[]).await;
    let unit = name("unit", 1);
    world.run(&unit, Script::new(&unit, "echo done")).await;
    assert_eq!(world.result(&unit).await.log.as_deref(), Some("done\n"));
    // An output of its own objects names the Secret of another life, of another work, and one that is nobody's.
    let secret = async |name: &str, labels: Value| {
        let made = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"value": "hunter2"}});
        let made = Secret::deserialize(made).unwrap();
        world.api::<Secret>().create(&PostParams::default(), &made).await.unwrap();
    };
    let labels = json!({"ebb.dev/life": "life-2", "ebb.dev/part": "output"});
    secret("ebb-output.other-1.1.0", labels).await;
    secret("ebb-other-1", json!({})).await;
    secret("given", json!({})).await;
    for (number, (of, readable)) in
        [("ebb-output.other-1.1.0", false), ("ebb-other-1", false), ("given", true)].into_iter().enumerate()
    {
        let unit = name(&format!("reads-{number}"), 1);
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}")}});
        let from = ObjectOutputFrom::Secret { name: format!("'{of}'"), key: "value".to_owned() };
        let output = ObjectOutput { name: "a".to_owned(), from, sensitive: false };
        let work = Objects { outputs: vec![output], ..objects(map) };
        world.ensure(world.ensure_of(&unit, work)).await;
        let result = world.result(&unit).await;
        match readable {
            true => assert_eq!(result.outputs["a"], "hunter2"),
            false => {
                let reason = result.reason.unwrap();
                assert!(reason.code == ReasonCode::Denied && reason.message.contains(of), "{reason:?}");
            }
        }
    }
    for made in world.api::<Secret>().list(&ListParams::default()).await.unwrap() {
        let name = made.metadata.name.unwrap();
        if ["ebb-output.other-1.1.0", "ebb-other-1", "given"].contains(&name.as_str()) {
            world.api::<Secret>().delete(&name, &Default::default()).await.unwrap();
        }
    }
    world.close().await;
}
