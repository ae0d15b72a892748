//! Events of active targets: one after the other, once each, and not after the teardown has begun.

use ebb_flow::instance::retention::remove_expired;
use ebb_protocol::api::WaitingParty;
use ebb_protocol::cloudevents;
use ebb_protocol::id::EventRef;
use ebb_protocol::unit::IDEMPOTENCY_KEY;
use ebb_store::AttemptUpdate;
use ebb_tests::platform::{self, SignedRequest};

use crate::harness::*;
use crate::lifecycle::retention::{RETENTION, remove_expired_after};

/// A database that is paused and resumed. The sandbox drains at its end.
const DATABASE: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}, outputs: {id: {value: "${response.body.id}"}}}
hooks:
  sleep:
    dump: {webhook: {url: "RECEIVER/dump", body: {id: "${units.make.outputs.id}"}}, outputs: {key: {value: "${response.body.id}"}}}
    pause: {retry: {attempts: 1}, webhook: {url: "RECEIVER/pause", body: {key: "${units.dump.outputs.key}"}}}
  wake:
    resume: {webhook: {url: "RECEIVER/resume"}}
preStop:
  drain: {webhook: {url: "RECEIVER/drain"}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}}
"#;

impl Harness {
    /// Sends an event to the instance `uid` of the sandbox `a`, as the CloudEvent `id`.
    async fn send_event_to(&self, uid: &str, event: &str, id: &str) -> ApiReply {
        let data = LifecycleData { document: None, event: Some(event.to_owned()), ..sandbox("a", uid, "none") };
        let time = now();
        let (content_type, body) = cloudevents::lifecycle(id, "urn:tests", LifecycleType::Event, time, &data);
        let request = SignedRequest::new(&self.secret(), &format!("msg-{id}"), time, body);
        self.event(&request.header("content-type", content_type)).await
    }

    async fn send_event(&self, event: &str, id: &str) -> ApiReply {
        self.send_event_to("a-uid", event, id).await
    }

    /// Sends an event that is accepted. Returns the result.
    async fn result_of(&self, event: &str, id: &str) -> String {
        let response: Value = self.send_event(event, id).await.is(202).json();
        response["result"].as_str().unwrap().to_owned()
    }

    /// Waits until a run of an event of `a` is in a state.
    async fn run_state(&self, event: &str, id: &str, state: &str) {
        until(&format!("{event} {id} to be {state}"), async || {
            let target = self.target("a").await?;
            let run = target.runs.iter().find(|run| run.id == event_run(event, id).as_str())?;
            (json!(run.state) == json!(state)).then_some(())
        })
        .await;
    }
}

/// Lets the receiver make the database and its dumps at once.
fn with_database(harness: Harness) -> Harness {
    for (line, id) in [("POST /make", "db-1"), ("POST /dump", "dump-1")] {
        harness.receiver.always(line, json!({ "id": id }));
    }
    harness
}

/// Starts a sandbox `a` whose event `sleep` runs. Returns its last request.
async fn asleep() -> (Harness, ReceivedCall) {
    let harness = with_database(Harness::new().await);
    harness.receiver.always("POST /pause", 202);
    harness.run("a", "database", DATABASE, TargetState::Ready).await;
    assert_eq!(harness.result_of("sleep", "1").await, "running");
    let pause = harness.receiver.call("POST /pause", 1).await;
    (harness, pause)
}

/// Returns the run of an event of the sandbox `a`.
fn event_run(event: &str, id: &str) -> RunId {
    RunId::of_event(&instance("a"), 1, &EventRef::new(ebb_engine::EventName::new(event).unwrap(), id))
}

