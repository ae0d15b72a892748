//! A target of a source that lists what exists at its sender, which closes a thing without an event. `steps.yaml` has the
//! faults of lists.

use std::collections::BTreeSet;

use ebb_engine::TargetPhase;
use ebb_store::{NamedDocument, NamedKind};
use ebb_tests::listed_source::{ListedSource, PAGE};
use ebb_tests::simulation::{FaultInjector, FaultKind, KIND, Simulation};

use crate::crash_points::assert_none;
use crate::regressions::assert_end;
use crate::source_states::{applied, send, target};

const MINUTE: u64 = 60_000;

/// An invocation dies before or after a write of the observations, which end one target and make another one.
#[test]
fn a_crash_of_an_observation_changes_nothing() {
    let run = |faults| {
        let mut simulation = Simulation::scheduled(&target(), faults);
        simulation.observe_sources(&["src"]);
        simulation.set_thing("src", "s", true);
        send(&simulation, applied("1", None));
        simulation.advance(6 * MINUTE + 1_000);
        assert_end(&simulation, TargetPhase::Ready);
        simulation.add(&target(), "t", "uid-2", None);
        let document = include_str!("../../simulation/origin.yaml").replace("NAME", "src");
        let document = document.replace("  grace: 5m", "  grace: 5m\n  create: true");
        let document = document.replace("{resources: {a:", "{labels: {by: src}, resources: {r:");
        let source = NamedDocument { name: "src".to_owned(), document, changed: simulation.runtime.now() };
        simulation.table.put_documents(NamedKind::Source, std::iter::once(source));
        let first = simulation.table.writes() + 1;
        simulation.set_thing("src", "s", false);
        simulation.set_thing("src", "t", true);
        simulation.advance(30 * MINUTE);
        (first..=simulation.table.writes(), simulation)
    };
    let end = |simulation: &Simulation| {
        let made = simulation.table.state().targets.get("t").map(|made| (made.phase, made.generation));
        (simulation.end(None), made)
    };
    let (writes, without_faults) = run(FaultInjector::none());
    assert_end(&without_faults, TargetPhase::Gone);
    let (expected, mut wrong) = (end(&without_faults), Vec::new());
    assert_eq!(expected.1, Some((TargetPhase::Ready, 1)), "{}", without_faults.trace());
    for number in writes {
        for kind in [FaultKind::DeathBeforeWrite, FaultKind::DeathAfterWrite] {
            let (_, simulation) = run(FaultInjector::none().and_at(kind, [number]));
            let end = end(&simulation);
            if end != expected || simulation.injected(kind) != 1 {
                wrong.push(format!("{kind} {number}: {end:?}\n{}", simulation.trace()));
            }
        }
    }
    assert_none(wrong);
}

/// The things of 3,000 targets of 20,000 close without an event, twice. After the first time, the list is away for an hour, and
/// has half of the things once.
#[tokio::test]
async fn many_targets_end_within_a_period_after_their_lists_recover() {
    const TARGETS: usize = 20_000;
    const CLOSED: usize = 3_000;
    let source = ListedSource::new(TARGETS).await;
    let living = async || BTreeSet::from_iter(source.store.living_names(KIND).await.unwrap());
    let close = |first: &str| {
        let mut sender = source.sender();
        sender.open = sender.open.split_off(first);
    };
    close("n-03000");
    for (percent, minutes) in [(0, 60), (50, 3)] {
        source.sender().percent = percent;
        source.sweep(minutes).await;
    }
    let refused = source.watch().await.problem.unwrap_or_default().1;
    assert!(refused.contains("targets are missing"), "{refused}");
    assert_eq!(living().await.len(), TARGETS);
    source.sender().percent = 100;
    // `every`, `grace` and two sweeps.
    source.sweep(12).await;
    assert_eq!(living().await, source.sender().open);
    close("n-06000");
    let pages = (TARGETS - 2 * CLOSED) / PAGE;
    for (removals, reads, writes) in [(0, 3 * CLOSED, 0), (CLOSED, 15 * CLOSED, 30 * CLOSED)] {
        let (requests, usage) = source.observe().await;
        assert_eq!(requests, (pages + removals) as u64);
        assert!(usage.read_units <= (2 * pages + 300 + reads) as f64, "{usage:?}");
        assert!(usage.write_units <= (60 + writes) as f64, "{usage:?}");
    }
    assert_eq!(living().await, source.sender().open);
}
