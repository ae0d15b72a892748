//! Updates that a policy refuses, because they would undo what cannot be made again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_protocol::callback::{Callback, CallbackStatus};
use ebb_protocol::lifecycle::{LifecycleResponse, LifecycleResult};
use ebb_protocol::listing::{RelayInfo, ReportedPolicy};
use ebb_protocol::relay::{RelayRequest, RelayResponse, TaskState};
use serde::Deserialize;

use crate::harness::*;
use crate::request_table;

/// Returns the answer of a relay that makes every object. A strict one reports a policy that allows no ConfigMap.
fn respond(request: RelayRequest, is_strict: bool) -> RelayResponse {
    match request {
        RelayRequest::About => {
            let kinds = [if is_strict { "Secret" } else { "ConfigMap" }.to_owned()].into();
            let policy =
                ReportedPolicy { unit_namespace: Some("units".to_owned()), kinds, ..ReportedPolicy::default() };
            RelayResponse::About(RelayInfo { version: "1".to_owned(), up_ms: 1, tasks: 0, policy: Some(policy) })
        }
        RelayRequest::Ensure(_) | RelayRequest::Get(_) | RelayRequest::Status(_) => {
            let outputs = [("id".to_owned(), json!("made"))].into();
            let made = Callback { outputs, ..Callback::new(CallbackStatus::Succeeded) };
            RelayResponse::State(TaskState::Ended(Box::new(made)))
        }
        _ => RelayResponse::Done,
    }
}

async fn send(harness: &Harness, generation: u64, rest: &str) -> LifecycleResult {
    let data = LifecycleData { generation, ..ebb_tests::platform::sandbox("a", "a-uid", rest) };
    let event_type = if generation == 1 { LifecycleType::Created } else { LifecycleType::Updated };
    harness.lifecycle(event_type, &data).await.is(202).json::<LifecycleResponse>().result
}

/// Publishes the plugins, creates the sandbox `a`, and forgets its requests. A resource `failed` fails.
async fn begin(harness: &Harness, document: &str) {
    harness.receiver.always("POST /create", json!({"id": "db-1"}));
    for (plugin, rest) in [
        ("database@1.0.0", include_str!("documents/database.yaml")),
        // An object, in a cluster by choice.
        ("database@2.0.0", include_str!("documents/object-database.yaml")),
        // Its setup ends with an object.
        ("half@1.0.0", include_str!("documents/half-database.yaml")),
        // It has an object that is made for more than nine rows.
        ("mapped@1.0.0", include_str!("documents/mapped-database.yaml")),
        ("index@1.0.0", include_str!("documents/index.yaml")),
    ] {
        harness.publish(plugin, rest).await;
    }
    assert_eq!(
        send(harness, 1, &document.replace("RECEIVER", harness.receiver.url())).await,
        LifecycleResult::Starting
    );
    let phase = if document.contains("\"failed\":") { TargetPhase::Failed } else { TargetPhase::Ready };
    harness.phase("a", phase).await;
    harness.receiver.forget();
}

/// Sends a document as generation 2. `None` means that a policy refuses it, and that the target is as before.
async fn result(harness: &Harness, document: &str) -> Option<LifecycleResult> {
    let data = ebb_tests::platform::sandbox("a", "a-uid", &document.replace("RECEIVER", harness.receiver.url()));
    let state = async || {
        let target = harness.target("a").await.unwrap();
        (target.info.phase, target.info.generation, target.info.since, target.runs.len())
    };
    let before = state().await;
    let reply = harness.lifecycle(LifecycleType::Updated, &LifecycleData { generation: 2, ..data }).await;
    if reply.status == 202 {
        return Some(reply.json::<LifecycleResponse>().result);
    }
    let problem = reply.is_problem(422, "invalid-document");
    let has_place = problem.errors[0].line.is_some() || problem.errors[0].message.contains("relay");
    assert!(problem.errors.iter().all(|error| error.code == "cluster-policy") && has_place, "{problem:?}");
    assert_eq!(state().await, before);
    assert_eq!(harness.receiver.order(), [""; 0]);
    None
}

