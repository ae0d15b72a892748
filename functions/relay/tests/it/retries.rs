//! Further attempts of units, whose objects run once or are being deleted.

use ebb_protocol::relay::EnsureTask;

use crate::client::kubeconfig_of;
use crate::cluster::BUSYBOX;
use crate::fixture::*;
use crate::objects::{deployment, removal};
use crate::rights::{ApiRight, grant_role, rights_of, rule_for};

/// Starts a relay that may create pods.
async fn fixture(title: &str) -> RelayFixture {
    let policy = |units: &str| json!({"namespaces": {units: []}, "kinds": ["ConfigMap", "Pod", "Job.batch"]});
    let fixture = RelayFixture::with_policy(title, &[], policy).await;
    let units = &*fixture.units;
    grant_role(&fixture.client, units, units, "pods", json!([rule_for("", "pods")])).await;
    let relay = kubeconfig_of(cluster().await, &format!("{units}-relay"), "ebb-relay");
    let right: ApiRight = ["", "pods", "", "patch"].map(str::to_owned).into();
    until("its rights", async || rights_of(relay.clone(), units).await.contains(&right).then_some(())).await;
    fixture
}

/// Returns the specification of a pod that runs once.
fn once(command: &str) -> Value {
    let mut spec = deployment("once", BUSYBOX)["spec"]["template"]["spec"].take();
    spec["restartPolicy"] = "Never".into();
    spec["containers"][0]["command"] = json!(["sh", "-c", command]);
    spec
}

fn pod(name: &str, command: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": once(command)})
}

fn job(name: &str, command: &str) -> Value {
    let spec = json!({"backoffLimit": 0, "template": {"spec": once(command)}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
}

fn kept(manifest: Value) -> ObjectTask {
    ObjectTask { keep: true, ..objects(vec![manifest]) }
}

/// The cluster has set the node of the pod, which an author may not set.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_pod_is_adopted() {
    let fixture = fixture("living").await;
    let (pods, [first, second]) = (fixture.api::<Pod>(), [1, 2].map(|attempt| name("unit", attempt)));
    fixture.apply_within(&first, kept(pod("living", "sleep 1000")), 3_000).await;
    assert_eq!(fixture.reason(&first).await.0, ReasonCode::Timeout);
    let before = until("the node", async || {
        let pod = pods.get("living").await.unwrap();
        pod.spec.as_ref()?.node_name.is_some().then_some(pod)
    });
    let before = before.await;
    let is_running = ready_if("object.status.phase == 'Running'");
    fixture.apply(&second, ObjectTask { until: is_running, ..kept(pod("living", "sleep 1000")) }).await;
    fixture.success(&second).await;
    let after = pods.get("living").await.unwrap();
    assert_eq!((after.uid(), &*after.labels()["ebb.dev/attempt"]), (before.uid(), "2"));
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["unit"])).await;
    fixture.success(&undo).await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_pods_and_jobs_run_again() {
    let fixture = fixture("failed").await;
    let cases: [(&str, fn(&str, &str) -> Value); 2] = [("pod", pod), ("job", job)];
    for (unit, manifest) in cases {
        let [first, second] = [1, 2].map(|attempt| name(unit, attempt));
        fixture.apply(&first, kept(manifest(unit, "exit 4"))).await;
        assert_eq!(fixture.reason(&first).await.0, ReasonCode::Failed);
        fixture.apply(&second, kept(manifest(unit, "true"))).await;
        fixture.success(&second).await;
    }
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["pod", "job"])).await;
    fixture.success(&undo).await;
    fixture.close().await;
}

/// The object of the first attempt was deleted by hand. The second attempt waits for longer than its request is valid.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_waits_for_the_deletion_of_the_former_object() {
    let fixture = fixture("deleted").await;
    let (maps, [first, second, third]) = (fixture.api::<ConfigMap>(), [1, 2, 3].map(|attempt| name("unit", attempt)));
    fixture.apply(&first, kept(config_map("map"))).await;
    fixture.success(&first).await;
    merge(&maps, "map", finalizers(json!(["test.example/held"]))).await;
    maps.delete("map", &DeleteParams::default()).await.unwrap();
    let ensure = async |unit: &TaskId, timeout_ms: u64| {
        let request = fixture.ensure_of(unit, kept(config_map("map")));
        fixture.ensure(EnsureTask { valid_for_ms: 1_000, timeout_ms, ..request }).await;
    };
    ensure(&second, 4_000).await;
    let (code, message) = fixture.reason(&second).await;
    assert!(code == ReasonCode::Timeout && message.contains("the finalizer `test.example/held`"), "{message}");
    ensure(&third, 60_000).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    match fixture.status(&third).await {
        TaskState::Running(task) => assert!(task.waits[0].message.contains("test.example/held"), "{task:?}"),
        other => panic!("{other:?}"),
    }
    merge(&maps, "map", finalizers(Value::Null)).await;
    fixture.success(&third).await;
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["unit"])).await;
    fixture.success(&undo).await;
    fixture.close().await;
}
