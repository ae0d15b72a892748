//! Clusters that give no answer, and those that have more work than places, keep nothing else waiting.

use std::collections::BTreeSet;

use ebb_engine::TargetPhase;
use ebb_tests::sim::fleet::{Fleet, FleetScenario, HANGS, REFUSES, WELL};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// How often the simulation is looked at.
const LOOK: u64 = 5 * SECOND;
/// The longest delay of anything that is due.
const PROMISE: u64 = 2 * MINUTE;

const CALM: FleetScenario = FleetScenario {
    units: 1,
    webhooks: 0,
    millis: SECOND,
    fails: 0,
    slots: usize::MAX,
    calls_back: true,
    lost: 0,
    well_until: u64::MAX,
};

/// A thousand runs wait for a cluster that is down. No hint of the queue arrives, so all depends on the schedule: the second
/// attempts of a hundred targets in another cluster, and their times to live.
pub(crate) fn others_are_served_beside(dead: &str, most_requests: usize) {
    const TTL_MINUTES: u64 = 20;
    let fleet = Fleet::new(FleetScenario { fails: 1, lost: 100, ..CALM });
    fleet.create(dead, 1_000, 24 * 60);
    fleet.create(WELL, 100, TTL_MINUTES);
    let (mut worst, mut worst_dead, mut ready, mut gone) = (0, 0, None, None);
    while fleet.runtime.elapsed() < 30 * MINUTE {
        fleet.advance(LOOK);
        let now = fleet.runtime.elapsed();
        let (others, waiting) = fleet.overdue(dead);
        (worst, worst_dead) = (worst.max(others), worst_dead.max(waiting));
        if fleet.count(WELL, TargetPhase::Ready) == 100 {
            ready.get_or_insert(now);
        }
        if fleet.count(WELL, TargetPhase::Gone) == 100 {
            gone.get_or_insert(now);
        }
    }
    assert_eq!(fleet.broken(), Vec::<String>::new());
    assert_eq!(fleet.count(dead, TargetPhase::Starting), 1_000);
    assert!(worst <= PROMISE, "{dead}: something else was due for {worst} ms");
    assert!(worst_dead <= PROMISE, "{dead}: a run that waits was due for {worst_dead} ms");
    // An attempt of a second, a wait of half a minute, a second attempt.
    let ready = ready.expect("all are ready");
    assert!(ready <= 40 * SECOND + PROMISE, "{dead}: ready after {ready} ms");
    // The message that has the notification told was lost as well.
    let told = fleet.notifications("dev.ebb.target.ready.v1");
    assert_eq!(told.len(), 100);
    assert!(told.iter().all(|&at| at <= ready + PROMISE), "{dead}: told at {told:?}");
    let gone = gone.expect("all are gone");
    assert!(gone <= TTL_MINUTES * MINUTE + PROMISE, "{dead}: gone after {gone} ms");
    // The cluster is asked all the time, and not by each run.
    let late = fleet.works().unanswered.iter().filter(|&&at| at >= 20 * MINUTE).count();
    assert!((1..=most_requests).contains(&late), "{dead}: asked {late} times in ten minutes");
}

#[test]
fn a_cluster_that_hangs_delays_nothing_else() {
    others_are_served_beside(HANGS, 20);
}

#[test]
fn a_cluster_that_refuses_delays_nothing_else() {
    others_are_served_beside(REFUSES, 20);
}

/// The runs wait for a cluster that is down, and have something else to do. No hint of the queue arrives.
#[test]
fn other_units_of_a_run_do_not_wait_for_a_silent_cluster() {
    const TARGETS: usize = 20;
    const TRIES: u32 = 3;
    let fleet = Fleet::new(FleetScenario { webhooks: 1, lost: 100, ..CALM });
    fleet.create(HANGS, TARGETS, 24 * 60);
    fleet.advance(15 * MINUTE);
    let calls: Vec<u32> = fleet.works().calls.values().copied().collect();
    assert_eq!((calls, fleet.broken()), (vec![TRIES; TARGETS], vec![]));
    assert!(fleet.works().unanswered.iter().any(|&at| at >= 10 * MINUTE));
}

/// Three times as many units as one invocation sends; each script takes more than half of its time.
#[test]
fn units_that_wait_for_their_turn_run_once_and_whole() {
    let fleet = Fleet::new(FleetScenario { units: 150, millis: 6 * MINUTE, slots: 50, ..CALM });
    fleet.create(WELL, 1, 24 * 60);
    while fleet.count(WELL, TargetPhase::Ready) == 0 && fleet.runtime.elapsed() < 60 * MINUTE {
        fleet.advance(LOOK);
    }
    assert_eq!((fleet.count(WELL, TargetPhase::Ready), fleet.broken()), (1, vec![]));
    let works = fleet.works();
    let starts: BTreeSet<(u32, u32)> = works.starts.iter().map(|((_, attempt), starts)| (*attempt, *starts)).collect();
    assert_eq!((works.starts.len(), starts), (150, BTreeSet::from([(1, 1)])));
    assert_eq!(works.killed, 0);
    assert!(works.waits >= 100, "{} waits", works.waits);
}

/// The first results come from the relay when it is asked again.
#[test]
fn runs_end_without_callbacks() {
    let fleet = Fleet::new(FleetScenario { units: 3, calls_back: false, ..CALM });
    fleet.create(WELL, 5, 24 * 60);
    fleet.advance(5 * MINUTE);
    assert_eq!((fleet.count(WELL, TargetPhase::Ready), fleet.broken()), (5, vec![]));
    assert_eq!(fleet.works().starts.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1]));
}

/// A cluster breaks down while its scripts run: their deadlines cannot be kept, and their targets cannot be deleted.
#[test]
fn work_that_cannot_be_killed_is_asked_for_less_and_less_often() {
    const TARGETS: usize = 20;
    const HOUR: u64 = 60 * MINUTE;
    let fleet = Fleet::new(FleetScenario { millis: 24 * HOUR, well_until: MINUTE, ..CALM });
    fleet.create(WELL, TARGETS, 3 * 60);
    // Requests, and writes for each target, of the second hour after the deadlines, and of one after the end of the targets.
    for (begins, phase, most) in [(HOUR, TargetPhase::Starting, 60), (5 * HOUR, TargetPhase::Stopping, 180)] {
        fleet.advance(begins - fleet.runtime.elapsed());
        let before = (fleet.works().unanswered.len(), fleet.table.writes());
        let mut worst = 0;
        while fleet.runtime.elapsed() < begins + HOUR {
            fleet.advance(LOOK);
            let (others, runs) = fleet.overdue(WELL);
            worst = worst.max(others).max(runs);
        }
        let asked = fleet.works().unanswered.len() - before.0;
        let written = (fleet.table.writes() - before.1) / TARGETS as u64;
        assert_eq!((fleet.count(WELL, phase), fleet.broken()), (TARGETS, vec![]), "{phase:?}");
        assert!((1..=60).contains(&asked), "{phase:?}: asked {asked} times in an hour");
        assert!(written <= most, "{phase:?}: {written} writes in an hour");
        assert!(worst <= PROMISE, "{phase:?}: something was due for {worst} ms");
    }
}
