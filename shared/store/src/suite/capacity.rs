use ebb_protocol::engine::accept::accept_with_wakeup;

use super::fixture::*;

/// A completion costs a write unit for each KiB of the head: one in a run of 400 units, and at most three.
pub(super) async fn a_completion_costs_one_to_three_write_units(fixture: StoreFixture) {
    let run = fixture.run("a-name-of-some-length").await;
    let mut next = 0;
    for (unit, expected) in [(255, 1.0), (399, 1.0), (700, 2.0), (999, 3.0)] {
        let changes = (next..unit).map(|unit| PatchChange::AddDone(Unit(unit))).collect();
        fixture.store.patch_run(&run, &Patch { conditions: vec![], changes }).await.unwrap();
        fixture.meter.take();
        assert!(fixture.accept(&run, success(unit)).await.is_written());
        let usage = fixture.meter.take();
        assert_eq!(usage.write_units, expected, "unit {unit}: {} bytes", usage.largest_head);
        next = unit + 1;
    }
}

pub(super) async fn a_retry_with_an_earlier_wakeup_costs_three_write_units(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    fixture.meter.take();
    let due = Timestamp(new_run("a").due.0 - 1);
    let retried = RunEvent::Retried { ended: first_attempt(0), to: A1.next() };
    fixture.store.patch_run(&run, &accept_with_wakeup(retried, due)).await.unwrap();
    assert_eq!(fixture.meter.take().write_units, 3.0);
}

pub(super) async fn a_failed_condition_is_counted(fixture: StoreFixture) {
    assert_eq!(fixture.accept(&new_run("a").id, success(0)).await, PatchResult::ConditionFailed(None));
    let usage = fixture.meter.take();
    assert_eq!(usage.requests, [("UpdateItem", 1)].into());
    assert_eq!((usage.write_units, usage.refused_write_units), (0.0, 1));
}
