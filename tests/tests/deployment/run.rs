//! Instances that together make all requests of the functions to the table, the bucket and the queue.

use std::collections::BTreeMap;

use ebb_flow::telemetry::Telemetry;
use ebb_protocol::{
    CreatedToken, Hook, LifecycleData, LifecycleType, RunId, TargetKey, TaskId, Timestamp, Unit, WebhookSecret, id,
};
use ebb_store::{ClusterFaultKind, DesiredKey, DesiredTarget, SourceWatch, Store, TargetHead, TargetTransition};
use ebb_tests::api_client::{ApiClient, ApiReply};
use ebb_tests::browser::Browser;
use ebb_tests::platform::{SignedRequest, http, named, now, sandbox};
use ebb_tests::receiver::TestReceiver;
use ebb_tests::wait::until;
use serde::Deserialize;
use serde_json::{Value, json};

use super::functions::{CLUSTER, DeployedFunctions, TOKEN, UNREACHABLE, secret};
use super::outside::{self, SeenTraces};
use super::updates;

/// A step of the platform with the name and the UID of a sandbox, or one of a caller of the API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum LifecycleStep {
    /// The plugin, the status of the answer, and the rest of the document.
    Create(String, String, String, u16, String),
    Delete(String, String),
    /// Waits for the phase.
    Phase(String, String, String),
    /// Waits for values of the sandbox by JSON pointer.
    Until(String, BTreeMap<String, Value>),
    /// The kind, the name and the rest of a document.
    Put(String, String, String),
    /// Makes a token with these scopes for the requests that follow to a function: its name, the line, the body and the status.
    Token(Vec<String>),
    Send(String, String, Option<Value>, u16),
}

pub(crate) struct LifecycleRun {
    pub(crate) functions: DeployedFunctions,
    http: reqwest::Client,
    pub(crate) outside: TestReceiver,
    /// The `traceparent` header of lifecycle webhooks.
    pub(crate) traceparent: Option<String>,
}

impl LifecycleRun {
    pub(crate) async fn begin(telemetry: Telemetry, seen: SeenTraces) -> Self {
        let outside = outside::start(seen.clone()).await;
        let functions = DeployedFunctions::start(&format!("{}/platform", outside.url()), telemetry).await;
        let run = RunId::new(&id::instance_key("sandbox", "whole", "1"), 1, Hook::PreStart);
        let task = TaskId { unit: TaskId::unit_of(&run, Unit(0)), attempt: 1 };
        tokio::spawn(outside::relay(functions.urls["Api"].clone(), task, seen));
        Self { functions, http: http(), outside, traceparent: None }
    }

    fn caller(&self, function: &str, token: &str) -> ApiClient {
        ApiClient::new(&self.http, &self.functions.urls[function], token)
    }

    fn operator(&self) -> ApiClient {
        self.caller("Api", TOKEN)
    }

    /// Reads something as the operator.
    async fn get(&self, path: &str) -> ApiReply {
        let reply = self.operator().get(path).await;
        reply.is(200);
        reply
    }

    /// Stores a document of a kind such as `Source`.
    async fn put(&self, kind: &str, name: &str, rest: &str) {
        let document = named(kind, name, rest).replace("OUTSIDE", self.outside.url());
        self.operator().put(kind, name, &document).await.is(200);
    }

    pub(crate) async fn publish(&self, name: &str, rest: &str) {
        self.operator().publish(&named("Plugin", name, rest).replace("OUTSIDE", self.outside.url())).await;
    }

    async fn event(&self, event_type: LifecycleType, name: &str, uid: &str, rest: &str) -> u16 {
        let mut data = sandbox(name, uid, rest);
        data.document = data.document.filter(|_| event_type == LifecycleType::Created);
        // One instance writes plans and another one reads them.
        let function = if event_type == LifecycleType::Created { "Receive" } else { "Second" };
        self.send(function, event_type, &data).await
    }

    pub(crate) async fn send(&self, function: &str, event_type: LifecycleType, data: &LifecycleData) -> u16 {
        let url = format!("{}/v1/events", self.functions.urls[function]);
        let mut request = SignedRequest::lifecycle(&secret(), event_type, data).post(&self.http, &url);
        if let Some(traceparent) = &self.traceparent {
            request = request.header("traceparent", traceparent);
        }
        request.send().await.unwrap().status().as_u16()
    }

