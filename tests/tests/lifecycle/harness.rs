//! A stack, the server that its webhook units call, and requests to both.

use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use ebb_api::ServerState;
use ebb_engine::{HeadState, RunPhase};
use ebb_flow::system::SystemClock;
use ebb_local::stack::{RemoteRelays, Stack, StackSettings, UnitBackend};
use ebb_protocol::record::AttemptRecord;
use ebb_protocol::{CreatedToken, TargetDetail, TargetDiagnosis, UnitDetail, cloudevents, id, parse_rfc3339};
use ebb_relay_client::PollEndpoint;
use ebb_store::TargetList;
use ebb_tests::platform;
use tempfile::TempDir;

// Imports of all tests.
pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::path::Path;
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use anyhow::ensure;
pub(crate) use axum::http::Method;
pub(crate) use ebb_api::{ApiRole, ApiTokens};
pub(crate) use ebb_engine::{Attempt, Epoch, Hook, Millis, Timestamp, Unit};
pub(crate) use ebb_flow::{Env, Rejection};
pub(crate) use ebb_protocol::api::{Certainty, TargetPhase, UnitState};
pub(crate) use ebb_protocol::{ErrorCode, LifecycleData, LifecycleType, RunId, TargetKey, WebhookSecret, limits};
pub(crate) use ebb_tests::api_client::{ApiClient, ApiReply};
pub(crate) use ebb_tests::browser::Browser;
pub(crate) use ebb_tests::fakes;
pub(crate) use ebb_tests::platform::{SignedRequest, named, now};
pub(crate) use ebb_tests::receiver::{CannedReply, ReceivedCall, TestReceiver};
pub(crate) use ebb_tests::wait::{POLL_INTERVAL, WAIT_TIMEOUT, until};
pub(crate) use serde::Deserialize;
pub(crate) use serde_json::{Value, json};
pub(crate) use tokio::io::{AsyncReadExt, AsyncWriteExt};
pub(crate) use tokio::net::TcpStream;

pub(crate) use crate::request_table;

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// The head and the records of a run, without due time and version, which sweeps change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredRun {
    pub(crate) head: Option<HeadState>,
    pub(crate) records: Vec<(Unit, Attempt, AttemptRecord)>,
}

pub(crate) struct Harness {
    stack: Option<Stack>,
    pub(crate) receiver: TestReceiver,
    pub(crate) http: reqwest::Client,
    settings: StackSettings,
    // Deleted when the harness is dropped.
    folder: TempDir,
}

impl Harness {
    /// Starts a stack that stores notifications in a file.
    pub(crate) async fn new() -> Self {
        Self::start(|settings, _| settings).await
    }

    pub(crate) async fn simple() -> Self {
        let harness = Self::new().await;
        harness.publish("simple@1.0.0", SIMPLE).await;
        harness
    }

    pub(crate) async fn with_issuers(oidc: &Value) -> Self {
        Self::trusting(|_| oidc.clone()).await
    }

    /// Starts a stack that accepts identity tokens of issuers, which are a function of the URL of the receiver.
    pub(crate) async fn trusting(oidc: impl FnOnce(&str) -> Value) -> Self {
        Self::start(|settings, receiver| StackSettings { oidc: oidc(receiver.url()).to_string(), ..settings }).await
    }

    /// Starts a stack whose platform is the receiver, at `POST /platform`.
    pub(crate) async fn with_platform() -> Self {
        let platform = |receiver: &TestReceiver| Some(format!("{}/platform", receiver.url()));
        Self::start(|settings, receiver| StackSettings { platform: platform(receiver), ..settings }).await
    }

    /// Starts a stack whose units run in the clusters of a list, in which `RECEIVER` stands for the URL of the receiver.
    pub(crate) async fn with_clusters(list: &Value) -> Self {
        Self::start(|settings, receiver| {
            let clusters = settings.state.with_file_name("clusters.json");
            std::fs::write(&clusters, list.to_string().replace("RECEIVER", receiver.url())).unwrap();
            let units = UnitBackend::RemoteRelays(RemoteRelays { clusters: Some(clusters), networks: String::new() });
            StackSettings { units, ..settings }
        })
        .await
    }

    pub(crate) async fn with_retention(retention: Option<Duration>) -> Self {
        Self::start(|settings, _| StackSettings { retention, ..settings }).await
    }

