//! Events of active targets: the times of their waits, and the retention of their runs.

use ebb_protocol::id::EventRef;

use crate::harness::*;
use crate::lifecycle::retention::{RETENTION, remove_expired_after};
use crate::request_table;

const TABLE: &str = "lifecycle/events.yaml";

fn event_run(event: &str, id: &str) -> RunId {
    let event = EventRef::new(ebb_engine::EventName::new(event).unwrap(), id);
    RunId::of_event(&instance("a"), 1, &event)
}

/// An update, an event and the next instance wait since they were accepted.
pub(crate) async fn others_wait_since_they_were_accepted() {
    let harness = Harness::new().await;
    request_table::play(&harness, TABLE, "others_wait_since_they_were_accepted", &[]).await;
    let waits = harness.target("a").await.unwrap().info.waits;
    assert_eq!(harness.why("a").await.target_waits, waits);
    assert!(waits.is_sorted_by_key(|wait| wait.since.clone()), "{waits:?}");
}

/// The run of an event is removed after its retention, although its target is active. The last run is kept.
pub(crate) async fn runs_of_events_are_removed_after_their_retention() {
    let harness = Harness::with_retention(Some(RETENTION)).await;
    request_table::play(&harness, TABLE, "two_events_run", &[]).await;
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
