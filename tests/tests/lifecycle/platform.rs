//! Time, the platform, and the end of the program itself.

use std::collections::BTreeSet;

use ebb_protocol::api::{TargetState, UnitState};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::TargetStopCause;
use serde_json::{Value, json};

use crate::harness::{CannedReply, LifecycleHarness, plugin, sandbox, word};

const SIMPLE: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}}
"#;

pub(crate) async fn time_to_live() {
    let world = LifecycleHarness::new().await;
    world.publish(&plugin("simple@1.0.0", SIMPLE)).await;
    let mut data = sandbox("a", "a-uid", "simple");
    data.document = data.document.map(|text| format!("{text}ttl: 2s\n"));
    world.lifecycle(LifecycleType::Created, &data).await.is(202);
    let target = world.target("a").await.unwrap();
    assert!(target.info.expires.is_some());
    world.phase("a", TargetState::Gone).await;
    let told = world.told("a", &["ready", "gone"]).await;
    assert_eq!((&told[0]["stopCause"], &told[1]["stopCause"]), (&Value::Null, &json!("expired")));
    let info = world.target("a").await.unwrap().info;
    assert_eq!((info.stop_cause, info.overridden), (Some(TargetStopCause::Expired), false));
    let why = world.why("a").await;
    assert!(why.summary.contains("its time to live ended at"), "{why:?}");
    assert_eq!(world.receiver.order(), ["POST /make", "POST /drop"]);
    world.lifecycle(LifecycleType::Created, &data).await.is_problem(409, "stale");
}

pub(crate) async fn outcomes_until_they_are_taken() {
    let world = LifecycleHarness::with_platform().await;
    world
        .receiver
        .on("POST /platform", |_, number| CannedReply::status([503, 500, 429, 204][number.min(4) - 1]));
    world.publish(&plugin("simple@1.0.0", SIMPLE)).await;
    world.create("a", "simple").await;
    world.phase("a", TargetState::Ready).await;
    world.receiver.call("POST /platform", 4).await;
    crate::harness::eventually("the outcome is taken", async || {
        world.target("a").await?.pending_notification.is_none().then_some(())
    })
    .await;
    let told = world.receiver.calls("POST /platform");
    let ids: BTreeSet<&str> = told.iter().map(|call| call.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1);
    assert!(told.iter().all(|call| call.body == told[0].body));
    assert_eq!(word(told[0].body["type"].as_str().unwrap()), "ready");
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
    let gone = world.receiver.call("POST /platform", told.len() + 1).await;
    assert_eq!(word(gone.body["type"].as_str().unwrap()), "gone");
    assert_ne!(gone.header("webhook-id"), told[0].header("webhook-id"));
}

/// The program ends while a script runs and a callback is outstanding.
pub(crate) async fn a_restart_in_between() {
    let mut world = LifecycleHarness::new().await;
    let rest = r#"
runners: {sh: {image: "busybox:1"}}
preStart:
  script:
    pod:
      runner: sh
      script: |
        #!/bin/sh
        sleep 3
        printf done >/tmp/o
    outputs: {o: {file: /tmp/o}}
  later:
    webhook: {url: "RECEIVER/later"}
    outputs: {id: {value: "${response.body.id}"}}
  next:
    webhook: {url: "RECEIVER/next", body: {o: "${units.script.outputs.o}", id: "${units.later.outputs.id}"}}
postStop:
  drop: {undoes: later, webhook: {url: "RECEIVER/drop", body: {id: "${units.later.outputs.?id}"}}}
"#;
    world.receiver.on("POST /later", |_, _| CannedReply::status(202));
    world.publish(&plugin("both@1.0.0", rest)).await;
    world.create("a", "both").await;
    let call = world.receiver.call("POST /later", 1).await;
    world.unit("a", "preStart", "script", UnitState::Running).await;
    world.restart().await;
    world.callback(call.token(), &json!({"status": "succeeded", "outputs": {"id": "x"}})).await.is(204);
    world.phase("a", TargetState::Ready).await;
    assert_eq!(world.receiver.calls("POST /next")[0].body, json!({"o": "done", "id": "x"}));
    assert_eq!(world.receiver.calls("POST /later").len(), 1);
    assert_eq!(world.receiver.calls("POST /next").len(), 1);
    world.restart().await;
    assert_eq!(world.target("a").await.unwrap().info.phase, TargetState::Ready);
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
    assert_eq!(world.receiver.calls("POST /drop")[0].body, json!({"id": "x"}));
}