pub(crate) async fn events_run_one_after_the_other() {
    let (harness, pause) = asleep().await;
    assert_eq!(harness.receiver.calls("POST /dump")[0].body, json!({"id": "db-1"}));
    // A repetition, and an event without units.
    assert_eq!(harness.result_of("sleep", "1").await, "unchanged");
    assert_eq!(harness.result_of("doze", "2").await, "unchanged");
    for (event, id) in [("wake", "3"), ("sleep", "4")] {
        assert_eq!(harness.result_of(event, id).await, "waiting");
        assert_eq!(harness.result_of(event, id).await, "unchanged");
    }
    assert_eq!(harness.target("a").await.unwrap().info.waits_for.unwrap(), "its sleep units, before wake, sleep");
    assert_eq!(harness.receiver.count("POST /resume"), 0);
    harness.callback(pause.token(), &done()).await.is(204);
    // The second run of an event has keys of its own. Its failure changes nothing.
    let second = harness.receiver.call("POST /pause", 2).await;
    assert_ne!(second.header(IDEMPOTENCY_KEY), pause.header(IDEMPOTENCY_KEY));
    let calls = ["/dump", "/pause", "/resume", "/dump", "/pause"].map(|path| format!("POST {path}"));
    assert_eq!(harness.receiver.order()[1..], calls);
    let failed = json!({"status": "failed", "reason": {"code": "failed", "message": "no quota"}});
    harness.callback(second.token(), &failed).await.is(204);
    harness.run_state("sleep", "4", "failed").await;
    let why = harness.why("a").await;
    assert!(why.summary.contains("sleep: unit r/pause failed") && why.summary.contains("no quota"), "{why:?}");
    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is_problem(409, "nothing-failed");
    assert_eq!(harness.result_of("wake", "5").await, "running");
    harness.run_state("wake", "5", "succeeded").await;
    let target = harness.target("a").await.unwrap();
    assert_eq!(target.info.phase, TargetState::Ready);
    let hooks: Vec<&str> = target.runs.iter().map(|run| run.hook.as_str()).collect();
    assert_eq!(hooks, ["preStart", "sleep", "wake", "sleep", "wake"]);
    harness.tear_down("a").await;
    harness.notified("a", &["ready", "gone"]).await;
}

/// An event whose units a waiting update adds runs after that update.
pub(crate) async fn an_event_of_a_waiting_update_runs_after_it() {
    let harness = with_database(Harness::new().await);
    harness.publish("database@1.0.0", DATABASE).await;
    let make = harness.accepted("made", MAKE).await;
    harness.receiver.always("POST /make", json!({"id": "db-2"}));
    assert_eq!(harness.result_of("sleep", "0").await, "unchanged");
    let data = LifecycleData { generation: 2, ..sandbox("a", "a-uid", "made}, s: {plugin: database") };
    harness.lifecycle(LifecycleType::Updated, &data).await.is(202);
    assert_eq!(harness.result_of("sleep", "1").await, "waiting");
    assert_eq!(harness.result_of("doze", "2").await, "unchanged");
    harness.succeed(&make, "db-1").await;
    harness.run_state("sleep", "1", "succeeded").await;
    let calls = ["/make", "/make", "/dump", "/pause"].map(|path| format!("POST {path}"));
    assert_eq!(harness.receiver.order(), calls);
    harness.tear_down("a").await;
}