    pub(crate) async fn start(change: impl FnOnce(StackSettings, &TestReceiver) -> StackSettings) -> Self {
        let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let receiver = TestReceiver::start().await;
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        let state = folder.path().join("state");
        let settings = StackSettings { state, plugins: Some(plugins), ..StackSettings::default() };
        let settings = change(settings, &receiver);
        let stack = Some(Stack::start(settings.clone()).await.unwrap());
        Self { stack, receiver, http: platform::http(), settings, folder }
    }

    pub(crate) fn stack(&self) -> &Stack {
        self.stack.as_ref().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the file of the secrets that sources name. A text is its content as it is.
    pub(crate) fn write_secrets(&self, secrets: &Value) {
        let path = self.folder().join("state/secrets.json");
        std::fs::write(&path, secrets.as_str().map_or_else(|| secrets.to_string(), str::to_owned)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn plugin_file(&self, name: &str) -> PathBuf {
        self.folder().join("plugins").join(name)
    }

    /// Stops the stack and starts it again with the same state.
    pub(crate) async fn restart(&mut self) {
        self.stack.take().unwrap().stop().await;
        self.stack = Some(Stack::start(self.settings.clone()).await.unwrap());
    }

    /// Returns the URL of a path of the stack. Another URL stays as it is.
    pub(crate) fn url(&self, path: &str) -> String {
        if path.starts_with("http://") { path.to_owned() } else { format!("{}{path}", self.stack().url()) }
    }

    pub(crate) fn caller(&self, token: &str) -> ApiClient {
        ApiClient::new(&self.http, self.stack().url(), token)
    }

    pub(crate) fn operator(&self) -> ApiClient {
        self.caller(self.stack().token())
    }

    pub(crate) async fn request(&self, method: Method, path: &str, body: Option<Value>) -> ApiReply {
        self.operator().request(method, path, body).await
    }

    /// Sends a request such as `GET /v1/targets` with a token.
    pub(crate) async fn with_token(&self, token: &str, line: &str, body: Option<Value>) -> ApiReply {
        let (method, path) = line.split_once(' ').unwrap();
        self.caller(token).request(method.parse().unwrap(), path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> ApiReply {
        self.operator().get(path).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> ApiReply {
        self.operator().post(path, body).await
    }

    /// Creates a named token of the API. Returns its text.
    pub(crate) async fn token(&self, name: &str, scopes: &[&str]) -> String {
        let created = self.post("/v1/tokens", json!({"name": name, "scopes": scopes})).await;
        let created: CreatedToken = created.is(201).json();
        assert!(!format!("{created:?}").contains(&created.token));
        created.token
    }

    /// Publishes a plugin with this name and version. `rest` is the rest of its document, in which `RECEIVER` stands
    /// for the URL of the receiver.
    pub(crate) async fn publish(&self, name: &str, rest: &str) {
        self.operator().publish(&named("Plugin", name, rest).replace("RECEIVER", self.receiver.url())).await;
    }

    /// Sends a document of a kind such as `Source`. `rest` is the rest of the document, in which `RECEIVER` stands for the
    /// URL of the receiver.
    pub(crate) async fn put(&self, kind: &str, name: &str, rest: &str) -> ApiReply {
        self.operator().put(kind, name, &named(kind, name, rest).replace("RECEIVER", self.receiver.url())).await
    }

    /// Returns the functions of the stack in another environment or with other tokens.
    pub(crate) fn functions(&self, env: Arc<Env>, tokens: ApiTokens) -> ServerState {
        let poll_endpoint = PollEndpoint::new(Arc::default(), env.store.clone(), Arc::new(SystemClock), None);
        ServerState { env, tokens: Arc::new(tokens), poll_endpoint: Arc::new(poll_endpoint) }
    }

    pub(crate) async fn lifecycle(&self, event_type: LifecycleType, data: &LifecycleData) -> ApiReply {
        self.event(&SignedRequest::lifecycle(&self.secret(), event_type, data)).await
    }

    pub(crate) async fn cloud_event(&self, id: &str, event_type: LifecycleType, data: &LifecycleData) -> ApiReply {
        let (content_type, body) = cloudevents::lifecycle(id, "urn:tests", event_type, now(), data);
        let request = SignedRequest::new(&self.secret(), &format!("msg-{id}"), now(), body);
        self.event(&request.header("content-type", content_type)).await
    }

    pub(crate) async fn event(&self, event: &SignedRequest) -> ApiReply {
        ApiReply::to(event.post(&self.http, &self.url("/v1/events"))).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.stack().url().trim_start_matches("http://")).await.unwrap()
    }

    pub(crate) fn secret(&self) -> WebhookSecret {
        WebhookSecret::parse(self.stack().webhook_secret()).unwrap()
    }

    /// Requests a sandbox with one resource `r` of `plugin`. Its uid is `NAME-uid`.
    pub(crate) async fn create(&self, name: &str, plugin: &str) {
        self.lifecycle(LifecycleType::Created, &sandbox(name, &format!("{name}-uid"), plugin)).await.is(202);
    }

    pub(crate) async fn delete(&self, name: &str) {
        let data = LifecycleData { document: None, ..sandbox(name, &format!("{name}-uid"), "none") };
        self.lifecycle(LifecycleType::Deleted, &data).await.is(202);
    }

    /// Publishes a plugin and requests a sandbox of it.
    pub(crate) async fn begin(&self, name: &str, plugin: &str, rest: &str) {
        self.publish(&format!("{plugin}@1.0.0"), rest).await;
        self.create(name, plugin).await;
    }

    /// Publishes a plugin, requests a sandbox of it, and waits for a phase.
    pub(crate) async fn run(&self, name: &str, plugin: &str, rest: &str, phase: TargetPhase) -> TargetDetail {
        self.begin(name, plugin, rest).await;
        self.phase(name, phase).await
    }

    /// Requests a sandbox of a published plugin and waits until it is ready.
    pub(crate) async fn ready(&self, name: &str, plugin: &str) -> TargetDetail {
        self.create(name, plugin).await;
        self.phase(name, TargetPhase::Ready).await
    }

    /// Deletes a sandbox and waits until it is gone.
    pub(crate) async fn tear_down(&self, name: &str) -> TargetDetail {
        self.delete(name).await;
        self.phase(name, TargetPhase::Gone).await
    }

    /// Waits until a target is gone, the platform has accepted its last notification, and its runs are closed.
    pub(crate) async fn settled(&self, name: &str) {
        until("the end of all runs", async || {
            let store = self.stack().store();
            let target = store.read_target(TargetKey::new("sandbox", name)).await.unwrap()?;
            for hook in Hook::ALL {
                let run = store.read_run(&target.run(hook)).await.unwrap();
                if run.is_some_and(|run| run.head.phase != RunPhase::Closed) {
                    return None;
                }
            }
            (target.list() == TargetList::Gone).then_some(())
        })
        .await;
    }

    pub(crate) async fn target(&self, name: &str) -> Option<TargetDetail> {
        self.operator().target(&format!("sandbox/{name}")).await
    }

    pub(crate) async fn why(&self, name: &str) -> TargetDiagnosis {
        self.get(&format!("/v1/targets/sandbox/{name}/why")).await.is(200).json()
    }

    /// Waits until the target is in this phase. Fails early if the target fails or is stuck instead.
    pub(crate) async fn phase(&self, name: &str, phase: TargetPhase) -> TargetDetail {
        let begun = Instant::now();
        loop {
            let target = self.target(name).await.unwrap_or_else(|| panic!("{name} does not exist"));
            if target.info.phase == phase {
                return target;
            }
            let ended = matches!(target.info.phase, TargetPhase::Failed | TargetPhase::Stuck);
            if begun.elapsed() > WAIT_TIMEOUT || (ended && begun.elapsed() > Duration::from_secs(10)) {
                let why = self.why(name).await;
                panic!("{name} is {:?}, not {phase:?}: {why:#?} {:#?}", target.info.phase, target.runs);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until an instance that waited for its name is ready.
    pub(crate) async fn instance_is_ready(&self, name: &str, uid: &str) {
        until(&format!("{uid} to be ready"), async || {
            let info = self.target(name).await?.info;
            (info.uid == uid && info.phase == TargetPhase::Ready).then_some(())
        })
        .await;
    }

    /// Waits until the platform has accepted the notification, which closes the run.
    pub(crate) async fn notification_accepted(&self, name: &str) {
        let accepted = async || self.target(name).await?.pending_notification.is_none().then_some(());
        until(&format!("the notification about {name} to be accepted"), accepted).await;
    }

    /// Waits until a unit of the resource `r` is in this state.
    pub(crate) async fn unit(&self, name: &str, hook: &str, unit: &str, state: UnitState) -> UnitDetail {
        until(&format!("{hook} {unit} of {name} {state:?}"), async || {
            let run = self.target(name).await?.runs.into_iter().find(|run| run.hook == hook)?;
            let key = format!("r/{unit}");
            run.units.into_iter().find(|found| found.key == key).filter(|found| found.state == state)
        })
        .await
    }

    /// Returns the units whose resources remain, each with the certainty that they exist.
    pub(crate) async fn remaining(&self, name: &str) -> Vec<(String, Certainty)> {
        self.why(name).await.remaining.into_iter().map(|it| (it.unit, it.certainty)).collect()
    }

    pub(crate) async fn callback(&self, token: &str, body: &Value) -> ApiReply {
        self.callback_bytes(token, body.to_string().into_bytes()).await
    }

    pub(crate) async fn callback_bytes(&self, token: &str, body: Vec<u8>) -> ApiReply {
        let request = self.http.post(self.url("/v1/callbacks")).bearer_auth(token);
        ApiReply::to(request.header("content-type", "application/json").body(body)).await
    }

    pub(crate) async fn state(&self, name: &str, hook: Hook) -> StoredRun {
        let run = run_id(name, hook);
        let store = self.stack().store();
        let present = store.read_run(&run).await.unwrap();
        let head = present.map(|present| HeadState { due: None, version: 0, ..present.head });
        StoredRun { head, records: store.read_all_records(&run).await.unwrap() }
    }

    /// Returns the notifications that the stack stored in its file, as CloudEvents.
    pub(crate) fn notifications(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.settings.state.join("notifications.jsonl")).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the stack has these notifications about a sandbox, in the order of their times. Repetitions of an event
    /// count once.
    pub(crate) async fn notified(&self, name: &str, expected: &[&str]) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let events = self.notifications();
            let mut known = BTreeSet::new();
            let of_it = events.iter().filter(|event| event["data"]["name"] == name);
            let mut of_it: Vec<&Value> = of_it.filter(|event| known.insert(event["id"].to_string())).collect();
            of_it.sort_by_key(|event| parse_rfc3339(event["time"].as_str().unwrap_or_default()));
            let of_it = of_it.into_iter();
            // `ready` for `dev.ebb.target.ready.v1`.
            let word = |event: &Value| event["type"].as_str()?.split('.').nth(3).map(str::to_owned);
            let (notified, data): (Vec<String>, Vec<Value>) =
                of_it.map(|event| (word(event).unwrap_or_default(), event["data"].clone())).unzip();
            if notified == expected {
                return data;
            }
            // The phase of the target changes before the platform is notified.
            let may_follow = notified.len() < expected.len() && begun.elapsed() < WAIT_TIMEOUT;
            assert!(may_follow, "{notified:?}, not {expected:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns the key of the instance whose uid is `NAME-uid`.
pub(crate) fn instance(name: &str) -> String {
    id::instance_key("sandbox", name, &format!("{name}-uid"))
}

pub(crate) fn run_id(name: &str, hook: Hook) -> RunId {
    RunId::new(&instance(name), 1, hook)
}

/// Returns the outputs of the resource `r`.
pub(crate) fn outputs(target: &TargetDetail) -> Value {
    json!(target.resources["r"].outputs)
}

/// A unit with one attempt, and its undo.
pub(crate) const SIMPLE: &str = include_str!("documents/simple.yaml");

/// Returns an event of a sandbox with one resource `r`.
pub(crate) fn sandbox(name: &str, uid: &str, plugin: &str) -> LifecycleData {
    platform::sandbox(name, uid, &format!("resources: {{r: {{plugin: {plugin}}}}}\n"))
}

/// Returns the body of a request of the API for a sandbox. `rest` is the rest of its document.
pub(crate) fn request_for(name: &str, rest: &str) -> Value {
    json!({"kind": "sandbox", "name": name, "document": named("Sandbox", name, rest)})
}

/// Returns such a body for a sandbox with one resource `r` of the plugin `simple`. `rest` begins the rest of its document.
pub(crate) fn simple_request(name: &str, rest: &str) -> Value {
    request_for(name, &format!("{rest}resources: {{r: {{plugin: simple}}}}\n"))
}

/// Returns the body of a callback without outputs.
pub(crate) fn done() -> Value {
    json!({"status": "succeeded"})
}

/// Returns the distinct values of `id` that `POST /undo` was sent.
pub(crate) fn undone(harness: &Harness) -> BTreeSet<String> {
    harness.receiver.calls("POST /undo").iter().map(|call| call.body["id"].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn serve(router: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}
