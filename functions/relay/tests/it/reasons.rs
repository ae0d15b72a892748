//! Why tasks wait and fail: real causes of each source, which are the kubelet, the scheduler, quotas, admission, finalizers
//! and other clients. The tests of `blockers` in the relay have the table of all texts.

use ebb_protocol::callback::ReasonCode::{self, Denied, Evicted, Lost, Quota, Timeout};
use ebb_protocol::relay::{TaskWait, WaitResolution};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{EvictParams, LogParams};

use crate::fixture::*;
use crate::objects::deployment;
use crate::rights::rights;
use WaitResolution::{Never, Person};

/// The longest time between the report of Kubernetes and that of the relay.
const LONGEST: Duration = Duration::from_secs(10);
/// Long enough to see the wait of a pod before its task fails.
const PATIENT: [&str; 2] = ["--pod-start-timeout-seconds", "25"];
const TIMEOUT_MS: u64 = 60_000;

/// Returns the rows of a part of the table, which has their columns.
fn pod_causes(part: &str) -> Vec<(String, String, String, ReasonCode, String)> {
    serde_json::from_value(yaml(include_str!("reasons/pods.yaml"), &[])[part].take()).unwrap()
}

/// Merges fields into a pod. Items of lists have names.
fn merge_pod(pod: &mut Value, overlay: Value) {
    match (pod, overlay) {
        (Value::Object(pod), Value::Object(overlay)) => {
            overlay.into_iter().for_each(|(key, value)| merge_pod(pod.entry(key).or_insert(Value::Null), value));
        }
        (Value::Array(pod), Value::Array(items)) if items.iter().all(Value::is_object) => {
            for item in items {
                match pod.iter_mut().find(|other| other["name"] == item["name"]) {
                    Some(other) => merge_pod(other, item),
                    None => pod.push(item),
                }
            }
        }
        (pod, overlay) => *pod = overlay,
    }
}

async fn wait_of(fixture: &RelayFixture, unit: &TaskId, message: &str) -> TaskWait {
    let begun = Instant::now();
    let is_meant = |wait: &TaskWait| wait.message.contains(message);
    let wait = fixture.running(unit, |task| task.waits.into_iter().find(is_meant)).await;
    let took = begun.elapsed();
    assert!(took < LONGEST, "{unit:?}: the relay reported {wait:?} after {took:?}");
    wait
}

/// Waits until Kubernetes reports a text about the pods of a unit or their controllers, and then for the wait of its task.
async fn wait_after(fixture: &RelayFixture, unit: &TaskId, text: &str, message: &str) -> TaskWait {
    let all = ListParams::default();
    until(&format!("{text:?} about {unit:?}"), async || {
        let (pods, events) =
            (fixture.api::<Pod>().list(&all).await.unwrap(), fixture.api::<Event>().list(&all).await.unwrap());
        let pods = pods.items.into_iter().map(|pod| json!({"pod": pod.metadata.name, "status": pod.status}));
        let objects = pods.chain(events.items.into_iter().map(|event| json!(event)));
        objects.map(|object| object.to_string()).find(|object| object.contains(&unit.unit) && object.contains(text))
    })
    .await;
    wait_of(fixture, unit, message).await
}

/// Starts a script and a Deployment with the same overlay of their pods. Returns their units.
async fn start_both(fixture: &RelayFixture, title: &str, overlay: &str) -> [TaskId; 2] {
    let units = ["script", "web"].map(|kind| name(&format!("{kind}-{title}"), 1));
    let [script, web] = &units;
    let task = ScriptJob::new(script, "#").pod(|pod| merge_pod(pod, yaml(overlay, &[]))).into_task(script);
    fixture.apply_within(script, task, TIMEOUT_MS).await;
    let mut manifest = deployment(&web.unit, BUSYBOX);
    merge_pod(&mut manifest["spec"]["template"]["spec"], yaml(overlay, &[]));
    fixture.apply_within(web, objects(vec![manifest]), TIMEOUT_MS).await;
    units
}

