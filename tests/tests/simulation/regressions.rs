//! What random simulations have found, each with what was wrong.

use ebb_tests::sim::many_targets::{SimReport, TargetScenario, TraceMode, simulate, simulate_target};
use ebb_tests::sim::{ExcludedFaults, FaultInjector, FaultKind};

/// Seeds of simulations that went wrong once. What happens in them changes with what simulations are made of, so what they found
/// has a test of its own below.
const SEEDS: [u64; 4] = [
    1_001, // An undo of two units was skipped because one of them was: the other one's thing was left.
    1_003, // The same, in a simulation with other faults.
    6_819, // A repeated late success became the youngest: the undo took one thing twice, and another one never.
    2_045, // An operator's retry died after it had moved the target: no later retry was taken.
];

#[test]
fn simulations_that_failed_once() {
    for seed in SEEDS {
        let report = simulate(seed, &ExcludedFaults::default(), TraceMode::Off);
        assert_eq!(report.violations, Vec::<String>::new(), "cargo xtask verify simulation -- --seed {seed} --trace");
    }
}

fn design(rest: &str) -> TargetScenario {
    let plugin = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p@1.0.0\nparams: {{off: {{type: boolean, default: false}}}}\n{rest}"
    );
    let document = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources: {r: {plugin: p@1.0.0}}\n";
    TargetScenario { plugins: vec![("p".to_owned(), "1.0.0".to_owned(), plugin)], document: document.to_owned() }
}

fn assert_good(report: &SimReport) {
    assert_eq!(report.violations, Vec::<String>::new(), "{}", report.trace.join("\n"));
}

#[test]
fn an_undo_of_two_units_of_which_one_was_skipped_takes_the_other_ones_thing_away() {
    let both = design(
        r#"
preStart:
  one: {webhook: {url: "https://outside.test/once/one"}, outputs: {id: {value: "${response.body.id}"}}}
  two:
    when: ${params.off}
    webhook: {url: "https://outside.test/once/two"}
    outputs: {id: {value: "${response.body.id}"}}
postStop:
  both:
    undoes: [one, two]
    webhook:
      url: "https://outside.test/once/both"
      body: {one: "${units.one.outputs.id}", two: "${units.two.outputs.id}"}
"#,
    );
    let report = simulate_target(&both, "t", FaultInjector::none(), TraceMode::Kept);
    assert_good(&report);
    assert_eq!(report.attempts, 2, "the undo ran\n{}", report.trace.join("\n"));
}

/// The undo fails until it is mended, so that an operator has to retry; his first retry dies after each of its writes.
#[test]
fn a_retry_that_dies_anywhere_can_be_given_again() {
    let one = design(
        r#"
preStart:
  one: {webhook: {url: "https://outside.test/once/one"}, outputs: {id: {value: "${response.body.id}"}}}
postStop:
  off: {undoes: one, retry: {attempts: 1}, webhook: {url: "https://outside.test/once/off"}}
"#,
    );
    let stuck = |kind: FaultKind, number| FaultInjector::once(kind, number).and_once(FaultKind::UndoBroken, 1);
    let calm = simulate_target(&one, "t", FaultInjector::once(FaultKind::UndoBroken, 1), TraceMode::Kept);
    assert_good(&calm);
    assert!(calm.notifications.contains("dev.ebb.target.stuck.v1"), "{}", calm.trace.join("\n"));
    for number in 1..=calm.injection_points[FaultKind::DeathAfterWrite as usize] {
        let report = simulate_target(&one, "t", stuck(FaultKind::DeathAfterWrite, number), TraceMode::Kept);
        assert_eq!(report.injected[FaultKind::DeathAfterWrite as usize], 1);
        assert_good(&report);
    }
}
