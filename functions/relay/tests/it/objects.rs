//! Tasks that apply objects, wait until they are ready, or remove them.

use ebb_protocol::{ObjectCount, ObjectOutput, ObjectRemoval, TaskWait, WaitResolution};
use k8s_openapi::api::rbac::v1::RoleBinding;

use crate::fixture::*;

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

pub(crate) fn deployment(name: &str, image: &str) -> Value {
    yaml(include_str!("objects/deployment.yaml"), &[("NAME", name), ("IMAGE", image)])
}

pub(crate) fn kept(apply: Vec<Value>) -> ObjectTask {
    ObjectTask { keep: true, ..objects(apply) }
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_ready_and_removed() {
    let fixture = RelayFixture::new("objects", &[]).await;
    let unit = name("make", 1);
    let manifests = vec![map("held"), map("taken"), deployment("web", "ebb.test/busybox:1")];
    fixture.succeed(&unit, kept(manifests.clone())).await;
    assert_eq!(fixture.send(RelayRequest::Acknowledge(unit.clone())).await, RelayResponse::Done);
    // Only the record lists the objects to remove.
    assert!(!fixture.records().get("ebb-task.make.1").await.unwrap().finalizers().is_empty());
    let maps = fixture.api::<ConfigMap>();
    let (held, taken) = (maps.get("held").await.unwrap(), maps.get("taken").await.unwrap());
    assert_eq!((&*held.labels()["ebb.dev/unit"], &*held.labels()["ebb.dev/attempt"]), ("make", "1"));
    assert!(held.managed_fields().iter().any(|it| it.manager.as_deref() == Some("ebb")));
    // One object gets a finalizer. The other is restored from a backup, with its labels.
    merge(&maps, "held", finalizers(json!(["test.example/held"]))).await;
    maps.delete("taken", &DeleteParams::default()).await.unwrap();
    let restored = create(&maps, json!({"metadata": {"name": "taken", "labels": held.labels()}})).await;
    // The removal includes objects of an attempt that was cancelled while it waited.
    let waiting = name("waiting", 1);
    fixture.apply(&waiting, kept(vec![deployment("never", "ebb.test/none:1")])).await;
    assert_eq!(fixture.state(cancel(&waiting)).await, TaskState::Tombstoned);
    fixture.api::<k8s_openapi::api::apps::v1::Deployment>().get("never").await.unwrap();

    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["make", "waiting", "unknown"])).await;
    until("the deletion to begin", async || maps.get("held").await.unwrap().metadata.deletion_timestamp).await;
    fixture.restart().await;
    assert!(matches!(fixture.get(&undo).await, TaskState::Running { .. }));
    merge(&maps, "held", finalizers(Value::Null)).await;
    let by_person = |wait: &TaskWait| wait.resolves == WaitResolution::Person;
    let wait = fixture.running(&undo, |task| task.waits.into_iter().find(by_person)).await.message;
    let (found, recorded) = (restored.uid().unwrap(), taken.uid().unwrap());
    assert!(wait.contains(&format!("the UID {found}; the unit has made the one with the UID {recorded}")), "{wait}");
    merge(&maps, "taken", json!({"metadata": {"labels": {"ebb.dev/unit": null}}})).await;
    let removal = fixture.success(&undo).await.removal.unwrap();
    // The relay knows nothing of a unit without a record.
    assert_eq!(removal.objects, [("make".to_owned(), 3), ("waiting".to_owned(), 1)].into());
    assert_eq!(maps.get_opt("held").await.unwrap(), None);
    for deleted in ["web", "never"] {
        assert_eq!(fixture.api::<k8s_openapi::api::apps::v1::Deployment>().get_opt(deleted).await.unwrap(), None);
    }
    assert_eq!(maps.get("taken").await.unwrap().uid(), restored.uid());
    maps.delete("taken", &DeleteParams::default()).await.unwrap();
    // A removed task does not start again.
    assert_eq!(fixture.state(fixture.request(&unit, kept(manifests))).await, TaskState::Tombstoned);
    fixture.close().await;
}

