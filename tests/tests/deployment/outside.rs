//! What is outside: the platform, servers of webhook units, and a cluster's relay that polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::listing::{ClusterListing, ObjectSummary, RelayInfo, TaskSummary, UnmanagedObject};
use ebb_protocol::pull::{PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch};
use ebb_protocol::relay::{Batch, BatchResponse, RelayRequest, RelayResponse, TaskId, TaskState};
use ebb_protocol::seal;
use ebb_protocol::sign::WebhookKeys;
use ebb_tests::platform::{SignedRequest, http, now};
use ebb_tests::receiver::{CannedReply, TestReceiver};
use serde_json::json;

use crate::functions::{CLUSTER, secret};

/// More than fits into an item, a queued batch or a response.
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

/// Starts the servers. `/ok` answers at once, `/long` at length, `/later` calls back, `/twice` once more with another
/// result, `/bad` fails and `/late-bad` fails by a callback; `/flaky` and `/second` fail at first and are long then.
/// Every other request is accepted.
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
            _ => (200, vec![]),
        };
        let id = if matches!(what, "long" | "flaky" | "second") { long() } else { "x".to_owned() };
        CannedReply::status(status).with(json!({ "id": id })).then(async { callbacks })
    });
    receiver
}

/// The relay of the cluster: scripts succeed at once, but for one that is `endless`, and one of an instance that is over is still there.
pub(crate) async fn relay(api: String, over: TaskId, seen: SeenTraces) {
    let (http, url, mut replies) = (http(), format!("{api}/v1/clusters/{CLUSTER}/poll"), Vec::new());
    loop {
        let poll =
            PollRequest { v: 1, cluster: "uid".to_owned(), wait_ms: Some(500), in_progress: Vec::new(), replies };
        let poll = SignedRequest::new(&secret(), "poll-1", now(), serde_json::to_vec(&poll).unwrap());
        let answer = poll.post(&http, &url).send().await.unwrap();
        let post: PollResponse = answer.json().await.unwrap();
        replies = post.batches.iter().map(|batch| reply(batch, &over, &seen, &http)).collect();
    }
}

fn reply(sealed: &SealedBatch, over: &TaskId, seen: &SeenTraces, http: &reqwest::Client) -> QueuedReply {
    let ciphertext = STANDARD.decode(&sealed.ciphertext).unwrap();
    let data = SealedBatch::associated_data(CLUSTER, &sealed.id);
    let batch = seal::open(&WebhookKeys::from(secret()), &data, &ciphertext).unwrap();
    let batch: Batch = serde_json::from_slice(&batch).unwrap();
    let answers = batch.requests.into_iter().map(|request| match request {
        RelayRequest::Ensure(work) => {
            let documents = &work.body.secrets;
            let env: Vec<(String, String)> = serde_json::from_value(documents[0].document["env"].clone()).unwrap();
            let of = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            seen.add(of("EBB_UNIT").unwrap(), of("TRACEPARENT").unwrap_or_default());
            if of("EBB_UNIT") != Some("endless") {
                let result = json!({"status": "succeeded", "outputs": {"name": long()}, "log": "done"});
                let callback = http.post(&work.callback.url).bearer_auth(&work.callback.token).json(&result);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    callback.send().await.unwrap();
                });
            }
            RelayResponse::State(TaskState::running(long()))
        }
        RelayRequest::Get(_) => RelayResponse::State(TaskState::running(long())),
        RelayRequest::Dequeue(_) => RelayResponse::State(TaskState::running("")),
        RelayRequest::Cancel { .. } => RelayResponse::State(TaskState::Tombstoned),
        RelayRequest::Acknowledge(_) | RelayRequest::Release { .. } | RelayRequest::Delete(_) => RelayResponse::Done,
        RelayRequest::About => RelayResponse::About(RelayInfo { version: "1".to_owned(), up_ms: 1, tasks: 0 }),
        RelayRequest::List { .. } => RelayResponse::Listing(listing(over)),
    });
    let answers = BatchResponse { v: 1, cluster: "uid".to_owned(), responses: answers.collect() };
    QueuedReply { id: sealed.id.clone(), outcome: ReplyOutcome::Response(answers) }
}

fn listing(over: &TaskId) -> ClusterListing {
    let object = ObjectSummary {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
        name: "left".to_owned(),
        uid: "uid-left".to_owned(),
        labelled: true,
    };
    let unmanaged = UnmanagedObject { unit: over.unit.clone(), age_ms: 1, object: object.clone() };
    let listed = TaskSummary {
        task: over.clone(),
        phase: "running".to_owned(),
        instance: "l".to_owned(),
        callback: String::new(),
        installation: String::new(),
        age_ms: 7_200_000,
        objects: vec![object],
    };
    ClusterListing { tasks: vec![listed], unmanaged: vec![unmanaged; 20], ..ClusterListing::default() }
}
