//! The rendered forms of units: what they show, what they hide, and when there is none.

use ebb_protocol::api::UnitRendering;
use ebb_protocol::relay::{ReadyRules, TaskCompletion};

use super::cluster_waits::{first_task, relayed};
use crate::harness::*;
use crate::request_table;

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
    let run = run_id("a", Hook::PreStart);
    let rendered = async |unit: &str| -> UnitRendering {
        harness.get(&format!("/v1/runs/{run}/rendered?unit=r/{unit}")).await.is(200).json()
    };
    let request = rendered("tell").await.request.unwrap();
    assert_eq!(request.headers.values().collect::<Vec<_>>(), [SENSITIVE]);
    // The manifests are those that the relay got, without the values of the Secret.
    let manifests = rendered("deploy").await.manifests.unwrap();
    assert_eq!(task.apply[1]["stringData"]["id"], "i-1");
    let mut expected = task.apply;
    expected[1]["stringData"]["id"] = SENSITIVE.into();
    assert_eq!(manifests, expected);
    // Each manifest is judged by its own conditions.
    let own = ReadyRules { ready: Some("object.status.phase == 'Succeeded'".to_owned()), fail: None };
    assert_eq!(task.until, TaskCompletion::Ready(vec![ReadyRules::default(), own]));
    assert!(task.fail_fast);
    let other = run_id("a", Hook::PostStop);
    let names = [("SHOWN_RUN", run.as_str()), ("OTHER_RUN", other.as_str()), ("SECRET_TOKEN", TOKEN)];
    let (table, test) = ("lifecycle/rendered_units.yaml", "a_rendered_unit_has_no_sensitive_value");
    request_table::play(&harness, table, test, &names).await;
}
