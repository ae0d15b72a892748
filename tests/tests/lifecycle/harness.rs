//! A stack, the server that its webhook units call, and requests to both.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use ebb_engine::{Attempt, Hook, Timestamp, Unit};
use ebb_local::stack::{RemoteRelays, Stack, StackSettings, UnitBackend};
use ebb_protocol::api::{ProblemDetails, TargetDetail, TargetDiagnosis, TargetState, UnitDetail, UnitState};
use ebb_protocol::cloudevents::{self, LifecycleType};
use ebb_protocol::id::{self, RunId};
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::record::AttemptRecord;
use ebb_protocol::sign::{self, MessageId, WebhookSecret};
use ebb_store::{ReadRecords as _, ReadRun as _, RunHead};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

/// Generous: the machine may be busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl ReceivedCall {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The token for its callback.
    pub(crate) fn token(&self) -> &str {
        self.header("ebb-callback-token")
    }
}

/// What the receiver answers with.
#[derive(Clone, Debug)]
pub(crate) struct CannedReply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Value,
    page: Option<&'static str>,
}

impl CannedReply {
    /// A page in HTML.
    pub(crate) fn page(page: &'static str) -> Self {
        Self { page: Some(page), ..Self::status(200) }
    }

    pub(crate) fn ok(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body, page: None }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: json!({}), page: None }
    }

    pub(crate) fn with(self, body: Value) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn after(self, seconds: u32) -> Self {
        self.header("retry-after", &seconds.to_string())
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

type ReplyFn = Arc<dyn Fn(&ReceivedCall, usize) -> CannedReply + Send + Sync>;

/// A server that keeps what comes and answers as it was told; 200 to what it was told nothing of.
#[derive(Clone, Default)]
pub(crate) struct LifecycleReceiver {
    calls: Arc<Mutex<Vec<ReceivedCall>>>,
    answers: Arc<Mutex<Vec<(String, ReplyFn)>>>,
    held: Arc<Mutex<BTreeMap<String, watch::Receiver<bool>>>>,
    url: String,
}

/// Keeps requests of one kind unanswered for as long as it is there.
pub(crate) struct ReplyHold(watch::Sender<bool>);

impl Drop for ReplyHold {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl LifecycleReceiver {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let receiver = Self { url, ..Self::default() };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Answers requests such as `POST /a` from now on. The number counts the requests of this kind, from 1.
    pub(crate) fn on(&self, what: &str, answer: impl Fn(&ReceivedCall, usize) -> CannedReply + Send + Sync + 'static) {
        self.answers.lock().unwrap().insert(0, (what.to_owned(), Arc::new(answer)));
    }

    /// Lets requests of one kind wait for their answers until the hold is dropped.
    pub(crate) fn hold(&self, what: &str) -> ReplyHold {
        let (released, waits) = watch::channel(false);
        self.held.lock().unwrap().insert(what.to_owned(), waits);
        ReplyHold(released)
    }

    /// The requests of one kind so far.
    pub(crate) fn calls(&self, what: &str) -> Vec<ReceivedCall> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| format!("{} {}", call.method, call.path) == what).cloned().collect()
    }

    /// All requests so far, as `METHOD PATH`.
    pub(crate) fn order(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|call| format!("{} {}", call.method, call.path)).collect()
    }

    /// Waits for the request of this kind with this number, from 1.
    pub(crate) async fn call(&self, what: &str, number: usize) -> ReceivedCall {
        let name = format!("{what}, number {number}");
        eventually(&name, async || self.calls(what).into_iter().nth(number - 1)).await
    }
}

