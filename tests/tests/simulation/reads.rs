//! The number of reads of invocations.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_flow::ports::QueueMessage;
use ebb_tests::simulation::{
    KIND, Scenario, SetupUnit, SimOptions, Simulation, TableAccess, UnitAction, UnitBehavior, WriteFate,
};

/// Returns the number of reads while `act` runs.
fn reads(simulation: &Simulation, act: impl FnOnce()) -> usize {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    simulation.table.set_gate(Arc::new(move |access: TableAccess| {
        counted.fetch_add(usize::from(access == TableAccess::Read), Ordering::Relaxed);
        ready(WriteFate::Proceed)
    }));
    act();
    reads.load(Ordering::Relaxed)
}

fn create(simulation: &Simulation) {
    assert!(simulation.create().is_none(), "{}", simulation.trace());
}

/// A plugin and the list of its versions are read once, however many resources have it.
#[test]
fn a_creation_of_many_resources_reads_no_more_than_that_of_one() {
    let created = |resources: usize| {
        let mut target = Scenario::of(vec![SetupUnit::plain(UnitAction::Later, 900, &[])]).target();
        let list: String = (0..resources).map(|number| format!("  r{number}: {{plugin: planned}}\n")).collect();
        target.document = format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n{list}");
        target.behavior = UnitBehavior::Steady;
        let simulation = Simulation::of(&target, SimOptions::default());
        reads(&simulation, || create(&simulation))
    };
    assert_eq!(created(40), created(1));
}

/// The target is read, the root of the run that held its notification, and the target after a possible delivery.
#[test]
fn a_message_for_a_target_without_work_reads_three_items() {
    let scenario = Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 900, &[])]);
    let simulation = Simulation::of(&scenario.target(), SimOptions::default());
    create(&simulation);
    let message = QueueMessage::Target(KIND.to_owned(), "s".to_owned());
    let deliver = || simulation.invoke(|functions| async move { functions.message(message).await });
    let count = reads(&simulation, || assert_eq!(deliver(), Some(Ok(()))));
    assert_eq!(count, 3, "{}", simulation.trace());
}