fn ready(rules: &[(&str, &str)]) -> TaskCompletion {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let rules = rules.iter().map(|(ready, fail)| ReadyRules { ready: text(ready), fail: text(fail) });
    TaskCompletion::Ready(rules.collect())
}

/// Rules become true after changes by other clients. The relay reads the outputs then.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_rules_and_outputs() {
    let fixture = RelayFixture::new("rules", &[]).await;
    let maps = fixture.api::<ConfigMap>();
    let given = json!({"metadata": {"name": "given"}, "stringData": {"password": "hunter2"}});
    create(&fixture.api::<Secret>(), given).await;
    let [good, done, broken, missing] = ["good", "done", "broken", "missing"].map(|unit| name(unit, 1));
    let task = |unit: &TaskId, rules: &[(&str, &str)], outputs: Vec<ObjectOutput>| {
        let apply = vec![map(&unit.unit), map(&format!("{}-2", unit.unit))];
        fixture.ensure_of(unit, ObjectTask { keep: false, until: ready(rules), outputs, ..kept(apply) })
    };
    let mut table = yaml(include_str!("objects/outputs.yaml"), &[]);
    let outputs = serde_json::from_value(table["outputs"].take()).unwrap();
    fixture.ensure(task(&good, &[("object.data.ready == 'yes'", "")], outputs)).await;
    fixture.ensure(task(&missing, &[], vec![output("a", "'given'", "none", false)])).await;
    // The second object reports a phase, like a workflow of Argo.
    let second = [("", ""), ("object.data.phase == 'Succeeded'", "object.data.phase in ['Failed', 'Error']")];
    fixture.ensure(task(&done, &second, vec![])).await;
    fixture.ensure(task(&broken, &second, vec![])).await;
    for unit in [&good, &done, &broken] {
        assert!(matches!(fixture.get(unit).await, TaskState::Running { .. }));
    }
    fixture.running(&done, |task| task.objects.filter(|count| *count == ObjectCount { total: 2, ready: 1 })).await;
    merge(&maps, "good", json!({"data": {"ready": "yes", "secret": "given"}})).await;
    merge(&maps, "done-2", json!({"data": {"phase": "Succeeded"}})).await;
    merge(&maps, "broken-2", json!({"data": {"phase": "Failed"}})).await;
    fixture.success(&done).await;
    let result = fixture.result(&good).await;
    assert_eq!(json!(result.outputs), table["expected"], "{result:?}");
    assert_eq!(fixture.sensitive_output(&result, "kept").await, b"hunter2");
    fixture.failure(&broken, ReasonCode::Failed, "broken-2: its `fail` is true").await;
    fixture.failure(&missing, ReasonCode::OutputMissing, "no key \"none\"").await;
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
    fixture.close().await;
}

/// A higher attempt adopts the objects of a lower one. One removal deletes them.
#[tokio::test(flavor = "multi_thread")]
async fn a_higher_attempt_adopts_the_objects() {
    let fixture = RelayFixture::new("again", &[]).await;
    let (maps, [first, second]) = (fixture.api::<ConfigMap>(), [1, 2].map(|attempt| name("make", attempt)));
    let task = |rule: &str| ObjectTask { until: ready(&[(rule, "")]), ..kept(vec![map("a")]) };
    let mut lower = task("false");
    lower.apply[0]["data"]["old"] = "x".into();
    fixture.apply_within(&first, lower, 1_000).await;
    assert_eq!(fixture.reason(&first).await.0, ReasonCode::Timeout);
    let existing = maps.get("a").await.unwrap();
    assert_eq!(existing.data.as_ref().unwrap().len(), 2);
    fixture.succeed(&second, task("true")).await;
    let found = maps.get("a").await.unwrap();
    assert_eq!((found.uid(), &*found.labels()["ebb.dev/attempt"]), (existing.uid(), "2"));
    assert_eq!(json!(found.data), json!({"a": "b"}), "fields of the lower attempt alone are removed");
    // The relay waits for an object that is being removed, and creates it again.
    merge(&maps, "a", finalizers(json!(["test.example/held"]))).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let third = name("make", 3);
    fixture.apply(&third, task("true")).await;
    assert!(matches!(fixture.get(&third).await, TaskState::Running { .. }));
    merge(&maps, "a", finalizers(Value::Null)).await;
    fixture.success(&third).await;
    assert_ne!(maps.get("a").await.unwrap().uid(), existing.uid());
    fixture.remove(&["make"]).await;
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
    fixture.close().await;
}