/// An update, an event and the next instance wait since they were accepted. A repetition changes no time, nor does a newer
/// document of the next instance.
pub(crate) async fn others_wait_since_they_were_accepted() {
    let harness = with_database(Harness::new().await);
    harness.publish("database@1.0.0", DATABASE).await;
    harness.accepted("made", MAKE).await;
    let waits = async || {
        let info = harness.target("a").await.unwrap().info;
        assert_eq!(harness.why("a").await.target_waits, info.waits);
        info.waits.into_iter().map(|wait| (wait.waiter, wait.since.unwrap())).collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    for (generation, plugins) in [(1, "made"), (2, "made}, s: {plugin: made")] {
        let data = LifecycleData { generation: 2, ..sandbox("a", "a-uid", "made}, s: {plugin: database") };
        harness.lifecycle(LifecycleType::Updated, &data).await.is(202);
        harness.result_of("sleep", "1").await;
        let next = LifecycleData { generation, ..sandbox("a", "next", plugins) };
        let created_or_updated = if generation == 1 { LifecycleType::Created } else { LifecycleType::Updated };
        let response: Value = harness.lifecycle(created_or_updated, &next).await.is(202).json();
        assert_eq!(response["result"], "waiting");
        seen.push(waits().await);
    }
    assert_eq!(seen[0], seen[1]);
    let waiters: Vec<WaitingParty> = seen[0].iter().map(|(waiter, _)| *waiter).collect();
    assert_eq!(waiters, [WaitingParty::Target, WaitingParty::Update, WaitingParty::Event, WaitingParty::Instance]);
    assert!(seen[0].is_sorted_by_key(|(_, since)| since.clone()), "{seen:?}");
}

/// An update without the units of a waiting event drops the event. The target takes updates and a deletion.
pub(crate) async fn an_update_drops_a_waiting_event_without_units() {
    let (harness, pause) = asleep().await;
    assert_eq!(harness.result_of("wake", "2").await, "waiting");
    let wake = "  wake:\n    resume: {webhook: {url: \"RECEIVER/resume\"}}\n";
    assert!(DATABASE.contains(wake));
    harness.publish("database@1.1.0", &DATABASE.replace(wake, "")).await;
    let data = LifecycleData { generation: 2, ..sandbox("a", "a-uid", "database@1.1.0") };
    harness.lifecycle(LifecycleType::Updated, &data).await.is(202);
    harness.callback(pause.token(), &done()).await.is(204);
    harness.run_state("sleep", "1", "succeeded").await;
    let is_listed = |note: &String| note.starts_with("the event wake-") && note.contains("was dropped");
    until("the dropped event", async || harness.why("a").await.notes.iter().any(is_listed).then_some(())).await;
    harness.receiver.always("POST /pause", 200);
    let data = LifecycleData { generation: 3, ..sandbox("a", "a-uid", "database@1.1.0}, s: {plugin: database") };
    harness.lifecycle(LifecycleType::Updated, &data).await.is(202);
    harness.receiver.call("POST /make", 2).await;
    harness.tear_down("a").await;
    assert_eq!(harness.receiver.count("POST /resume"), 0);
}

/// A server without memory deletes a target whose last run was an event, before an update.
pub(crate) async fn a_deletion_after_an_event_and_an_update_ends() {
    let mut harness = with_database(Harness::new().await);
    harness.run("a", "database", DATABASE, TargetState::Ready).await;
    assert_eq!(harness.result_of("sleep", "1").await, "running");
    harness.run_state("sleep", "1", "succeeded").await;
    harness.phase("a", TargetState::Ready).await;
    let document = "labels: {team: blue}\nresources: {r: {plugin: database}}\n";
    let data = LifecycleData { generation: 2, ..platform::sandbox("a", "a-uid", document) };
    harness.lifecycle(LifecycleType::Updated, &data).await.is(202);
    harness.restart().await;
    harness.tear_down("a").await;
}

/// An event waits while the target starts. A deletion ends the active event and drops the waiting ones.
pub(crate) async fn a_deletion_ends_events() {
    let harness = with_database(Harness::new().await);
    harness.receiver.always("POST /make", 202);
    harness.receiver.always("POST /pause", 202);
    harness.send_event("sleep", "0").await.is_problem(404, "not-found");
    harness.begin("a", "database", DATABASE).await;
    let make = harness.receiver.call("POST /make", 1).await;
    assert_eq!(harness.result_of("sleep", "1").await, "waiting");
    harness.succeed(&make, "db-1").await;
    let pause = harness.receiver.call("POST /pause", 1).await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.result_of("wake", "2").await, "waiting");
    harness.send_event_to("other", "wake", "3").await.is_problem(409, "stale");
    harness.delete("a").await;
    harness.send_event("wake", "4").await.is_problem(409, "stale");
    let late = harness.callback(pause.token(), &done()).await;
    assert!(matches!(late.status, 204 | 409), "{late:?}");
    let target = harness.phase("a", TargetState::Gone).await;
    let run = target.runs.iter().find(|run| run.hook == "sleep").unwrap();
    assert_eq!(json!(run.state), "cancelled");
    let calls = ["/make", "/dump", "/pause", "/drain", "/drop"].map(|path| format!("POST {path}"));
    assert_eq!(harness.receiver.order(), calls);
    harness.send_event("wake", "2").await.is_problem(409, "stale");
}

