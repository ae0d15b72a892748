//! Events of sources at the same time, in any order, repeated and with faults: the newest event of a target, or of an
//! instance, decides.

use std::sync::Arc;

use ebb_engine::{TargetPhase, Timestamp};
use ebb_flow::source::record::TargetEvent;
use ebb_store::DesiredKey;
use ebb_tests::simulation::{FaultInjector, FaultKind, KIND, SimOptions, SimRandom, Simulation, TraceMode};

/// The longest delay of an event.
const DELAY_MS: u64 = 8_000;
/// The longest time until all events are applied.
const MAX_DURATION_MS: u64 = 4 * 3_600_000;
const DOCUMENT: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: t\n";

fn event(number: u64, uid: Option<u64>, time: u64, is_delete: bool) -> TargetEvent {
    TargetEvent {
        source: "s".to_owned(),
        delivery: format!("delivery-{number}"),
        key: DesiredKey { kind: KIND.to_owned(), name: "t".to_owned(), uid: uid.map(|uid| format!("u{uid}")) },
        time: Some(Timestamp(time)),
        document: (!is_delete).then(|| DOCUMENT.to_owned()),
    }
}

/// Returns one to five events, the oldest first. True if they have to leave no instance.
fn events_of_a_target(random: &SimRandom, begin: u64) -> (Vec<TargetEvent>, bool) {
    // Two events may have the same time. Of these, a deletion is the newer one.
    let events: Vec<_> =
        (0..1 + random.below(5)).map(|number| event(number, None, begin + number / 2, random.below(2) == 1)).collect();
    let newest = events.iter().map(|event| event.time).max().unwrap();
    let is_deleted = events.iter().any(|event| event.time == newest && event.document.is_none());
    (events, is_deleted)
}

/// Returns the creations and deletions of up to three instances of one name, perhaps without the last deletion.
fn events_of_instances(random: &SimRandom, begin: u64) -> (Vec<TargetEvent>, bool) {
    let is_deleted = random.below(2) == 1;
    let count = 2 * (1 + random.below(3)) - u64::from(!is_deleted);
    let event = |number: u64| event(number, Some(number / 2), begin + number, number % 2 == 1);
    ((0..count).map(event).collect(), is_deleted)
}

const EXPECTED_FAULTS: [FaultKind; 4] =
    [FaultKind::DeathBeforeWrite, FaultKind::DeathAfterWrite, FaultKind::WriteFails, FaultKind::SweepMissed];

/// Runs one target. Returns how often each of [`EXPECTED_FAULTS`] happened, or the difference from the expected state.
fn run(seed: u64) -> Result<[u64; 4], String> {
    let rates = [
        (FaultKind::DeathBeforeWrite, 6),
        (FaultKind::DeathAfterWrite, 6),
        (FaultKind::WriteFails, 8),
        (FaultKind::ReadFails, 8),
        (FaultKind::SlowOperation, 5),
        (FaultKind::SweepMissed, 10),
        (FaultKind::IndexLags, 5),
    ];
    let options = SimOptions {
        seed,
        faults: FaultInjector::often(seed, &rates),
        trace: TraceMode::Off,
        latency_ms: 2_000,
        ..SimOptions::default()
    };
    let simulation = Simulation::new([], options);
    simulation.start_sweeps();
    let random = SimRandom::new(seed);
    simulation.advance(1_000);
    let begin = simulation.runtime.now().0 - 100;
    let (events, is_deleted) = match seed % 2 {
        0 => events_of_a_target(&random, begin),
        _ => events_of_instances(&random, begin),
    };
    let repetitions = 1 + random.below(2);
    for event in events.iter().flat_map(|event| (0..repetitions).map(move |_| event.clone())) {
        let (runtime, functions) = (simulation.runtime.clone(), Arc::clone(&simulation.functions));
        let delay = random.below(DELAY_MS);
        simulation.runtime.spawn(async move {
            runtime.sleep(delay).await;
            // A sender repeats a request without a response.
            while functions.source_event(event.clone()).await.is_err() {
                runtime.sleep(1_000).await;
            }
        });
    }
    // The waits of a state that fails again and again grow.
    let is_open = || simulation.table.state().desired.values().any(|desired| desired.due.is_some());
    simulation.advance(600_000);
    while is_open() && simulation.runtime.elapsed() < MAX_DURATION_MS {
        simulation.advance(600_000);
    }
    let is_open = is_open();
    let state = simulation.table.state();
    let target = state.targets.values().next();
    let is_alive = target.is_some_and(|target| target.phase == TargetPhase::Ready && target.waiting.is_none());
    let is_gone = target.is_none_or(|target| target.phase == TargetPhase::Gone && target.waiting.is_none());
    let broken = simulation.functions.broken();
    let last = events.last().and_then(|event| event.key.uid.as_ref());
    let is_last = target.is_some_and(|target| last.is_none_or(|uid| *uid == target.uid));
    let fits = if is_deleted { is_gone } else { is_alive && is_last };
    match fits && !is_open && broken.is_empty() {
        true => Ok(EXPECTED_FAULTS.map(|kind| simulation.injected(kind))),
        false => Err(format!("seed {seed}: deleted {is_deleted}, {broken:?}, {target:#?}, {:#?}", state.desired)),
    }
}

/// Simulates this number of targets.
pub(crate) fn check_newest_event(targets: u64) {
    let runs: Vec<[u64; 4]> = (0..targets).map(|seed| run(seed).unwrap_or_else(|error| panic!("{error}"))).collect();
    for (index, kind) in EXPECTED_FAULTS.iter().enumerate() {
        assert!(runs.iter().any(|injected| injected[index] > 0), "{} never happened", kind.name());
    }
}