async fn take(
    State(receiver): State<LifecycleReceiver>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let call = ReceivedCall {
        method: method.to_string(),
        path: uri.path().to_owned(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let what = format!("{} {}", call.method, call.path);
    let number = {
        let mut calls = receiver.calls.lock().unwrap();
        calls.push(call.clone());
        calls.iter().filter(|seen| format!("{} {}", seen.method, seen.path) == what).count()
    };
    let held = receiver.held.lock().unwrap().get(&what).cloned();
    if let Some(mut held) = held {
        held.wait_for(|&released| released).await.ok();
    }
    let answer = {
        let answers = receiver.answers.lock().unwrap();
        answers.iter().find(|(key, _)| *key == what).map(|(_, answer)| Arc::clone(answer))
    };
    let reply = answer.map_or_else(|| CannedReply::ok(json!({})), |answer| answer(&call, number));
    let mut response = match reply.page {
        Some(page) => axum::response::Html(page).into_response(),
        None => axum::Json(reply.body).into_response(),
    };
    *response.status_mut() = axum::http::StatusCode::from_u16(reply.status).unwrap();
    for (name, value) in reply.headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

/// Asks again and again until there is an answer.
pub(crate) async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct LifecycleReply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl LifecycleReply {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let status = response.status().as_u16();
        Self { status, content_type, body: response.text().await.unwrap() }
    }

    #[track_caller]
    pub(crate) fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that this is a problem of this status and word.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> ProblemDetails {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.content_type, "application/problem+json", "{self:?}");
        let problem: ProblemDetails = self.json();
        assert_eq!((problem.status, problem.code.as_str()), (status, code), "{self:?}");
        assert!(!problem.detail.is_empty(), "{self:?}");
        problem
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// The items and the records of a run; without when it is looked at, which sweeps move.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredRun {
    pub(crate) heads: Vec<RunHead>,
    pub(crate) records: Vec<(Unit, Attempt, AttemptRecord)>,
}

pub(crate) struct LifecycleHarness {
    stack: Option<Stack>,
    pub(crate) receiver: LifecycleReceiver,
    pub(crate) http: reqwest::Client,
    settings: StackSettings,
    // Removed when the test is over.
    folder: TempDir,
}

impl LifecycleHarness {
    /// A stack that keeps notifications itself.
    pub(crate) async fn new() -> Self {
        Self::start(None).await
    }

    /// A stack whose platform is the receiver, at `POST /platform`.
    pub(crate) async fn with_platform() -> Self {
        Self::start(Some("/platform")).await
    }

    /// A stack whose units run in clusters that others connect.
    pub(crate) async fn with_clusters(clusters: &Value) -> Self {
        Self::start_with(None, Some(clusters), None).await
    }

    /// Returns a stack with this retention of gone instances.
    pub(crate) async fn with_retention(retention: Option<Duration>) -> Self {
        Self::start_with(None, None, retention).await
    }

    async fn start(platform: Option<&str>) -> Self {
        Self::start_with(platform, None, None).await
    }

    async fn start_with(platform: Option<&str>, clusters: Option<&Value>, retention: Option<Duration>) -> Self {
        let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let units = clusters.map(|list| {
            let clusters = folder.path().join("clusters.json");
            std::fs::write(&clusters, list.to_string()).unwrap();
            UnitBackend::RemoteRelays(RemoteRelays { clusters, networks: String::new() })
        });
        let receiver = LifecycleReceiver::start().await;
        let platform = platform.map(|path| format!("{}{path}", receiver.url()));
        let state = folder.path().join("state");
        let units = units.unwrap_or_default();
        let settings = StackSettings { state, platform, units, retention, ..StackSettings::default() };
        let stack = Some(Stack::start(settings.clone()).await.unwrap());
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { stack, receiver, http, settings, folder }
    }

    pub(crate) fn stack(&self) -> &Stack {
        self.stack.as_ref().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the stack and starts it again on the same state.
    pub(crate) async fn restart(&mut self) {
        self.stack.take().unwrap().stop().await;
        self.stack = Some(Stack::start(self.settings.clone()).await.unwrap());
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.stack().url())
    }

    /// A request as the operator.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> LifecycleReply {
        let request = self.http.request(method, self.url(path)).bearer_auth(self.stack().token());
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        LifecycleReply::of(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> LifecycleReply {
        self.ask(Method::GET, path, None).await
    }

    /// Publishes a plugin; `RECEIVER` in it stands for the receiver's address.
    pub(crate) async fn publish(&self, document: &str) {
        let document = document.replace("RECEIVER", self.receiver.url());
        let answer = self.ask(Method::POST, "/v1/plugins", Some(json!({ "document": document }))).await;
        answer.is(201);
    }

    /// A signed lifecycle webhook.
    pub(crate) async fn lifecycle(&self, asked: LifecycleType, data: &LifecycleData) -> LifecycleReply {
        let time = now();
        let id = format!("evt-{}-{}", time.0, data.uid);
        let (content_type, body) = cloudevents::lifecycle(&id, "urn:tests", asked, time, data);
        self.signed(self.stack().webhook_secret(), time, content_type, body).await
    }

    /// A webhook that says to be sent at `time`.
    pub(crate) async fn signed(
        &self,
        secret: &str,
        time: Timestamp,
        content_type: &str,
        body: Vec<u8>,
    ) -> LifecycleReply {
        let id = MessageId::parse(&format!("msg-{}", time.0)).unwrap();
        let mut request = self.http.post(self.url("/v1/events")).header("content-type", content_type);
        for (name, value) in sign::sign(&WebhookSecret::parse(secret).unwrap(), &id, time, &body) {
            request = request.header(name, value);
        }
        LifecycleReply::of(request.body(body).send().await.unwrap()).await
    }

    /// Asks for a sandbox of one resource `r` of `plugin`; its uid is `NAME-uid`.
    pub(crate) async fn create(&self, name: &str, plugin: &str) {
        let answer = self.lifecycle(LifecycleType::Created, &sandbox(name, &format!("{name}-uid"), plugin)).await;
        answer.is(202);
    }

    pub(crate) async fn delete(&self, name: &str) {
        let mut data = sandbox(name, &format!("{name}-uid"), "none");
        data.document = None;
        self.lifecycle(LifecycleType::Deleted, &data).await.is(202);
    }

    pub(crate) async fn target(&self, name: &str) -> Option<TargetDetail> {
        let answer = self.get(&format!("/v1/targets/sandbox/{name}")).await;
        (answer.status != 404).then(|| answer.is(200).json())
    }

    pub(crate) async fn why(&self, name: &str) -> TargetDiagnosis {
        self.get(&format!("/v1/targets/sandbox/{name}/why")).await.is(200).json()
    }

    /// Waits until the target is in this phase; another end of its way fails at once.
    pub(crate) async fn phase(&self, name: &str, phase: TargetState) -> TargetDetail {
        let begun = Instant::now();
        loop {
            let target = self.target(name).await.unwrap_or_else(|| panic!("{name} is not there"));
            if target.info.phase == phase {
                return target;
            }
            let ended = matches!(target.info.phase, TargetState::Failed | TargetState::Stuck);
            if begun.elapsed() > PATIENCE || (ended && begun.elapsed() > Duration::from_secs(10)) {
                let why = self.why(name).await;
                panic!("{name} is {:?}, not {phase:?}: {why:#?} {:#?}", target.info.phase, target.runs);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the platform has taken the notification, which closes the run.
    pub(crate) async fn taken(&self, name: &str) {
        let what = format!("the platform has taken how {name} is");
        eventually(&what, async || self.target(name).await?.pending_notification.is_none().then_some(())).await;
    }

    /// Waits until a unit of a hook is in this state.
    pub(crate) async fn unit(&self, name: &str, hook: &str, unit: &str, state: UnitState) -> UnitDetail {
        let what = format!("{hook} {unit} of {name} {state:?}");
        eventually(&what, async || {
            let target = self.target(name).await?;
            let found = find(&target, hook, unit)?;
            (found.state == state).then_some(found)
        })
        .await
    }

    /// A callback with a token.
    pub(crate) async fn callback(&self, token: &str, body: &Value) -> LifecycleReply {
        self.callback_bytes(token, body.to_string().into_bytes()).await
    }

    pub(crate) async fn callback_bytes(&self, token: &str, body: Vec<u8>) -> LifecycleReply {
        let request = self.http.post(self.url("/v1/callbacks")).bearer_auth(token);
        let request = request.header("content-type", "application/json").body(body);
        LifecycleReply::of(request.send().await.unwrap()).await
    }

    /// What is stored of a run of the sandbox.
    pub(crate) async fn state(&self, name: &str, hook: Hook) -> StoredRun {
        let run = run_id(name, hook);
        let store = self.stack().store();
        let mut heads = store.read_run(&run).await.unwrap();
        for head in &mut heads {
            head.head.due = None;
            head.head.version = 0;
        }
        StoredRun { heads, records: store.read_all_records(&run).await.unwrap() }
    }

    /// Waits until the stack itself was sent these notifications of a sandbox, in this order; one that came once more, as the
    /// same event, counts once.
    pub(crate) async fn told(&self, name: &str, expected: &[&str]) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let events = self.stack().outcomes().events();
            let mut known = BTreeSet::new();
            let of_it = events.iter().filter(|event| event["data"]["name"] == name);
            let of_it = of_it.filter(|event| known.insert(event["id"].to_string()));
            let (told, data): (Vec<String>, Vec<Value>) =
                of_it.map(|event| (word(event["type"].as_str().unwrap_or_default()), event["data"].clone())).unzip();
            if told == expected {
                return data;
            }
            // The target is moved before the platform is told.
            assert!(told.len() < expected.len() && begun.elapsed() < PATIENCE, "{told:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// `dev.ebb.target.ready.v1` is `ready`.
pub(crate) fn word(event_type: &str) -> String {
    event_type.split('.').nth(3).unwrap_or_default().to_owned()
}

pub(crate) fn run_id(name: &str, hook: Hook) -> RunId {
    RunId::new(&id::instance_key("sandbox", name, &format!("{name}-uid")), 1, hook)
}

pub(crate) fn find(target: &TargetDetail, hook: &str, unit: &str) -> Option<UnitDetail> {
    let run = target.runs.iter().find(|run| run.hook == hook)?;
    run.units.iter().find(|found| found.key == format!("r/{unit}")).cloned()
}

/// What asks for a sandbox with one resource `r`.
pub(crate) fn sandbox(name: &str, uid: &str, plugin: &str) -> LifecycleData {
    let document =
        format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources: {{r: {{plugin: {plugin}}}}}\n");
    LifecycleData {
        kind: "sandbox".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        generation: 1,
        document: Some(document),
        routing_key: None,
    }
}

/// A plugin document with its name and the rest.
pub(crate) fn plugin(name: &str, rest: &str) -> String {
    format!("apiVersion: ebb.dev/v1\nkind: Plugin\nname: {name}\n{rest}")
}
