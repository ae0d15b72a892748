//! What is stored: lives in every state that lasts.

use ebb_engine::{Moment, TargetPhase, Timestamp};
use ebb_flow::complete::{From, Taken};
use ebb_flow::ports::Clock as _;
use ebb_store::{
    Mailbox as _, Mark, Marks as _, MoveTarget as _, Release, Rounds as _, Silences as _, Transition,
};
use ebb_wire::cloudevents::Asked;
use ebb_wire::id;
use serde_json::json;

use crate::documents::{self, MANY};
use crate::fixture::Stored;
use crate::world::{FAR, KIND, World, made, work};

/// 22 November 2026.
const THEN: u64 = 1_795_305_600_000;

/// Lives that last, as this version stores them.
pub(crate) async fn stored() -> Stored {
    let world = World::new(THEN).await;
    for plugin in documents::plugins() {
        let published =
            ebb_flow::api::plugins::publish(world.store.as_ref(), &plugin, world.clock.now()).await;
        published.unwrap().unwrap();
    }
    at_rest(&world).await;
    late(&world).await;
    wide(&world).await;
    scripts(&world).await;
    clusters(&world).await;
    // From here on nothing more than what is under way may happen.
    under_way(&world).await;
    mail(&world).await;
    Stored::of(&world).await
}

async fn create(world: &World, name: &str) {
    let asked = world.lifecycle(Asked::Created, name, &format!("{name}-1"), &documents::sandbox(name)).await;
    asked.unwrap().unwrap();
}

/// The result of a unit that was answered 202, or of a work, comes.
async fn completes(world: &World, what: &str, code: &str, expected: Taken) {
    let token = &world.outside.tokens()[what];
    assert_eq!(world.callback(token, &made(code)).await.unwrap(), expected, "{what}");
}

/// Nothing is under way.
async fn at_rest(world: &World) {
    world.outside.answer("stuck unmake", 500);
    world.outside.answer("failed make", 400);
    world.outside.answer("unheard", 503);
    for (name, phase) in [
        ("stuck", TargetPhase::Ready),
        ("gone", TargetPhase::Ready),
        ("kept", TargetPhase::Ready),
        ("failed", TargetPhase::Failed),
        ("ready", TargetPhase::Ready),
        ("brief", TargetPhase::Ready),
        ("plain", TargetPhase::Ready),
        ("unheard", TargetPhase::Ready),
        ("stopping", TargetPhase::Ready),
    ] {
        create(world, name).await;
        world.until(name, phase).await.unwrap();
    }
    for (name, phase) in
        [("stuck", TargetPhase::Stuck), ("gone", TargetPhase::Gone), ("kept", TargetPhase::Gone)]
    {
        world.delete(name).await.unwrap();
        world.until(name, phase).await.unwrap();
    }
}

/// Results that came late: one is still to be taken away, of a life that goes on; another was, of one that is over.
async fn late(world: &World) {
    for name in ["twice", "undone"] {
        world.outside.answer(&format!("{name} wait"), 202);
        create(world, name).await;
    }
    completes(world, "twice wait", "first", Taken::Accepted).await;
    world.until("twice", TargetPhase::Ready).await.unwrap();
    // The first one stays the result, and this one is kept beside it.
    world.pass(1_000).await.unwrap();
    completes(world, "twice wait", "second", Taken::Accepted).await;
    world.delete("undone").await.unwrap();
    world.until("undone", TargetPhase::Gone).await.unwrap();
    completes(world, "undone wait", "late", Taken::Late(From::Webhook)).await;
    world.until("undone", TargetPhase::Gone).await.unwrap();
}

/// Runs of several items: one that is over, with a late result, and one that waits.
async fn wide(world: &World) {
    for (what, status) in [("broad late", 202), ("broad later", 202), ("broad fail", 400)] {
        world.outside.answer(what, status);
    }
    for (what, status) in [("wide late", 202), ("wide again", 503)] {
        world.outside.answer(what, status);
    }
    create_wide(world, "broad").await;
    world.delete("broad").await.unwrap();
    world.until("broad", TargetPhase::Gone).await.unwrap();
    completes(world, "broad late", "", Taken::Late(From::Webhook)).await;
    world.until("broad", TargetPhase::Gone).await.unwrap();
    create_wide(world, "wide").await;
}