/// Each wait is that of a script and that of a Deployment. The script fails then.
#[tokio::test(flavor = "multi_thread")]
async fn causes_of_pods_that_do_not_start() {
    let fixture = RelayFixture::new("waits", &PATIENT).await;
    join_all(pod_causes("waiting").iter().map(async |(title, overlay, text, code, message)| {
        let units = start_both(&fixture, title, overlay).await;
        join_all(units.iter().map(async |unit| {
            let wait = wait_after(&fixture, unit, text, message).await;
            assert_eq!((wait.code, wait.resolves), (*code, Person), "{wait:?}");
            assert!(wait.since_ms.is_some_and(|since| since < TIMEOUT_MS), "{wait:?}");
            let (namespace, unit) = (&fixture.units, &unit.unit);
            let is_web = unit.starts_with("web");
            let object =
                if is_web { format!("Deployment {namespace}/{unit}") } else { format!("Job {namespace}/ebb-{unit}-1") };
            assert_eq!(wait.object, object);
            assert_eq!(wait.message.starts_with(&format!("pod `{unit}-")), is_web, "{wait:?}");
            assert_eq!(wait.field.as_deref().is_some_and(|it| it.starts_with("status.")), is_web, "{wait:?}");
        }))
        .await;
        let [script, web] = &units;
        fixture.cancel(web).await;
        fixture.failure(script, *code, message).await;
    }))
    .await;
    fixture.close().await;
}

/// Scripts that fail without a wait, each with a change of its pod, and a pod that is evicted, deleted, or without Job.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_pods() {
    let fixture = RelayFixture::new("reasons", &[]).await;
    join_all(pod_causes("failing").iter().map(async |(unit, overlay, text, code, message)| {
        let unit = name(unit, 1);
        let script = ScriptJob::new(&unit, text).pod(|pod| merge_pod(pod, yaml(overlay, &[])));
        fixture.apply_within(&unit, script.into_task(&unit), TIMEOUT_MS).await;
        fixture.failure(&unit, *code, message).await;
    }))
    .await;
    let units = ["evicted", "deleted", "job"].map(|unit| name(unit, 1));
    join_all(units.iter().map(async |unit| {
        fixture.run(unit, ScriptJob::new(unit, "echo started; sleep 1000")).await;
        fixture.wait_for_log(unit, "started").await;
        let pods: Api<Pod> = fixture.api();
        let pod = fixture.pod_of(unit).await.unwrap().name_any();
        match &*unit.unit {
            "evicted" => drop(pods.evict(&pod, &EvictParams::default()).await.unwrap()),
            "deleted" => drop(pods.delete(&pod, &DeleteParams::default()).await.unwrap()),
            _ => drop(fixture.api::<Job>().delete("ebb-job-1", &DeleteParams::background()).await.unwrap()),
        }
        fixture.failure(unit, if unit.unit == "evicted" { Evicted } else { Lost }, "").await;
    }))
    .await;
    fixture.close().await;
}

