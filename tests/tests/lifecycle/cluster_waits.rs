//! Units that wait in a cluster. The table has their reasons and times.

use std::sync::Mutex;

use ebb_flow::env::TaskReports;
use ebb_protocol::relay::{Batch, EnsureTask, ObjectTask, RelayRequest, RelayResponse, RunningTask, TaskState};

use crate::harness::*;

/// A unit with one attempt, and with two objects whose names are from the target and from an output.
const SEVERAL: &str = include_str!("documents/several-objects.yaml");

/// Responds as the relay of a cluster whose tasks run, with what `task` returns about each.
fn running(request: &RelayRequest, task: impl FnOnce() -> RunningTask) -> RelayResponse {
    match request {
        RelayRequest::Ensure(_) | RelayRequest::Status(_) => RelayResponse::State(TaskState::Running(task())),
        _ => RelayResponse::Done,
    }
}

/// Starts a stack whose tasks wait. The server is the relay.
pub(crate) async fn relayed() -> (Harness, TestReceiver) {
    Harness::with_relay("default", |request| running(&request, RunningTask::default)).await
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
