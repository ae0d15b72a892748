use super::*;
use crate::state::SHARD;

/// The events' unit is at this position of its item, and others have done something too.
const SLOT: u32 = 2;
const OTHER: u32 = 3;
const NOW: Timestamp = Timestamp(5);
const OLD: Epoch = Epoch(1);

/// Items that differ in all that an event may look at, and for others than the root: none.
fn heads(shard: Shard) -> Vec<Option<Head>> {
    let mut heads = if shard == Shard::ROOT { vec![] } else { vec![None] };
    for number in 0..2 * 3 * 4 * 4 * 2 {
        let mut rest = number;
        let mut pick = |of: u32| {
            let picked = rest % of;
            rest /= of;
            picked
        };
        let mut head = Head::new(Epoch(1 + pick(2)));
        let (attempt, over, due) = (pick(3), pick(4), pick(4));
        if attempt > 0 {
            head.attempts.insert(SLOT, Attempt(1 + attempt));
        }
        head.done = [OTHER].into_iter().chain((over & 1 > 0).then_some(SLOT)).collect();
        head.failed = [OTHER + 1].into_iter().chain((over & 2 > 0).then_some(SLOT)).collect();
        head.due = (due > 0).then(|| Timestamp(3 + u64::from(due)));
        head.version = pick(2).into();
        head.sealed = [OTHER].into();
        head.late = [Late { slot: OTHER, attempt: Attempt(1), mark: 7 }].into();
        heads.push(Some(head));
    }
    heads
}

fn of_unit(shard: Shard) -> Vec<Event> {
    let (unit, epoch) = (shard.unit(SLOT), OLD);
    let tries = [1, 2, 3].map(Attempt).into_iter();
    tries
        .flat_map(|attempt| {
            let to = attempt.next();
            [
                Event::Succeeded { unit, attempt, epoch },
                Event::Failed { unit, attempt, epoch },
                Event::Retried { unit, attempt, epoch, to },
                Event::Reopened { unit, attempt, epoch, to },
                Event::Late { unit, attempt, mark: 9 },
            ]
        })
        .chain([Event::Sealed { unit }, Event::Cancelled { shard, epoch, now: NOW }])
        .collect()
}

fn of_root() -> Vec<Event> {
    let (seen, due, next) = (NOW, NOW, Timestamp(99));
    let versions = [0, 1].into_iter().flat_map(|version| {
        [
            Event::Reawoken { due, version, epoch: OLD },
            Event::Rearmed { seen, version, next },
            Event::Postponed { seen, next },
            Event::Advanced { due },
            Event::Closed { version },
        ]
    });
    let others = [
        Event::Stopped { now: NOW, epoch: OLD },
        Event::Hastened { due },
        Event::Noticed,
        Event::Outdated { epoch: OLD },
    ];
    versions.chain(others).collect()
}

/// The protocol once more, in words of the item. `None` where the event is refused.
fn restated(event: Event, shard: Shard, image: Option<&Head>) -> Option<Head> {
    let mut head = image.cloned().unwrap_or_else(|| Head::new(OLD));
    let root = shard == Shard::ROOT;
    let over = head.done.contains(&SLOT) || head.failed.contains(&SLOT);
    let at = |attempt: Attempt| head.attempt(SLOT) == attempt;
    let allowed = match event {
        Event::Succeeded { attempt, epoch, .. }
        | Event::Failed { attempt, epoch, .. }
        | Event::Retried { attempt, epoch, .. } => head.epoch == epoch && at(attempt) && !over,
        Event::Reopened { attempt, epoch, .. } => head.epoch == epoch && at(attempt),
        Event::Late { .. } | Event::Sealed { .. } | Event::Noticed => true,
        Event::Cancelled { epoch, .. } | Event::Stopped { epoch, .. } | Event::Outdated { epoch } => {
            head.epoch == epoch
        }
        Event::Hastened { due } | Event::Advanced { due } => head.due > Some(due),
        Event::Reawoken { version, epoch, .. } => (head.version, head.epoch) == (version, epoch),
        Event::Rearmed { seen, version, .. } => (head.due, head.version) == (Some(seen), version),
        Event::Postponed { seen, .. } => head.due == Some(seen),
        Event::Closed { version } => head.version == version,
    };
    let seen_before = match event {
        Event::Retried { .. } | Event::Cancelled { .. } => root,
        Event::Hastened { .. } | Event::Noticed | Event::Outdated { .. } | Event::Reawoken { .. } => true,
        _ => false,
    };
    head.version += u64::from(seen_before);
    match event {
        Event::Succeeded { .. } => head.done.extend([SLOT]),
        Event::Failed { .. } => head.failed.extend([SLOT]),
        Event::Retried { to, .. } => head.attempts.extend([(SLOT, to)]),
        Event::Reopened { to, .. } => {
            head.attempts.extend([(SLOT, to)]);
            head.done.retain(|slot| *slot != SLOT);
            head.failed.retain(|slot| *slot != SLOT);
        }
        Event::Late { attempt, mark, .. } => head.late.extend([Late { slot: SLOT, attempt, mark }]),
        Event::Sealed { .. } => head.sealed.extend([SLOT]),
        Event::Cancelled { now, .. } => {
            head.epoch = Epoch(2);
            if root {
                (head.phase, head.due) = (RunPhase::Stopping, Some(now));
            }
        }
        Event::Stopped { now, .. } => head.stopped = Some(now),
        Event::Outdated { .. } => head.epoch = Epoch(2),
        Event::Hastened { due } | Event::Advanced { due } => head.due = Some(due),
        Event::Reawoken { due, .. } => (head.phase, head.due) = (RunPhase::Running, Some(due)),
        Event::Rearmed { next, .. } | Event::Postponed { next, .. } => head.due = Some(next),
        Event::Closed { .. } => (head.phase, head.due) = (RunPhase::Closed, None),
        Event::Noticed => {}
    }
    allowed.then_some(head)
}

