//! Cancellation of tasks, and attempts that replace lower ones.

use futures::future::join;

use crate::fixture::*;

fn never_ready(map: &str) -> ObjectTask {
    ObjectTask { until: ready_if("false"), ..objects(vec![config_map(map)]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_at_each_phase_of_a_task() {
    let fixture = RelayFixture::new("cancels", &[]).await;
    // The cancellation is before the request of the task, in one batch. A request after it starts nothing.
    let unknown = name("unknown", 1);
    assert_eq!(fixture.get(&unknown).await, TaskState::Unknown);
    let ensure_unknown = || fixture.request(&unknown, script(&unknown, "#"));
    let responses = fixture.send_all(vec![cancel(&unknown), ensure_unknown()]).await;
    assert_eq!(responses, vec![RelayResponse::State(TaskState::Tombstoned); 2]);
    assert_eq!(fixture.state(ensure_unknown()).await, TaskState::Tombstoned);
    assert_eq!(fixture.api::<Job>().get_opt("ebb-unknown-1").await.unwrap(), None);
    // A task with an invalid name can never run.
    assert_eq!(fixture.state(cancel(&name("No.Label", 1))).await, TaskState::Tombstoned);
    // The script runs and ignores SIGTERM.
    let unit = name("run", 1);
    fixture.run(&unit, ScriptJob::new(&unit, "trap '' TERM; echo started; sleep 1000 & wait; sleep 1000")).await;
    fixture.wait_for_log(&unit, "started").await;
    fixture.cancel(&unit).await;
    assert!(fixture.api::<Pod>().list(&Default::default()).await.unwrap().items.is_empty());
    assert_eq!(fixture.get(&unit).await, TaskState::Tombstoned);
    assert!(fixture.callbacks.accepted(&token(&unit)).is_empty());
    // The task has ended before the cancellation.
    let ended = name("ended", 1);
    fixture.callbacks.reject_with(Some(503));
    fixture.run(&ended, ScriptJob::new(&ended, "exit 4")).await;
    fixture.wait_for_end(&ended).await;
    assert!(matches!(fixture.state(cancel(&ended)).await, TaskState::Ended(_)));
    fixture.callbacks.reject_with(None);
    assert_eq!(fixture.reason(&ended).await.1, "the script ended with 4");
    fixture.close().await;
}

/// Creates the record of a task that a killed relay had just started, from that of the task `model`. Returns the manifest of its
/// ConfigMap. The killed relay may have applied it.
async fn leave_starting(fixture: &RelayFixture, unit: &TaskId) -> Value {
    let mut labels = fixture.records().get("ebb-task.model.1").await.unwrap().labels().clone();
    labels.insert("ebb.dev/unit".to_owned(), unit.unit.clone());
    let mut content = fixture.record("model").await;
    (content["name"], content["phase"], content["spec"]["applied"]) = (json!(unit), json!("starting"), json!([]));
    let mut manifest = config_map(&unit.unit);
    manifest["metadata"]["namespace"] = fixture.units.clone().into();
    content["spec"]["objects"]["apply"] = json!([manifest]);
    let record = json!({
        "metadata": {"name": format!("ebb-task.{}.1", unit.unit), "labels": labels},
        "stringData": {"record": content.to_string()},
    });
    create(&fixture.records(), record).await;
    labels.remove("ebb.dev/part");
    manifest["metadata"]["labels"] = json!(labels);
    manifest
}

/// A killed relay has requested an object. The API server creates it after the next relay received the cancellation.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_created_after_the_cancellation_is_deleted() {
    let fixture = RelayFixture::new("late", &[]).await;
    let (model, unit) = (name("model", 1), name("lands", 1));
    fixture.apply(&model, never_ready("model")).await;
    let manifest = leave_starting(&fixture, &unit).await;
    let maps = fixture.api::<ConfigMap>();
    let create_late = async {
        until("phase `terminating`", async || {
            let record = fixture.records().get("ebb-task.lands.1").await.unwrap();
            (record.labels()["ebb.dev/phase"] == "terminating").then_some(())
        })
        .await;
        create(&maps, manifest).await;
    };
    let (state, ()) = join(fixture.state(cancel(&unit)), create_late).await;
    assert_eq!(state, TaskState::Tombstoned);
    assert_eq!(maps.get_opt("lands").await.unwrap(), None);
    fixture.state(cancel(&model)).await;
    fixture.close().await;
}

/// A relay was killed before it recorded the UID of an object, and a person has removed the labels. The field manager and
/// the run in an annotation identify the object. Without them, a person decides.
#[tokio::test(flavor = "multi_thread")]
async fn objects_with_neither_a_recorded_uid_nor_labels() {
    let fixture = RelayFixture::new("unlabelled", &[]).await;
    let (model, maps) = (name("model", 1), fixture.api::<ConfigMap>());
    fixture.apply(&model, never_ready("model")).await;
    let [own, foreign, undecided] = ["own-0", "foreign-0", "undecided-0"].map(|unit| name(unit, 1));
    for (unit, manager, annotations) in [
        (&own, "ebb", json!({"ebb.dev/run": "own"})),
        (&foreign, "kubectl", json!({"ebb.dev/run": "foreign"})),
        (&undecided, "ebb", json!({})),
    ] {
        let mut manifest = leave_starting(&fixture, unit).await;
        manifest["data"] = json!({"a": "b"});
        manifest["metadata"]["labels"] = json!({});
        manifest["metadata"]["annotations"] = annotations;
        let by = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        maps.create(&by, &serde_json::from_value(manifest).unwrap()).await.unwrap();
    }
    fixture.cancel(&own).await;
    assert_eq!(maps.get_opt("own-0").await.unwrap(), None);
    fixture.cancel(&foreign).await;
    maps.get("foreign-0").await.expect("the relay has not deleted it");

    assert!(matches!(fixture.state(cancel(&undecided)).await, TaskState::Running { .. }));
    let wait = fixture.running(&undecided, |task| task.waits.into_iter().next()).await;
    assert_eq!(wait.object, format!("ConfigMap {}/undecided-0", fixture.units));
    for part in ["cannot decide", "kubectl delete", "ebb.dev/unit=undecided-0 ebb.dev/attempt=1"] {
        assert!(wait.message.contains(part), "{part}: {}", wait.message);
    }
    let labels = json!({"ebb.dev/unit": "undecided-0", "ebb.dev/attempt": "1"});
    merge(&maps, "undecided-0", json!({"metadata": {"labels": labels}})).await;
    fixture.cancel(&undecided).await;
    assert_eq!(maps.get_opt("undecided-0").await.unwrap(), None);
    fixture.cancel(&model).await;
    fixture.close().await;
}
