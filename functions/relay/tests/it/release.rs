//! `Release` deletes the sensitive outputs of an instance in all namespaces.

use crate::fixture::*;
use crate::rights::{grant_role, rights};

/// The response names objects that cannot be deleted. All others are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn release_deletes_sensitive_outputs_in_all_namespaces() {
    // In this order: a namespace without rights, one with the right to read, that of units, and another with all rights.
    let namespaces_of =
        |units: &str| [format!("none-{units}"), format!("read-{units}"), units.to_owned(), format!("all-{units}")];
    let fixture = RelayFixture::with_policy("release", &[], |units| {
        let namespaces = serde_json::Map::from_iter(namespaces_of(units).map(|namespace| (namespace, json!([]))));
        json!({"namespaces": namespaces, "kinds": ["ConfigMap"]})
    })
    .await;
    let (client, units) = (&fixture.client, &*fixture.units);
    let every = namespaces_of(units);
    let [none, read, _, all] = &every;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in [none, read] {
        create(&namespaces, json!({"metadata": {"name": namespace}})).await;
    }
    assert_eq!(fixture.further_namespace("all").await, *all);
    let reads = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
    grant_role(client, units, read, "reads", reads).await;
    let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
    for (unit, namespace, instance) in
        [("own", units, "instance-1"), ("there", all, "instance-1"), ("theirs", all, "instance-2")]
    {
        let task = keeping(unit, namespace, instance);
        let unit = name(unit, 1);
        fixture.apply_with_rights(&unit, task).await;
        let kept = &fixture.result(&unit).await.secrets["kept"];
        assert_eq!(kept.namespace.as_deref(), Some(namespace));
        secrets(namespace).get(&kept.name).await.unwrap();
    }
    // Outputs from a time when the relay had all rights in these namespaces.
    let labels = json!({"ebb.dev/instance": "instance-1", "ebb.dev/part": "output"});
    for namespace in [none, read] {
        create(&secrets(namespace), json!({"metadata": {"name": "old", "labels": labels}})).await;
    }
    let remaining = async || {
        let mut remaining = Vec::new();
        for namespace in &every {
            let found = secrets(namespace).list(&ListParams::default().labels("ebb.dev/part=output")).await;
            remaining.extend(found.unwrap().iter().map(|it| it.name_any()));
        }
        remaining
    };
    let rejected = until("the right to read", async || match fixture.release("instance-1").await {
        RelayResponse::Unavailable(message) if message.contains("cannot delete resource") => Some(message),
        RelayResponse::Unavailable(_) => None,
        other => panic!("{other:?}"),
    });
    let why = rejected.await;
    assert_eq!([none, read, all].map(|namespace| why.contains(namespace.as_str())), [true, true, false], "{why}");
    assert_eq!(remaining().await, ["old", "old", "ebb-output.theirs.1.0"]);
    for namespace in [none, read] {
        grant_role(client, units, namespace, "units", json!(rights().units)).await;
    }
    until("the deletion of the rest", async || {
        (fixture.release("instance-1").await == RelayResponse::Done).then_some(())
    })
    .await;
    assert_eq!(remaining().await, ["ebb-output.theirs.1.0"]);
    assert_eq!((fixture.release("instance-2").await, remaining().await.len()), (RelayResponse::Done, 0));
    for namespace in [none, read, all] {
        namespaces.delete(namespace, &DeleteParams::default()).await.unwrap();
    }
    fixture.close().await;
}

fn keeping(object: &str, namespace: &str, instance: &str) -> ObjectTask {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": object}, "data": {"a": "hunter2"}});
    ObjectTask {
        instance: instance.to_owned(),
        namespace: Some(namespace.to_owned()),
        outputs: vec![output("kept", "object.data.a", "", true)],
        ..objects(vec![map])
    }
}

/// A new policy lists no namespace. Tasks that run are read, listed and removed. A sensitive output outlives the record of
/// its task and the relay in one namespace. In another one, the relay has no rights any more.
#[tokio::test(flavor = "multi_thread")]
async fn namespaces_outside_of_the_policy_are_released() {
    let policy = |units: &str| {
        let former = format!("former-{units}");
        json!({"namespaces": {units: [], (former): []}, "kinds": ["ConfigMap", "Job.batch"]})
    };
    let fixture = RelayFixture::with_policy("outlives", &[], policy).await;
    let (client, units, denied) = (&fixture.client, &*fixture.units, format!("denied-{}", fixture.units));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": denied}})).await;
    let former = fixture.further_namespace("former").await;
    let unit = name("unit", 1);
    fixture.apply_with_rights(&unit, keeping("map", &former, "instance-1")).await;
    let kept = fixture.result(&unit).await.secrets["kept"].name.clone();
    until("the tombstone", async || (fixture.get(&unit).await == TaskState::Tombstoned).then_some(())).await;
    let (runs, new) = (name("runs", 1), name("new", 1));
    fixture.run(&runs, ScriptJob::new(&runs, "echo up; sleep 1000")).await;
    fixture.wait_for_log(&runs, "up").await;
    // A former relay has kept an output in the other namespace.
    let (records, [former_outputs, denied_outputs]) =
        (fixture.records(), [&former, &denied].map(|namespace| format!("ebb-namespace.{namespace}")));
    let labels = json!({"ebb.dev/part": "namespace"});
    create(&records, json!({"metadata": {"name": denied_outputs, "labels": labels}})).await;
    fixture.replace_policy("kinds: [Job.batch]");
    fixture.restart().await;
    let refused = format!(
        "the namespace `{units}` is not allowed by the policy of the cluster (`namespaces`: none); ask its operator to \
         run: ebb cluster connect NAME --apply --namespace {units}:baseline"
    );
    assert_eq!(fixture.apply(&new, script(&new, "#")).await, RelayResponse::Refused(refused));
    assert!(matches!(fixture.get(&runs).await, TaskState::Running { .. }));
    let listed = fixture.send(RelayRequest::List { after: None }).await;
    assert!(matches!(&listed, RelayResponse::Listing(listing) if listing.tasks[0].objects.len() == 2), "{listed:?}");
    fixture.delete(&runs).await;
    let RelayResponse::Unavailable(why) = fixture.release("instance-2").await else { panic!("it can read all") };
    assert!(why.contains(&format!("no rights in the namespace `{denied}` any more")), "{why}");
    let after = Some("unmanaged".to_owned());
    let RelayResponse::Listing(listing) = fixture.send(RelayRequest::List { after }).await else { panic!("no list") };
    let error = format!("Secret in {denied}: the relay has no rights there any more");
    assert!(listing.errors.contains(&error), "{listing:?}");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &former);
    // The operator deletes what may remain in one namespace. In the other one, the relay looks until its start.
    records.delete(&denied_outputs, &DeleteParams::default()).await.unwrap();
    for is_kept in [true, false] {
        fixture.restart().await;
        assert_eq!(secrets.get_opt(&kept).await.unwrap().is_some(), is_kept);
        assert_eq!(records.get_opt(&former_outputs).await.unwrap().is_some(), is_kept);
        assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
        assert!(secrets.get_opt(&kept).await.unwrap().is_none());
    }
    for namespace in [&former, &denied] {
        namespaces.delete(namespace, &DeleteParams::default()).await.unwrap();
    }
    fixture.close().await;
}
