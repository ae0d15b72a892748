//! Faults that random simulations have found.

use ebb_tests::simulation::{
    FaultInjector, FaultKind, SimReport, TargetScenario, TraceMode, UnitBehavior, simulate_target,
};

fn target(rest: &str) -> TargetScenario {
    let plugin = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p@1.0.0\nparams: {{off: {{type: boolean, default: false}}}}\n{rest}"
    );
    let document = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources: {r: {plugin: p@1.0.0}}\n";
    let plugins = vec![("p".to_owned(), "1.0.0".to_owned(), plugin)];
    TargetScenario::new(plugins, document.to_owned(), UnitBehavior::Steady)
}

fn assert_good(report: &SimReport) {
    assert_eq!(report.violations, Vec::<String>::new(), "{}", report.trace);
}

#[test]
fn an_undo_of_a_skipped_unit_and_another_one_runs() {
    let both = target(
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
    assert_eq!(report.attempts, 2, "the undo ran\n{}", report.trace);
}

/// The undo fails until it is repaired, so an operator retries. The first retry dies after each of its writes.
#[test]
fn a_retry_that_dies_can_be_repeated() {
    let one = target(
        r#"
preStart:
  one: {webhook: {url: "https://outside.test/once/one"}, outputs: {id: {value: "${response.body.id}"}}}
postStop:
  off: {undoes: one, retry: {attempts: 1}, webhook: {url: "https://outside.test/once/off"}}
"#,
    );
    let stuck = || FaultInjector::none().and_at(FaultKind::UndoBroken, [1]);
    let calm = simulate_target(&one, "t", stuck(), TraceMode::Kept);
    assert_good(&calm);
    assert!(calm.notifications.contains("dev.ebb.target.stuck.v1"), "{}", calm.trace);
    for number in 1..=calm.injection_points[FaultKind::DeathAfterWrite as usize] {
        let faults = stuck().and_at(FaultKind::DeathAfterWrite, [number]);
        let report = simulate_target(&one, "t", faults, TraceMode::Kept);
        assert_eq!(report.injected[FaultKind::DeathAfterWrite as usize], 1);
        assert_good(&report);
    }
}
