//! Events of active targets: one after the other, and the answers to those that cannot run.

use ebb_protocol::api::WaitingParty;
use ebb_protocol::id::EventRef;
use ebb_protocol::unit::IDEMPOTENCY_KEY;

use crate::harness::*;
use crate::lifecycle::retention::{RETENTION, remove_expired_after};
use crate::request_table;

/// A database that is paused and resumed. The sandbox drains at its end.
const DATABASE: &str = include_str!("documents/paused-database.yaml");

impl Harness {
    /// Sends an event that is accepted to the sandbox `a`, as the CloudEvent `id`. Returns the result.
    async fn result_of(&self, event: &str, id: &str) -> String {
        let data = LifecycleData { document: None, event: Some(event.to_owned()), ..sandbox("a", "a-uid", "none") };
        let response: Value = self.cloud_event(id, LifecycleType::Event, &data).await.is(202).json();
        response["result"].as_str().unwrap().to_owned()
    }

    async fn run_state(&self, event: &str, id: &str, state: &str) {
        let run_id = event_run(event, id);
        until(&format!("{event} {id} to be {state}"), async || {
            let target = self.target("a").await?;
            let run = target.runs.iter().find(|run| run.id == run_id.as_str())?;
            (json!(run.state) == json!(state)).then_some(())
        })
        .await;
    }
}

fn event_run(event: &str, id: &str) -> RunId {
    let event = EventRef::new(ebb_engine::EventName::new(event).unwrap(), id);
    RunId::of_event(&instance("a"), 1, &event)
}

/// Lets the receiver make the database and its dumps at once.
fn with_database(harness: Harness) -> Harness {
    for (line, id) in [("POST /make", "db-1"), ("POST /dump", "dump-1")] {
        harness.receiver.always(line, json!({ "id": id }));
    }
    harness
}

/// The runs of an event have keys of their own.
pub(crate) async fn events_run_one_after_the_other() {
    let harness = Harness::new().await;
    request_table::play(&harness, "lifecycle/events.yaml", "events_run_one_after_the_other", &[]).await;
    let pauses = harness.receiver.calls("POST /pause");
    let keys: BTreeSet<&str> = pauses.iter().map(|call| call.header(IDEMPOTENCY_KEY)).collect();
    assert_eq!(keys.len(), 3, "{pauses:?}");
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

/// The run of an event is removed after its retention, although its target is active. The last run is kept.
pub(crate) async fn runs_of_events_are_removed_after_their_retention() {
    let harness = with_database(Harness::with_retention(Some(RETENTION)).await);
    harness.run("a", "database", DATABASE, TargetPhase::Ready).await;
    for (event, id) in [("sleep", "1"), ("wake", "2")] {
        assert_eq!(harness.result_of(event, id).await, "running");
        harness.run_state(event, id, "succeeded").await;
    }
    let store = harness.stack().store();
    let (first, last) = (event_run("sleep", "1"), event_run("wake", "2"));
    let exists = async |run: &RunId| store.read_run(run).await.unwrap().is_some();
    assert_eq!(remove_expired_after(&harness, RETENTION / 2).await, 0);
    assert_eq!(remove_expired_after(&harness, RETENTION * 2).await, 1);
    assert_eq!(store.read_all_records(&first).await.unwrap(), []);
    assert_eq!((exists(&first).await, exists(&last).await), (false, true));
    assert_eq!(harness.target("a").await.unwrap().runs.len(), 2);
    harness.tear_down("a").await;
    harness.settled("a").await;
    assert_eq!(remove_expired_after(&harness, RETENTION * 4).await, 2, "the last run and the instance");
    assert!(!exists(&last).await);
}
