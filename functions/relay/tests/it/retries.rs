//! Further attempts of units whose objects run once.

use crate::fixture::*;
use crate::objects::{deployment, kept};

fn once(command: &str) -> Value {
    let mut spec = deployment("once", BUSYBOX)["spec"]["template"]["spec"].take();
    spec["restartPolicy"] = "Never".into();
    spec["containers"][0]["command"] = json!(["sh", "-c", command]);
    spec
}

fn pod(name: &str, command: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": once(command)})
}

/// A further attempt adopts a pod that runs, and replaces a pod and a Job that have failed.
#[tokio::test(flavor = "multi_thread")]
async fn running_pods_are_adopted_and_failed_ones_run_again() {
    let policy = |units: &str| json!({"namespaces": {units: []}, "kinds": ["Pod", "Job.batch"]});
    let fixture = RelayFixture::with_policy("retries", &[], policy).await;
    fixture.grant(&[("", "pods")]).await;
    let (pods, [first, second]) = (fixture.api::<Pod>(), [1, 2].map(|attempt| name("living", attempt)));
    fixture.apply_within(&first, kept(vec![pod("living", "sleep 1000")]), 3_000).await;
    assert_eq!(fixture.reason(&first).await.0, ReasonCode::Timeout);
    // The cluster has set the node of the pod, which an author may not set.
    let before = until("the node", async || {
        let pod = pods.get("living").await.unwrap();
        pod.spec.as_ref()?.node_name.is_some().then_some(pod)
    })
    .await;
    let is_running = ready_if("object.status.phase == 'Running'");
    fixture.succeed(&second, ObjectTask { until: is_running, ..kept(vec![pod("living", "sleep 1000")]) }).await;
    let after = pods.get("living").await.unwrap();
    assert_eq!((after.uid(), &*after.labels()["ebb.dev/attempt"]), (before.uid(), "2"));

    let job = |name: &str, command: &str| {
        let spec = json!({"backoffLimit": 0, "template": {"spec": once(command)}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    };
    let cases: [(&str, fn(&str, &str) -> Value); 2] = [("pod", pod), ("job", job)];
    for (unit, manifest) in cases {
        let [first, second] = [1, 2].map(|attempt| name(unit, attempt));
        fixture.apply(&first, kept(vec![manifest(unit, "exit 4")])).await;
        assert_eq!(fixture.reason(&first).await.0, ReasonCode::Failed);
        fixture.succeed(&second, kept(vec![manifest(unit, "true")])).await;
    }
    fixture.remove(&["living", "pod", "job"]).await;
    fixture.close().await;
}
