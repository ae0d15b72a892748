//! Looks that find no time for the cluster of their run.

use std::sync::Arc;

use ebb_flow::ports::Message;
use ebb_tests::sim::{Faults, Kind, Scenario, SetupUnit, World};
use ebb_wire::cloudevents::Asked;
use ebb_wire::id::RunId;
use ebb_wire::lifecycle::Lifecycle;

const SECOND: u64 = 1_000;

fn runs(world: &World) -> Vec<RunId> {
    world.table.state().heads.keys().cloned().collect()
}

fn pass(world: &World, millis: u64) {
    let runtime = world.runtime.clone();
    world.runtime.run(async move { runtime.sleep(millis).await });
}

/// Two looks at a time wait for a silent cluster. The third one comes too late to ask it.
#[test]
fn a_recovery_that_finds_no_time_is_repeated() {
    const TARGETS: usize = 3;
    let world = Arc::new(World::new(
        &Scenario::of(vec![SetupUnit::plain(Kind::Pod, SECOND, &[])]),
        Faults::default(),
    ));
    for number in 0..TARGETS {
        let name = format!("s{number}");
        let document = format!(
            "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\ncluster: silent\nresources: {{r: {{plugin: bystander@1.0.0}}}}\n"
        );
        let event = Lifecycle {
            name,
            document: Some(document),
            ..world.event(Asked::Created, &format!("uid-{number}"))
        };
        let functions = Arc::clone(&world.functions);
        world.runtime.spawn(async move {
            functions.lifecycle(Asked::Created, event).await.ok();
        });
    }
    pass(&world, SECOND);
    let runs = runs(&world);
    assert_eq!(runs.len(), TARGETS);
    for run in &runs {
        let (functions, message) = (Arc::clone(&world.functions), Message::Recover(run.clone()));
        world.runtime.spawn(async move {
            functions.message(message).await.ok();
        });
    }
    pass(&world, 60 * SECOND);
    let repeated = world.queue.sent().iter().filter(|(_, message)| message.starts_with("Recover")).count();
    assert!(repeated > 0, "{:#?}", world.queue.sent());
}
