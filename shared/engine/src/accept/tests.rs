use super::*;
use crate::state::SHARD;

/// The slot of the unit under test. Other units have changed, too.
const SLOT: u32 = 2;
const OTHER: u32 = 3;
const NOW: Timestamp = Timestamp(5);
const OLD: Epoch = Epoch(1);

/// Returns items that differ in each field that an event reads. For other shards than the root, one item is missing.
fn heads(shard: Shard) -> Vec<Option<HeadState>> {
    let mut heads = if shard == Shard::ROOT { vec![] } else { vec![None] };
    for number in 0..2 * 3 * 4 * 4 * 2 * 2 * 2 {
        let mut rest = number;
        let mut pick = |of: u32| {
            let picked = rest % of;
            rest /= of;
            picked
        };
        let mut head = HeadState::new(Epoch(1 + pick(2)));
        let (attempt, over, due) = (pick(3), pick(4), pick(4));
        if attempt > 0 {
            head.attempts.insert(SLOT, Attempt(1 + attempt));
        }
        head.done = [OTHER].into_iter().chain((over & 1 > 0).then_some(SLOT)).collect();
        head.failed = [OTHER + 1].into_iter().chain((over & 2 > 0).then_some(SLOT)).collect();
        head.due = (due > 0).then(|| Timestamp(3 + u64::from(due)));
        head.version = pick(2).into();
        head.removal_announced = (pick(2) > 0).then_some(NOW);
        head.notified = (pick(2) > 0).then_some(Timestamp(2));
        head.sealed = [OTHER].into();
        head.late = [LateMark { slot: OTHER, attempt: Attempt(1), mark: 7 }].into();
        heads.push(Some(head));
    }
    heads
}

fn of_unit(shard: Shard) -> Vec<RunEvent> {
    let (unit, epoch) = (shard.unit(SLOT), OLD);
    let attempts = [1, 2, 3].map(Attempt).into_iter();
    attempts
        .flat_map(|attempt| {
            let to = attempt.next();
            [
                RunEvent::Succeeded { unit, attempt, epoch },
                RunEvent::Failed { unit, attempt, epoch },
                RunEvent::Retried { unit, attempt, epoch, to },
                RunEvent::Reopened { unit, attempt, epoch, to },
                RunEvent::SucceededLate { unit, attempt, mark: 9 },
            ]
        })
        .chain([RunEvent::Sealed { unit }, RunEvent::Cancelled { shard, epoch, now: NOW }])
        .collect()
}

fn of_root() -> Vec<RunEvent> {
    let (seen, due, next) = (NOW, NOW, Timestamp(99));
    let versions = [0, 1].into_iter().flat_map(|version| {
        [
            RunEvent::RunReopened { due, version, epoch: OLD },
            RunEvent::Rescheduled { seen, version, next },
            RunEvent::Postponed { seen, next },
            RunEvent::SweepAdvanced { due },
            RunEvent::Closed { version, notified: None },
            RunEvent::Closed { version, notified: Some(NOW) },
        ]
    });
    let others = [
        RunEvent::Stopped { now: NOW, epoch: OLD },
        RunEvent::WakeupAdvanced { due },
        RunEvent::VersionBumped,
        RunEvent::EpochFenced { epoch: OLD },
        RunEvent::RemovalAnnounced { at: Timestamp(98) },
        RunEvent::RemovalWithdrawn,
    ];
    versions.chain(others).collect()
}

