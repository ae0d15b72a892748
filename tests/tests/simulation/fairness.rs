//! Clusters that do not respond or have more tasks than slots do not delay other targets.

use std::collections::BTreeSet;

use ebb_engine::{TargetPhase, Unit};
use ebb_tests::simulation::{
    AttemptFate, BUSY, ClusterOptions, FaultInjector, FaultKind, REFUSING, Scenario, SetupUnit, SimOptions, Simulation,
    TargetScenario, TraceMode, UNREACHABLE, UndoUnit, UnitAction,
};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// The interval at which tests read the state of the simulation.
const POLL: u64 = 5 * SECOND;
/// Maximum time for which a target or run may be due.
const MAX_OVERDUE: u64 = 2 * MINUTE;
const CONNECTED: &str = "connected";

fn target(units: Vec<SetupUnit>) -> TargetScenario {
    let defaults = "{timeout: 10m, retry: {attempts: 3, backoff: 30s, maxBackoff: 30s}}";
    Scenario { defaults, ..Scenario::of(units) }.target()
}

fn unit(action: UnitAction, millis: u64) -> SetupUnit {
    SetupUnit { undo: None, ..SetupUnit::plain(action, millis, &[]) }
}

fn script(millis: u64) -> SetupUnit {
    unit(UnitAction::Pod, millis)
}

/// Returns a simulation with these faults, in which the schedule runs.
fn simulation<'a>(
    targets: impl IntoIterator<Item = &'a TargetScenario>,
    faults: FaultInjector,
    clusters: ClusterOptions,
) -> Simulation {
    let options = SimOptions { faults, trace: TraceMode::Off, clusters, latency_ms: 10, ..SimOptions::default() };
    let simulation = Simulation::new(targets, options);
    simulation.start_sweeps();
    simulation
}

fn always(faults: &[FaultKind]) -> FaultInjector {
    let rates: Vec<(FaultKind, u64)> = faults.iter().map(|kind| (*kind, 100)).collect();
    FaultInjector::often(1, &rates)
}

/// Creates `count` targets in a cluster at once, with this time to live.
fn create(simulation: &mut Simulation, target: &TargetScenario, cluster: &str, count: usize, ttl_minutes: u64) {
    let document = target.document.replace("resources:", &format!("cluster: {cluster}\nresources:"));
    let target = TargetScenario { document, ..target.clone() };
    for number in 0..count {
        let name = format!("{cluster}-{number}");
        let instance = simulation.add(&target, &name, &format!("uid-{name}"), Some(ttl_minutes));
        simulation.send(&instance, |platform, instance| async move { platform.create(&instance).await });
    }
}

fn count(simulation: &Simulation, cluster: &str, phase: TargetPhase) -> usize {
    let state = simulation.table.state();
    state.targets.values().filter(|target| target.name.starts_with(cluster) && target.phase == phase).count()
}

/// Returns the longest delays of due targets and runs in milliseconds: outside of `cluster`, then in it.
fn overdue(simulation: &Simulation, cluster: &str) -> (u64, u64) {
    let (now, state) = (simulation.runtime.now(), simulation.table.state());
    let runs = state.heads.values().map(|run| (run.facts.name.as_str(), run.head.due));
    let mut longest = (0, 0);
    for (name, due) in state.targets.values().map(|target| (target.name.as_str(), target.due)).chain(runs) {
        let longest = if name.starts_with(cluster) { &mut longest.1 } else { &mut longest.0 };
        *longest = due.map_or(0, |at| now.since(at).0).max(*longest);
    }
    longest
}