async fn create_wide(world: &World, name: &str) {
    let before = world.outside.asked(" a").len();
    create(world, name).await;
    // What one invocation does not send goes through the queue.
    world.pass(0).await.unwrap();
    assert_eq!(world.outside.asked(" a").len(), before + MANY);
    for unit in ["again", "fail", "late", "later"] {
        assert_eq!(world.outside.asked(&format!("{name} {unit}")).len(), 1, "{name} {unit}");
    }
}

/// One has a log and says how far it is, one has all its results.
async fn scripts(world: &World) {
    for name in ["beating", "thanked"] {
        world.meanwhile(create(world, name)).await.unwrap();
        let mut result = made(&format!("name-of-{name}"));
        (result["log"], result["tookMs"]) = (json!("made it\n"), json!(7));
        let token = &world.outside.tokens()[&work(name, Moment::BeforeReady, 0)];
        assert_eq!(world.callback(token, &result).await.unwrap(), Taken::Accepted);
    }
    let token = &world.outside.tokens()[&work("beating", Moment::BeforeReady, 1)];
    let beat = json!({"status": "heartbeat", "progress": "half of it"});
    assert_eq!(world.callback(token, &beat).await.unwrap(), Taken::Accepted);
}

/// What is known of clusters.
async fn clusters(world: &World) {
    let now = world.clock.now();
    // One that was out of reach when this life ended still holds something of it.
    let mut kept = world.target("kept").await.unwrap();
    let seen = Some(kept.version);
    let life = id::life(KIND, "kept", "kept-1");
    kept.release.push(Release { life, cluster: Some(FAR.to_owned()) });
    kept.due = Some(Timestamp(now.0 + 30_000));
    kept.version += 1;
    let moved = Transition { target: kept, seen, run: None, tombstone: None };
    assert!(world.store.move_target(&moved).await.unwrap());
    let next = Timestamp(THEN + 900_000);
    assert!(world.store.begin_round(FAR, None, next).await.unwrap());
    assert!(world.store.begin_silence(FAR, Timestamp(THEN), "it polls").await.unwrap());
    for what in [Mark::Table, Mark::Queue, Mark::Schedule] {
        world.store.mark(what, now).await.unwrap();
    }
}

/// Requests have gone out.
async fn under_way(world: &World) {
    world.outside.answer("stopping unwait", 202);
    world.delete("stopping").await.unwrap();
    let document = documents::sandbox("stopping");
    let again = world.lifecycle(Asked::Created, "stopping", "stopping-2", &document).await;
    again.unwrap().unwrap();
    for (what, status) in
        [("waiting wait", 202), ("cancelled wait", 202), ("retrying wait", 503), ("untold", 503)]
    {
        world.outside.answer(what, status);
        create(world, what.split(' ').next().unwrap()).await;
    }
    world.outside.again("asked wait", 30);
    create(world, "asked").await;
    world.delete("cancelled").await.unwrap();
}

/// Functions are killed while they wait for the relay, which answers some of their letters.
async fn mail(world: &World) {
    killed(world, create(world, "answered"), 1).await;
    killed(world, create(world, "wordy"), 2).await;
    world.polls().await.unwrap();
    let token = &world.outside.tokens()[&work("thanked", Moment::BeforeReady, 1)];
    let ended = made("").to_string();
    let taken = Box::pin(ebb_flow::complete::complete(&world.env, token, ended.as_bytes())).await;
    assert_eq!(taken.unwrap(), Taken::Accepted);
    killed(world, create(world, "posted"), 1).await;
}

/// Does something until so many letters wait for their answers.
async fn killed(world: &World, act: impl Future<Output = ()>, letters: usize) {
    let posted = async {
        while world
            .store
            .waiting_letters(FAR, world.clock.now(), &[], letters, usize::MAX)
            .await
            .unwrap()
            .len()
            < letters
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = act => panic!("nobody answers"),
        () = posted => {}
    }
}