/// Returns the item after an event by the rules of the protocol. `None` if the event is refused.
fn expected_head(event: RunEvent, shard: Shard, image: Option<&HeadState>) -> Option<HeadState> {
    let mut head = image.cloned().unwrap_or_else(|| HeadState::new(OLD));
    let root = shard == Shard::ROOT;
    let over = head.done.contains(&SLOT) || head.failed.contains(&SLOT);
    let at = |attempt: Attempt| head.attempt(SLOT) == attempt;
    let allowed = match event {
        RunEvent::Succeeded { attempt, epoch, .. }
        | RunEvent::Failed { attempt, epoch, .. }
        | RunEvent::Retried { attempt, epoch, .. } => head.epoch == epoch && at(attempt) && !over,
        RunEvent::Reopened { attempt, epoch, .. } => head.epoch == epoch && at(attempt),
        RunEvent::SucceededLate { .. }
        | RunEvent::Sealed { .. }
        | RunEvent::VersionBumped
        | RunEvent::RemovalAnnounced { .. }
        | RunEvent::RemovalWithdrawn => true,
        RunEvent::Cancelled { epoch, .. } | RunEvent::Stopped { epoch, .. } | RunEvent::EpochFenced { epoch } => {
            head.epoch == epoch
        }
        RunEvent::WakeupAdvanced { due } | RunEvent::SweepAdvanced { due } => head.due > Some(due),
        RunEvent::RunReopened { version, epoch, .. } => (head.version, head.epoch) == (version, epoch),
        RunEvent::Rescheduled { seen, version, .. } => (head.due, head.version) == (Some(seen), version),
        RunEvent::Postponed { seen, .. } => head.due == Some(seen),
        RunEvent::Closed { version, .. } => head.version == version,
    };
    let seen_before = match event {
        RunEvent::Retried { .. } | RunEvent::Cancelled { .. } => root,
        RunEvent::WakeupAdvanced { .. }
        | RunEvent::VersionBumped
        | RunEvent::EpochFenced { .. }
        | RunEvent::RunReopened { .. } => true,
        _ => false,
    };
    head.version += u64::from(seen_before);
    match event {
        RunEvent::Succeeded { .. } => head.done.extend([SLOT]),
        RunEvent::Failed { .. } => head.failed.extend([SLOT]),
        RunEvent::Retried { to, .. } => head.attempts.extend([(SLOT, to)]),
        RunEvent::Reopened { to, .. } => {
            head.attempts.extend([(SLOT, to)]);
            head.done.retain(|slot| *slot != SLOT);
            head.failed.retain(|slot| *slot != SLOT);
        }
        RunEvent::SucceededLate { attempt, mark, .. } => head.late.extend([LateMark { slot: SLOT, attempt, mark }]),
        RunEvent::Sealed { .. } => head.sealed.extend([SLOT]),
        RunEvent::Cancelled { now, .. } => {
            head.epoch = Epoch(2);
            if root {
                (head.phase, head.due) = (RunPhase::Cancelling, Some(now));
            }
        }
        RunEvent::Stopped { now, .. } => head.stopped = Some(now),
        RunEvent::EpochFenced { .. } => head.epoch = Epoch(2),
        RunEvent::WakeupAdvanced { due } | RunEvent::SweepAdvanced { due } => head.due = Some(due),
        RunEvent::RunReopened { due, .. } => {
            (head.phase, head.due, head.notified) = (RunPhase::Running, Some(due), None);
        }
        RunEvent::Rescheduled { next, .. } | RunEvent::Postponed { next, .. } => head.due = Some(next),
        RunEvent::Closed { notified, .. } => {
            (head.phase, head.due, head.notified) = (RunPhase::Closed, None, notified.or(head.notified));
        }
        RunEvent::VersionBumped => {}
        RunEvent::RemovalAnnounced { at } => head.removal_announced = Some(at),
        RunEvent::RemovalWithdrawn => head.removal_announced = None,
    }
    allowed.then_some(head)
}

/// Applies every event to every item.
fn cases() -> impl Iterator<Item = (RunEvent, Shard, Option<HeadState>)> {
    let of_root = of_root().into_iter().map(|event| (event, Shard::ROOT));
    let of_units = [Shard::ROOT, Shard(1)]
        .into_iter()
        .flat_map(|shard| of_unit(shard).into_iter().map(move |event| (event, shard)));
    of_root.chain(of_units).flat_map(|(event, shard)| heads(shard).into_iter().map(move |head| (event, shard, head)))
}

#[test]
fn every_event_follows_the_protocol_and_is_idempotent() {
    for (event, shard, head) in cases() {
        let patch = accept(event);
        assert_eq!(patch.shard, shard, "{event:?}");
        let after = patch.apply(head.as_ref(), OLD);
        assert_eq!(after, expected_head(event, shard, head.as_ref()), "{event:?} on {head:?}");
        let Some(after) = after else { continue };
        if let Some(again) = patch.apply(Some(&after), OLD) {
            let version = after.version + u64::from(event == RunEvent::VersionBumped);
            assert_eq!(again, HeadState { version, ..after }, "{event:?} twice on {head:?}");
        }
    }
}

#[test]
fn an_earlier_wakeup_is_written_with_the_event_or_not_at_all() {
    let due = NOW;
    for (event, shard, head) in cases() {
        let Some(patch) = accept_with_wakeup(event, due) else {
            assert_ne!(shard, Shard::ROOT, "{event:?}");
            continue;
        };
        let before = head.as_ref().expect("the root exists");
        let alone = expected_head(event, shard, head.as_ref()).filter(|_| before.due > Some(due));
        let both = alone.map(|head| HeadState { due: Some(due), version: before.version + 1, ..head });
        assert_eq!((patch.shard, patch.apply(head.as_ref(), OLD)), (shard, both), "{event:?} on {head:?}");
    }
}

#[test]
fn a_refusal_describes_the_item() {
    for shard in [Shard::ROOT, Shard(1)] {
        let unit = shard.unit(SLOT);
        for (head, attempt) in heads(shard).iter().flat_map(|head| [1, 2].map(|attempt| (head, Attempt(attempt)))) {
            let image = head.clone().unwrap_or_else(|| HeadState::new(OLD));
            let same = image.attempt(SLOT) == attempt;
            let expected = match (image.done.contains(&SLOT), image.failed.contains(&SLOT)) {
                (true, _) if same => PatchRefusal::AlreadyDone,
                (_, true) if same => PatchRefusal::AlreadyFailed,
                _ if same && image.epoch == OLD || head.is_none() => PatchRefusal::StillOpen,
                _ => PatchRefusal::Superseded,
            };
            assert_eq!(refusal(unit, attempt, OLD, head.as_ref()), expected, "{attempt:?} {head:?}");
            let applied = accept(RunEvent::Succeeded { unit, attempt, epoch: OLD }).apply(head.as_ref(), OLD);
            assert_eq!(applied.is_some(), expected == PatchRefusal::StillOpen && same, "{attempt:?} {head:?}");
        }
    }
    assert_eq!(refusal(Unit(SLOT), Attempt(1), OLD, None), PatchRefusal::Superseded);
    assert_eq!(refusal(Unit(SHARD), Attempt(2), OLD, None), PatchRefusal::StillOpen);
}
