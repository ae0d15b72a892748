//! The retention of the runs of events.

use ebb_protocol::id::EventRef;

use crate::harness::*;
use crate::lifecycle::retention::{RETENTION, remove_expired_after};
use crate::request_table;

fn event_run(event: &str, id: &str) -> RunId {
    let event = EventRef::new(ebb_engine::EventName::new(event).unwrap(), id);
    RunId::of_event(&instance("a"), 1, &event)
}

/// The run of an event is removed after its retention, although its target is active. The last run is kept.
pub(crate) async fn runs_of_events_are_removed_after_their_retention() {
    let harness = Harness::with_retention(Some(RETENTION)).await;
    request_table::play(&harness, "lifecycle/events.yaml", "two_events_run", &[]).await;
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