/// A Job, a Pod and a Deployment of units that apply objects. The relay loses the right to read logs then.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_applied_objects() {
    let kinds = ["Job.batch", "Deployment.apps", "Pod"];
    let policy = |units: &str| json!({"namespaces": {units: []}, "kinds": kinds});
    let fixture = RelayFixture::with_policy("causes", &[], policy).await;
    fixture.grant(&[("", "pods")]).await;
    let given = json!({"metadata": {"name": "given"}, "stringData": {"password": "hunter2"}});
    create(&fixture.api::<Secret>(), given).await;

    let cases = yaml(include_str!("reasons/applied.yaml"), &[("IMAGE", BUSYBOX)]);
    let mut cases: Vec<(Value, ReasonCode, String, Option<String>)> = serde_json::from_value(cases).unwrap();
    let (denied, ..) = cases.pop().unwrap();
    join_all(cases.into_iter().map(async |(manifest, code, message, log)| {
        let title = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        let unit = name(&title, 1);
        let is_job = manifest["kind"] == "Job";
        let timeout_ms = if code == Timeout { 45_000 } else { TIMEOUT_MS };
        fixture.apply_within(&unit, objects(vec![manifest]), timeout_ms).await;
        if title == "crashing" {
            fixture.wait_for_log(&unit, "password ***").await;
        }
        let result = fixture.result(&unit).await;
        let reason = result.reason.unwrap();
        let has_condition = !is_job || reason.message.contains("BackoffLimitExceeded");
        let has_pod = title == "bare" || reason.message.contains(&format!("pod `{title}-"));
        assert!(reason.code == code && has_condition && has_pod, "{title}: {reason:?}");
        assert!(reason.message.contains(&message), "{title}: {reason:?}");
        assert!(title == "restarts" || result.log == log, "{title}: {:?}", result.log);
    }))
    .await;

    let mut rules = rights().units;
    rules.retain(|rule| rule.resources.iter().flatten().all(|resource| resource != "pods/log"));
    merge(&fixture.api::<Role>(), "units", json!({"rules": rules})).await;
    let pods: Api<Pod> = Api::namespaced(fixture.relay_client().await, &fixture.units);
    until("the loss of the right to logs", async || match pods.logs("none", &LogParams::default()).await {
        Err(kube::Error::Api(status)) => (status.code == 403).then_some(()),
        other => panic!("{other:?}"),
    })
    .await;
    let unit = name("denied", 1);
    fixture.apply(&unit, objects(vec![denied])).await;
    let result = fixture.result(&unit).await;
    let message = result.reason.unwrap().message;
    let pod = message.split("`").nth(1).unwrap_or_default();
    let command =
        format!("exit code 3 (Error); its log: kubectl logs {pod} --namespace {} --container main", fixture.units);
    assert!(pod.starts_with("denied-") && message.ends_with(&command) && result.log.is_none(), "{message}");
    fixture.close().await;
}

/// Permits no object of a kind in the namespace of units.
async fn set_quota(fixture: &RelayFixture, kind: &str) {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {kind: "0"}},
    });
    let quotas: Api<ResourceQuota> = fixture.api();
    quotas.patch("none", &PatchParams::apply("tests"), &Patch::Apply(quota)).await.unwrap();
    let is_effective = async || quotas.get("none").await.unwrap().status?.hard?.contains_key(kind).then_some(());
    until("the quota", is_effective).await;
}

/// A quota of pods, one of Jobs, and Pod Security that is stricter than the policy of the relay prevent pods.
#[tokio::test(flavor = "multi_thread")]
async fn quotas_and_admission_of_the_namespace() {
    for (title, text, code, resolves) in
        [("quota", "exceeded quota", Quota, Person), ("denied", "violates PodSecurity", Denied, Never)]
    {
        let kinds = ["Job.batch", "Deployment.apps"];
        let policy = |units: &str| json!({"podSecurityLevel": "baseline", "namespaces": {units: []}, "kinds": kinds});
        let fixture = RelayFixture::with_policy(title, &PATIENT, policy).await;
        if code == Quota {
            set_quota(&fixture, "pods").await;
        } else {
            let labels = json!({
                "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
            });
            let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
            merge(&namespaces, &fixture.units, json!({"metadata": {"labels": labels}})).await;
        }
        let overlay = if code == Quota { "{}" } else { "securityContext: null" };
        let units = start_both(&fixture, title, overlay).await;
        join_all(units.iter().map(async |unit| {
            wait_after(&fixture, unit, text, text).await;
            // The status of a Deployment has the text before the relay reads the warning, which decides.
            let is_warned =
                |wait: &TaskWait| wait.message.contains(text) && (wait.code, wait.resolves) == (code, resolves);
            fixture.running(unit, |task| task.waits.into_iter().find(is_warned)).await;
        }))
        .await;
        let [script, web] = &units;
        fixture.cancel(web).await;
        fixture.failure(script, code, text).await;
        if code == Quota {
            set_quota(&fixture, "count/jobs.batch").await;
            let unit = name("no-job", 1);
            fixture.apply(&unit, self::script(&unit, "#")).await;
            assert_eq!(wait_of(&fixture, &unit, "exceeded quota").await.code, Quota);
            fixture.failure(&unit, Quota, "exceeded quota").await;
        }
        fixture.close().await;
    }
}

