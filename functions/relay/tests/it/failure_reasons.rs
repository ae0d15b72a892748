//! Reasons of failed tasks that a cluster of one node can produce.

use ebb_protocol::callback::ReasonCode::{
    self, Denied, Evicted, Exit, Failed, ImagePull, Lost, NotStartable, OutOfMemory, Quota, Timeout, Unschedulable,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{EvictParams, LogParams};

use crate::client::{client_of, kubeconfig_of};
use crate::cluster::BUSYBOX;
use crate::fixture::*;
use crate::objects::deployment;
use crate::rights::{grant_role, rights, rule_for};

pub(crate) type ManifestChange = fn(&mut Value);

pub(crate) fn main_of(pod: &mut Value) -> &mut Value {
    &mut pod["containers"][0]
}

fn image_never_pulled(pod: &mut Value) {
    main_of(pod)["image"] = "ebb.test/none:1".into();
    main_of(pod)["imagePullPolicy"] = "Never".into();
}

fn little_memory(pod: &mut Value) {
    main_of(pod)["resources"] = json!({"limits": {"memory": "32Mi"}});
}

pub(crate) fn no_such_secret(pod: &mut Value) {
    let from = json!({"secretKeyRef": {"name": "none", "key": "k"}});
    main_of(pod)["env"] = json!([{"name": "A", "valueFrom": from}]);
}

pub(crate) fn no_volume(pod: &mut Value) {
    let container = main_of(pod).as_object_mut().unwrap();
    let mounts = container.entry("volumeMounts").or_insert(json!([]));
    mounts.as_array_mut().unwrap().push(json!({"name": "gone", "mountPath": "/gone"}));
    let volumes = pod.as_object_mut().unwrap().entry("volumes").or_insert(json!([]));
    volumes.as_array_mut().unwrap().push(json!({"name": "gone", "secret": {"secretName": "none"}}));
}

fn wrong_install(pod: &mut Value) {
    pod["initContainers"][0]["command"] = json!(["/ebb-entrypoint", "wrong"]);
}

fn failing_init(pod: &mut Value) {
    let mut first = main_of(pod).clone();
    (first["name"], first["command"]) = ("first".into(), json!(["sh", "-c", "echo broken; exit 3"]));
    pod["initContainers"].as_array_mut().unwrap().push(first);
}

/// Each case has a script, a change of its pod, and a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_pods() {
    let fixture = RelayFixture::new("reasons", &["--pod-start-timeout-seconds", "4"]).await;
    const LONG: u64 = 60_000;
    let unchanged: ManifestChange = |_| {};
    let cases: [(&str, &str, ManifestChange, u64, ReasonCode, &str); 16] = [
        ("exit", "exit 7", unchanged, LONG, Exit, "the script ended with 7"),
        ("killed", "kill -9 $$", unchanged, LONG, Exit, "SIGKILL"),
        ("missing", "#", |pod| main_of(pod)["image"] = "127.0.0.1:1/none:1".into(), LONG, ImagePull, "none:1"),
        ("never", "#", image_never_pulled, LONG, NotStartable, "ErrImageNeverPull"),
        ("invalid", "#", |pod| main_of(pod)["image"] = "Not::an image".into(), LONG, NotStartable, "InvalidImageName"),
        ("node", "#", |pod| pod["nodeSelector"] = json!({"no": "such"}), 20_000, Unschedulable, "node"),
        ("memory", "tail /dev/zero", little_memory, LONG, OutOfMemory, "memory"),
        ("slow", "echo slow; sleep 1000", unchanged, 25_000, Timeout, "longer than its timeout"),
        ("mute", "#", |pod| main_of(pod)["command"] = json!(["sh", "-c", "exit 7"]), LONG, Exit, "7 and without"),
        ("nothing", "#", |pod| main_of(pod)["command"] = json!(["true"]), LONG, Failed, "with 0 and without"),
        ("program", "#", |pod| main_of(pod)["command"] = json!(["/none"]), LONG, NotStartable, "/none"),
        ("config", "#", no_such_secret, LONG, NotStartable, "none"),
        ("volume", "#", no_volume, LONG, NotStartable, "secret \"none\" not found"),
        ("init", "#", wrong_install, LONG, NotStartable, "ebb-install"),
        ("first", "#", failing_init, LONG, NotStartable, "the init container `first` ended with 3"),
        ("deadline", "sleep 1000", |pod| pod["activeDeadlineSeconds"] = 4.into(), LONG, Timeout, "deadline"),
    ];
    join_all(cases.map(async |(unit, text, change, timeout, code, message)| {
        let unit = name(unit, 1);
        fixture.apply_within(&unit, ScriptJob::new(&unit, text).pod(change).into_task(&unit), timeout).await;
        if code == Unschedulable {
            until("the reason while it waits", async || match fixture.get(&unit).await {
                TaskState::Running(task) => task.pending?.contains("node").then_some(()),
                _ => None,
            })
            .await;
        }
        let reason = fixture.reason(&unit).await;
        assert!(reason.0 == code && reason.1.contains(message), "{unit:?}: {reason:?}, not {code:?} {message:?}");
        let log = fixture.result(&unit).await.log;
        match &*unit.unit {
            "slow" => assert_eq!(log.as_deref(), Some("slow\n")),
            "first" => assert_eq!(log.as_deref(), Some("broken\n")),
            _ => {}
        }
    }))
    .await;
    fixture.close().await;
}

