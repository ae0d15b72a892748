//! Events of sources at the same time, in any order, repeated and with faults: the newest event of a target decides.

use std::sync::Arc;

use ebb_engine::{TargetPhase, Timestamp};
use ebb_flow::source::record::TargetEvent;
use ebb_tests::simulation::{FaultInjector, FaultKind, KIND, SimOptions, SimRandom, Simulation, TraceMode};

/// The longest delay of an event.
const DELAY_MS: u64 = 8_000;
const DOCUMENT: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: t\n";

/// Returns one to five events, the oldest first.
fn events(random: &SimRandom, now: Timestamp) -> Vec<TargetEvent> {
    let event = |number: u64| TargetEvent {
        source: "s".to_owned(),
        delivery: format!("delivery-{number}"),
        kind: KIND.to_owned(),
        name: "t".to_owned(),
        uid: None,
        // Two events may have the same time.
        time: Some(Timestamp(now.0 - 100 + number / 2)),
        document: (random.below(2) == 0).then(|| DOCUMENT.to_owned()),
    };
    (0..1 + random.below(5)).map(event).collect()
}

/// Returns the state that the events have to result in, if they have one: of several of the same time, a deletion.
fn is_deleted(events: &[TargetEvent]) -> bool {
    let newest = events.iter().map(|event| event.time).max().unwrap();
    events.iter().any(|event| event.time == newest && event.document.is_none())
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
    let events = events(&random, simulation.runtime.now());
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
    simulation.advance(1_800_000);
    let state = simulation.table.state();
    let target = state.targets.values().next();
    let is_alive = target.is_some_and(|target| target.phase == TargetPhase::Ready && target.waiting.is_none());
    let is_gone = target.is_none_or(|target| target.phase == TargetPhase::Gone && target.waiting.is_none());
    let is_open = state.desired.values().any(|desired| desired.due.is_some());
    let (deleted, broken) = (is_deleted(&events), simulation.functions.broken());
    let fits = if deleted { is_gone } else { is_alive };
    match fits && !is_open && broken.is_empty() {
        true => Ok(EXPECTED_FAULTS.map(|kind| simulation.injected(kind))),
        false => Err(format!("seed {seed}: deleted {deleted}, {broken:?}, {target:#?}, {:#?}", state.desired)),
    }
}

/// Simulates this number of targets.
pub(crate) fn check_newest_event(targets: u64) {
    let runs: Vec<[u64; 4]> = (0..targets).map(|seed| run(seed).unwrap_or_else(|error| panic!("{error}"))).collect();
    for (index, kind) in EXPECTED_FAULTS.iter().enumerate() {
        assert!(runs.iter().any(|injected| injected[index] > 0), "{} never happened", kind.name());
    }
}