    pub(crate) async fn create(&self, name: &str, uid: &str, plugin: &str, more: &str) -> u16 {
        let cluster = if plugin == "script" { UNREACHABLE } else { CLUSTER };
        let rest = format!("cluster: {cluster}\nresources: {{r: {{plugin: {plugin}}}}}\n{more}");
        self.event(LifecycleType::Created, name, uid, &rest).await
    }

    pub(crate) async fn delete(&self, name: &str, uid: &str) -> u16 {
        self.event(LifecycleType::Deleted, name, uid, "").await
    }

    /// Sends a request to the API and checks its status.
    pub(crate) async fn post(&self, path: &str, body: Value, expected: u16) {
        self.operator().post(path, body).await.is(expected);
    }

    pub(crate) async fn phase(&self, name: &str, uid: &str, phase: &str) -> Value {
        self.until(name, phase, |target| target["phase"] == phase && target["uid"] == uid).await
    }

    /// Waits until a target fulfils a condition.
    pub(crate) async fn until(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{name} to be {what}"), async || {
            let target = self.operator().get(&format!("/v1/targets/sandbox/{name}")).await.json();
            is(&target).then_some(target)
        })
        .await
    }

    /// Takes the steps with a name in `steps.yaml`.
    async fn take(&self, name: &str) {
        let mut token = TOKEN.to_owned();
        let all: Value = serde_saphyr::from_str(include_str!("documents/steps.yaml")).unwrap();
        for step in serde_json::from_value::<Vec<LifecycleStep>>(all[name].clone()).unwrap() {
            match step {
                LifecycleStep::Create(name, uid, plugin, status, rest) => {
                    assert_eq!(self.create(&name, &uid, &plugin, &rest).await, status, "{name}");
                }
                LifecycleStep::Delete(name, uid) => assert_eq!(self.delete(&name, &uid).await, 202, "{name}"),
                LifecycleStep::Phase(name, uid, phase) => drop(self.phase(&name, &uid, &phase).await),
                LifecycleStep::Until(name, values) => {
                    let has_all = |target: &Value| values.iter().all(|(at, value)| target.pointer(at) == Some(value));
                    self.until(&name, &format!("{values:?}"), has_all).await;
                }
                LifecycleStep::Put(kind, name, rest) => self.put(&kind, &name, &rest).await,
                LifecycleStep::Token(scopes) => {
                    let made = self.operator().post("/v1/tokens", json!({"name": "ci", "scopes": scopes})).await;
                    token = made.is(201).json::<CreatedToken>().token;
                }
                LifecycleStep::Send(function, line, body, status) => {
                    let (method, path) = line.split_once(' ').unwrap();
                    self.caller(&function, &token).request(method.parse().unwrap(), path, body).await.is(status);
                }
            }
        }
    }
}

/// Creates and deletes targets by events of a source.
async fn sources(instance: &LifecycleRun) {
    instance.put("Source", "events", include_str!("documents/source.yaml")).await;
    instance.take("events").await;
    // States whose invocation ended before it applied them.
    for plugin in ["whole", "wohle"] {
        let (source, kind, name) = ("events".into(), "sandbox".into(), format!("swept-{plugin}"));
        let rest = format!("cluster: {CLUSTER}\nresources: {{r: {{plugin: {plugin}}}}}\n");
        let document = named("Sandbox", &name, &rest);
        let desired = DesiredTarget {
            key: DesiredKey { source, kind, name, uid: None },
            delivery: "1".into(),
            time: Timestamp(1),
            new_uid: format!("event-{plugin}"),
            document: Some(document),
            due: Some(Timestamp(1)),
            version: 1,
            is_limited: true,
            ..DesiredTarget::default()
        };
        assert!(instance.functions.table.put_desired(&desired).await.unwrap());
    }
    updates::by_a_swept_state(instance, "swept-whole").await;
    instance.until("swept-whole", "ready", |target| target["phase"] == "ready").await;
    // A sweep lists the event that it rejects.
    until("swept-wohle to be rejected", async || {
        let source: Value = instance.get("/v1/sources/events").await.json();
        let mut listed = source["rejected"].as_array().unwrap().iter();
        listed.any(|event| event["target"] == "sandbox/swept-wohle").then_some(())
    })
    .await;
    lists(instance).await;
    instance.take("no_sources").await;
    // A sweep drops what the lists have shown.
    let table = &instance.functions.table;
    until("the state of the lists to be removed", async || {
        let Some((watch, findings)) = table.read_watch("events").await.unwrap() else { return Some(()) };
        let again = SourceWatch { due: now(), version: watch.version + 1, ..watch };
        table.put_watch(&again, &findings).await.unwrap();
        None
    })
    .await;
}

