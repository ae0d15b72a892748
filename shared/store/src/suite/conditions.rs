use std::collections::BTreeSet;

use ebb_protocol::engine::{
    Attempt, Epoch, HeadState, LateMark, Patch, PatchChange, PatchCondition, RunPhase, Shard, Timestamp,
};
use ebb_protocol::id::RunId;

use super::fixture::{StoreFixture, new_run, refused, text, written};
use crate::{RunFacts, RunHead};

impl StoreFixture {
    async fn change(&self, run: &RunId, shard: Shard, changes: &[PatchChange]) -> HeadState {
        let patch = Patch { shard, conditions: vec![], changes: changes.to_vec() };
        written(self.store.patch_run(run, &patch).await.unwrap()).head
    }

    async fn head(&self, run: &RunId, shard: Shard) -> Option<HeadState> {
        let heads = self.store.read_run(run).await.unwrap();
        heads.into_iter().find(|head| head.shard == shard).map(|head| head.head)
    }

    /// Checks whether a write with this condition succeeds.
    async fn check(&self, run: &RunId, shard: Shard, condition: PatchCondition, holds: bool) {
        let patch =
            Patch { shard, conditions: vec![condition], changes: vec![PatchChange::SetPhase(RunPhase::Running)] };
        let before = self.head(run, shard).await;
        assert_eq!(condition.holds(shard, before.as_ref()), holds, "{condition:?} in the engine");
        let patched = self.store.patch_run(run, &patch).await.unwrap();
        match holds {
            true => assert_eq!(written(patched).head, before.unwrap(), "{condition:?}"),
            false => assert_eq!(refused(patched).map(|image| image.head), before, "{condition:?}"),
        }
    }
}

/// Returns all conditions, each true and false for the head from [`prepared`].
fn conditions(due: Timestamp) -> Vec<(PatchCondition, PatchCondition)> {
    use PatchCondition as C;
    let at = |step: i64| Timestamp(due.0.saturating_add_signed(step));
    vec![
        (C::EpochIs(Epoch(1)), C::EpochIs(Epoch(2))),
        (C::AttemptIs(0, Attempt(1)), C::AttemptIs(3, Attempt(1))),
        (C::AttemptIs(3, Attempt(2)), C::AttemptIs(0, Attempt(2))),
        (C::AttemptIs(4, Attempt(1)), C::AttemptIs(4, Attempt(2))),
        (C::NotDone(2), C::NotDone(1)),
        (C::NotDone(0), C::NotDone(255)),
        (C::NotFailed(1), C::NotFailed(2)),
        (C::DueIs(due), C::DueIs(at(1))),
        (C::DueAfter(at(-1)), C::DueAfter(due)),
        (C::VersionIs(1), C::VersionIs(0)),
    ]
}

/// Writes a head with an entry of each kind.
async fn prepared(fixture: &StoreFixture, run: &RunId, shard: Shard, due: Timestamp) {
    use PatchChange as C;
    let late = LateMark { slot: 9, attempt: Attempt(1), mark: 4_294_967_295 };
    let changes = [
        C::AddDone(1),
        C::AddDone(255),
        C::AddFailed(2),
        C::SetAttempt(3, Attempt(2)),
        C::SetAttempt(4, Attempt(1)),
        C::AddSealed(5),
        C::AddLate(late),
        C::SetDue(due),
        C::BumpVersion,
    ];
    fixture.change(run, shard, &changes).await;
}

pub(super) async fn every_condition_is_tested_true_and_false(fixture: StoreFixture) {
    let (run, due) = (fixture.run("a").await, new_run("a").due);
    for shard in [Shard::ROOT, Shard(1)] {
        prepared(&fixture, &run, shard, due).await;
        for (holds, not) in conditions(due) {
            fixture.check(&run, shard, holds, true).await;
            fixture.check(&run, shard, not, false).await;
        }
    }
    // Conditions on a missing wake-up are false.
    fixture.change(&run, Shard::ROOT, &[PatchChange::ClearDue]).await;
    for condition in [PatchCondition::DueIs(due), PatchCondition::DueAfter(Timestamp(0))] {
        fixture.check(&run, Shard::ROOT, condition, false).await;
    }
}

