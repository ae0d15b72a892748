//! Updates and events of living targets. Each function ends a run behind which an update waits.

use ebb_protocol::{LifecycleData, LifecycleType, Millis, Timestamp};
use ebb_store::{DesiredKey, DesiredTarget};
use ebb_tests::platform::sandbox;
use ebb_tests::receiver::CannedReply;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::functions::CLUSTER;
use super::run::LifecycleRun;

/// The first document of a target, and the next one.
const BEFORE: &str = "resources: {r: {plugin: held}}\n";
const AFTER: &str = "resources: {r: {plugin: held}, s: {plugin: plain}}\n";

/// Accepts requests to a path, and sends their callbacks after the returned sender has sent true.
fn held_callbacks(instance: &LifecycleRun, path: &str) -> watch::Sender<bool> {
    let (release, released) = watch::channel(false);
    instance.outside.on(&format!("POST /{path}"), move |_, _| {
        let mut released = released.clone();
        CannedReply::status(202).then(async move {
            released.wait_for(|&is_released| is_released).await.unwrap();
            vec![json!({"status": "succeeded"})]
        })
    });
    release
}

async fn update(instance: &LifecycleRun, name: &str, rest: &str) {
    let data = LifecycleData { generation: 2, ..sandbox(name, "1", rest) };
    assert_eq!(instance.send("Second", LifecycleType::Updated, &data).await, 202);
}

async fn updated(instance: &LifecycleRun, name: &str) {
    let is_updated = |target: &Value| target["phase"] == "ready" && target["generation"] == 2;
    instance.until(name, "updated", is_updated).await;
}

pub(crate) async fn all(instance: &LifecycleRun, noise: &str) {
    // The plan is too large for the table.
    instance.publish("held@1.0.0", &include_str!("documents/held.yaml").replace("NOISE", noise)).await;
    behind_callbacks(instance).await;
    behind_a_retry(instance).await;
}

/// Callbacks end the runs, so `complete` begins the update, the event and the next instance of the name.
async fn behind_callbacks(instance: &LifecycleRun) {
    let [setup, wake, undo] = ["held", "held-wake", "held-undo"].map(|path| held_callbacks(instance, path));
    assert_eq!(instance.send("Receive", LifecycleType::Created, &sandbox("living", "1", BEFORE)).await, 202);
    update(instance, "living", AFTER).await;
    setup.send_replace(true);
    updated(instance, "living").await;
    for event in ["wake", "sleep"] {
        let event = Some(event.to_owned());
        let data = LifecycleData { document: None, event, ..sandbox("living", "1", "") };
        assert_eq!(instance.send("Receive", LifecycleType::Event, &data).await, 202);
    }
    assert_eq!(instance.outside.count("POST /sleep"), 0);
    wake.send_replace(true);
    instance.outside.call("POST /sleep", 1).await;
    assert_eq!(instance.send("Receive", LifecycleType::Created, &sandbox("living", "2", BEFORE)).await, 202);
    assert_eq!(instance.delete("living", "1").await, 202);
    undo.send_replace(true);
    instance.phase("living", "2", "ready").await;
}

/// An operator retries a failed target. `sweep` dispatches the units, so it ends their run and begins the update.
async fn behind_a_retry(instance: &LifecycleRun) {
    instance.outside.replies("POST /third", &[CannedReply::status(500), CannedReply::ok(json!({}))]);
    let document = "resources: {r: {plugin: third}}\n";
    assert_eq!(instance.send("Receive", LifecycleType::Created, &sandbox("retried", "1", document)).await, 202);
    instance.phase("retried", "1", "failed").await;
    let held = instance.outside.hold("POST /third");
    instance.post("/v1/targets/sandbox/retried/retry", json!({}), 202).await;
    instance.outside.call("POST /third", 2).await;
    update(instance, "retried", "resources: {r: {plugin: third}, s: {plugin: plain}}\n").await;
    drop(held);
    updated(instance, "retried").await;
}

/// Writes the next state of a target of a source, as an invocation does that ends before it applies the state.
pub(crate) async fn by_a_swept_state(instance: &LifecycleRun, name: &str) {
    let table = &instance.functions.table;
    let target = instance.until(name, "ready", |target| target["phase"] == "ready").await;
    let key = DesiredKey { source: "events".into(), kind: "sandbox".into(), name: name.into(), uid: None };
    let seen = table.read_desired(&key).await.unwrap().unwrap();
    let rest = format!("cluster: {CLUSTER}\nresources: {{r: {{plugin: whole}}}}\nlabels: {{round: next}}\n");
    let next = DesiredTarget {
        document: sandbox(name, "", &rest).document,
        delivery: "2".into(),
        time: seen.time.plus(Millis(1)),
        result: None,
        result_time: None,
        due: Some(Timestamp(1)),
        version: seen.version + 1,
        ..seen
    };
    assert!(table.put_desired(&next).await.unwrap());
    instance.until(name, "updated", |after| after["generation"] == 2 && after["uid"] == target["uid"]).await;
}
