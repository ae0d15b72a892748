//! Privilege escalation by a plugin, and wrong tasks. The relay rejects each case with a reason before it applies anything. The
//! policy is that of the chart, with more kinds than an operator would allow.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;
use serde::Deserialize;

use crate::fixture::*;
use crate::objects::kept;
use crate::rights::{grant_role, rule_for};

/// Kinds that must have no object in the namespace of units after the test.
const KINDS: [(&str, &str); 3] = [("v1", "Pod"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job")];

/// Additions to tasks, by the JSON Pointer of the part. Each has a part of the message of the refusal.
type Additions = BTreeMap<String, Vec<(Value, String)>>;

#[derive(Deserialize)]
struct Cases {
    /// Additions to the task of a script.
    script: Additions,
    /// Additions to a task with the ConfigMap `mine`.
    objects: Additions,
    fine: Vec<Value>,
}

/// Adds fields or an item to the part of a manifest or a task at a JSON Pointer.
fn add(to: &mut Value, pointer: &str, added: Value) {
    match (to.pointer_mut(pointer).unwrap(), added) {
        (Value::Object(part), Value::Object(fields)) => part.extend(fields),
        (Value::Array(part), item) => part.push(item),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn escalations() {
    let policy = |units: &str| yaml(include_str!("escalations/policy.yaml"), &[("UNITS", units)]);
    let fixture = RelayFixture::with_policy("escalation", &[], policy).await;
    let core = ["pods", "podtemplates", "replicationcontrollers", "services"].map(|kind| ("", kind));
    let apps = ["controllerrevisions", "daemonsets", "statefulsets"].map(|kind| ("apps", kind));
    fixture.grant(&[&core[..], &apps, &[("batch", "cronjobs")]].concat()).await;
    let relay = fixture.relay_client().await;
    let cases = include_str!("escalations/cases.yaml").replace("RELAY", &format!("{}-relay", fixture.units));
    let cases: Cases = serde_saphyr::from_str(&cases).unwrap();
    let foreign = create(&fixture.api::<ConfigMap>(), config_map("foreign")).await;
    // The manifest itself fits into a record, but not with the data that the relay adds.
    let mut large = config_map("a");
    large["data"]["a"] = "x".repeat(290 << 10).into();
    let mut rejected = vec![("is the limit".to_owned(), kept(vec![large]))];
    for (task, parts) in
        [(script(&name("unit", 1), "#"), cases.script), (kept(vec![config_map("mine")]), cases.objects)]
    {
        for (pointer, additions) in parts {
            for (added, reason) in additions {
                let mut task = json!(task);
                add(&mut task, &pointer, added);
                rejected.push((reason, serde_json::from_value(task).unwrap()));
            }
        }
    }
    let request = |(number, (_, task)): (usize, &(String, ObjectTask))| {
        fixture.request(&name(&format!("unit-{number}"), 1), task.clone())
    };
    let responses = fixture.send_all(rejected.iter().enumerate().map(request).collect()).await;
    let mut wrong = Vec::new();
    // Another level helps a pod that only Pod Security rejects.
    let advice = format!("ebb cluster connect NAME --apply --namespace {}:baseline", fixture.units);
    let is_advised = [("runAsNonRoot != true", true), ("pods may not set hostNetwork; remove it", false)];
    for ((reason, _), response) in rejected.iter().zip(responses) {
        let advised = is_advised.iter().find(|(known, _)| known == reason).map(|(_, is_advised)| *is_advised);
        let is_expected = |text: &str| text.contains(reason) && advised.is_none_or(|it| it == text.ends_with(&advice));
        if !matches!(&response, RelayResponse::Refused(text) if is_expected(text)) {
            wrong.push(format!("{reason}: {response:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rejected.len(), wrong.join("\n"));
    let mut astray = fixture.ensure_of(&name("astray", 1), kept(vec![config_map("mine")]));
    astray.callback.url = "http://192.0.2.1/".to_owned();
    let response = fixture.ensure(astray).await;
    assert!(matches!(&response, RelayResponse::Refused(text) if text.contains("192.0.2.1")), "{response:?}");
    assert_eq!(fixture.get(&name("unit-0", 1)).await, TaskState::Unknown);
    assert_eq!(fixture.api::<ConfigMap>().get("foreign").await.unwrap(), foreign);
    assert_eq!(fixture.api::<ConfigMap>().get_opt("mine").await.unwrap(), None);
    assert!(fixture.records().list(&ListParams::default().labels("ebb.dev/unit")).await.unwrap().items.is_empty());
    for (version, kind) in KINDS {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let (resource, _) = oneshot::pinned_kind(&fixture.client, &kind).await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(fixture.client.clone(), &fixture.units, &resource);
        assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty(), "{kind:?}");
    }
    let jobs: Api<Job> = Api::namespaced(relay, &fixture.units);
    let dry_run = PostParams { dry_run: true, ..Default::default() };
    for fields in cases.fine {
        let mut job = script(&name("fine", 1), "#").apply.remove(0);
        let [template, spec] = ["metadata", "spec"].map(|part| fields[part].clone());
        job["spec"]["template"]["metadata"] = template;
        // The volumes of the script are replaced.
        for (pointer, added) in [
            ("/spec/template/spec/containers/0", json!({"volumeMounts": null})),
            ("/spec/template/spec/initContainers/0", json!({"volumeMounts": null})),
            ("/spec/template/spec", spec),
        ] {
            add(&mut job, pointer, added);
        }
        let created = jobs.create(&dry_run, &serde_json::from_value(job).unwrap()).await;
        assert!(created.is_ok(), "{fields}: {created:?}");
    }
    fixture.close().await;
}

/// Without the admission policy or Pod Security, or with a wrong policy of its own, the relay does not start.
#[tokio::test(flavor = "multi_thread")]
async fn unprotected_namespaces() {
    let fixture = RelayFixture::new("open", &[]).await;
    fixture.kill().await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    for (label, value, message) in [
        ("warn", "privileged", "Pod Security does not warn of pods"),
        ("enforce", "privileged", "expected its label pod-security.kubernetes.io/enforce to be restricted"),
    ] {
        let label = format!("pod-security.kubernetes.io/{label}");
        let labels = |value: &str| json!({"metadata": {"labels": {label.as_str(): value}}});
        merge(&namespaces, &fixture.units, labels(value)).await;
        assert_eq!(fixture.launch().await, None);
        assert!(fixture.log().contains(message), "{}", fixture.log());
        merge(&namespaces, &fixture.units, labels("restricted")).await;
    }
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
    bindings.delete(&format!("ebb-relay.{}-relay", fixture.units), &DeleteParams::default()).await.unwrap();
    let relay = fixture.relay_client().await;
    let (jobs, dry_run) =
        (Api::<Job>::namespaced(relay, &fixture.units), PostParams { dry_run: true, ..Default::default() });
    let mut job = script(&name("unit", 1), "#").apply.remove(0);
    add(&mut job, "/spec/template/spec", json!({"nodeName": "node"}));
    let job = serde_json::from_value(job).unwrap();
    until("the end of the policy", async || jobs.create(&dry_run, &job).await.ok()).await;
    assert_eq!(fixture.launch().await, None);
    assert!(fixture.log().contains("does not enforce the ValidatingAdmissionPolicy of the relay"), "{}", fixture.log());
    fixture.replace_policy("namespaces: {a: {levels: baseline}}");
    assert_eq!(fixture.launch().await, None);
    let (wrong, why) = ("/policy.yaml cannot be used: ", "unknown field `levels`");
    assert!(fixture.log().contains(wrong) && fixture.log().contains(why), "{}", fixture.log());
    fixture.close().await;
}

/// In a namespace that the policy does not list any more, the relay keeps its Role. The admission policy still applies there.
#[tokio::test(flavor = "multi_thread")]
async fn namespaces_outside_of_the_policy() {
    let fixture = RelayFixture::new("removed", &[]).await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let removed = format!("{}-removed", fixture.units);
    // The namespace has the label that the policy requires. A Job is refused with this label, and without it.
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    create(&namespaces, json!({"metadata": {"name": removed, "labels": labels}})).await;
    let rules = json!([rule_for("batch", "jobs"), rule_for("", "secrets")]);
    grant_role(&fixture.client, &fixture.units, &removed, "kept", rules).await;
    let relay = fixture.relay_client().await;
    let jobs: Api<Job> = Api::namespaced(relay.clone(), &removed);
    let secrets: Api<Secret> = Api::namespaced(relay, &removed);
    until("its rights", async || jobs.list(&ListParams::default()).await.ok()).await;
    let dry_run = PostParams { dry_run: true, ..Default::default() };
    let job: Job = serde_json::from_value(script(&name("unit", 1), "#").apply.remove(0)).unwrap();
    for labels in [json!({}), json!({"pod-security.kubernetes.io/enforce": null})] {
        merge(&namespaces, &removed, json!({"metadata": {"labels": labels}})).await;
        let refused = jobs.create(&dry_run, &job).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("does not list the namespace {removed}")), "{refused}");
    }
    let secret = |kind: &str| {
        let account = json!({"kubernetes.io/service-account.name": "default"});
        let metadata = json!({"name": "a", "annotations": account});
        serde_json::from_value::<Secret>(json!({"metadata": metadata, "type": kind})).unwrap()
    };
    let refused =
        secrets.create(&dry_run, &secret("kubernetes.io/service-account-token")).await.unwrap_err().to_string();
    assert!(refused.contains("would turn the Secret into a credential"), "{refused}");
    let created = secrets.create(&dry_run, &secret("Opaque")).await;
    assert!(created.is_ok(), "{created:?}");
    namespaces.delete(&removed, &DeleteParams::default()).await.unwrap();
    fixture.close().await;
}

/// An output or a pod may read a Secret only if it has no owner or the same instance, also if it is made later.
#[tokio::test(flavor = "multi_thread")]
async fn permitted_scripts_and_secrets() {
    let fixture = RelayFixture::new("permitted", &[]).await;
    let cases =
        [("theirs", json!({"ebb.dev/instance": "instance-2", "ebb.dev/target": "sandbox.b"})), ("given", json!({}))];
    for (name, labels) in &cases {
        let manifest = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"value": "hunter2"}});
        create(&fixture.api::<Secret>(), manifest).await;
    }
    for (secret, _) in &cases {
        let unit = name(&format!("reads-{secret}"), 1);
        let output = output("a", &format!("'{secret}'"), "value", false);
        let task = ObjectTask { outputs: vec![output], ..objects(vec![config_map(&format!("map-{secret}"))]) };
        fixture.apply(&unit, task).await;
        let result = fixture.result(&unit).await;
        if *secret == "given" {
            assert_eq!(result.outputs["a"], "hunter2");
        } else {
            let reason = result.reason.unwrap();
            assert!(reason.code == ReasonCode::Denied && reason.message.contains(secret), "{reason:?}");
        }
    }
    let reader = |unit: &str, secret: &str| {
        let mut task = script(&name(unit, 1), "sleep 1000");
        let source = json!({"secretRef": {"name": secret, "optional": true}});
        add(&mut task.apply[0], "/spec/template/spec/containers/0", json!({"envFrom": [source]}));
        task
    };
    fixture.apply(&name("reader", 1), reader("reader", "theirs")).await;
    let why = "theirs: it belongs to another instance (sandbox/b)";
    fixture.failure(&name("reader", 1), ReasonCode::Denied, why).await;
    let waiting = name("waiting", 1);
    let state = fixture.apply(&waiting, reader("waiting", "later")).await;
    assert!(matches!(state, RelayResponse::State(TaskState::Running(_))), "{state:?}");
    let later = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}});
    let (theirs, own) = (name("theirs", 1), name("own", 1));
    fixture.apply(&theirs, ObjectTask { instance: "instance-2".to_owned(), ..objects(vec![later.clone()]) }).await;
    fixture.failure(&theirs, ReasonCode::Denied, "later: objects of another instance name it").await;
    assert!(fixture.api::<Secret>().get_opt("later").await.unwrap().is_none());
    fixture.succeed(&own, objects(vec![later])).await;
    fixture.cancel(&waiting).await;
    for (name, _) in &cases {
        fixture.api::<Secret>().delete(name, &Default::default()).await.unwrap();
    }
    fixture.close().await;
}