/// A thousand runs wait for a cluster that does not respond, and every message is lost. Checks that the scheduled sweeps
/// start the second attempts of a hundred targets in another cluster, and delete these targets after their TTL, in time.
pub(crate) fn check_delays(cluster: &str, max_requests: usize) {
    const TTL_MINUTES: u64 = 10;
    let target = target(vec![SetupUnit { fate: AttemptFate::Fails(1), ..script(SECOND) }]);
    let mut simulation = simulation([&target], always(&[FaultKind::MessageLost]), ClusterOptions::default());
    create(&mut simulation, &target, cluster, 1_000, 24 * 60);
    create(&mut simulation, &target, CONNECTED, 100, TTL_MINUTES);
    let (mut worst, mut worst_in_cluster, mut ready, mut gone) = (0, 0, None, None);
    while simulation.runtime.elapsed() < 20 * MINUTE {
        simulation.advance(POLL);
        let now = simulation.runtime.elapsed();
        let (others, waiting) = overdue(&simulation, cluster);
        (worst, worst_in_cluster) = (worst.max(others), worst_in_cluster.max(waiting));
        let since = |phase| (count(&simulation, CONNECTED, phase) == 100).then_some(now);
        ready = ready.or_else(|| since(TargetPhase::Ready));
        gone = gone.or_else(|| since(TargetPhase::Gone));
    }
    assert_eq!(simulation.functions.broken(), Vec::<String>::new());
    assert_eq!(count(&simulation, cluster, TargetPhase::Starting), 1_000);
    assert!(worst <= MAX_OVERDUE, "{cluster}: another target or run was due for {worst} ms");
    assert!(worst_in_cluster <= MAX_OVERDUE, "{cluster}: a run that waits was due for {worst_in_cluster} ms");
    // Two attempts of a second, and a backoff of 30 s.
    let ready = ready.expect("all are ready");
    assert!(ready <= 40 * SECOND + MAX_OVERDUE, "{cluster}: ready after {ready} ms");
    // The message of the notification was lost, too.
    let state = simulation.ledger.state();
    let notified = state.notifications.iter().filter(|one| one.kind == "dev.ebb.target.ready.v1").map(|one| one.at);
    let notified: Vec<u64> = notified.collect();
    assert_eq!(notified.len(), 100);
    assert!(notified.iter().all(|&at| at <= ready + MAX_OVERDUE), "{cluster}: notified at {notified:?}");
    let gone = gone.expect("all are gone");
    assert!(gone <= TTL_MINUTES * MINUTE + MAX_OVERDUE, "{cluster}: gone after {gone} ms");
    // The cluster gets requests until the end, but not for each run.
    let late = simulation.relay.unanswered().iter().filter(|&&at| at >= 10 * MINUTE).count();
    assert!((1..=max_requests).contains(&late), "{cluster}: {late} requests in ten minutes");
}

#[test]
fn an_unreachable_cluster_does_not_delay_other_targets() {
    check_delays(UNREACHABLE, 20);
}

#[test]
fn a_cluster_that_refuses_connections_does_not_delay_other_targets() {
    check_delays(REFUSING, 20);
}

/// Many targets wait for a server that hangs: the receiver of their requests, the platform, or the relay of their
/// teardown after a TTL. Every message is lost. Checks that the next scheduled sweep starts the second attempts of a
/// other targets.
#[test]
fn a_server_that_hangs_does_not_delay_other_targets() {
    const OTHERS: usize = 60;
    // The next sweep comes after a minute at most.
    const MAX_OVERDUE: u64 = 75 * SECOND;
    let others = target(vec![SetupUnit { fate: AttemptFate::Fails(1), ..script(SECOND) }]);
    let hung = |simulation: &Simulation| {
        let attempts = simulation.ledger.state().attempts.iter().filter(|attempt| attempt.given_up.is_some()).count();
        attempts as u64 + simulation.injected(FaultKind::PlatformHangs) + simulation.relay.unanswered().len() as u64
    };
    let undo = Some(UndoUnit { action: UnitAction::Pod, millis: SECOND, fate: AttemptFate::Fails(0) });
    for (name, unit, platform, ttl_minutes) in [
        ("receiver", unit(UnitAction::Once, HOUR), 0, 24 * 60),
        ("platform", script(SECOND), 100, 24 * 60),
        (BUSY, SetupUnit { undo, ..unit(UnitAction::Once, SECOND) }, 0, 1),
    ] {
        let mut hanging = target(vec![unit]);
        hanging.document = hanging.document.replace("planned", "hanging");
        for (name, _, text) in &mut hanging.plugins {
            (*name, *text) = ("hanging".to_owned(), text.replace("planned", "hanging"));
        }
        let faults = FaultInjector::often(1, &[(FaultKind::MessageLost, 100), (FaultKind::PlatformHangs, platform)]);
        let mut simulation = simulation([&hanging, &others], faults, ClusterOptions::default());
        create(&mut simulation, &hanging, name, 150, ttl_minutes);
        simulation.advance(160 * SECOND);
        create(&mut simulation, &others, CONNECTED, OTHERS, 24 * 60);
        let (begun, before, mut worst) = (simulation.runtime.elapsed(), hung(&simulation), 0);
        while count(&simulation, CONNECTED, TargetPhase::Ready) < OTHERS {
            simulation.advance(POLL);
            worst = overdue(&simulation, name).0.max(worst);
            let waited = simulation.runtime.elapsed() - begun;
            assert!(waited <= 40 * SECOND + MAX_OVERDUE, "{name}: not ready after {waited} ms");
        }
        simulation.advance(2 * MINUTE);
        worst = overdue(&simulation, name).0.max(worst);
        assert!(worst <= MAX_OVERDUE, "{name}: another target or run was due for {worst} ms");
        let hung = hung(&simulation) - before;
        assert!(hung >= 4, "{name}: {hung} requests of sweeps hung");
        assert_eq!(simulation.functions.broken(), Vec::<String>::new());
    }
}

