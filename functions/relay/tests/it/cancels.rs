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

/// Only the container that is named counts, whatever runs beside it.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_container_that_never_ends() {
    let world = RelayFixture::new("beside", &[]).await;
    let unit = name("unit", 1);
    world.run(&unit, ScriptJob::new(&unit, "echo done").beside(0)).await;
    assert_eq!(world.result(&unit).await.log.as_deref(), Some("done\n"));
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

/// A finalizer holds the object. Each cancellation gets a response in time. The task is over when its object is gone; after
/// two minutes the response is that its state is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn held_by_a_finalizer() {
    let mut world = RelayFixture::new("held", &[]).await;
    let maps = world.api::<ConfigMap>();
    let held = async |of: &TaskId, all: Value| merge(&maps, &of.unit, finalizers(all)).await;
    let [goes, stays] = ["goes", "stays"].map(|unit| name(unit, 1));
    for unit in [&goes, &stays] {
        world.apply(unit, never_ready(&unit.unit)).await;
        held(unit, json!(["test.example/held"])).await;
    }
    let both = || vec![cancel(&goes), cancel(&stays)];
    let runs = |answer: &RelayResponse| matches!(answer, RelayResponse::State(TaskState::Running { .. }));
    let begun = Instant::now();
    let answers = world.ask_all(both()).await;
    assert!(answers.iter().all(runs) && begun.elapsed() < ASKER, "{answers:?} {:?}", begun.elapsed());
    world.kill().await;
    // One was asked for more than two minutes ago.
    let mut record = world.record("stays").await;
    let since = &mut record["phase"]["terminating"]["sinceMs"];
    *since = (since.as_u64().unwrap() - 122_000).into();
    merge(&world.records(), "ebb-task.stays.1", json!({"stringData": {"record": record.to_string()}})).await;
    world.start().await;
    let (code, message) = world.reason(&stays).await;
    assert!(code == ReasonCode::Lost && message.contains("/stays: "), "{code:?} {message}");
    let begun = Instant::now();
    let again = world.state(cancel(&goes)).await;
    assert!(matches!(again, TaskState::Running { .. }) && begun.elapsed() < ASKER, "{again:?}");
    held(&goes, json!([])).await;
    assert_eq!(world.state(cancel(&goes)).await, TaskState::Tombstoned);
    assert!(maps.get_opt("goes").await.unwrap().is_none() && world.plane.taken(&token(&goes)).is_empty());
    assert!(maps.get("stays").await.unwrap().metadata.deletion_timestamp.is_some());
    held(&stays, json!([])).await;
    world.close().await;
}
