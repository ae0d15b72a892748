//! Cancelling, and attempts that replace others.

use futures::future::join;

use crate::fixture::*;

/// Who asks waits no longer.
const ASKER: Duration = Duration::from_secs(15);

/// A task with one map, which waits until its time is over.
fn never_ready(map: &str) -> ObjectTask {
    ObjectTask { until: ready_if("false"), ..objects(vec![config_map(map)]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled() {
    let world = RelayFixture::new("cancels", &[]).await;
    // Before it comes, in one batch with it, and late.
    let unknown = name("unknown", 1);
    assert_eq!(world.get(&unknown).await, TaskState::Unknown);
    let late = || world.request(&unknown, script(&unknown, "#"));
    let answers = world.ask_all(vec![cancel(&unknown), late()]).await;
    assert_eq!(answers, vec![RelayResponse::State(TaskState::Tombstoned); 2]);
    assert_eq!(world.state(late()).await, TaskState::Tombstoned);
    assert_eq!(world.api::<Job>().get_opt("ebb-unknown-1").await.unwrap(), None);
    // What can never run does not.
    assert_eq!(world.state(cancel(&name("No.Label", 1))).await, TaskState::Tombstoned);
    // While it runs, also when the script does not listen.
    let unit = name("run", 1);
    world.run(&unit, ScriptJob::new(&unit, "trap '' TERM; echo begun; sleep 1000 & wait; sleep 1000")).await;
    world.printed(&unit, "begun").await;
    world.cancelled(&unit).await;
    assert!(world.api::<Pod>().list(&Default::default()).await.unwrap().items.is_empty());
    assert_eq!(world.get(&unit).await, TaskState::Tombstoned);
    assert!(world.plane.taken(&token(&unit)).is_empty());
    // Too late: it has ended.
    let ended = name("ended", 1);
    world.plane.answer(Some(503));
    world.run(&ended, ScriptJob::new(&ended, "exit 4")).await;
    world.ended(&ended).await;
    assert!(matches!(world.state(cancel(&ended)).await, TaskState::Ended(_)));
    world.plane.answer(None);
    assert_eq!(world.reason(&ended).await.1, "the script ended with 4");
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_try_replaces_the_lower_ones() {
    let world = RelayFixture::new("tries", &[]).await;
    let [first, second, third] = [1, 2, 3].map(|attempt| name("unit", attempt));
    world.run(&first, ScriptJob::new(&first, "echo begun; sleep 1000")).await;
    world.printed(&first, "begun").await;
    world.run(&third, ScriptJob::new(&third, "echo third; sleep 3")).await;
    // Nothing of the first is there when the third has been begun.
    let pods = world.api::<Pod>().list(&Default::default()).await.unwrap();
    assert!(pods.iter().all(|pod| pod.labels()["ebb.dev/attempt"] == "3"), "{pods:?}");
    for (unit, text) in [(&first, "echo again"), (&second, "echo late")] {
        let answer = world.apply(unit, script(unit, text)).await;
        assert_eq!(answer, RelayResponse::State(TaskState::Tombstoned));
        assert_eq!(world.get(unit).await, TaskState::Tombstoned);
    }
    assert_eq!(world.result(&third).await.log.as_deref(), Some("third\n"));
    assert!(world.plane.taken(&token(&first)).is_empty());
    world.close().await;
}

/// A relay that was killed has asked for an object, and the API server makes it after another one was told to cancel.
#[tokio::test(flavor = "multi_thread")]
async fn what_lands_late_is_removed() {
    let world = RelayFixture::new("lands", &[]).await;
    let (model, unit) = (name("model", 1), name("lands", 1));
    world.apply(&model, never_ready("model")).await;
    // What the killed one has left: the record of a task that it has just begun.
    let mut labels = world.records().get("ebb-task.model.1").await.unwrap().labels().clone();
    labels.insert("ebb.dev/unit".to_owned(), "lands".to_owned());
    let mut held = world.record("model").await;
    (held["name"], held["phase"], held["spec"]["applied"]) = (json!(unit), json!("starting"), json!([]));
    let mut manifest = config_map("lands");
    manifest["metadata"]["namespace"] = world.units.clone().into();
    held["spec"]["objects"]["apply"] = json!([manifest]);
    let left = json!({
        "metadata": {"name": "ebb-task.lands.1", "labels": labels}, "stringData": {"record": held.to_string()},
    });
    create(&world.records(), left).await;
    labels.remove("ebb.dev/part");
    manifest["metadata"]["labels"] = json!(labels);
    let maps = world.api::<ConfigMap>();
    let lands = async {
        until("the end to begin", async || {
            let record = world.records().get("ebb-task.lands.1").await.unwrap();
            (record.labels()["ebb.dev/phase"] == "terminating").then_some(())
        })
        .await;
        create(&maps, manifest).await;
    };
    let (state, ()) = join(world.state(cancel(&unit)), lands).await;
    assert_eq!(state, TaskState::Tombstoned);
    assert_eq!(maps.get_opt("lands").await.unwrap(), None);
    world.state(cancel(&model)).await;
    world.close().await;
}

/// A task whose record cannot be read may be running. The response does not contain the record.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_record_that_cannot_be_read() {
    let world = RelayFixture::new("damaged", &[]).await;
    let labels = json!({"ebb.dev/unit": "unit", "ebb.dev/attempt": "1", "ebb.dev/part": "record"});
    let damaged = json!({
        "metadata": {"name": "ebb-task.unit.1", "labels": labels}, "stringData": {"record": "{\"name\": \"hunter2\"}"},
    });
    create(&world.records(), damaged).await;
    let unit = name("unit", 2);
    let answer = world.apply(&unit, script(&unit, "#")).await;
    let RelayResponse::Unavailable(why) = answer else { panic!("{answer:?}") };
    assert!(why.contains("ebb-task.unit.1") && why.contains("line 1") && !why.contains("hunter2"), "{why}");
    world.records().delete("ebb-task.unit.1", &Default::default()).await.unwrap();
    world.close().await;
}

/// A finalizer holds the object. Each cancellation gets a response in time, also from a relay that was killed since. The task is
/// over when its object is gone.
#[tokio::test(flavor = "multi_thread")]
async fn held_by_a_finalizer() {
    let world = RelayFixture::new("held", &[]).await;
    let (maps, unit) = (world.api::<ConfigMap>(), name("unit", 1));
    world.apply(&unit, never_ready("unit")).await;
    merge(&maps, "unit", finalizers(json!(["test.example/held"]))).await;
    for _ in 0..2 {
        let begun = Instant::now();
        let answer = world.state(cancel(&unit)).await;
        assert!(matches!(answer, TaskState::Running { .. }) && begun.elapsed() < ASKER, "{answer:?}");
        world.kill().await;
        world.start().await;
    }
    merge(&maps, "unit", finalizers(json!([]))).await;
    assert_eq!(world.state(cancel(&unit)).await, TaskState::Tombstoned);
    assert!(maps.get_opt("unit").await.unwrap().is_none() && world.plane.taken(&token(&unit)).is_empty());
    world.close().await;
}
