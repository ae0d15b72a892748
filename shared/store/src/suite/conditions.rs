use ebb_protocol::engine::{
    Attempt, Epoch, HeadState, LateMark, Patch, PatchChange, PatchCondition, RunPhase, Timestamp, Unit,
};
use ebb_protocol::id::RunId;

use super::fixture::{StoreFixture, new_run, refused, text, written};
use crate::{RunFacts, RunHead};

impl StoreFixture {
    async fn change(&self, run: &RunId, changes: &[PatchChange]) -> HeadState {
        let patch = Patch { conditions: vec![], changes: changes.to_vec() };
        written(self.store.patch_run(run, &patch).await.unwrap()).head
    }

    /// Checks whether a write with this condition succeeds.
    async fn check(&self, run: &RunId, condition: PatchCondition, holds: bool) {
        let patch = Patch { conditions: vec![condition], changes: vec![PatchChange::SetPhase(RunPhase::Running)] };
        let before = self.store.read_run(run).await.unwrap().unwrap();
        assert_eq!(condition.holds(&before.head), holds, "{condition:?} in the engine");
        let patched = self.store.patch_run(run, &patch).await.unwrap();
        let after = if holds { Some(written(patched)) } else { refused(patched) };
        assert_eq!(after, Some(before), "{condition:?}");
    }
}

/// Returns all conditions, each true and false for the head from [`prepared`].
fn conditions(due: Timestamp) -> Vec<(PatchCondition, PatchCondition)> {
    use PatchCondition as C;
    let at = |step: i64| Timestamp(due.0.saturating_add_signed(step));
    vec![
        (C::EpochIs(Epoch(1)), C::EpochIs(Epoch(2))),
        (C::AttemptIs(Unit(0), Attempt(1)), C::AttemptIs(Unit(3), Attempt(1))),
        (C::AttemptIs(Unit(3), Attempt(2)), C::AttemptIs(Unit(0), Attempt(2))),
        (C::AttemptIs(Unit(4), Attempt(1)), C::AttemptIs(Unit(4), Attempt(2))),
        (C::NotDone(Unit(2)), C::NotDone(Unit(1))),
        (C::NotDone(Unit(0)), C::NotDone(Unit(999))),
        (C::NotFailed(Unit(1)), C::NotFailed(Unit(2))),
        (C::DueIs(due), C::DueIs(at(1))),
        (C::DueAfter(at(-1)), C::DueAfter(due)),
        (C::VersionIs(1), C::VersionIs(0)),
    ]
}

/// Writes a head with an entry of each kind.
async fn prepared(fixture: &StoreFixture, run: &RunId, due: Timestamp) {
    use PatchChange as C;
    let late = LateMark { unit: Unit(9), attempt: Attempt(1), mark: 4_294_967_295 };
    let changes = [
        C::AddDone(Unit(1)),
        C::AddDone(Unit(999)),
        C::AddFailed(Unit(2)),
        C::SetAttempt(Unit(3), Attempt(2)),
        C::SetAttempt(Unit(4), Attempt(1)),
        C::AddSealed(Unit(5)),
        C::AddLate(late),
        C::SetDue(due),
        C::BumpVersion,
    ];
    fixture.change(run, &changes).await;
}

pub(super) async fn every_condition_is_tested_true_and_false(fixture: StoreFixture) {
    let (run, due) = (fixture.run("a").await, new_run("a").due);
    fixture.check(&run, PatchCondition::VersionIs(0), true).await;
    prepared(&fixture, &run, due).await;
    for (holds, not) in conditions(due) {
        fixture.check(&run, holds, true).await;
        fixture.check(&run, not, false).await;
    }
    // Conditions on a missing wake-up are false.
    fixture.change(&run, &[PatchChange::ClearDue]).await;
    for condition in [PatchCondition::DueIs(due), PatchCondition::DueAfter(Timestamp(0))] {
        fixture.check(&run, condition, false).await;
    }
}

/// Only the start of a run creates its head.
pub(super) async fn no_condition_holds_for_a_missing_run(fixture: StoreFixture) {
    use PatchCondition as C;
    let missing = new_run("b").id;
    let unit = Unit(0);
    for conditions in [&[][..], &[C::EpochIs(Epoch(1))], &[C::AttemptIs(unit, Attempt(1)), C::NotDone(unit)]] {
        let patch = Patch { conditions: conditions.to_vec(), changes: vec![PatchChange::AddDone(unit)] };
        assert_eq!(refused(fixture.store.patch_run(&missing, &patch).await.unwrap()), None, "{patch:?}");
    }
    assert_eq!(fixture.store.read_run(&missing).await.unwrap(), None);
}

pub(super) async fn images_equal_the_stored_item(fixture: StoreFixture) {
    let (run, due) = (fixture.run("a").await, new_run("a").due);
    prepared(&fixture, &run, due).await;
    let changes = [
        PatchChange::AddDone(Unit(7)),
        PatchChange::SetAttempt(Unit(3), Attempt(3)),
        PatchChange::SetPhase(RunPhase::Cancelling),
    ];
    let patch = Patch {
        conditions: vec![PatchCondition::EpochIs(Epoch(1)), PatchCondition::NotDone(Unit(7))],
        changes: changes.to_vec(),
    };
    let after = written(fixture.store.patch_run(&run, &patch).await.unwrap());
    assert_eq!(after.facts, new_run("a").facts);
    assert_eq!(after.head.done, [1, 7, 999].map(Unit).into());
    assert_eq!(fixture.store.read_run(&run).await.unwrap(), Some(after.clone()));
    assert_eq!(refused(fixture.store.patch_run(&run, &patch).await.unwrap()), Some(after.clone()));
    let plan = ebb_protocol::id::digest(b"another plan");
    assert!(fixture.store.set_run_plan(&run, &plan).await.unwrap());
    let facts = RunFacts { plan: plan.clone(), ..new_run("a").facts };
    assert_eq!(fixture.store.read_run(&run).await.unwrap(), Some(RunHead { facts, ..after }));
    let missing = new_run("b").id;
    assert!(!fixture.store.set_run_plan(&missing, &plan).await.unwrap());
    assert_eq!(fixture.store.read_run(&missing).await.unwrap(), None);
}

pub(super) async fn an_empty_set_has_no_attribute(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let partition = format!("r#{run}");
    let (done, failed) = (Unit(5), Unit(6));
    fixture.change(&run, &[PatchChange::AddDone(done), PatchChange::AddFailed(failed)]).await;
    let item = fixture.item(&partition, "h").await.unwrap();
    assert!(item.contains_key("done") && item.contains_key("failed"));
    let head = fixture.change(&run, &[PatchChange::Reopen(done), PatchChange::Reopen(failed)]).await;
    assert_eq!((head.done.len(), head.failed.len()), (0, 0));
    let item = fixture.item(&partition, "h").await.unwrap();
    assert!(!item.contains_key("done") && !item.contains_key("failed"), "{item:?}");
    assert_eq!(item["pk"], text(&partition));
    for condition in [PatchCondition::NotDone(done), PatchCondition::NotFailed(failed)] {
        fixture.check(&run, condition, true).await;
    }
    assert_eq!(fixture.change(&run, &[PatchChange::AddDone(done)]).await.done, [done].into());
}