pub(super) async fn conditions_on_a_missing_item(fixture: StoreFixture) {
    use PatchCondition as C;
    let run = fixture.run("a").await;
    let due = Timestamp(0);
    for (shard, condition) in
        (1..).map(Shard).zip([C::EpochIs(Epoch(7)), C::AttemptIs(0, Attempt(1)), C::NotDone(0), C::NotFailed(0)])
    {
        let patch = Patch { shard, conditions: vec![condition], changes: vec![PatchChange::AddSealed(1)] };
        let head = written(fixture.store.patch_run(&run, &patch).await.unwrap()).head;
        let epoch = if let C::EpochIs(epoch) = condition { epoch } else { Epoch::FIRST };
        assert_eq!((head.epoch, head.sealed.len()), (epoch, 1), "{condition:?}");
    }
    for condition in [C::AttemptIs(0, Attempt(2)), C::DueIs(due), C::DueAfter(due), C::VersionIs(0), C::VersionIs(1)] {
        fixture.check(&run, Shard(40), condition, false).await;
    }
    // Only the start of a run creates its root.
    let missing = new_run("b").id;
    for conditions in [&[][..], &[C::EpochIs(Epoch(1))], &[C::AttemptIs(0, Attempt(1)), C::NotDone(0), C::NotFailed(0)]]
    {
        let conditions = conditions.to_vec();
        let patch = Patch { shard: Shard::ROOT, conditions, changes: vec![PatchChange::AddDone(0)] };
        assert_eq!(refused(fixture.store.patch_run(&missing, &patch).await.unwrap()), None, "{patch:?}");
    }
    assert_eq!(fixture.store.read_run(&missing).await.unwrap(), []);
}

pub(super) async fn images_equal_the_stored_item(fixture: StoreFixture) {
    let (run, due) = (fixture.run("a").await, new_run("a").due);
    prepared(&fixture, &run, Shard::ROOT, due).await;
    let changes =
        [PatchChange::AddDone(7), PatchChange::SetAttempt(3, Attempt(3)), PatchChange::SetPhase(RunPhase::Cancelling)];
    let patch = Patch {
        shard: Shard::ROOT,
        conditions: vec![PatchCondition::EpochIs(Epoch(1)), PatchCondition::NotDone(7)],
        changes: changes.to_vec(),
    };
    let after = written(fixture.store.patch_run(&run, &patch).await.unwrap());
    assert_eq!(after.facts, Some(new_run("a").facts));
    assert_eq!(after.head.done, [1, 7, 255].into());
    assert_eq!(fixture.store.read_root(&run).await.unwrap(), Some(after.clone()));
    assert_eq!(refused(fixture.store.patch_run(&run, &patch).await.unwrap()), Some(after.clone()));
    let plan = ebb_protocol::id::digest(b"another plan");
    assert!(fixture.store.set_run_plan(&run, &plan).await.unwrap());
    let facts = RunFacts { plan: plan.clone(), ..new_run("a").facts };
    let root = RunHead { facts: Some(facts), ..after };
    assert_eq!(fixture.store.read_root(&run).await.unwrap(), Some(root));
    let missing = new_run("b").id;
    assert!(!fixture.store.set_run_plan(&missing, &plan).await.unwrap());
    assert_eq!(fixture.store.read_run(&missing).await.unwrap(), []);
}

pub(super) async fn an_empty_set_has_no_attribute(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let partition = format!("r#{run}");
    fixture.change(&run, Shard::ROOT, &[PatchChange::AddDone(5), PatchChange::AddFailed(6)]).await;
    let item = fixture.item(&partition, "h").await.unwrap();
    assert!(item.contains_key("done") && item.contains_key("failed"));
    let head = fixture.change(&run, Shard::ROOT, &[PatchChange::Reopen(5), PatchChange::Reopen(6)]).await;
    assert_eq!((head.done.len(), head.failed.len()), (0, 0));
    let item = fixture.item(&partition, "h").await.unwrap();
    assert!(!item.contains_key("done") && !item.contains_key("failed"), "{item:?}");
    assert_eq!(item["pk"], text(&partition));
    for condition in [PatchCondition::NotDone(5), PatchCondition::NotFailed(6)] {
        fixture.check(&run, Shard::ROOT, condition, true).await;
    }
    assert_eq!(fixture.change(&run, Shard::ROOT, &[PatchChange::AddDone(5)]).await.done, [5].into());
    // A version that was never bumped does not exist.
    fixture.change(&run, Shard(1), &[PatchChange::AddDone(5)]).await;
    let item = fixture.item(&partition, "h#0001").await.unwrap();
    let names: BTreeSet<&str> = item.keys().map(String::as_str).collect();
    assert_eq!(names, ["done", "ep", "pk", "sk"].into());
}
