//! Living targets whose documents change.

use ebb_flow::lifecycle;
use ebb_protocol::api::TargetDetail;
use ebb_protocol::id::TargetKey;
use ebb_protocol::lifecycle::{LifecycleResponse, LifecycleResult, OutputValue, TargetStopCause};

use crate::harness::*;

/// A database with a name that the receiver gives it.
pub(crate) const DATABASE: &str = include_str!("documents/database.yaml");

/// An index of a database.
pub(crate) const INDEX: &str = include_str!("documents/index.yaml");

async fn harness() -> Harness {
    let harness = Harness::new().await;
    harness.receiver.on("POST /create", |_, number| CannedReply::ok(serde_json::json!({"id": format!("db-{number}")})));
    let drained = DATABASE.replace("postStop:", DRAIN);
    for (plugin, rest) in [("database", DATABASE), ("index", INDEX), ("drained", &drained)] {
        harness.publish(&format!("{plugin}@1.0.0"), rest).await;
    }
    harness
}

/// Starts a stack with a ready sandbox of this document. The requests of its setup are forgotten.
async fn ready(rest: &str) -> Harness {
    let harness = harness().await;
    send(&harness, 1, rest).await;
    harness.phase("a", TargetPhase::Ready).await;
    requests(&harness);
    harness
}

/// Sends a document with a generation.
pub(crate) async fn send(harness: &Harness, generation: u64, rest: &str) -> LifecycleResult {
    let data = LifecycleData { generation, ..ebb_tests::platform::sandbox("a", "a-uid", rest) };
    let event_type = if generation == 1 { LifecycleType::Created } else { LifecycleType::Updated };
    harness.lifecycle(event_type, &data).await.is(202).json::<LifecycleResponse>().result
}

/// Sends a document that starts a run, and waits for the phase after it.
async fn update(harness: &Harness, generation: u64, rest: &str, phase: TargetPhase) -> TargetDetail {
    assert_eq!(send(harness, generation, rest).await, LifecycleResult::Updating);
    harness.phase("a", phase).await
}

/// Deletes the sandbox, and checks the requests of its teardown.
async fn tear_down(harness: &Harness, expected: &[&str]) {
    harness.tear_down("a").await;
    assert_eq!(requests(harness), expected);
    assert_eq!(harness.remaining("a").await, []);
}

/// Returns the requests since the last call, each with its body.
pub(crate) fn requests(harness: &Harness) -> Vec<String> {
    let value = |body: &Value, name: &str| body[name].as_str().map(str::to_owned).unwrap_or(body[name].to_string());
    let calls = harness.receiver.all().into_iter().map(|call| {
        let of = if call.body["of"].is_null() { value(&call.body, "rows") } else { value(&call.body, "of") };
        let id = call.body["id"].as_str().map(|id| format!(" {id}")).unwrap_or_default();
        format!("{}{id} {of}", call.line.trim_start_matches("POST /"))
    });
    let calls = calls.collect();
    harness.receiver.forget();
    calls
}

const ENV: &str = "env: {ID: \"${resources.db.outputs.id}\"}\n";
const INDEXED: &str = "index: {plugin: index, params: {of: \"${resources.db.outputs.id}\"}}";

pub(crate) async fn labels_environment_and_ttl_change_without_a_run() {
    let harness = ready("resources: {db: {plugin: database}}\n").await;
    let before = harness.target("a").await.unwrap();
    let changed = format!("labels: {{team: x}}\nttl: 2h\n{ENV}resources: {{db: {{plugin: database}}}}\n");
    assert_eq!(send(&harness, 2, &changed).await, LifecycleResult::Updated);
    let target = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!((target.info.generation, before.info.expires), (2, None));
    assert_eq!(target.info.labels["team"], "x");
    // The target was ready all the time.
    assert_eq!(target.info.since, before.info.since);
    assert_eq!(harness.why("a").await.summary, format!("ready since {}", before.info.since));
    assert!(target.info.expires.is_some());
    let notified = harness.notified("a", &["ready", "ready"]).await;
    assert_eq!((&notified[1]["generation"], &notified[1]["env"]["ID"]["value"]), (&json!(2), &json!("db-1")));
    assert_eq!(send(&harness, 3, &changed).await, LifecycleResult::Unchanged);
    assert_eq!(requests(&harness), Vec::<String>::new());
    tear_down(&harness, &["drop db-1 1"]).await;
}

