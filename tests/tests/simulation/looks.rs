//! Looks at one run that come together, and looks that find no time for the cluster of their run.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_engine::{Millis, Shard, Timestamp};
use ebb_flow::ports::QueueMessage;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::id::RunId;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_tests::sim::{
    QueueFaults, Scenario, ScenarioAction, ScenarioFaults, ScenarioSimulation, SetupUnit, SimRuntime, SimTaskId,
    TableAccess, TableGate, WriteFate,
};

const SECOND: u64 = 1_000;
const LOOK_MS: u64 = 10;
const PATIENCE_MS: u64 = 10 * SECOND;

fn due(simulation: &ScenarioSimulation, run: &RunId) -> Option<Timestamp> {
    simulation.table.state().heads.get(run)?.get(&Shard::ROOT)?.head.due
}

fn runs(simulation: &ScenarioSimulation) -> Vec<RunId> {
    simulation.table.state().heads.keys().cloned().collect()
}

fn pass(simulation: &ScenarioSimulation, millis: u64) {
    let runtime = simulation.runtime.clone();
    simulation.runtime.run(async move { runtime.sleep(millis).await });
}

/// The writes of a look at a script that waits for its turn: when it is asked again, and when its run is due.
const WRITES: usize = 2;

/// Holds back the writes of the first task until another one has made all of its writes.
struct OvertakenWrites {
    runtime: SimRuntime,
    writers: Mutex<Vec<SimTaskId>>,
}

impl OvertakenWrites {
    fn is_overtaken(&self) -> bool {
        let writers = self.writers.lock().unwrap();
        writers.iter().filter(|writer| Some(*writer) != writers.first()).count() >= WRITES
    }
}

#[async_trait]
impl TableGate for OvertakenWrites {
    async fn pass(&self, access: TableAccess, _: &'static str) -> WriteFate {
        let this = self.runtime.current();
        if access == TableAccess::Read {
            return WriteFate::Proceed;
        }
        let is_first = {
            let mut writers = self.writers.lock().unwrap();
            writers.push(this);
            writers.first() == Some(&this)
        };
        let end = self.runtime.elapsed() + PATIENCE_MS;
        while is_first && !self.is_overtaken() && self.runtime.elapsed() < end {
            self.runtime.sleep(LOOK_MS).await;
        }
        WriteFate::Proceed
    }

    fn saw(&self, _: &dyn Debug) {}
}

/// Each look wants the next one a minute later. The second one knows nothing of the time that the first one wants.
#[test]
fn a_run_is_due_when_the_first_of_two_looks_wants_it() {
    let unit = SetupUnit::plain(ScenarioAction::Pod, SECOND, &[]);
    let faults = ScenarioFaults {
        slot_wait_ms: 30 * 60 * SECOND,
        queue: QueueFaults { lost: 100, ..QueueFaults::default() },
        ..ScenarioFaults::default()
    };
    let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(vec![unit]), faults));
    simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created));
    let run = runs(&simulation).remove(0);
    let wait = due(&simulation, &run).unwrap().since(simulation.runtime.now()).0;
    pass(&simulation, wait + 1);
    let gate = Arc::new(OvertakenWrites { runtime: simulation.runtime.clone(), writers: Mutex::default() });
    simulation.table.set_gate(gate.clone());
    let begun = simulation.runtime.now();
    let looks = [0, SECOND].map(|wait| {
        let (runtime, functions) = (simulation.runtime.clone(), Arc::clone(&simulation.functions));
        simulation.runtime.spawn(async move {
            runtime.sleep(wait).await;
            functions.sweep().await.ok()
        })
    });
    simulation.runtime.run(async move {
        for look in looks {
            look.await;
        }
    });
    assert!(gate.is_overtaken());
    assert_eq!(due(&simulation, &run), Some(begun.plus(Millis(60 * SECOND))), "{}", simulation.trace());
}

/// Two looks at a time wait for a silent cluster. The third one comes too late to ask it.
#[test]
fn a_recovery_that_finds_no_time_is_repeated() {
    const TARGETS: usize = 3;
    let simulation = Arc::new(ScenarioSimulation::new(
        &Scenario::of(vec![SetupUnit::plain(ScenarioAction::Pod, SECOND, &[])]),
        ScenarioFaults::default(),
    ));
    for number in 0..TARGETS {
        let name = format!("s{number}");
        let document = format!(
            "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\ncluster: silent\nresources: {{r: {{plugin: bystander@1.0.0}}}}\n"
        );
        let event = LifecycleData {
            name,
            document: Some(document),
            ..simulation.event(LifecycleType::Created, &format!("uid-{number}"))
        };
        let functions = Arc::clone(&simulation.functions);
        simulation.runtime.spawn(async move {
            functions.lifecycle(LifecycleType::Created, event).await.ok();
        });
    }
    pass(&simulation, SECOND);
    let runs = runs(&simulation);
    assert_eq!(runs.len(), TARGETS);
    for run in &runs {
        let (functions, message) = (Arc::clone(&simulation.functions), QueueMessage::Recover(run.clone()));
        simulation.runtime.spawn(async move {
            functions.message(message).await.ok();
        });
    }
    pass(&simulation, 60 * SECOND);
    let repeated = simulation.queue.sent().iter().filter(|(_, message)| message.starts_with("Recover")).count();
    assert!(repeated > 0, "{:#?}", simulation.queue.sent());
}

/// An invocation that ends a run in time sends the notification itself. One that waited for its units has the queue send it.
#[test]
fn a_run_that_ends_late_leaves_its_outcome_to_the_queue() {
    // The budget of an invocation is 3 s.
    for (took, is_queued) in [(SECOND, false), (4 * SECOND, true)] {
        let unit = SetupUnit::plain(ScenarioAction::AtOnce, took, &[]);
        let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(vec![unit]), ScenarioFaults::default()));
        simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created));
        pass(&simulation, PATIENCE_MS);
        let sent = simulation.queue.sent();
        assert_eq!(sent.iter().any(|(_, it)| it.starts_with("Target")), is_queued, "{took} ms: {sent:?}");
        let told = simulation.ledger.state().notifications.clone();
        assert_eq!(told.len(), 1, "{told:?}");
    }
}