/// Ends a target whose thing two lists lack.
async fn lists(instance: &LifecycleRun) {
    let event = json!({"plugin": "stuck", "name": "listed", "apply": true});
    instance.outside.always("GET /things", json!([event]));
    let connection = "origin: OUTSIDE\nauth: {bearer: {secret: SENDER}}\nsources: [events]\n";
    instance.put("Connection", "listed", connection).await;
    let source = include_str!("documents/source.yaml");
    instance.put("Source", "events", &format!("{source}exists: {{connection: listed, path: /things}}\n")).await;
    assert_eq!(instance.caller("Receive", TOKEN).post("/v1/sources/events", event).await.status, 202);
    instance.until("listed", "ready", |target| target["phase"] == "ready").await;
    let table = &instance.functions.table;
    until("an older target", async || {
        let seen = table.read_target(TargetKey::new("sandbox", "listed")).await.unwrap()?;
        let TargetHead { version, .. } = seen;
        let older = TargetHead { created: Timestamp(1), version: version + 1, ..seen };
        table.move_target(&TargetTransition::new(older, Some(version))).await.unwrap().then_some(())
    })
    .await;
    list_again(table).await;
    instance.outside.always("GET /things", json!([]));
    list_again(table).await;
    instance.post("/v1/sources/events/reconcile", json!({"uids": []}), 200).await;
    list_again(table).await;
    instance.until("listed", "ended by the lists", |target| target["phase"] != "ready").await;
}

/// Makes the source due, with what earlier lists lacked long ago. Waits for the next list.
async fn list_again(table: &Store) {
    until("a list to be due", async || {
        let (watch, mut findings) = table.read_watch("events").await.unwrap()?;
        findings.missing.iter_mut().for_each(|one| one.first = Timestamp(1));
        let again = SourceWatch { complete: None, due: now(), version: watch.version + 1, ..watch };
        table.put_watch(&again, &findings).await.unwrap().then_some(())
    })
    .await;
    until("a complete list", async || table.read_watch("events").await.unwrap()?.0.complete.map(drop)).await;
}

/// Signs in to the console, deletes a target by the form of its page, and signs out.
async fn console(instance: &LifecycleRun) {
    let browser = Browser::signed_in(&instance.functions.urls["Api"], TOKEN).await;
    let post = async |path: &str, fields: &[(&str, &str)]| {
        browser.post(path, Some(&browser.base), fields).await.is(200);
    };
    browser.get("/console/targets/sandbox/by-form").await.is(200);
    let link = "/console/selection?action=delete&target=sandbox%2Fby-form%201";
    let form = browser.get(link).await.is(200).field("form");
    let fields = [("form", form.as_str()), ("action", "delete"), ("target", "sandbox/by-form 1")];
    post("/console/selection/confirmed", &fields).await;
    instance.phase("by-form", "1", "stuck").await;
    post("/console/sign-out", &fields).await;
}

/// Creates and deletes a target by the tools of agents. `api` serves them, and does for them what `receive` does for others.
async fn agents(instance: &LifecycleRun) {
    let document = named("Sandbox", "by-agent", "resources: {r: {plugin: plain}}\n");
    let call = async |tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = instance.http.post(format!("{}/mcp", instance.functions.urls["Api"])).bearer_auth(TOKEN);
        let request = request.header("accept", "application/json, text/event-stream").json(&body);
        let response: Value = ApiReply::to(request).await.json();
        assert_eq!(response["result"]["isError"], false, "{tool}: {response}");
    };
    call("apply_document", json!({"document": document, "dry_run": true})).await;
    call("apply_document", json!({"document": document})).await;
    instance.until("by-agent", "ready", |target| target["phase"] == "ready").await;
    call("delete_target", json!({"name": "by-agent"})).await;
    instance.until("by-agent", "gone", |target| target["phase"] == "gone").await;
}

