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
    let fixture = RelayFixture::new("cancels", &[]).await;
    // Before it comes, in one batch with it, and late.
    let unknown = name("unknown", 1);
    assert_eq!(fixture.get(&unknown).await, TaskState::Unknown);
    let late = || fixture.request(&unknown, script(&unknown, "#"));
    let answers = fixture.ask_all(vec![cancel(&unknown), late()]).await;
    assert_eq!(answers, vec![RelayResponse::State(TaskState::Tombstoned); 2]);
    assert_eq!(fixture.state(late()).await, TaskState::Tombstoned);
    assert_eq!(fixture.api::<Job>().get_opt("ebb-unknown-1").await.unwrap(), None);
    // What can never run does not.
    assert_eq!(fixture.state(cancel(&name("No.Label", 1))).await, TaskState::Tombstoned);
    // While it runs, also when the script does not listen.
    let unit = name("run", 1);
    fixture.run(&unit, ScriptJob::new(&unit, "trap '' TERM; echo begun; sleep 1000 & wait; sleep 1000")).await;
    fixture.printed(&unit, "begun").await;
    fixture.cancelled(&unit).await;
    assert!(fixture.api::<Pod>().list(&Default::default()).await.unwrap().items.is_empty());
    assert_eq!(fixture.get(&unit).await, TaskState::Tombstoned);
    assert!(fixture.plane.taken(&token(&unit)).is_empty());
    // Too late: it has ended.
    let ended = name("ended", 1);
    fixture.plane.answer(Some(503));
    fixture.run(&ended, ScriptJob::new(&ended, "exit 4")).await;
    fixture.ended(&ended).await;
    assert!(matches!(fixture.state(cancel(&ended)).await, TaskState::Ended(_)));
    fixture.plane.answer(None);
    assert_eq!(fixture.reason(&ended).await.1, "the script ended with 4");
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_try_replaces_the_lower_ones() {
    let fixture = RelayFixture::new("tries", &[]).await;
    let [first, second, third] = [1, 2, 3].map(|attempt| name("unit", attempt));
    fixture.run(&first, ScriptJob::new(&first, "echo begun; sleep 1000")).await;
    fixture.printed(&first, "begun").await;
    fixture.run(&third, ScriptJob::new(&third, "echo third; sleep 3")).await;
    // Nothing of the first is there when the third has been begun.
    let pods = fixture.api::<Pod>().list(&Default::default()).await.unwrap();
    assert!(pods.iter().all(|pod| pod.labels()["ebb.dev/attempt"] == "3"), "{pods:?}");
    for (unit, text) in [(&first, "echo again"), (&second, "echo late")] {
        let answer = fixture.apply(unit, script(unit, text)).await;
        assert_eq!(answer, RelayResponse::State(TaskState::Tombstoned));
        assert_eq!(fixture.get(unit).await, TaskState::Tombstoned);
    }
    assert_eq!(fixture.result(&third).await.log.as_deref(), Some("third\n"));
    assert!(fixture.plane.taken(&token(&first)).is_empty());
    fixture.close().await;
}

/// A relay that was killed has asked for an object, and the API server makes it after another relay received the cancellation.
#[tokio::test(flavor = "multi_thread")]
async fn what_lands_late_is_removed() {
    let fixture = RelayFixture::new("lands", &[]).await;
    let (model, unit) = (name("model", 1), name("lands", 1));
    fixture.apply(&model, never_ready("model")).await;
    // What the killed one has left: the record of a task that it has just begun.
    let mut labels = fixture.records().get("ebb-task.model.1").await.unwrap().labels().clone();
    labels.insert("ebb.dev/unit".to_owned(), "lands".to_owned());
    let mut held = fixture.record("model").await;
    (held["name"], held["phase"], held["spec"]["applied"]) = (json!(unit), json!("starting"), json!([]));
    let mut manifest = config_map("lands");
    manifest["metadata"]["namespace"] = fixture.units.clone().into();
    held["spec"]["objects"]["apply"] = json!([manifest]);
    let left = json!({
        "metadata": {"name": "ebb-task.lands.1", "labels": labels}, "stringData": {"record": held.to_string()},
    });
    create(&fixture.records(), left).await;
    labels.remove("ebb.dev/part");
    manifest["metadata"]["labels"] = json!(labels);
    let maps = fixture.api::<ConfigMap>();
    let lands = async {
        until("the end to begin", async || {
            let record = fixture.records().get("ebb-task.lands.1").await.unwrap();
            (record.labels()["ebb.dev/phase"] == "terminating").then_some(())
        })
        .await;
        create(&maps, manifest).await;
    };
    let (state, ()) = join(fixture.state(cancel(&unit)), lands).await;
    assert_eq!(state, TaskState::Tombstoned);
    assert_eq!(maps.get_opt("lands").await.unwrap(), None);
    fixture.state(cancel(&model)).await;
    fixture.close().await;
}

/// A task whose record cannot be read may be running. The response does not contain the record.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_record_that_cannot_be_read() {
    let fixture = RelayFixture::new("damaged", &[]).await;
    let labels = json!({"ebb.dev/unit": "unit", "ebb.dev/attempt": "1", "ebb.dev/part": "record"});
    let damaged = json!({
        "metadata": {"name": "ebb-task.unit.1", "labels": labels}, "stringData": {"record": "{\"name\": \"hunter2\"}"},
    });
    create(&fixture.records(), damaged).await;
    let unit = name("unit", 2);
    let answer = fixture.apply(&unit, script(&unit, "#")).await;
    let RelayResponse::Unavailable(why) = answer else { panic!("{answer:?}") };
    assert!(why.contains("ebb-task.unit.1") && why.contains("line 1") && !why.contains("hunter2"), "{why}");
    fixture.records().delete("ebb-task.unit.1", &Default::default()).await.unwrap();
    fixture.close().await;
}

/// A finalizer holds the object. Each cancellation gets a response in time, also from a relay that was killed since. The task is
/// over when its object is gone.
#[tokio::test(flavor = "multi_thread")]
async fn held_by_a_finalizer() {
    let fixture = RelayFixture::new("held", &[]).await;
    let (maps, unit) = (fixture.api::<ConfigMap>(), name("unit", 1));
    fixture.apply(&unit, never_ready("unit")).await;
    merge(&maps, "unit", finalizers(json!(["test.example/held"]))).await;
    for _ in 0..2 {
        let begun = Instant::now();
        let answer = fixture.state(cancel(&unit)).await;
        assert!(matches!(answer, TaskState::Running { .. }) && begun.elapsed() < ASKER, "{answer:?}");
        fixture.kill().await;
        fixture.start().await;
    }
    merge(&maps, "unit", finalizers(json!([]))).await;
    assert_eq!(fixture.state(cancel(&unit)).await, TaskState::Tombstoned);
    assert!(maps.get_opt("unit").await.unwrap().is_none() && fixture.plane.taken(&token(&unit)).is_empty());
    fixture.close().await;
}
