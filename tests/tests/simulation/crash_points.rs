//! Small graphs with two crashes, or with a deletion at every write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_engine::TargetPhase;
use ebb_tests::simulation::{
    FaultInjector, FaultKind, PlatformSender, Scenario, SetupUnit, SimInstance, SimOptions, SimRuntime, Simulation,
    TableAccess, TableGate, TargetEnd, TargetScenario, UnitAction, WriteFate,
};

use crate::regressions::with_events;

/// The difference between the durations of units, so that no two of them end at the same time.
const STEP: u64 = 700;

/// Returns a graph of each kind of unit.
fn graphs(name: &str, edges: &[&[usize]]) -> impl Iterator<Item = (String, TargetScenario)> {
    [UnitAction::Pod, UnitAction::Once, UnitAction::Later].into_iter().map(move |action| {
        let units = (1..).zip(edges).map(|(number, reads)| SetupUnit::plain(action, STEP * number, reads));
        (format!("{name} of {action:?}"), Scenario::of(units.collect()).target())
    })
}

/// Returns the end of a target without faults, and the number of writes.
fn without_faults(target: &TargetScenario) -> (TargetEnd, u64) {
    let simulation = Simulation::of(target, SimOptions::default());
    let end = simulation.run_to_end();
    assert_eq!(end.violations, Vec::<String>::new(), "{}", simulation.trace());
    assert_eq!((end.setup, end.phase), (Some(TargetPhase::Ready), Some(TargetPhase::Gone)));
    assert!(end.remaining.is_empty());
    let notifications: Vec<&str> = end.notifications.iter().map(String::as_str).collect();
    assert_eq!(notifications, ["dev.ebb.target.gone.v1", "dev.ebb.target.ready.v1"]);
    (end, simulation.table.writes())
}

/// Panics if there is a text. The message has the first line of each text, and the whole shortest text.
pub(crate) fn assert_none(mut wrong: Vec<String>) {
    wrong.sort_by_key(String::len);
    let names: Vec<&str> = wrong.iter().filter_map(|text| text.lines().next()).collect();
    assert!(wrong.is_empty(), "{}\n{} in all, the shortest:\n{}", names.join("\n"), wrong.len(), wrong[0]);
}

#[test]
fn two_crashes_do_not_change_the_result() {
    let mut wrong = Vec::new();
    for (name, target) in graphs("chain", &[&[], &[0]]) {
        let (expected, writes) = without_faults(&target);
        for first in 1..=writes {
            for second in first + 1..=first + 4 {
                let faults = FaultInjector::none().and_at(FaultKind::DeathAfterWrite, [first, second]);
                let simulation = Simulation::of(&target, SimOptions { faults, ..SimOptions::default() });
                let end = simulation.run_to_end();
                if end != expected {
                    let trace = simulation.trace();
                    wrong.push(format!("{name}: crashes after writes {first} and {second}: {end:?}\n{trace}"));
                }
            }
        }
    }
    assert_none(wrong);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteSide {
    Before,
    /// The table has the write, and the writer has no response yet.
    After,
}

/// The time of the response to a deletion, and the newest task at that time.
type DeletionResponse = Arc<Mutex<Option<(u64, u64)>>>;

/// Deletes the target before or after the write with this number. The writer continues after the response, or a millisecond
/// later if the response takes longer.
struct DeletionAtWrite {
    runtime: SimRuntime,
    platform: PlatformSender,
    instance: SimInstance,
    at: (u64, WriteSide),
    writes: AtomicU64,
    response: DeletionResponse,
}

impl DeletionAtWrite {
    async fn delete(&self) {
        let (runtime, platform, instance) = (self.runtime.clone(), self.platform.clone(), self.instance.clone());
        let response = Arc::clone(&self.response);
        let task = self.runtime.spawn(async move {
            platform.delete(&instance).await;
            *response.lock().unwrap() = Some((runtime.elapsed(), runtime.newest().0));
        });
        self.runtime.first(task, self.runtime.sleep(1)).await;
    }
}

#[async_trait]
impl TableGate for DeletionAtWrite {
    async fn pass(&self, access: TableAccess, _: &'static str) -> WriteFate {
        if access == TableAccess::Write {
            let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
            if self.at == (number, WriteSide::Before) {
                self.delete().await;
            }
        }
        WriteFate::Proceed
    }

    async fn wrote(&self) {
        // No other write has started since this one passed.
        if self.at == (self.writes.load(Ordering::Relaxed), WriteSide::After) {
            self.delete().await;
        }
    }
}

/// Deletes the target before or after a write.
pub(crate) fn delete_at(simulation: &Simulation, number: u64, side: WriteSide) -> DeletionResponse {
    let response = DeletionResponse::default();
    simulation.table.set_gate(Arc::new(DeletionAtWrite {
        runtime: simulation.runtime.clone(),
        platform: simulation.platform.clone(),
        instance: simulation.instances[0].clone(),
        at: (number, side),
        writes: AtomicU64::new(0),
        response: Arc::clone(&response),
    }));
    response
}

/// Returns an error if a deletion during the setup left objects, or if an attempt started too late.
fn check_cancelled(
    simulation: &Simulation,
    end: &TargetEnd,
    response: Option<(u64, u64)>,
    max_in_flight_ms: u64,
) -> Option<String> {
    let is_gone = matches!(end.phase, None | Some(TargetPhase::Gone));
    if !end.violations.is_empty() || !end.remaining.is_empty() || !is_gone {
        return Some(format!("{end:?}"));
    }
    let (at, newest) = response?;
    let state = simulation.ledger.state();
    let is_late = |began: u64, by: u64| began > at + max_in_flight_ms || by > newest;
    let late = state.attempts.iter().find(|one| one.unit.sets_up() && is_late(one.began, one.by.0));
    late.map(|late| format!("{late:?} after the deletion at {at}"))
}

#[test]
fn no_object_remains_after_a_deletion_at_any_write() {
    let mut wrong = Vec::new();
    for max_in_flight_ms in [500, 30_000] {
        let events = [("events".to_owned(), with_events())];
        // A diamond has a chain and a fan-in.
        for (name, target) in graphs("diamond", &[&[], &[0], &[0], &[1, 2]]).chain(events) {
            let (_, writes) = without_faults(&target);
            for (number, side) in (1..=writes).flat_map(|at| [(at, WriteSide::Before), (at, WriteSide::After)]) {
                let options = SimOptions { max_in_flight_ms, ..SimOptions::default() };
                let simulation = Simulation::of(&target, options);
                let response = delete_at(&simulation, number, side);
                let end = simulation.run_to_end();
                let response = *response.lock().unwrap();
                if let Some(error) = check_cancelled(&simulation, &end, response, max_in_flight_ms) {
                    let (limit, trace) = (max_in_flight_ms, simulation.trace());
                    wrong.push(format!("{name}, in-flight limit {limit}: {side:?} write {number}: {error}\n{trace}"));
                }
            }
        }
    }
    assert_none(wrong);
}
