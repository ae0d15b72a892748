//! Units that wait in a cluster: their reasons and times, and a relay that does not respond.

use std::sync::Mutex;

use ebb_flow::env::TaskReports;
use ebb_protocol::relay::{Batch, EnsureTask, ObjectTask, RelayRequest, RelayResponse, RunningTask, TaskState};

use crate::harness::*;
use crate::request_table;

const TWO: &str = include_str!("documents/two-objects.yaml");

/// A unit with one attempt, and with two objects whose names are from the target and from an output.
const SEVERAL: &str = include_str!("documents/several-objects.yaml");

const FILE: &str = "lifecycle/cluster_waits.yaml";

/// Responds as the relay of a cluster whose tasks run, with what `task` returns about each.
fn running(request: &RelayRequest, task: impl FnOnce() -> RunningTask) -> RelayResponse {
    match request {
        RelayRequest::Ensure(_) | RelayRequest::Status(_) => RelayResponse::State(TaskState::Running(task())),
        _ => RelayResponse::Done,
    }
}

/// Responds as the relay of a cluster in which the first task waits for an image, and the second one for a slot.
fn respond(request: RelayRequest) -> RelayResponse {
    match request {
        RelayRequest::Status(task) if task.unit.ends_with("-1") => RelayResponse::State(TaskState::Queued { ahead: 3 }),
        request => running(&request, || request_table::table(FILE, "a_missing_image", &[])),
    }
}

/// Starts a stack whose tasks wait. The server is the relay.
pub(crate) async fn relayed() -> (Harness, TestReceiver) {
    Harness::with_relay("default", respond).await
}

pub(crate) async fn first_task(server: &TestReceiver) -> ObjectTask {
    first_request(server).await.body
}

async fn first_request(server: &TestReceiver) -> EnsureTask<ObjectTask> {
    until("the task", async || {
        let calls = server.calls("POST /v1/batch").into_iter();
        let batches = calls.map(|call| serde_json::from_value::<Batch>(call.body).unwrap());
        batches.flat_map(|batch| batch.requests).find_map(|request| match request {
            RelayRequest::Ensure(task) => Some(*task),
            _ => None,
        })
    })
    .await
}

/// Starts a stack with a sandbox `a` of a plugin whose units wait.
async fn waiting(plugin: &str) -> (Harness, TestReceiver) {
    let (harness, server) = relayed().await;
    harness.begin("a", "waits", plugin).await;
    (harness, server)
}

pub(crate) async fn each_wait_has_its_reason_and_true_times() {
    let (harness, _server) = waiting(TWO).await;
    request_table::play(&harness, FILE, "each_wait_has_its_reason_and_true_times", &[]).await;
    let target = harness.target("a").await.unwrap();
    let first = find(&target, "preStart", "first").unwrap();
    // No task is older than its run.
    assert_eq!(first.started.as_deref(), Some(&*target.runs[0].started));
    assert!(first.deadline > first.started, "{first:?}");
    // The wait ends the unit before its timeout.
    let why = harness.why("a").await;
    let fails_at = why.waits["r/first"][0].fails_at.clone().unwrap();
    assert!(Some(&fails_at) < first.deadline.as_ref() && first.waits[0].fails_at.is_some(), "{first:?}");
    assert!(why.summary.contains(&format!("; fails at {fails_at} unless the cause is removed before")), "{why:?}");
    assert!(why.next_steps[0].contains(&format!("Deployment units/web before {fails_at};")), "{why:?}");
    assert_eq!(why.waits.keys().collect::<Vec<_>>(), ["r/first", "r/second"]);
}

/// A restarted relay knows no progress until the script reports again, and none while it does not respond.
pub(crate) async fn the_progress_of_a_task_does_not_go_back() {
    let known = Arc::new(Mutex::new(Some("70%".to_owned())));
    let reported = Arc::clone(&known);
    let respond = move |request: RelayRequest| {
        running(&request, || RunningTask { progress: reported.lock().unwrap().clone(), ..RunningTask::default() })
    };
    let (harness, server) = Harness::with_relay("default", respond).await;
    harness.receiver.always("POST /make", json!({"id": "i-1"}));
    harness.begin("a", "several", SEVERAL).await;
    let token = first_request(&server).await.callback.token;
    let beat = async |progress: &str| {
        harness.callback(&token, &json!({"status": "heartbeat", "progress": progress})).await.is(204);
    };
    // The next reader asks the relay again.
    let shown = async || {
        let (env, run) = (harness.stack().env(), run_id("a", Hook::PreStart));
        if let Some(last) = env.task_reports(&run) {
            let TaskReports { states, progress, .. } = &*last;
            let (states, progress) = (states.clone(), progress.clone());
            env.remember_task_reports(&run, &Arc::new(TaskReports { until: Default::default(), states, progress }));
        }
        harness.unit("a", "preStart", "deploy", UnitState::Running).await.progress.unwrap_or_default()
    };
    beat("40%").await;
    until("the progress", async || (shown().await == "70%").then_some(())).await;
    *known.lock().unwrap() = None;
    assert_eq!(shown().await, "70%", "after a restart of the relay");
    server.always("POST /v1/batch", 503);
    assert_eq!(shown().await, "70%", "without the relay");
    // The record is newer than the last report.
    tokio::time::sleep(Duration::from_millis(5)).await;
    beat("80%").await;
    assert_eq!(shown().await, "80%");
}

pub(crate) async fn a_relay_without_a_response_is_named() {
    let (harness, server) = waiting(TWO).await;
    harness.unit("a", "preStart", "first", UnitState::Running).await;
    server.always("POST /v1/batch", 503);
    request_table::play(&harness, FILE, "a_relay_without_a_response_is_named", &[]).await;
}
