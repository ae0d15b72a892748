//! All that one invocation has begun is polled together.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use ebb_engine::TargetPhase;
use ebb_tests::sim::{Access, Blow, Faults, Gate, Kind, Runtime, Scenario, SetupUnit, World};
use ebb_wire::cloudevents::Asked;

/// Longer than all undos of the world take.
const PATIENCE_MS: u64 = 10_000;
const LOOK_MS: u64 = 10;
/// The write that seals the third undo. Before it: the target stops, two undos are sealed, and one of them is done.
const SEAL: usize = 4;

/// Holds back one write until the next one has begun.
struct Holding {
    runtime: Runtime,
    writes: AtomicUsize,
    /// True if the next write has begun while the one was held back.
    passed: AtomicBool,
}

#[async_trait]
impl Gate for Holding {
    async fn pass(&self, access: Access, _: &'static str) -> Blow {
        if access == Access::Write && self.writes.fetch_add(1, Ordering::Relaxed) + 1 == SEAL {
            let end = self.runtime.elapsed() + PATIENCE_MS;
            while self.writes.load(Ordering::Relaxed) == SEAL && self.runtime.elapsed() < end {
                self.runtime.sleep(LOOK_MS).await;
            }
            self.passed.store(self.writes.load(Ordering::Relaxed) > SEAL, Ordering::Relaxed);
        }
        Blow::Go
    }

    fn saw(&self, _: &dyn Debug) {}
}

/// The second undo of the chain is sealed while another undo is awaited. That may wait for what the other one holds.
#[test]
fn a_send_goes_on_while_the_next_one_is_prepared() {
    let units = [(100, &[][..]), (100, &[0]), (2_000, &[])];
    let units = units.map(|(millis, reads)| SetupUnit::plain(Kind::AtOnce, millis, reads));
    let world = Arc::new(World::new(&Scenario::of(units.into()), Faults::default()));
    world.runtime.run(world.ask(Asked::Created));
    assert!(world.rest());
    let holding = Arc::new(Holding {
        runtime: world.runtime.clone(),
        writes: AtomicUsize::new(0),
        passed: AtomicBool::new(false),
    });
    world.table.guard(holding.clone());
    world.runtime.run(world.ask(Asked::Deleted));
    assert!(world.rest());
    assert_eq!(world.target().map(|target| target.phase), Some(TargetPhase::Gone));
    assert!(holding.passed.load(Ordering::Relaxed), "{}", world.story());
}
