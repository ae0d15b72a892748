//! The rendered forms of units: what they show, what they hide, and when there is none.

use ebb_protocol::api::UnitRendering;
use ebb_protocol::relay::{ReadyRules, TaskCompletion};

use super::cluster_waits::{first_task, relayed};
use crate::harness::*;

const SENSITIVE: &str = "<sensitive>";
/// The value that no rendered form has.
const TOKEN: &str = "rendered-4711-token";

const PLUGIN: &str = include_str!("documents/rendered.yaml");

/// Requests the rendered form of a unit of the resource `r` of the sandbox `a`. Checks that it has no sensitive value.
async fn rendered(harness: &Harness, hook: Hook, query: &str) -> ApiReply {
    let reply = harness.get(&format!("/v1/runs/{}/rendered?unit=r/{query}", run_id("a", hook))).await;
    assert!(!reply.body.contains(TOKEN), "{reply:?}");
    reply
}

pub(crate) async fn a_rendered_unit_has_no_sensitive_value() {
    let (harness, server) = relayed().await;
    harness.receiver.always("POST /make", json!({"id": "i-1", "token": TOKEN}));
    harness.receiver.always("POST /tell/i-1", 200);
    harness.begin("a", "shown", PLUGIN).await;
    let task = first_task(&server).await;
    assert_eq!(harness.receiver.call("POST /tell/i-1", 1).await.body["token"], TOKEN, "the receiver gets the value");
    let setup = async |query: &str| rendered(&harness, Hook::PreStart, query).await;

    let told: UnitRendering = setup("tell").await.is(200).json();
    let request = told.request.unwrap();
    assert_eq!((told.kind.as_str(), told.attempt, request.method.as_str()), ("webhook", 1, "POST"));
    assert_eq!(request.url, format!("{}/tell/i-1", harness.receiver.url()));
    assert_eq!(request.headers.values().collect::<Vec<_>>(), [SENSITIVE]);
    assert_eq!(request.body, Some(json!({"token": SENSITIVE, "id": "i-1"})));

    // The manifests are those that the relay got, without the values of the Secret.
    let deployed: UnitRendering = setup("deploy").await.is(200).json();
    let manifests = deployed.manifests.unwrap();
    assert_eq!((manifests.len(), &manifests[0]), (task.apply.len(), &task.apply[0]));
    assert_eq!(task.apply[1]["stringData"]["id"], "i-1");
    let mut hidden = task.apply[1].clone();
    hidden["stringData"]["id"] = SENSITIVE.into();
    assert_eq!(manifests[1], hidden);
    // Each manifest is judged by its own conditions.
    let own = ReadyRules { ready: Some("object.status.phase == 'Succeeded'".to_owned()), fail: None };
    assert_eq!(task.until, TaskCompletion::Ready(vec![ReadyRules::default(), own]));
    assert!(task.fail_fast);

    let waits = setup("later").await.is_problem(409, "not-rendered");
    assert!(waits.detail.contains("it waits for r/deploy"), "{waits:?}");
    for query in ["none", "make&attempt=2", "make&attempt=0"] {
        setup(query).await.is_problem(404, "not-found");
    }
    let other = format!("/v1/runs/{}/rendered?unit=r/drop", run_id("a", Hook::PostStop));
    harness.get(&other).await.is_problem(404, "not-found");
}

const SCRIPT: &str = include_str!("documents/rendered-script.yaml");

/// After its dispatch, a script is shown with the inputs that it got, and an undo with the outputs that it reads.
pub(crate) async fn a_rendered_script_has_its_text_and_masked_inputs() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({"id": "i-1", "token": TOKEN}));
    harness.run("a", "loads", SCRIPT, TargetPhase::Ready).await;
    let loaded: UnitRendering = rendered(&harness, Hook::PreStart, "load").await.is(200).json();
    assert_eq!(loaded.script.as_deref(), Some("#!/bin/sh\n# as its author wrote it\ntrue"));
    let inputs = loaded.inputs.unwrap();
    assert_eq!((&inputs["id"], &inputs["token"]), (&json!("i-1"), &json!(SENSITIVE)));
    harness.tear_down("a").await;
    let undone: UnitRendering = rendered(&harness, Hook::PostStop, "undo").await.is(200).json();
    assert_eq!(undone.undoes, ["r/make"]);
    assert_eq!(undone.request.unwrap().body, Some(json!({"id": "i-1"})));
}