/// Publishes the plugins, reads them, subscribes to phases, and creates an instance.
async fn publications(instance: &LifecycleRun, noise: &str) {
    instance.take("subscriptions").await;
    // The document and its compressed plan are too large for the table.
    let whole = include_str!("documents/whole.yaml").replace("NOISE", noise);
    let description = "x".repeat(110 << 10);
    instance.publish("whole@1.0.0", &format!("{whole}\n# {description}\n")).await;
    instance.publish("whole@2.0.0", &whole).await;
    for plugin in include_str!("documents/plugins.yaml").split("---\n") {
        instance.operator().publish(&plugin.replace("OUTSIDE", instance.outside.url())).await;
    }
    instance.take("publications").await;
}

/// Reads an instance. Creates a second one that waits for its name, and one that is deleted before it is created.
async fn names_and_waiting(instance: &LifecycleRun) {
    let target = instance.phase("whole", "1", "ready").await;
    for run in target["runs"].as_array().unwrap() {
        let run = run["id"].as_str().unwrap();
        instance.get(&format!("/v1/runs/{run}")).await;
        instance.get(&format!("/v1/runs/{run}/logs?unit=r/script")).await;
    }
    instance.take("names_and_waiting").await;
}

async fn stuck_teardowns(instance: &LifecycleRun) {
    instance.take("a_completed_teardown").await;
    let completed = "/v1/targets/sandbox/completed";
    let history: Value = instance.get(&format!("{completed}/history")).await.json();
    let entry = history["entries"][0]["id"].as_str().unwrap();
    instance.get(&format!("{completed}/history/{entry}")).await;
    instance.take("a_deleted_teardown").await;
}

/// Shows the outage of a relay that does not respond, registers and removes a cluster, and polls with a wrong secret.
async fn clusters_and_outages(instance: &LifecycleRun) {
    instance.take("outages").await;
    let other_secret = WebhookSecret::from_bytes(&[8; 32]).unwrap();
    let poll = SignedRequest::new(&other_secret, "poll-1", now(), b"{}".to_vec());
    let url = format!("{}/v1/clusters/{CLUSTER}/poll", instance.functions.urls["Api"]);
    assert_eq!(poll.post(&instance.http, &url).send().await.unwrap().status(), 401);
    // An outage of a cluster that does not exist any more.
    let table = &instance.functions.table;
    table.begin_fault(ClusterFaultKind::Outage, "registered", now(), "a test").await.unwrap();
    let is_forgotten =
        async || (!table.read_faults(ClusterFaultKind::Outage).await.unwrap().contains_key("registered")).then_some(());
    until("the outage of a deleted cluster to be removed", is_forgotten).await;
    instance.take("lists").await;
    let checks: Value = instance.get("/v1/checks").await.json();
    for check in checks["checks"].as_array().unwrap() {
        let unreachable = check["name"] == format!("relay/{UNREACHABLE}");
        assert!(check["passed"] != unreachable, "{check}");
    }
}

/// Runs all instances, and returns the functions with the rights that they needed.
pub(crate) async fn all() -> DeployedFunctions {
    let instance = LifecycleRun::begin(Telemetry::default(), SeenTraces::default()).await;
    // A reader watches, so each function notes the changes of targets.
    instance.get("/v1/changes").await;
    let noise = (1..=256_u64).map(|number| format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let noise: String = noise.collect();
    publications(&instance, &noise).await;
    names_and_waiting(&instance).await;
    stuck_teardowns(&instance).await;
    instance.take("failing_setups").await;
    clusters_and_outages(&instance).await;
    updates::all(&instance, &noise).await;
    sources(&instance).await;
    instance.take("requests").await;
    console(&instance).await;
    agents(&instance).await;
    instance.take("the_end").await;
    instance.functions
}
