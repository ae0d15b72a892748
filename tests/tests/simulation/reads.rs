//! The number of reads of invocations, and the feed of changed targets, which saves readers from others.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_flow::ports::QueueMessage;
use ebb_tests::simulation::{
    FaultInjector, FaultKind, KIND, Scenario, SetupUnit, SimOperator, SimOptions, Simulation, TableAccess,
    TargetScenario, UnitAction, UnitBehavior, WriteFate,
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

/// A plugin and the list of its versions are read once, however many resources have it.
#[test]
fn a_creation_of_many_resources_reads_no_more_than_that_of_one() {
    let created = |resources: usize| {
        let mut target = Scenario::of(vec![SetupUnit::plain(UnitAction::Later, 900, &[])]).target();
        let list: String = (0..resources).map(|number| format!("  r{number}: {{plugin: planned}}\n")).collect();
        target.document = format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n{list}");
        target.behavior = UnitBehavior::Steady;
        let simulation = Simulation::of(&target, SimOptions::default());
        reads(&simulation, || assert!(simulation.create().is_none(), "{}", simulation.trace()))
    };
    assert_eq!(created(40), created(1));
}

/// The target is read, the root of the run that held its notification, and the target after a possible delivery.
#[test]
fn a_message_for_a_target_without_work_reads_three_items() {
    let scenario = Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 900, &[])]);
    let simulation = Simulation::of(&scenario.target(), SimOptions::default());
    assert!(simulation.create().is_none(), "{}", simulation.trace());
    let message = QueueMessage::Target(KIND.to_owned(), "s".to_owned());
    let deliver = || simulation.invoke(|functions| async move { functions.message(message).await });
    let count = reads(&simulation, || assert_eq!(deliver(), Some(Ok(()))));
    assert_eq!(count, 3, "{}", simulation.trace());
}

/// A reader that has read everything once learns of each later change from the feed, also if the clocks of the functions
/// differ.
#[test]
fn a_reader_learns_of_each_change() {
    let kinds: Vec<(FaultKind, u64)> = serde_saphyr::from_str(include_str!("change_feed.yaml")).unwrap();
    let mut followed = 0;
    for seed in 0..16 {
        let (faults, latency_ms, operator) = (FaultInjector::often(seed, &kinds), seed % 40, SimOperator::Random);
        let options = SimOptions { seed, faults, latency_ms, operator, ..SimOptions::default() };
        let target = TargetScenario { behavior: UnitBehavior::Random, ..TargetScenario::random(seed) };
        let mut simulation = Simulation::of(&target, options);
        for number in 0..5 {
            simulation.add(&target, &format!("t{number}"), &format!("t{number}-0"), None);
        }
        simulation.start_watcher();
        for instance in &simulation.instances[1..] {
            // The last one is deleted without a creation.
            let (runtime, is_created) = (simulation.runtime.clone(), instance.name != "t4");
            simulation.send(instance, move |platform, instance| async move {
                if is_created {
                    platform.create(&instance).await;
                }
                runtime.sleep(60_000).await;
                platform.delete(&instance).await;
            });
        }
        let end = simulation.run_to_end();
        assert_eq!(end.violations, Vec::<String>::new(), "seed {seed}\n{}", simulation.trace());
        followed += simulation.followed();
    }
    assert!(followed > 200, "{followed}");
}