pub(crate) async fn a_failed_target_takes_no_events() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", 400);
    harness.run("a", "database", DATABASE, TargetState::Failed).await;
    harness.send_event("sleep", "1").await.is_problem(409, "failed");
    harness.send_event("preStop", "2").await.is_problem(422, "invalid-event");
}

/// An event for an instance that waits for its name is rejected until the instance has begun.
pub(crate) async fn a_waiting_instance_takes_no_events() {
    let harness = with_database(Harness::new().await);
    harness.run("a", "database", DATABASE, TargetState::Ready).await;
    harness.lifecycle(LifecycleType::Created, &sandbox("a", "b-uid", "database")).await.is(202);
    let problem = harness.send_event_to("b-uid", "sleep", "1").await.is_problem(409, "stale");
    let is_described = problem.detail.contains("waits for its name") && !problem.detail.contains("ended");
    assert!(is_described, "{problem:?}");
    harness.delete("a").await;
    harness.instance_is_ready("a", "b-uid").await;
    harness.send_event_to("b-uid", "sleep", "1").await.is(202);
    let problem = harness.send_event("sleep", "2").await.is_problem(409, "stale");
    assert!(problem.detail.contains("has ended"), "{problem:?}");
}

/// At most 16 events wait.
pub(crate) async fn a_queue_of_events_has_a_limit() {
    let (harness, pause) = asleep().await;
    for number in 2..18 {
        assert_eq!(harness.result_of("wake", &number.to_string()).await, "waiting");
    }
    harness.send_event("wake", "18").await.is_problem(503, "busy");
    harness.callback(pause.token(), &done()).await.is(204);
    harness.run_state("wake", "17", "succeeded").await;
    assert_eq!(harness.receiver.count("POST /resume"), 16);
    // The last events are shown.
    let shown = harness.target("a").await.unwrap().runs.iter().filter(|run| run.hook == "wake").count();
    assert_eq!(shown, 8);
}

/// The run of an event is removed after its retention, although its target is active. The last run is kept.
pub(crate) async fn runs_of_events_are_removed_after_their_retention() {
    let harness = with_database(Harness::with_retention(Some(RETENTION)).await);
    harness.run("a", "database", DATABASE, TargetState::Ready).await;
    for (event, id) in [("sleep", "1"), ("wake", "2")] {
        assert_eq!(harness.result_of(event, id).await, "running");
        harness.run_state(event, id, "succeeded").await;
    }
    assert_eq!(remove_expired_after(&harness, RETENTION / 2).await, 0);
    let (env, store) = (harness.stack().env(), harness.stack().store());
    let (then, run) = (now().plus(Millis(172_800_000)), event_run("sleep", "1"));
    assert_eq!(remove_expired(env, store.as_ref(), then).await.unwrap(), 0, "the removal is announced");
    // An invocation took a callback before.
    store.update_attempt(&run, Unit(0), Attempt(9), &AttemptUpdate::Started(now())).await.unwrap();
    assert_eq!(remove_expired(env, store.as_ref(), then.plus(env.settings.removal_notice())).await.unwrap(), 1);
    assert_eq!(store.read_all_records(&run).await.unwrap(), []);
    let heads = async |event, id| harness.stack().store().read_run(&event_run(event, id)).await.unwrap().len();
    assert_eq!((heads("sleep", "1").await, heads("wake", "2").await), (0, 1));
    assert_eq!(harness.target("a").await.unwrap().runs.len(), 2);
    harness.tear_down("a").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 4).await, 2, "the last run and the instance");
    assert_eq!(heads("wake", "2").await, 0);
}