/// The relay loses its rights while it waits. Its tasks time out, and can be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_tasks_after_the_loss_of_rights() {
    let fixture = RelayFixture::new("lost", &[]).await;
    let [late, cancelled] = ["late", "cancelled"].map(|unit| name(unit, 1));
    for (unit, timeout) in [(&late, 4_000), (&cancelled, 60_000)] {
        let task = ObjectTask { until: ready(&[("false", "")]), ..kept(vec![map(&unit.unit)]) };
        fixture.apply_within(unit, task, timeout).await;
        assert!(matches!(fixture.get(unit).await, TaskState::Running { .. }));
    }
    let bindings = fixture.api::<RoleBinding>();
    let mut binding = bindings.get("further").await.unwrap();
    bindings.delete("further", &DeleteParams::default()).await.unwrap();
    assert_eq!(fixture.state(cancel(&cancelled)).await, TaskState::Tombstoned);
    fixture.failure(&late, ReasonCode::Timeout, "forbidden").await;
    binding.metadata.resource_version = None;
    binding.metadata.uid = None;
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    fixture.remove(&["late", "cancelled"]).await;
    fixture.close().await;
}

/// A relay whose namespace was deleted deletes nothing that no record names, and does not call it gone.
#[tokio::test(flavor = "multi_thread")]
async fn objects_without_records_are_not_gone() {
    let fixture = RelayFixture::new("unrecorded", &[]).await;
    let (made, undo, maps, records) = (name("make", 1), name("undo", 1), fixture.api::<ConfigMap>(), fixture.records());
    fixture.succeed(&made, kept(vec![map("left")])).await;
    until("the acknowledgement", async || {
        (records.get("ebb-task.make.1").await.unwrap().labels()["ebb.dev/phase"] == "acknowledged").then_some(())
    })
    .await;
    merge(&records, "ebb-task.make.1", finalizers(Value::Null)).await;
    records.delete("ebb-task.make.1", &DeleteParams::default()).await.unwrap();
    fixture.apply(&undo, removal(&["make", "never"])).await;
    let object = format!("ConfigMap {}/left", fixture.units);
    let wait = fixture.running(&undo, |task| task.waits.into_iter().next()).await;
    assert_eq!((&*wait.object, wait.resolves), (&*object, WaitResolution::Person));
    for request in [cancel(&made), RelayRequest::Delete(made.clone())] {
        let RelayResponse::Unavailable(why) = fixture.send(request).await else { panic!("it is called gone") };
        assert!(why.contains(&object) && why.contains("no record of this relay names it"), "{why}");
    }
    maps.delete("left", &DeleteParams::default()).await.expect("the relay has not deleted it");
    assert_eq!(fixture.success(&undo).await.removal, Some(ObjectRemoval::default()));
    // It has no rights to one of its kinds any more, so it cannot say that no object of that kind remains.
    fixture.api::<RoleBinding>().delete("further", &DeleteParams::default()).await.unwrap();
    let undone = async |attempt: u32, units: &[&str]| {
        fixture.succeed(&name("undo", attempt), removal(units)).await.removal.unwrap()
    };
    let unlisted = undone(2, &["never"]).await.unlisted;
    assert!(unlisted.iter().any(|place| place.contains(&fixture.units)), "{unlisted:?}");
    // A cancel that finds no record says nothing about objects, unless records are kept for longer than a task can take.
    fixture.cancel(&made).await;
    assert_eq!(undone(3, &["make"]).await.objects.len(), 0);
    merge(&records, "ebb-kept-since", json!({"stringData": {"sinceMs": "1"}})).await;
    fixture.restart().await;
    fixture.cancel(&name("never", 1)).await;
    assert_eq!(undone(4, &["make", "never"]).await.objects, [("never".to_owned(), 0)].into());
    fixture.close().await;
}
