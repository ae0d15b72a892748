//! `List` and `Delete`: tasks in the relay's records, and objects without a record.

use crate::fixture::*;

async fn list(fixture: &RelayFixture) -> ClusterListing {
    let mut all = ClusterListing::default();
    loop {
        let after = all.next_token.take();
        let RelayResponse::Listing(page) = fixture.send(RelayRequest::List { after }).await else { panic!("no list") };
        all.tasks.extend(page.tasks);
        all.unmanaged.extend(page.unmanaged);
        all.errors.extend(page.errors);
        all.next_token = page.next_token;
        if all.next_token.is_none() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_and_deleted() {
    let fixture = RelayFixture::new("listed", &[]).await;
    let RelayResponse::About(about) = fixture.send(RelayRequest::About).await else { panic!("no version") };
    assert_eq!((&*about.version, about.tasks), (env!("CARGO_PKG_VERSION"), 0));
    let (kept, runs) = (name("kept", 1), name("runs", 1));
    let task = objects(vec![config_map("ours"), config_map("relabelled")]);
    fixture.succeed(&kept, ObjectTask { keep: true, ..task }).await;
    fixture.run(&runs, ScriptJob::new(&runs, "echo up; sleep 1000")).await;
    fixture.wait_for_log(&runs, "up").await;
    // A foreign object with the labels of a task, and an object of a task with changed labels.
    let maps = fixture.api::<ConfigMap>();
    let labels = json!({"ebb.dev/unit": "kept", "ebb.dev/attempt": "1", "ebb.dev/instance": "instance-1"});
    create(&maps, json!({"metadata": {"name": "forged", "labels": labels}})).await;
    let mut relabelled = maps.get("relabelled").await.unwrap();
    relabelled.metadata.labels.as_mut().unwrap().insert("ebb.dev/attempt".to_owned(), "9".to_owned());
    maps.replace("relabelled", &PostParams::default(), &relabelled).await.unwrap();
    let secrets = fixture.api::<Secret>();
    merge(&secrets, "ebb-runs-1", json!({"metadata": {"labels": null}})).await;

    let all = list(&fixture).await;
    assert_eq!(all.errors, [""; 0]);
    let of = |unit: &str| all.tasks.iter().find(|summary| summary.task.unit == unit).unwrap();
    let seen = |unit: &str| -> Vec<(String, bool)> {
        of(unit).objects.iter().map(|it| (format!("{}/{}", it.kind, it.name), it.labelled)).collect()
    };
    assert_eq!(seen("kept"), [("ConfigMap/ours".to_owned(), true), ("ConfigMap/relabelled".to_owned(), true)]);
    assert_eq!(seen("runs").len(), 2, "a Job and its Secret: {:?}", of("runs"));
    assert_eq!((&*of("runs").phase, &*of("runs").instance), ("running", "instance-1"));
    assert!(of("runs").callback.ends_with("/v1/callbacks") && of("runs").age_ms < 150_000);
    let unmanaged: Vec<&str> = all.unmanaged.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(unmanaged, ["forged"], "pods belong to their Jobs, and the records contain the other objects");

    for unit in [&kept, &runs] {
        fixture.delete(unit).await;
    }
    assert_eq!(fixture.get(&runs).await, TaskState::Tombstoned);
    for map in ["ours", "relabelled"] {
        assert_eq!(maps.get_opt(map).await.unwrap(), None, "{map}");
    }
    assert_eq!(secrets.get_opt("ebb-runs-1").await.unwrap(), None);
    // A repeated deletion, and that of an unknown task.
    for unit in [kept, name("never", 1)] {
        assert_eq!(fixture.send(RelayRequest::Delete(unit)).await, RelayResponse::Done);
    }
    let remaining: Vec<_> = list(&fixture).await.tasks.into_iter().flat_map(|summary| summary.objects).collect();
    assert_eq!(remaining, []);
    maps.delete("forged", &DeleteParams::default()).await.expect("no task owns it");
    fixture.close().await;
}

/// The namespaces of `bind` have Secrets and ConfigMaps of tasks, and no other kinds.
#[tokio::test(flavor = "multi_thread")]
async fn bound_objects_without_a_record_are_listed() {
    let policy = |units: &str| json!({"namespaces": {units: []}, "bindNamespaces": [format!("bound-{units}")]});
    let fixture = RelayFixture::with_policy("bound", &[], policy).await;
    let bound = fixture.further_namespace("bound").await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), &bound);
    create(&maps, json!({"metadata": {"name": "left", "labels": {"ebb.dev/unit": "gone"}}})).await;
    let unmanaged = until("the relay's rights", async || {
        let all = list(&fixture).await;
        all.errors.is_empty().then_some(all.unmanaged)
    })
    .await;
    assert_eq!(unmanaged.iter().map(|it| it.object.name.as_str()).collect::<Vec<_>>(), ["left"]);
    Api::<Namespace>::all(fixture.client.clone()).delete(&bound, &DeleteParams::default()).await.unwrap();
    fixture.close().await;
}
