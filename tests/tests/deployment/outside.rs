//! External servers: the platform, receivers of webhook units, and the relay of a cluster, which polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb_protocol::listing::{ClusterListing, RelayInfo};
use ebb_protocol::pull::{IDLE_POLL_MS, PollRequest, PollResponse, QueuedReply, SealedBatch};
use ebb_protocol::{Batch, BatchResponse, RelayRequest, RelayResponse, ReplyOutcome, TaskId, TaskState, WebhookKeys};
use ebb_tests::platform::{SignedRequest, http, now};
use ebb_tests::receiver::{CannedReply, TestReceiver};
use serde_json::json;

use super::functions::{CLUSTER, secret};

/// Returns a text that is too long for an item, a queued batch or a response.
pub(crate) fn long() -> String {
    "long ".repeat(2_000)
}

/// The `traceparent` of requests and scripts, by the path of a request or the name of a unit.
#[derive(Clone, Default)]
pub(crate) struct SeenTraces(Arc<Mutex<BTreeMap<String, String>>>);

impl SeenTraces {
    pub(crate) fn take(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn add(&self, receiver: &str, traceparent: &str) {
        self.0.lock().unwrap().insert(receiver.to_owned(), traceparent.to_owned());
    }
}

/// Starts the servers. `/ok` succeeds at once, `/long` with a long output, `/later` by a callback, and `/twice` by two
/// callbacks with different results. `/bad` fails, and `/late-bad` fails by a callback. `/flaky` and `/second` fail
/// first and then succeed with a long output. Other requests succeed. Each response has an access token.
pub(crate) async fn start(seen: SeenTraces) -> TestReceiver {
    let receiver = TestReceiver::start().await;
    receiver.on("POST /*", move |call, number| {
        let what = &call.path()[1..];
        seen.add(what, call.header("traceparent"));
        let succeeded = |id: &str| json!({"status": "succeeded", "outputs": {"id": id}});
        let failed = json!({"status": "failed", "reason": {"code": "httpStatus", "message": "no"}});
        let (status, callbacks) = match what {
            "later" => (202, vec![succeeded(&long())]),
            "twice" => (202, vec![succeeded("first"), succeeded("second")]),
            "late-bad" => (202, vec![failed]),
            "flaky" | "second" if number == 1 => (500, vec![]),
            "bad" => (500, vec![]),
            "refused" => (410, vec![]),
            _ => (200, vec![]),
        };
        let id = if matches!(what, "long" | "flaky" | "second") { long() } else { "x".to_owned() };
        CannedReply::status(status).with(json!({"id": id, "access_token": "granted-to-ebb"})).then(async { callbacks })
    });
    receiver
}

/// Runs the relay of the cluster. Scripts succeed at once, except `endless`. The task `ended_task` of an ended instance
/// still exists.
pub(crate) async fn relay(api: String, ended_task: TaskId, seen: SeenTraces) {
    let (http, url, mut replies) = (http(), format!("{api}/v1/clusters/{CLUSTER}/poll"), Vec::new());
    loop {
        let poll =
            PollRequest { v: 1, cluster: "uid".to_owned(), wait_ms: Some(500), in_progress: Vec::new(), replies };
        let poll = SignedRequest::new(&secret(), "poll-1", now(), serde_json::to_vec(&poll).unwrap());
        let response = poll.post(&http, &url).send().await.unwrap();
        let polled: PollResponse = response.json().await.unwrap();
        assert_eq!(polled.idle_every_ms, Some(IDLE_POLL_MS));
        replies = polled.batches.iter().map(|batch| reply(batch, &ended_task, &seen, &http)).collect();
    }
}

fn reply(sealed: &SealedBatch, ended_task: &TaskId, seen: &SeenTraces, http: &reqwest::Client) -> QueuedReply {
    let batch = sealed.open(&WebhookKeys::from(secret()), CLUSTER).unwrap();
    let batch: Batch = serde_json::from_slice(&batch).unwrap();
    let responses = batch.requests.into_iter().map(|request| match request {
        RelayRequest::Ensure(task) => {
            let documents = &task.body.secrets;
            let env: Vec<(String, String)> = serde_json::from_value(documents[0].document["env"].clone()).unwrap();
            let of = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            seen.add(of("EBB_UNIT").unwrap(), of("TRACEPARENT").unwrap_or_default());
            if of("EBB_UNIT") != Some("endless") {
                let result = json!({"status": "succeeded", "outputs": {"name": long()}, "log": "done"});
                let callback = http.post(&task.callback.url).bearer_auth(&task.callback.token).json(&result);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    callback.send().await.unwrap();
                });
            }
            RelayResponse::State(TaskState::running(long()))
        }
        RelayRequest::Get(_) | RelayRequest::Status(_) => RelayResponse::State(TaskState::running(long())),
        RelayRequest::Dequeue(_) => RelayResponse::State(TaskState::running("")),
        RelayRequest::Cancel { .. } => RelayResponse::State(TaskState::Tombstoned),
        RelayRequest::Acknowledge(_) | RelayRequest::Release { .. } | RelayRequest::Delete(_) => RelayResponse::Done,
        RelayRequest::Call(_) => RelayResponse::Refused("this relay calls no services".to_owned()),
        RelayRequest::Unreadable { reason, .. } => RelayResponse::Unavailable(reason),
        RelayRequest::About => {
            let version = "1".to_owned();
            RelayResponse::About(RelayInfo { version, up_ms: 1, tasks: 0, policy: None, api_server: None })
        }
        RelayRequest::List { .. } => RelayResponse::Listing(listing(ended_task)),
    });
    let response = BatchResponse { v: 1, cluster: "uid".to_owned(), responses: responses.collect() };
    QueuedReply { id: sealed.id.clone(), outcome: ReplyOutcome::Response(response) }
}

fn listing(ended_task: &TaskId) -> ClusterListing {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "left", "uid": "uid-left", "labelled": true});
    let unmanaged = json!({"unit": ended_task.unit, "ageMs": 1, "object": object});
    let listed = json!({
        "task": ended_task, "phase": "running", "instance": "l", "callback": "", "ageMs": 7_200_000, "objects": [object],
    });
    serde_json::from_value(json!({"tasks": [listed], "unmanaged": vec![unmanaged; 20]})).unwrap()
}