/// A finalizer that no program removes, and a namespace that is missing, being deleted, and gone.
#[tokio::test(flavor = "multi_thread")]
async fn finalizers_and_missing_namespaces() {
    let other_of = |units: &str| format!("other-{units}");
    let policy = |units: &str| json!({"namespaces": {units: [], (other_of(units)): []}, "kinds": ["ConfigMap"]});
    let fixture = RelayFixture::with_policy("gone", &[], policy).await;
    let other = other_of(&fixture.units);
    let task = || ObjectTask { namespace: Some(other.clone()), keep: true, ..objects(vec![config_map("map")]) };
    fixture.apply(&name("early", 1), task()).await;
    let (_, message) = fixture.reason(&name("early", 1)).await;
    assert!(message.contains(&format!("the namespace `{other}` does not exist")), "{message}");

    assert_eq!(fixture.further_namespace("other").await, other);
    let made = name("made", 1);
    fixture.apply_with_rights(&made, task()).await;
    fixture.success(&made).await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), &other);
    hold(&maps, "map").await;
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["made"])).await;
    let wait = wait_of(&fixture, &undo, "the finalizer `test.example/held`, which `by-hand` set").await;
    assert_eq!((wait.object, wait.code), (format!("ConfigMap {other}/map"), Timeout));
    // The rights of the relay are deleted with the namespace.
    Api::<Namespace>::all(fixture.client.clone()).delete(&other, &DeleteParams::default()).await.unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(fixture.client.clone(), &other);
    until("the end of the rights", async || bindings.get_opt("further").await.unwrap().is_none().then_some(())).await;
    wait_of(&fixture, &undo, &format!("the namespace `{other}` is being deleted")).await;
    merge(&maps, "map", finalizers(Value::Null)).await;
    fixture.success(&undo).await;
    assert!(!fixture.log().contains("ApiError"), "{}", fixture.log());
    fixture.close().await;
}

/// Sets a finalizer as the client `by-hand`.
async fn hold<K>(api: &Api<K>, name: &str)
where
    K: serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    let by_hand = PatchParams { field_manager: Some("by-hand".to_owned()), ..PatchParams::default() };
    api.patch(name, &by_hand, &Patch::Merge(finalizers(json!(["test.example/held"])))).await.unwrap();
}

/// A Deployment that is deleted and a script that ends wait for a pod with a finalizer.
#[tokio::test(flavor = "multi_thread")]
async fn finalizers_of_owned_pods() {
    let fixture = RelayFixture::new("owned", &[]).await;
    let made = name("made", 1);
    fixture.succeed(&made, ObjectTask { keep: true, ..objects(vec![deployment("web", BUSYBOX)]) }).await;
    let pods = fixture.api::<Pod>();
    let pod = pods.list(&ListParams::default().labels("app=web")).await.unwrap().items.remove(0).name_any();
    hold(&pods, &pod).await;
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["made"])).await;
    let expected = format!("pod `{pod}`: waiting for the finalizer `test.example/held`, which `by-hand` set");
    let wait = wait_of(&fixture, &undo, &expected).await;
    assert_eq!(wait.object, format!("Deployment {}/web", fixture.units));
    merge(&pods, &pod, finalizers(Value::Null)).await;
    fixture.success(&undo).await;

    let unit = name("script", 1);
    fixture.run(&unit, ScriptJob::new(&unit, "echo started; sleep 1000")).await;
    fixture.wait_for_log(&unit, "started").await;
    let pod = fixture.pod_of(&unit).await.unwrap().name_any();
    merge(&pods, &pod, finalizers(json!(["batch.kubernetes.io/job-tracking", "test.example/held"]))).await;
    assert!(matches!(fixture.state(cancel(&unit)).await, TaskState::Running { .. }));
    let wait = wait_of(&fixture, &unit, "the finalizer `test.example/held`").await;
    assert_eq!(wait.object, format!("Pod {}/{pod}", fixture.units));
    merge(&pods, &pod, finalizers(Value::Null)).await;
    fixture.cancel(&unit).await;
    fixture.close().await;
}