/// A changed resource is replaced with its readers. What the first update has not done, the next one does.
pub(crate) async fn the_next_update_completes_a_failed_one() {
    let document =
        |rows: u32| format!("{ENV}resources: {{db: {{plugin: database, params: {{rows: {rows}}}}}, {INDEXED}}}\n");
    let harness = ready(&document(1)).await;
    // The undo of the present database fails, so nothing is made.
    harness.receiver.replies("POST /drop", &[400]);
    update(&harness, 2, &document(2), TargetPhase::Failed).await;
    assert_eq!(requests(&harness), ["unindex db-1", "drop db-1 1"]);
    assert_eq!(harness.remaining("a").await.len(), 1);
    let retried: Value = harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202).json();
    assert_eq!(retried["units"], json!(["db~1/drop"]));
    harness.receiver.call("POST /drop", 1).await;
    harness.phase("a", TargetPhase::Failed).await;
    assert_eq!(requests(&harness), ["drop db-1 1"]);
    harness.receiver.replies("POST /drop", &[200]);
    harness.receiver.always("POST /create", json!({"id": "db-2"}));
    let target = update(&harness, 3, &document(3), TargetPhase::Ready).await;
    assert_eq!(requests(&harness), ["drop db-1 1", "create 3", "index db-2"]);
    assert_eq!(target.env["ID"], OutputValue::Value("db-2".into()));
    let notified = harness.notified("a", &["ready", "failed", "failed", "ready"]).await;
    assert_eq!(notified[3]["env"]["ID"]["value"], "db-2");
    // The teardown undoes what exists, once.
    tear_down(&harness, &["unindex db-2", "drop db-2 3"]).await;
}

/// The hooks that close the connections of a database before it is dropped.
const DRAIN: &str = r#"preStop:
  drain: {webhook: {url: "RECEIVER/drain", body: {id: "${units.create.outputs.id}", rows: "${params.rows}"}}, retry: {attempts: 1}}
  close: {webhook: {url: "RECEIVER/close", body: {rows: "${params.rows}"}}, retry: {attempts: 1}}
postStop:"#;

/// A resource that an update does not complete is not drained: neither by the next update, nor by the deletion.
pub(crate) async fn a_resource_that_was_never_ready_is_not_drained() {
    let document = |rows: u64| format!("resources: {{db: {{plugin: drained, params: {{rows: {rows}}}}}}}\n");
    let harness = ready(&document(1)).await;
    harness.receiver.replies("POST /create", &[400]);
    let effects = [(2, &["close 1", "create 2", "drain db-1 1", "drop db-1 1"][..]), (3, &["create 3", "drop 2"])];
    for (generation, expected) in effects {
        update(&harness, generation, &document(generation), TargetPhase::Failed).await;
        let mut made = requests(&harness);
        made.sort();
        assert_eq!(made, expected);
    }
    tear_down(&harness, &["drop 3"]).await;
}

pub(crate) async fn the_newest_update_waits_for_the_run() {
    let harness = harness().await;
    let document = |rows: u32| format!("resources: {{db: {{plugin: database, params: {{rows: {rows}}}}}}}\n");
    let hold = harness.receiver.hold("POST /create");
    send(&harness, 1, &document(1)).await;
    harness.receiver.call("POST /create", 1).await;
    for generation in [2, 3, 3] {
        assert_eq!(send(&harness, generation, &document(generation as u32)).await, LifecycleResult::Waiting);
    }
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.generation, target.info.phase), (1, TargetPhase::Starting));
    assert_eq!(target.pending_generation, Some(3));
    // A document like the present one does not overtake the update that waits.
    for generation in [2, 3] {
        let present = LifecycleData { generation, ..ebb_tests::platform::sandbox("a", "a-uid", &document(1)) };
        harness.lifecycle(LifecycleType::Updated, &present).await.is_problem(409, "outdated");
    }
    // A repetition keeps its plugin versions.
    let added = "resources: {db: {plugin: database}, more: {plugin: database}}\n";
    assert_eq!(send(&harness, 4, added).await, LifecycleResult::Waiting);
    harness.publish("database@1.1.0", &DATABASE.replace("default: 1", "default: 9")).await;
    assert_eq!(send(&harness, 4, added).await, LifecycleResult::Waiting);
    // A document like the present one withdraws the update that waits, with its TTL.
    let expires = async || harness.target("a").await.unwrap().info.expires;
    let with_ttl = |rows: u32| format!("ttl: 9h\n{}", document(rows));
    assert_eq!(send(&harness, 5, &with_ttl(2)).await, LifecycleResult::Waiting);
    assert!(expires().await.is_some());
    assert_eq!(send(&harness, 6, &document(1)).await, LifecycleResult::Unchanged);
    assert_eq!(expires().await, None);
    assert_eq!(send(&harness, 7, &document(3)).await, LifecycleResult::Waiting);
    drop(hold);
    harness.generation("a", 7).await;
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(requests(&harness), ["create 1", "drop db-1 1", "create 3"]);
    // A sweep that has read the former TTL does not end the target.
    assert_eq!(send(&harness, 8, &with_ttl(3)).await, LifecycleResult::Updated);
    let (env, cause) = (harness.stack().env(), TargetStopCause::Expired);
    lifecycle::delete(env, TargetKey::new("sandbox", "a").instance("a-uid"), cause).await.unwrap();
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetPhase::Ready);
}