/// Returns the template of a pod that prints the password of the Secret `given`, and then executes a shell command.
fn printing_pod(restart: &str, command: &str) -> Value {
    let mut template = deployment("pod", BUSYBOX)["spec"]["template"].take();
    let pod = &mut template["spec"];
    pod["restartPolicy"] = restart.into();
    let from = json!({"secretKeyRef": {"name": "given", "key": "password"}});
    main_of(pod)["env"] = json!([{"name": "PASSWORD", "valueFrom": from}]);
    main_of(pod)["command"] = json!(["sh", "-c", format!("echo password $PASSWORD; {command}")]);
    template
}

fn failing_job(name: &str, limit: u32, template: Value) -> Value {
    let spec = json!({"backoffLimit": limit, "template": template});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
}

/// A Job, a Pod and a Deployment of units that apply objects. The relay loses the right to read logs then.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_applied_objects() {
    let kinds = ["Job.batch", "Deployment.apps", "Pod"];
    let policy = |units: &str| json!({"podSecurityLevel": "restricted", "namespaces": {units: []}, "kinds": kinds});
    let fixture = RelayFixture::with_policy("causes", &[], policy).await;
    let units = &*fixture.units;
    grant_role(&fixture.client, units, units, "pods", json!([rule_for("", "pods")])).await;
    let relay = client_of(kubeconfig_of(cluster().await, &format!("{units}-relay"), "ebb-relay")).await;
    let pods: Api<Pod> = Api::namespaced(relay, units);
    until("the relay's right to pods", async || pods.get_opt("none").await.ok()).await;
    let given = json!({"metadata": {"name": "given"}, "stringData": {"password": "hunter2"}});
    create(&fixture.api::<Secret>(), given).await;

    let job = |name: &str, limit: u32, restart: &str| failing_job(name, limit, printing_pod(restart, "exit 3"));
    let mut greedy = failing_job("memory", 0, printing_pod("Never", "exec tail /dev/zero"));
    little_memory(&mut greedy["spec"]["template"]["spec"]);
    let mut bare = printing_pod("Never", "exit 3");
    (bare["apiVersion"], bare["kind"], bare["metadata"]["name"]) = ("v1".into(), "Pod".into(), "bare".into());
    let mut crashing = deployment("crashing", BUSYBOX);
    crashing["spec"]["template"]["spec"] = printing_pod("Always", "exit 3")["spec"].take();
    let log = Some("password ***\n");
    let cases = [
        ("limit", job("limit", 1, "Never"), Failed, "main` ended with exit code 3 (Error)", log),
        ("memory", greedy, Failed, "main` ended with exit code 137 (OOMKilled)", log),
        // Kubernetes deletes this pod, with its log, before the Job has failed.
        ("restarts", job("restarts", 2, "OnFailure"), Failed, "exit code 3", None),
        ("bare", bare, Failed, "main` ended with exit code 3 (Error)", log),
        ("crashing", crashing, Timeout, "main`: CrashLoopBackOff: exit code 3 (Error)", log),
    ];
    join_all(cases.map(async |(title, manifest, code, message, log)| {
        let unit = name(title, 1);
        let is_job = manifest["kind"] == "Job";
        let timeout_ms = if code == Timeout { 20_000 } else { 60_000 };
        fixture.apply_within(&unit, objects(vec![manifest]), timeout_ms).await;
        let result = fixture.result(&unit).await;
        let reason = result.reason.unwrap();
        let has_condition = !is_job || reason.message.contains("BackoffLimitExceeded");
        let has_pod = title == "bare" || reason.message.contains(&format!("pod `{title}-"));
        assert!(reason.code == code && has_condition && has_pod, "{title}: {reason:?}");
        assert!(reason.message.contains(message), "{title}: {reason:?}");
        assert!(title == "restarts" || result.log.as_deref() == log, "{title}: {:?}", result.log);
    }))
    .await;

    let mut rules = rights().units;
    rules.retain(|rule| rule.resources.iter().flatten().all(|resource| resource != "pods/log"));
    merge(&fixture.api::<Role>(), "units", json!({"rules": rules})).await;
    until("the loss of the right to logs", async || match pods.logs("none", &LogParams::default()).await {
        Err(kube::Error::Api(status)) => (status.code == 403).then_some(()),
        other => panic!("{other:?}"),
    })
    .await;
    let unit = name("denied", 1);
    fixture.apply(&unit, objects(vec![job("denied", 0, "Never")])).await;
    let result = fixture.result(&unit).await;
    let message = result.reason.unwrap().message;
    let pod = message.split("`").nth(1).unwrap_or_default();
    let command = format!("exit code 3 (Error); its log: kubectl logs {pod} --namespace {units} --container main");
    assert!(pod.starts_with("denied-") && message.ends_with(&command) && result.log.is_none(), "{message}");
    fixture.close().await;
}

