use super::*;
use crate::graph::Unit;

/// The unit under test. Other units have changed, too.
const UNIT: Unit = Unit(2);
const OTHER: Unit = Unit(3);
const NOW: Timestamp = Timestamp(5);
const OLD: Epoch = Epoch(1);

/// Returns heads that differ in each field that an event reads.
fn heads() -> Vec<HeadState> {
    let mut heads = Vec::new();
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
            head.attempts.insert(UNIT, Attempt(1 + attempt));
        }
        head.done = [OTHER].into_iter().chain((over & 1 > 0).then_some(UNIT)).collect();
        head.failed = [Unit(4)].into_iter().chain((over & 2 > 0).then_some(UNIT)).collect();
        head.due = (due > 0).then(|| Timestamp(3 + u64::from(due)));
        head.version = pick(2).into();
        head.removal_announced = (pick(2) > 0).then_some(NOW);
        head.notified = (pick(2) > 0).then_some(Timestamp(2));
        head.sealed = [OTHER].into();
        head.late = [LateMark { unit: OTHER, attempt: Attempt(1), mark: 7 }].into();
        heads.push(head);
    }
    heads
}

fn of_unit() -> Vec<RunEvent> {
    let attempts = [1, 2, 3].map(Attempt).into_iter();
    attempts
        .flat_map(|number| {
            let (attempt, to) = (AttemptRef { unit: UNIT, number, epoch: OLD }, number.next());
            [
                RunEvent::Succeeded(attempt),
                RunEvent::Failed(attempt),
                RunEvent::Retried { ended: attempt, to },
                RunEvent::Reopened { seen: attempt, to },
                RunEvent::SucceededLate(LateMark { unit: UNIT, attempt: number, mark: 9 }),
            ]
        })
        .collect()
}

fn of_run() -> Vec<RunEvent> {
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
        RunEvent::Cancelled { epoch: OLD, now: NOW },
        RunEvent::Stopped { now: NOW, epoch: OLD },
        RunEvent::WakeupAdvanced { due },
        RunEvent::VersionBumped,
        RunEvent::EpochFenced { epoch: OLD },
        RunEvent::RemovalAnnounced { at: Timestamp(98) },
        RunEvent::RemovalWithdrawn,
    ];
    versions.chain(others).collect()
}

/// Returns the head after an event by the rules of the protocol. `None` if the event is refused.
fn expected_head(event: RunEvent, before: &HeadState) -> Option<HeadState> {
    let mut head = before.clone();
    let over = head.done.contains(&UNIT) || head.failed.contains(&UNIT);
    let at = |attempt: AttemptRef| (head.epoch, head.attempt(UNIT)) == (attempt.epoch, attempt.number);
    let allowed = match event {
        RunEvent::Succeeded(attempt) | RunEvent::Failed(attempt) | RunEvent::Retried { ended: attempt, .. } => {
            at(attempt) && !over
        }
        RunEvent::Reopened { seen, .. } => at(seen),
        RunEvent::SucceededLate(_)
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
    let bumps_version = matches!(
        event,
        RunEvent::Retried { .. }
            | RunEvent::Cancelled { .. }
            | RunEvent::WakeupAdvanced { .. }
            | RunEvent::VersionBumped
            | RunEvent::EpochFenced { .. }
            | RunEvent::RunReopened { .. }
    );
    head.version += u64::from(bumps_version);
    match event {
        RunEvent::Succeeded(_) => head.done.extend([UNIT]),
        RunEvent::Failed(_) => head.failed.extend([UNIT]),
        RunEvent::Retried { to, .. } => head.attempts.extend([(UNIT, to)]),
        RunEvent::Reopened { to, .. } => {
            head.attempts.extend([(UNIT, to)]);
            head.done.remove(&UNIT);
            head.failed.remove(&UNIT);
        }
        RunEvent::SucceededLate(mark) => head.late.extend([mark]),
        RunEvent::Cancelled { now, .. } => {
            (head.epoch, head.phase, head.due) = (Epoch(2), RunPhase::Cancelling, Some(now));
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

fn cases() -> impl Iterator<Item = (RunEvent, HeadState)> {
    of_run().into_iter().chain(of_unit()).flat_map(|event| heads().into_iter().map(move |head| (event, head)))
}

#[test]
fn every_event_follows_the_protocol_and_is_idempotent() {
    for (event, head) in cases() {
        let patch = accept(event);
        let after = patch.apply(&head);
        assert_eq!(after, expected_head(event, &head), "{event:?} on {head:?}");
        let Some(after) = after else { continue };
        if let Some(again) = patch.apply(&after) {
            let version = after.version + u64::from(event == RunEvent::VersionBumped);
            assert_eq!(again, HeadState { version, ..after }, "{event:?} twice on {head:?}");
        }
    }
}

#[test]
fn an_earlier_wakeup_is_written_with_the_event_or_not_at_all() {
    let due = NOW;
    for (event, head) in cases() {
        let alone = expected_head(event, &head).filter(|_| head.due > Some(due));
        let both = alone.map(|after| HeadState { due: Some(due), version: head.version + 1, ..after });
        assert_eq!(accept_with_wakeup(event, due).apply(&head), both, "{event:?} on {head:?}");
    }
}

#[test]
fn a_refusal_describes_the_head() {
    let attempt = |number| AttemptRef { unit: UNIT, number: Attempt(number), epoch: OLD };
    for (head, attempt) in heads().iter().flat_map(|head| [1, 2].map(|number| (head, attempt(number)))) {
        let same = head.attempt(UNIT) == attempt.number;
        let expected = match (head.done.contains(&UNIT), head.failed.contains(&UNIT)) {
            (true, _) if same => PatchRefusal::AlreadyDone,
            (_, true) if same => PatchRefusal::AlreadyFailed,
            _ if same && head.epoch == OLD => PatchRefusal::StillOpen,
            _ => PatchRefusal::Superseded,
        };
        assert_eq!(refusal(attempt, head), expected, "{attempt:?} {head:?}");
        let applied = accept(RunEvent::Succeeded(attempt)).apply(head);
        assert_eq!(applied.is_some(), expected == PatchRefusal::StillOpen, "{attempt:?} {head:?}");
    }
}
