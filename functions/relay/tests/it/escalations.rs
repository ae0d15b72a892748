//! What a plugin that wants more than it may have would write: attempts of each sort are refused with their place, before
//! anything is made. All that is refused is in the tests of `ebb-podspec`. The policy is one that the chart has
//! rendered, with more kinds than an operator would name.

use ebb_protocol::relay::{ObjectOutput, ObjectOutputFrom};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;

use crate::cluster::TestCluster;
use crate::fixture::*;

/// All that an attempt could have left behind in the namespace of units.
const KINDS: [(&str, &str); 3] = [("v1", "Pod"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job")];

/// Returns the policy as the chart renders it.
fn rendered(cluster: &TestCluster, units: &str) -> String {
    let values = json!({
        "image": "i", "unitNamespace": units, "callbackHosts": ["h"], "signing": {"existingSecret": "s"},
        "policy": {"podSecurityLevel": "restricted", "kinds": ["ConfigMap", "*.apps", "*.batch"]},
    });
    let arguments = ["template", "eu", "infra/relay/chart", "--kube-version=1.34", "--values=-"];
    let only = ["--show-only=templates/settings.yaml", "--namespace=elsewhere"];
    let text = cluster.run("helm", &[&arguments[..], &only].concat(), &values.to_string()).unwrap();
    let map: Value = serde_saphyr::from_str(&text).unwrap();
    map["data"]["policy.yaml"].as_str().expect("the chart has a policy").to_owned()
}

/// A script's task, changed.
fn changed(change: impl FnOnce(&mut ObjectTask)) -> ObjectTask {
    let mut work = script(&name("unit", 1), "#");
    change(&mut work);
    work
}

/// A script's task with another value in its pod, at a JSON Pointer whose last field may be missing.
fn in_pod(pointer: &str, value: Value) -> ObjectTask {
    changed(|work| {
        let (above, field) = pointer.rsplit_once('/').unwrap();
        let pod = &mut work.apply[0]["spec"]["template"]["spec"];
        pod.pointer_mut(above).unwrap()[field] = value;
    })
}

/// Attempts, each with a part of the refusal.
fn attempts(units: &str) -> [(&'static str, ObjectTask); 12] {
    let host = json!([{"name": "v", "hostPath": {"path": "/"}}]);
    let of_others = json!([{"secretRef": {"name": "ebb-other-1"}}]);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"},
        "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": true, "containers": []}}},
    });
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"name": "a"}, "items": []});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "a"},
    });
    let placed = |namespace: String| changed(|work| work.apply[0]["metadata"]["namespace"] = namespace.into());
    [
        ("spec.template.spec.volumes[v].hostPath", in_pod("/volumes", host)),
        ("spec.template.spec.hostNetwork", in_pod("/hostNetwork", true.into())),
        ("spec.template.spec.containers[main].envFrom[0].secretRef.name", in_pod("/containers/0/envFrom", of_others)),
        (
            "spec.template.spec.containers[main].securityContext.runAsUser",
            in_pod("/containers/0/securityContext/runAsUser", 0.into()),
        ),
        ("spec.template.spec.hostPID", objects(vec![set])),
        ("kind `PodList`", objects(vec![list])),
        ("kind: ", objects(vec![binding])),
        (
            "metadata.labels[ebb.dev/attempt]",
            changed(|work| work.apply[0]["metadata"]["labels"] = json!({"ebb.dev/attempt": "x"})),
        ),
        ("`ebb-other-1` is reserved", changed(|work| work.apply[0]["metadata"]["name"] = "ebb-other-1".into())),
        ("the namespace `kube-system` is not allowed", placed("kube-system".to_owned())),
        ("the namespace `kube-system` is not allowed", changed(|work| work.namespace = Some("kube-system".to_owned()))),
        ("the relay's own namespace is not allowed", placed(format!("{units}-relay"))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn escalations() {
    let cluster = cluster().await;
    let world = RelayFixture::allowing("hostile", &[], |units| rendered(cluster, units)).await;
    let attempts = attempts(&world.units);
    let requests = attempts.iter().map(|(_, work)| world.request(&name("unit", 1), work.clone()));
    let answers = world.ask_all(requests.collect()).await;
    let mut through = Vec::new();
    for ((path, _), answer) in attempts.iter().zip(answers) {
        if !matches!(&answer, RelayResponse::Refused(why) if why.contains(path)) {
            through.push(format!("{path}: {answer:?}"));
        }
    }
    assert!(through.is_empty(), "{} of {}:\n{}", through.len(), attempts.len(), through.join("\n"));
    assert_eq!(world.get(&name("unit", 1)).await, TaskState::Unknown);
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
    let world = RelayFixture::new("friendly", &[]).await;
    let unit = name("unit", 1);
    world.run(&unit, ScriptJob::new(&unit, "echo done")).await;
    assert_eq!(world.result(&unit).await.log.as_deref(), Some("done\n"));
    // An output of its own objects names the Secret of another instance, of another task, and one without an owner.
    let secret = async |name: &str, labels: Value| {
        let made = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"value": "hunter2"}});
        create(&world.api::<Secret>(), made).await;
    };
    let labels = json!({"ebb.dev/instance": "life-2", "ebb.dev/part": "output"});
    secret("ebb-output.other-1.1.0", labels).await;
    secret("ebb-other-1", json!({})).await;
    secret("given", json!({})).await;
    for (number, (of, readable)) in
        [("ebb-output.other-1.1.0", false), ("ebb-other-1", false), ("given", true)].into_iter().enumerate()
    {
        let unit = name(&format!("reads-{number}"), 1);
        let map = config_map(&format!("map-{number}"));
        let from = ObjectOutputFrom::Secret { name: format!("'{of}'"), key: "value".to_owned() };
        let output = ObjectOutput { name: "a".to_owned(), from, sensitive: false };
        let work = ObjectTask { outputs: vec![output], ..objects(vec![map]) };
        world.apply(&unit, work).await;
        let result = world.result(&unit).await;
        match readable {
            true => assert_eq!(result.outputs["a"], "hunter2"),
            false => {
                let reason = result.reason.unwrap();
                assert!(reason.code == ReasonCode::Denied && reason.message.contains(of), "{reason:?}");
            }
        }
    }
    for name in ["ebb-output.other-1.1.0", "ebb-other-1", "given"] {
        world.api::<Secret>().delete(name, &Default::default()).await.unwrap();
    }
    world.close().await;
}
