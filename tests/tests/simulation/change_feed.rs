//! Readers of the feed of changed targets.

use ebb_tests::simulation::{
    FaultInjector, FaultKind, SimOperator, SimOptions, Simulation, TargetScenario, TraceMode, UnitBehavior,
};

/// A reader that has read everything once learns of each later change from the feed, also if the clocks of the functions
/// differ.
#[test]
fn a_reader_learns_of_each_change() {
    let kinds: Vec<(FaultKind, u64)> = serde_saphyr::from_str(include_str!("change_feed.yaml")).unwrap();
    let mut followed = 0;
    for seed in 0..16 {
        let faults = FaultInjector::often(seed, &kinds);
        let options = SimOptions {
            seed,
            faults,
            trace: TraceMode::Kept,
            latency_ms: seed % 40,
            operator: SimOperator::Random,
            ..SimOptions::default()
        };
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