/// An update of a document from one form to another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateCase {
    case: String,
    before: BTreeMap<String, Value>,
    after: BTreeMap<String, Value>,
    /// `None` means that a policy refuses it.
    result: Option<LifecycleResult>,
}

/// A database is not dropped for one that a machine without a cluster refuses. What does not exist cannot be lost, and
/// nothing is lost by a unit that a policy would refuse, if its `when` is false.
pub(crate) async fn a_refused_update_undoes_nothing() {
    for UpdateCase { case, before, after, result: expected } in
        request_table::table::<Vec<UpdateCase>>("lifecycle/refused_updates.yaml", "cases", &[])
    {
        let [before, after] =
            [before, after].map(|keys| keys.iter().map(|(key, value)| format!("{key}: {value}\n")).collect::<String>());
        let harness = Harness::new().await;
        begin(&harness, &before).await;
        let phase = harness.target("a").await.unwrap().info.phase;
        assert_eq!(result(&harness, &after).await, expected, "{case}");
        if expected.is_some() {
            let target = harness.phase("a", phase).await;
            assert_eq!((target.info.generation, target.info.expires.is_some()), (2, after.contains("ttl")), "{case}");
            let undone = if after.contains("ttl") { 0 } else { 1 };
            assert_eq!(harness.receiver.count("POST /drop"), undone, "{case}");
        }
        if expected == Some(LifecycleResult::Updated) {
            harness.notified("a", &["failed", "failed"]).await;
        }
    }
}

/// A policy counts in its own cluster, and when an update begins.
pub(crate) async fn the_policy_of_a_cluster_counts_when_an_update_begins() {
    let [strict, far] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let relay = |strict: &Arc<AtomicBool>| {
        let strict = Arc::clone(strict);
        Harness::relay(move |request| respond(request, strict.load(Ordering::Relaxed)))
    };
    let ((_default, default), (_far, other)) = (relay(&strict).await, relay(&far).await);
    let harness = Harness::with_clusters(&json!({"default": default, "far": other})).await;
    let document = |version: u32, more: &str| {
        format!(
            "resources: {{db: {{plugin: database@{version}}}, kept: {{plugin: database@2, params: {{place: far}}}}{more}}}\n"
        )
    };
    begin(&harness, &document(1, "")).await;
    far.store(true, Ordering::Relaxed);
    strict.store(true, Ordering::Relaxed);
    assert_eq!(result(&harness, &document(2, "")).await, None);
    // No unit can begin in a cluster that is not connected.
    let unknown = document(1, "").replace("plugin: database@1", "plugin: database@2, params: {place: none}");
    assert_eq!(result(&harness, &unknown).await, None);
    strict.store(false, Ordering::Relaxed);
    // An update that waits is checked again.
    let hold = harness.receiver.hold("POST /create");
    assert_eq!(result(&harness, &document(1, ", more: {plugin: database@1}")).await, Some(LifecycleResult::Updating));
    harness.receiver.call("POST /create", 1).await;
    assert_eq!(send(&harness, 3, &document(2, "")).await, LifecycleResult::Waiting);
    strict.store(true, Ordering::Relaxed);
    drop(hold);
    let reason = "generation 3 was refused";
    until("the refusal", async || harness.why("a").await.notes.into_iter().find(|note| note.contains(reason)))
        .await
        .find("cluster-policy")
        .expect("the reason has the violation");
    assert_eq!(harness.phase("a", TargetPhase::Ready).await.info.generation, 2);
    let calls = harness.receiver.all();
    let [made] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((made.line.as_str(), &made.body["rows"]), ("POST /create", &json!(1)));
    harness.receiver.forget();
    strict.store(false, Ordering::Relaxed);
    assert_eq!(send(&harness, 3, &document(2, "")).await, LifecycleResult::Updating);
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(harness.receiver.count("POST /drop"), 2);
}