/// A higher generation of the same document makes again what has failed. With another routing key, also one that has waited,
/// this happens in a run with this key.
pub(crate) async fn a_failed_setup_is_corrected_by_an_update() {
    let harness = harness().await;
    let document = format!("resources: {{db: {{plugin: database}}, {INDEXED}}}\n");
    let send = async |generation: u64, routing_key: &str| {
        let data = ebb_tests::platform::sandbox("a", "a-uid", &document);
        let data = LifecycleData { generation, routing_key: Some(routing_key.to_owned()), ..data };
        let event_type = if generation == 1 { LifecycleType::Created } else { LifecycleType::Updated };
        harness.lifecycle(event_type, &data).await.is(202).json::<LifecycleResponse>().result
    };
    harness.receiver.replies("POST /index", &[400, 400, 400, 200]);
    let hold = harness.receiver.hold("POST /index");
    send(1, "first").await;
    harness.receiver.call("POST /index", 1).await;
    assert_eq!(send(2, "second").await, LifecycleResult::Waiting);
    drop(hold);
    harness.receiver.call("POST /index", 2).await;
    let target = harness.phase("a", TargetPhase::Failed).await;
    assert_eq!(target.info.generation, 2);
    let steps = harness.why("a").await.next_steps;
    assert!(steps.iter().any(|step| step.contains("ebb apply -f FILE")), "{steps:?}");
    assert_eq!(send(3, "second").await, LifecycleResult::Retrying);
    harness.receiver.call("POST /index", 3).await;
    harness.phase("a", TargetPhase::Failed).await;
    assert_eq!(send(4, "third").await, LifecycleResult::Updating);
    harness.phase("a", TargetPhase::Ready).await;
    let store = harness.stack().store();
    let target = store.read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    let facts = store.read_run(&target.run(target.hook.unwrap())).await.unwrap().unwrap().facts;
    assert_eq!((facts.generation, facts.routing_key.as_deref()), (4, Some("third")));
    assert_eq!((harness.receiver.count("POST /create"), harness.receiver.count("POST /index")), (1, 4));
    harness.tear_down("a").await;
    assert_eq!(harness.remaining("a").await, []);
}

/// A check after the start, which makes nothing.
const CHECK: &str = "postStart: {probe: {webhook: {method: GET, url: \"RECEIVER/probe\"}, retry: {attempts: 1}}}\n";

/// An update removes a failed check without a run. The target takes further updates, and a retry does not check again. The
/// check is one of a resource, or an own unit of a target that keeps other own units.
pub(crate) async fn a_removed_check_that_had_failed_blocks_no_update() {
    let own = |rest: &str| format!("{rest}hooks: {{sleep: {{pause: {{webhook: {{url: \"RECEIVER/pause\"}}}}}}}}\n");
    let cases = [(", smoke: {plugin: check}", String::new(), String::new()), ("", own(CHECK), own(""))];
    for (check, checked, rest) in cases {
        let harness = harness().await;
        harness.publish("check@1.0.0", CHECK).await;
        harness.receiver.replies("GET /probe", &[400]);
        let document = |rows: u32, more: &str, rest: &str| {
            let rest = rest.replace("RECEIVER", harness.receiver.url());
            format!("resources: {{db: {{plugin: database, params: {{rows: {rows}}}}}{more}}}\n{rest}")
        };
        send(&harness, 1, &document(1, check, &checked)).await;
        harness.phase("a", TargetPhase::Failed).await;
        assert_eq!(send(&harness, 2, &document(1, "", &rest)).await, LifecycleResult::Updated);
        harness.phase("a", TargetPhase::Ready).await;
        harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is_problem(409, "nothing-failed");
        assert_eq!(send(&harness, 3, &document(2, "", &rest)).await, LifecycleResult::Updating);
        harness.generation("a", 3).await;
        harness.phase("a", TargetPhase::Ready).await;
        assert_eq!(harness.receiver.count("GET /probe"), 1);
    }
}