/// Every event on every item that it goes to.
fn cases() -> impl Iterator<Item = (Event, Shard, Option<Head>)> {
    let of_root = of_root().into_iter().map(|event| (event, Shard::ROOT));
    let of_units = [Shard::ROOT, Shard(1)]
        .into_iter()
        .flat_map(|shard| of_unit(shard).into_iter().map(move |event| (event, shard)));
    of_root
        .chain(of_units)
        .flat_map(|(event, shard)| heads(shard).into_iter().map(move |head| (event, shard, head)))
}

#[test]
fn every_event_does_what_the_protocol_says_and_nothing_twice() {
    for (event, shard, head) in cases() {
        let patch = accept(event);
        assert_eq!(patch.shard, shard, "{event:?}");
        let after = patch.apply(head.as_ref(), OLD);
        assert_eq!(after, restated(event, shard, head.as_ref()), "{event:?} on {head:?}");
        let Some(after) = after else { continue };
        if let Some(again) = patch.apply(Some(&after), OLD) {
            let version = after.version + u64::from(event == Event::Noticed);
            assert_eq!(again, Head { version, ..after }, "{event:?} twice on {head:?}");
        }
    }
}

#[test]
fn an_earlier_wake_up_comes_with_the_event_or_not_at_all() {
    let due = NOW;
    for (event, shard, head) in cases() {
        let Some(patch) = accept_waking(event, due) else {
            assert_ne!(shard, Shard::ROOT, "{event:?}");
            continue;
        };
        let before = head.as_ref().expect("the root is there");
        let alone = restated(event, shard, head.as_ref()).filter(|_| before.due > Some(due));
        let both = alone.map(|head| Head { due: Some(due), version: before.version + 1, ..head });
        assert_eq!((patch.shard, patch.apply(head.as_ref(), OLD)), (shard, both), "{event:?} on {head:?}");
    }
}

#[test]
fn a_refusal_says_what_the_item_says() {
    for shard in [Shard::ROOT, Shard(1)] {
        let unit = shard.unit(SLOT);
        for (head, attempt) in
            heads(shard).iter().flat_map(|head| [1, 2].map(|attempt| (head, Attempt(attempt))))
        {
            let image = head.clone().unwrap_or_else(|| Head::new(OLD));
            let same = image.attempt(SLOT) == attempt;
            let expected = match (image.done.contains(&SLOT), image.failed.contains(&SLOT)) {
                (true, _) if same => Refusal::AlreadyDone,
                (_, true) if same => Refusal::AlreadyFailed,
                _ if same && image.epoch == OLD || head.is_none() => Refusal::StillOpen,
                _ => Refusal::Late,
            };
            assert_eq!(refusal(unit, attempt, OLD, head.as_ref()), expected, "{attempt:?} {head:?}");
            let taken = accept(Event::Succeeded { unit, attempt, epoch: OLD }).apply(head.as_ref(), OLD);
            assert_eq!(taken.is_some(), expected == Refusal::StillOpen && same, "{attempt:?} {head:?}");
        }
    }
    assert_eq!(refusal(Unit(SLOT), Attempt(1), OLD, None), Refusal::Late);
    assert_eq!(refusal(Unit(SHARD), Attempt(2), OLD, None), Refusal::StillOpen);
}
