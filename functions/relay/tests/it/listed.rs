//! Lists of tasks in the relay's records, of objects without a record, and tasks that are never requested again.

use ebb_protocol::listing::ClusterListing;

use crate::fixture::*;

/// All pages together.
async fn list(fixture: &RelayFixture) -> ClusterListing {
    let mut all = ClusterListing::default();
    loop {
        let after = all.next_token.take();
        let RelayResponse::Listing(page) = fixture.ask(RelayRequest::List { after }).await else {
            panic!("no listing")
        };
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
async fn listed_and_deleted() {
    let fixture = RelayFixture::new("listed", &[]).await;
    let RelayResponse::About(about) = fixture.ask(RelayRequest::About).await else {
        panic!("it does not say what it is")
    };
    assert_eq!((&*about.version, about.tasks), (env!("CARGO_PKG_VERSION"), 0));
    let (made, runs) = (name("made", 1), name("runs", 1));
    let work = objects(vec![config_map("ours"), config_map("relabelled")]);
    fixture.apply(&made, ObjectTask { keep: true, ..work }).await;
    fixture.result(&made).await;
    fixture.run(&runs, ScriptJob::new(&runs, "echo up; sleep 1000")).await;
    fixture.printed(&runs, "up").await;
    // A foreign object with our labels, and an object of ours whose labels were changed.
    let maps = fixture.api::<ConfigMap>();
    let labels = json!({"ebb.dev/unit": "made", "ebb.dev/attempt": "1", "ebb.dev/instance": "instance-1"});
    create(&maps, json!({"metadata": {"name": "forged", "labels": labels}})).await;
    let mut relabelled = maps.get("relabelled").await.unwrap();
    relabelled.metadata.labels.as_mut().unwrap().insert("ebb.dev/attempt".to_owned(), "9".to_owned());
    maps.replace("relabelled", &PostParams::default(), &relabelled).await.unwrap();

    let all = list(&fixture).await;
    assert_eq!(all.errors, [""; 0]);
    let of = |unit: &str| all.tasks.iter().find(|work| work.task.unit == unit).unwrap();
    let seen = |unit: &str| -> Vec<(String, bool)> {
        of(unit).objects.iter().map(|it| (format!("{}/{}", it.kind, it.name), it.labelled)).collect()
    };
    assert_eq!(seen("made"), [("ConfigMap/ours".to_owned(), true), ("ConfigMap/relabelled".to_owned(), false)]);
    assert_eq!(seen("runs").len(), 2, "a Job and its Secret: {:?}", of("runs"));
    assert_eq!((&*of("runs").phase, &*of("runs").instance), ("running", "instance-1"));
    assert!(of("runs").callback.ends_with("/v1/callbacks") && of("runs").age_ms < 150_000);
    let unmanaged: Vec<&str> = all.unmanaged.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(unmanaged, ["forged"], "pods go with their Jobs, and records know the others");

    for unit in [&made, &runs] {
        until("it to be deleted", async || {
            (fixture.ask(RelayRequest::Delete(unit.clone())).await == RelayResponse::Done).then_some(())
        })
        .await;
    }
    assert_eq!(fixture.get(&runs).await, TaskState::Tombstoned);
    assert!(maps.get_opt("ours").await.unwrap().is_none());
    // Once more, and of what never was.
    for unit in [made, name("never", 1)] {
        assert_eq!(fixture.ask(RelayRequest::Delete(unit)).await, RelayResponse::Done);
    }
    let left: Vec<_> = list(&fixture).await.tasks.into_iter().flat_map(|work| work.objects).collect();
    assert_eq!(left, []);
    for name in ["forged", "relabelled"] {
        maps.delete(name, &DeleteParams::default()).await.expect("no task owns it");
    }
    fixture.close().await;
}