/// Each run has a script in an unreachable cluster, and a webhook whose server refuses connections. Every message is lost.
#[test]
fn other_units_of_a_run_do_not_wait_for_an_unreachable_cluster() {
    const TARGETS: usize = 20;
    const ATTEMPTS: u64 = 3;
    let target = target(vec![script(SECOND), unit(UnitAction::Once, SECOND)]);
    let faults = always(&[FaultKind::MessageLost, FaultKind::RequestLost]);
    let mut simulation = simulation([&target], faults, ClusterOptions::default());
    create(&mut simulation, &target, UNREACHABLE, TARGETS, 24 * 60);
    simulation.advance(15 * MINUTE);
    let failed = {
        let state = simulation.table.state();
        state.heads.values().filter(|run| run.head.failed == [Unit(1)].into()).count()
    };
    let requests = simulation.injected(FaultKind::RequestLost);
    assert_eq!((failed, requests), (TARGETS, TARGETS as u64 * ATTEMPTS));
    assert_eq!(simulation.functions.broken(), Vec::<String>::new());
    assert!(simulation.relay.unanswered().iter().any(|&at| at >= 10 * MINUTE));
}

/// There are three times as many units as one invocation dispatches. A script takes more than half of its timeout.
#[test]
fn queued_units_run_once_with_their_whole_timeout() {
    let target = target(vec![script(6 * MINUTE); 150]);
    let clusters = ClusterOptions { slots: 50, ..ClusterOptions::default() };
    let mut simulation = simulation([&target], always(&[]), clusters);
    create(&mut simulation, &target, CONNECTED, 1, 24 * 60);
    let mut queued = 0;
    while count(&simulation, CONNECTED, TargetPhase::Ready) == 0 && simulation.runtime.elapsed() < HOUR {
        simulation.advance(POLL);
        queued = simulation.relay.queued().max(queued);
    }
    assert_eq!((count(&simulation, CONNECTED, TargetPhase::Ready), queued), (1, 100));
    let attempts = simulation.ledger.state().attempts.clone();
    let results: BTreeSet<_> = attempts.iter().map(|one| (one.attempt, one.result.map(|(_, well)| well))).collect();
    assert_eq!((attempts.len(), results), (150, [(1, Some(true))].into()));
    assert_eq!(simulation.end(None).violations, Vec::<String>::new());
}

/// The next request to the relay returns the results.
#[test]
fn runs_end_without_callbacks() {
    let target = target(vec![script(SECOND); 3]);
    let mut simulation = simulation([&target], always(&[FaultKind::CallbackLost]), ClusterOptions::default());
    create(&mut simulation, &target, CONNECTED, 5, 24 * 60);
    simulation.advance(5 * MINUTE);
    assert_eq!(count(&simulation, CONNECTED, TargetPhase::Ready), 5);
    assert_eq!(simulation.ledger.state().attempts.len(), 15);
    assert_eq!(simulation.end(None).violations, Vec::<String>::new());
}

/// A cluster becomes unreachable while its scripts run. The scripts cannot be killed at their timeouts or by a deletion.
#[test]
fn requests_to_kill_a_task_become_less_frequent() {
    const TARGETS: usize = 20;
    let target = target(vec![script(24 * HOUR)]);
    let clusters = ClusterOptions { reachable_until: MINUTE, ..ClusterOptions::default() };
    let mut simulation = simulation([&target], always(&[FaultKind::CallbackLost]), clusters);
    create(&mut simulation, &target, CONNECTED, TARGETS, 3 * 60);
    // Limits of requests and of writes per target, in the second hour of the scripts and in an hour after the deletion.
    for (begins, phase, most) in [(HOUR, TargetPhase::Starting, 60), (5 * HOUR, TargetPhase::Stopping, 180)] {
        simulation.advance(begins - simulation.runtime.elapsed());
        let before = (simulation.relay.unanswered().len(), simulation.table.writes());
        let mut worst = 0;
        while simulation.runtime.elapsed() < begins + HOUR {
            simulation.advance(POLL);
            let (others, runs) = overdue(&simulation, CONNECTED);
            worst = worst.max(others).max(runs);
        }
        let requests = simulation.relay.unanswered().len() - before.0;
        let writes = (simulation.table.writes() - before.1) / TARGETS as u64;
        assert_eq!((count(&simulation, CONNECTED, phase), simulation.functions.broken()), (TARGETS, vec![]));
        assert!((1..=60).contains(&requests), "{phase:?}: {requests} requests in an hour");
        assert!(writes <= most, "{phase:?}: {writes} writes in an hour");
        assert!(worst <= MAX_OVERDUE, "{phase:?}: a target or run was due for {worst} ms");
    }
}