/// A running pod is evicted or deleted, or its Job is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn eviction_and_deletion_by_others() {
    let fixture = RelayFixture::new("others", &[]).await;
    let units = ["evicted", "deleted", "job"].map(|unit| name(unit, 1));
    join_all(units.iter().map(async |unit| {
        fixture.run(unit, ScriptJob::new(unit, "echo started; sleep 1000")).await;
        fixture.wait_for_log(unit, "started").await;
        until("a heartbeat", async || match fixture.get(unit).await {
            TaskState::Running(task) if task.waits.is_empty() => task.heartbeat_ms,
            _ => None,
        })
        .await;
        let pods: Api<Pod> = fixture.api();
        let own = ListParams::default().labels(&format!("ebb.dev/unit={}", unit.unit));
        let pod = pods.list(&own).await.unwrap().items.remove(0).name_any();
        match &*unit.unit {
            "evicted" => drop(pods.evict(&pod, &EvictParams::default()).await.unwrap()),
            "deleted" => drop(pods.delete(&pod, &DeleteParams::default()).await.unwrap()),
            _ => drop(fixture.api::<Job>().delete("ebb-job-1", &DeleteParams::background()).await.unwrap()),
        }
        let (code, message) = fixture.reason(unit).await;
        let expected = if unit.unit == "evicted" { Evicted } else { Lost };
        assert_eq!(code, expected, "{unit:?}: {message}\n{}", fixture.log());
    }))
    .await;
    fixture.close().await;
}

/// Pods may violate the level `restricted` then.
pub(crate) fn without_user(pod: &mut Value) {
    for field in ["runAsNonRoot", "runAsUser"] {
        pod["securityContext"].as_object_mut().unwrap().remove(field);
    }
}

/// Permits no object of a kind in the namespace of units.
pub(crate) async fn set_quota(fixture: &RelayFixture, kind: &str) {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {kind: "0"}},
    });
    let quotas: Api<ResourceQuota> = fixture.api();
    quotas.patch("none", &PatchParams::apply("tests"), &Patch::Apply(quota)).await.unwrap();
    until("the quota", async || quotas.get("none").await.unwrap().status?.hard).await;
}

/// Makes Pod Security of the namespace of units stricter than the relay's policy.
pub(crate) async fn enforce_restricted(fixture: &RelayFixture) {
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
    });
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    merge(&namespaces, &fixture.units, json!({"metadata": {"labels": labels}})).await;
}

/// A quota of Jobs, a quota of pods, and Pod Security prevent the pod.
#[tokio::test(flavor = "multi_thread")]
async fn quotas_and_admission_of_the_namespace() {
    for (title, unit_quota, code, message) in [
        ("jobs", Some("count/jobs.batch"), Quota, "exceeded quota"),
        ("pods", Some("pods"), Quota, "exceeded quota"),
        ("denied", None, Denied, "PodSecurity"),
    ] {
        let fixture = RelayFixture::new(title, &["--pod-start-timeout-seconds", "3"]).await;
        match unit_quota {
            Some(kind) => set_quota(&fixture, kind).await,
            None => enforce_restricted(&fixture).await,
        }
        let unit = name("unit", 1);
        let script = ScriptJob::new(&unit, "#").pod(|pod| {
            if unit_quota.is_none() {
                without_user(pod);
            }
        });
        let response = fixture.send(fixture.request(&unit, script.into_task(&unit))).await;
        let reason = match response {
            RelayResponse::State(TaskState::Ended(_) | TaskState::Running { .. }) => fixture.reason(&unit).await,
            other => panic!("{other:?}"),
        };
        assert!(reason.0 == code && reason.1.contains(message), "{title}: {reason:?}");
        fixture.close().await;
    }
}
