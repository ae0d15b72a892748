//! What is stored: lives in every state that lasts.

use ebb_engine::{TargetPhase, Timestamp};
use ebb_flow::ports::Clock as _;
use ebb_store::{Mailbox as _, MoveTarget as _, Release, Rounds as _, Silences as _, Transition};
use ebb_wire::cloudevents::Asked;
use ebb_wire::id;

use crate::fixture::Stored;
use crate::world::{FAR, KIND, World};

/// 22 November 2026.
const THEN: u64 = 1_795_305_600_000;

pub(crate) const WEBHOOKS: &str = r#"
apiVersion: ebb.dev/v1
kind: Plugin
name: stored@1.0.0
preStart:
  make:
    webhook: {url: "https://units.test/make", body: {target: "${target.name}"}}
    retry: {attempts: 1}
    outputs: {id: {value: "${response.body.id}"}, text: {value: "${response.body.text}"}}
  wait:
    webhook: {url: "https://units.test/wait", body: {target: "${target.name}", id: "${units.make.outputs.id}"}}
    retry: {attempts: 3, backoff: 20s, maxBackoff: 20s}
    outputs: {code: {value: "${response.body.code}"}}
postStop:
  unwait:
    undoes: wait
    webhook: {url: "https://units.test/unwait", body: {target: "${target.name}", code: "${units.wait.outputs.code}"}}
  unmake:
    undoes: make
    after: [unwait]
    webhook: {url: "https://units.test/unmake", body: {target: "${target.name}", id: "${units.make.outputs.id}", text: "${units.make.outputs.text}"}}
    retry: {attempts: 1}
outputs: {id: "${units.make.outputs.id}"}
"#;
const SCRIPTS: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: scripts@1.0.0
runners: {shell: {image: "busybox:1.36"}}
preStart:
  make:
    pod: {script: "#!/bin/sh\nprintf %s \"$EBB_KEY\" >/tmp/name"}
    outputs: {name: {file: /tmp/name}}
  use:
    pod: {script: "#!/bin/sh\nexit 0"}
    inputs: {name: "${units.make.outputs.name}"}
"##;

pub(crate) fn document(name: &str) -> String {
    let more = match name {
        "brief" => "ttl: 1h\n",
        "posted" => "cluster: far\n",
        _ => "",
    };
    let plugin = if name == "posted" { "scripts" } else { "stored" };
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\n{more}resources:\n  r: {{plugin: {plugin}@1.0.0}}\n"
    )
}

/// Lives that last, as this version stores them.
pub(crate) async fn stored() -> Stored {
    let world = World::new(THEN).await;
    for plugin in [WEBHOOKS, SCRIPTS] {
        let published =
            ebb_flow::api::plugins::publish(world.store.as_ref(), plugin, world.clock.now()).await;
        published.unwrap().unwrap();
    }
    let create = async |name: &str| {
        let asked = world.lifecycle(Asked::Created, name, &format!("{name}-1"), &document(name)).await;
        asked.unwrap().unwrap();
    };
    world.outside.answer("stuck unmake", 500);
    world.outside.answer("failed make", 400);
    for (name, phase) in [
        ("stuck", TargetPhase::Ready),
        ("gone", TargetPhase::Ready),
        ("kept", TargetPhase::Ready),
        ("failed", TargetPhase::Failed),
        ("ready", TargetPhase::Ready),
        ("brief", TargetPhase::Ready),
        ("stopping", TargetPhase::Ready),
    ] {
        create(name).await;
        world.until(name, phase).await.unwrap();
    }
    for (name, phase) in
        [("stuck", TargetPhase::Stuck), ("gone", TargetPhase::Gone), ("kept", TargetPhase::Gone)]
    {
        world.delete(name).await.unwrap();
        world.until(name, phase).await.unwrap();
    }
    // A cluster that was out of reach when this life ended still holds something of it.
    let mut kept = world.target("kept").await.unwrap();
    let seen = Some(kept.version);
    let life = id::life(KIND, "kept", "kept-1");
    kept.release.push(Release { life, cluster: Some(FAR.to_owned()) });
    kept.due = Some(Timestamp(world.clock.now().0 + 30_000));
    kept.version += 1;
    let moved = Transition { target: kept, seen, run: None, tombstone: None };
    assert!(world.store.move_target(&moved).await.unwrap());
    let next = Timestamp(THEN + 900_000);
    assert!(world.store.begin_round(FAR, None, next).await.unwrap());
    assert!(world.store.begin_silence(FAR, Timestamp(THEN), "it polls").await.unwrap());
    // From here on nothing more than what is under way may happen.
    world.outside.answer("stopping unwait", 202);
    world.delete("stopping").await.unwrap();
    let again = world.lifecycle(Asked::Created, "stopping", "stopping-2", &document("stopping")).await;
    again.unwrap().unwrap();
    for (what, status) in
        [("waiting wait", 202), ("cancelled wait", 202), ("retrying wait", 503), ("untold", 503)]
    {
        world.outside.answer(what, status);
        create(what.split(' ').next().unwrap()).await;
    }
    world.delete("cancelled").await.unwrap();
    // A function that is killed while it waits for the relay.
    tokio::select! {
        () = create("posted") => panic!("nobody answers"),
        () = posted(&world) => {}
    }
    Stored::of(&world).await
}

async fn posted(world: &World) {
    while world.store.waiting_letters(FAR, world.clock.now(), &[], 1, usize::MAX).await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
