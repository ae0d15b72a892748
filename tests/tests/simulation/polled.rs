//! All that one invocation has begun is polled together.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use ebb_engine::TargetPhase;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_tests::sim::{
    Scenario, ScenarioAction, ScenarioFaults, ScenarioSimulation, SetupUnit, SimRuntime, TableAccess, TableGate,
    WriteFate,
};

/// Longer than all undos of the simulation take.
const PATIENCE_MS: u64 = 10_000;
const LOOK_MS: u64 = 10;
/// The write that seals the third undo. Before it: the target stops, two undos are sealed, and one of them is done.
const SEAL: usize = 4;

/// Holds back one write until the next one has begun.
struct HeldWrite {
    runtime: SimRuntime,
    writes: AtomicUsize,
    /// True if the next write has begun while the one was held back.
    passed: AtomicBool,
}

#[async_trait]
impl TableGate for HeldWrite {
    async fn pass(&self, access: TableAccess, _: &'static str) -> WriteFate {
        if access == TableAccess::Write && self.writes.fetch_add(1, Ordering::Relaxed) + 1 == SEAL {
            let end = self.runtime.elapsed() + PATIENCE_MS;
            while self.writes.load(Ordering::Relaxed) == SEAL && self.runtime.elapsed() < end {
                self.runtime.sleep(LOOK_MS).await;
            }
            self.passed.store(self.writes.load(Ordering::Relaxed) > SEAL, Ordering::Relaxed);
        }
        WriteFate::Proceed
    }

    fn saw(&self, _: &dyn Debug) {}
}

/// The second undo of the chain is sealed while another undo is awaited. That may wait for what the other one holds.
#[test]
fn a_send_goes_on_while_the_next_one_is_prepared() {
    let units = [(100, &[][..]), (100, &[0]), (2_000, &[])];
    let units = units.map(|(millis, reads)| SetupUnit::plain(ScenarioAction::AtOnce, millis, reads));
    let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(units.into()), ScenarioFaults::default()));
    simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created));
    assert!(simulation.run_until_idle());
    let holding = Arc::new(HeldWrite {
        runtime: simulation.runtime.clone(),
        writes: AtomicUsize::new(0),
        passed: AtomicBool::new(false),
    });
    simulation.table.set_gate(holding.clone());
    simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Deleted));
    assert!(simulation.run_until_idle());
    assert_eq!(simulation.target().map(|target| target.phase), Some(TargetPhase::Gone));
    assert!(holding.passed.load(Ordering::Relaxed), "{}", simulation.trace());
}
