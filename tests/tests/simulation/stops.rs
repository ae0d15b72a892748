//! Looks at a run that stops.

use std::sync::Arc;

use ebb_flow::ports::QueueMessage;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::id::RunId;
use ebb_tests::sim::{Scenario, ScenarioAction, ScenarioFaults, ScenarioSimulation, SetupUnit};

/// Messages that arrive beside those of the run.
const EXTRA: usize = 5;

/// Deletes a target whose webhook has not called back, delivers `extra` messages about its run, and returns how many
/// messages about that run were sent from the deletion to the end.
fn messages(extra: usize) -> usize {
    let scenario = Scenario::of(vec![SetupUnit::plain(ScenarioAction::Later, 3_600_000, &[])]);
    let simulation = Arc::new(ScenarioSimulation::new(&scenario, ScenarioFaults::default()));
    simulation.sweep();
    assert_eq!(simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created)), Some(None));
    assert_eq!(simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Deleted)), Some(None));
    let run: RunId = simulation.table.state().heads.keys().next().expect("the setup has a run").clone();
    let before = simulation.queue.sent().len();
    for _ in 0..extra {
        let (functions, message) = (Arc::clone(&simulation.functions), QueueMessage::Run(run.clone()));
        simulation.runtime.run(async move { functions.message(message).await.ok() });
    }
    assert!(simulation.run_until_idle(), "{}", simulation.trace());
    let about = format!("{:?}", QueueMessage::Run(run));
    simulation.queue.sent()[before..].iter().filter(|(_, sent)| sent.starts_with(&about)).count()
}

#[test]
fn looks_at_the_same_time_do_not_multiply_the_hints() {
    let alone = messages(0);
    assert!(alone > 0, "the run is looked at more than once");
    assert_eq!(messages(EXTRA), alone);
}
