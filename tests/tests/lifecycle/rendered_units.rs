//! The rendered forms of units: what they show, what they hide, and when there is none.

use ebb_protocol::api::UnitRendering;
use ebb_protocol::relay::{ReadyRules, TaskCompletion};

use super::cluster_waits::{first_task, relayed};
use crate::harness::*;

const SENSITIVE: &str = "<sensitive>";
/// The value that no rendered form has.
const TOKEN: &str = "rendered-4711-token";

pub(crate) async fn a_rendered_unit_has_no_sensitive_value() {
    let (harness, server) = relayed().await;
    harness.receiver.always("POST /make", json!({"id": "i-1", "token": TOKEN}));
    harness.receiver.always("POST /tell/i-1", 200);
    harness.begin("a", "shown", include_str!("documents/rendered.yaml")).await;
    let task = first_task(&server).await;
    assert_eq!(harness.receiver.call("POST /tell/i-1", 1).await.body["token"], TOKEN, "the receiver gets the value");
    let setup = async |query: &str| {
        let run = run_id("a", Hook::PreStart);
        let reply = harness.get(&format!("/v1/runs/{run}/rendered?unit=r/{query}")).await;
        assert!(!reply.body.contains(TOKEN), "{reply:?}");
        reply
    };

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
