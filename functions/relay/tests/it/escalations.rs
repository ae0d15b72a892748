//! Attempts of a plugin to get more than it may have. The relay refuses each of them with its reason, before anything is
//! applied. The policy is that of the chart, with more kinds than an operator would name.

use ebb_protocol::relay::{ObjectOutput, ObjectOutputFrom};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;
use serde::Deserialize;

use crate::client::{client_of, kubeconfig_of};
use crate::fixture::*;
use crate::rights::{further, give};

/// All that an attempt could have left behind in the namespace of units.
const KINDS: [(&str, &str); 3] = [("v1", "Pod"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job")];

/// Additions to each part of a script's task, and objects, each with a part of the refusal.
#[derive(Deserialize)]
struct Cases {
    pods: Vec<(Value, String)>,
    containers: Vec<(Value, String)>,
    volumes: Vec<(Value, String)>,
    metadata: Vec<(Value, String)>,
    objects: Vec<(Value, String)>,
    fine: Vec<Value>,
}

/// A script's task, changed.
fn changed(change: impl FnOnce(&mut ObjectTask)) -> ObjectTask {
    let mut work = script(&name("unit", 1), "#");
    change(&mut work);
    work
}

/// Adds fields, or an item, to the part of a script's pod template at a JSON Pointer.
fn add(job: &mut Value, pointer: &str, added: Value) {
    match (job["spec"]["template"].pointer_mut(pointer).unwrap(), added) {
        (Value::Object(part), Value::Object(fields)) => part.extend(fields),
        (Value::Array(part), item) => part.push(item),
        other => panic!("{other:?}"),
    }
}

/// Attempts, each with a part of the refusal.
fn attempts(cases: Cases, units: &str) -> Vec<(String, ObjectTask)> {
    let below = |(metadata, said)| (json!({"metadata": metadata}), said);
    let mut all = Vec::new();
    for (pointer, additions) in [
        ("/spec", cases.pods),
        ("/spec/containers/0", cases.containers),
        ("/spec/volumes", cases.volumes),
        ("", cases.metadata.into_iter().map(below).collect()),
    ] {
        let added = |fields| changed(|work| add(&mut work.apply[0], pointer, fields));
        all.extend(additions.into_iter().map(|(fields, said)| (said, added(fields))));
    }
    all.extend(cases.objects.into_iter().map(|(object, said)| (said, objects(vec![object]))));
    let placed = |namespace: String| changed(|work| work.apply[0]["metadata"]["namespace"] = namespace.into());
    let label = json!({"ebb.dev/attempt": "x"});
    let further = [
        ("metadata.labels[ebb.dev/attempt]", changed(|work| work.apply[0]["metadata"]["labels"] = label)),
        ("`ebb-other-1` is reserved", changed(|work| work.apply[0]["metadata"]["name"] = "ebb-other-1".into())),
        ("the namespace `kube-system` is not allowed", placed("kube-system".to_owned())),
        ("the namespace `kube-system` is not allowed", changed(|work| work.namespace = Some("kube-system".to_owned()))),
        ("the relay's own namespace is not allowed", placed(format!("{units}-relay"))),
    ];
    all.extend(further.map(|(said, work)| (said.to_owned(), work)));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn escalations() {
    let fixture = RelayFixture::allowing("hostile", &[], |units| {
        json!({
            "namespaces": {units: ["builder"]}, "runtimeClasses": ["gvisor"], "priorityClasses": ["low"],
            "kinds": ["ConfigMap", "Pod", "PodTemplate", "ReplicationController", "Secret", "Service", "*.apps", "*.batch"],
        })
    })
    .await;
    let core = ["pods", "podtemplates", "replicationcontrollers", "services"].map(|kind| further("", kind));
    let apps = ["controllerrevisions", "daemonsets", "statefulsets"].map(|kind| further("apps", kind));
    let rules = [&core[..], &apps, &[further("batch", "cronjobs")]].concat();
    give(&fixture.client, &fixture.units, &fixture.units, "more", json!(rules)).await;
    let relay = client_of(kubeconfig_of(cluster().await, &format!("{}-relay", fixture.units), "ebb-relay")).await;
    let sets: Api<k8s_openapi::api::apps::v1::DaemonSet> = Api::namespaced(relay.clone(), &fixture.units);
    until("its rights", async || sets.list(&ListParams::default()).await.ok()).await;
    let cases: Cases = serde_saphyr::from_str(include_str!("escalations/cases.yaml")).unwrap();
    let fine = cases.fine.clone();
    let attempts = attempts(cases, &fixture.units);
    let requests = attempts.iter().map(|(_, work)| fixture.request(&name("unit", 1), work.clone()));
    let answers = fixture.ask_all(requests.collect()).await;
    let mut through = Vec::new();
    for ((reason, _), answer) in attempts.iter().zip(answers) {
        if !matches!(&answer, RelayResponse::Refused(why) if why.contains(reason)) {
            through.push(format!("{reason}: {answer:?}"));
        }
    }
    assert!(through.is_empty(), "{} of {}:\n{}", through.len(), attempts.len(), through.join("\n"));
    assert_eq!(fixture.get(&name("unit", 1)).await, TaskState::Unknown);
    assert!(fixture.records().list(&ListParams::default()).await.unwrap().items.is_empty());
    for (version, kind) in KINDS {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let (resource, _) = oneshot::pinned_kind(&fixture.client, &kind).await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(fixture.client.clone(), &fixture.units, &resource);
        assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty(), "{kind:?}");
    }
    let jobs: Api<Job> = Api::namespaced(relay, &fixture.units);
    let dry = PostParams { dry_run: true, ..Default::default() };
    for fields in fine {
        let mut job = script(&name("fine", 1), "#").apply.remove(0);
        let [template, spec] = ["metadata", "spec"].map(|part| fields[part].clone());
        job["spec"]["template"]["metadata"] = template;
        // The volumes of the script are replaced.
        for (pointer, added) in [
            ("/spec/containers/0", json!({"volumeMounts": null})),
            ("/spec/initContainers/0", json!({"volumeMounts": null})),
            ("/spec", spec),
        ] {
            add(&mut job, pointer, added);
        }
        let taken = jobs.create(&dry, &serde_json::from_value(job).unwrap()).await;
        assert!(taken.is_ok(), "{fields}: {taken:?}");
    }
    fixture.close().await;
}

/// Without the admission policy or Pod Security, the relay does not start.
#[tokio::test(flavor = "multi_thread")]
async fn unprotected_namespaces() {
    let fixture = RelayFixture::new("open", &[]).await;
    fixture.kill().await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    for (label, value, said) in [
        ("warn", "privileged", "Pod Security does not warn of pods"),
        ("enforce", "privileged", "expected its label pod-security.kubernetes.io/enforce to be restricted"),
    ] {
        let label = format!("pod-security.kubernetes.io/{label}");
        let labels = |value: &str| json!({"metadata": {"labels": {label.as_str(): value}}});
        merge(&namespaces, &fixture.units, labels(value)).await;
        assert_eq!(fixture.launch().await, None);
        assert!(fixture.log().contains(said), "{}", fixture.log());
        merge(&namespaces, &fixture.units, labels("restricted")).await;
    }
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
    bindings.delete(&format!("ebb-relay.{}-relay", fixture.units), &DeleteParams::default()).await.unwrap();
    let relay = client_of(kubeconfig_of(cluster().await, &format!("{}-relay", fixture.units), "ebb-relay")).await;
    let (jobs, dry) =
        (Api::<Job>::namespaced(relay, &fixture.units), PostParams { dry_run: true, ..Default::default() });
    let mut job = script(&name("unit", 1), "#").apply.remove(0);
    add(&mut job, "/spec", json!({"nodeName": "node"}));
    let job = serde_json::from_value(job).unwrap();
    until("the end of the policy", async || jobs.create(&dry, &job).await.ok()).await;
    assert_eq!(fixture.launch().await, None);
    assert!(fixture.log().contains("does not enforce the ValidatingAdmissionPolicy of the relay"), "{}", fixture.log());
    fixture.close().await;
}

/// What was not tried is taken: the list above refuses what is changed, and not what it is changed in.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_may() {
    let fixture = RelayFixture::new("friendly", &[]).await;
    let unit = name("unit", 1);
    fixture.run(&unit, ScriptJob::new(&unit, "echo done")).await;
    assert_eq!(fixture.result(&unit).await.log.as_deref(), Some("done\n"));
    // An output of its own objects names the Secret of another instance, of another task, and one without an owner.
    let secret = async |name: &str, labels: Value| {
        let made = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"value": "hunter2"}});
        create(&fixture.api::<Secret>(), made).await;
    };
    let labels = json!({"ebb.dev/instance": "instance-2", "ebb.dev/part": "output"});
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
        fixture.apply(&unit, work).await;
        let result = fixture.result(&unit).await;
        match readable {
            true => assert_eq!(result.outputs["a"], "hunter2"),
            false => {
                let reason = result.reason.unwrap();
                assert!(reason.code == ReasonCode::Denied && reason.message.contains(of), "{reason:?}");
            }
        }
    }
    for name in ["ebb-output.other-1.1.0", "ebb-other-1", "given"] {
        fixture.api::<Secret>().delete(name, &Default::default()).await.unwrap();
    }
    fixture.close().await;
}
