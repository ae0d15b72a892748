//! `Release` deletes the sensitive outputs of an instance in all namespaces.

use crate::fixture::*;
use crate::rights::{grant_role, rights, rule_for};

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
    for namespace in [none, read, all] {
        create(&namespaces, json!({"metadata": {"name": namespace}})).await;
    }
    let maps = || json!([rule_for("", "configmaps")]);
    let reads = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
    for (namespace, name, rules) in
        [(all, "units", json!(rights().units)), (all, "further", maps()), (read, "reads", reads)]
    {
        grant_role(client, units, namespace, name, rules).await;
    }
    let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
    for (unit, namespace, instance) in
        [("own", units, "instance-1"), ("there", all, "instance-1"), ("theirs", all, "instance-2")]
    {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unit}, "data": {"a": "hunter2"}});
        let task = ObjectTask {
            instance: instance.to_owned(),
            namespace: Some(namespace.to_owned()),
            outputs: vec![output("kept", "object.data.a", "", true)],
            ..objects(vec![map])
        };
        let unit = name(unit, 1);
        until("the relay's rights", async || match fixture.apply(&unit, task.clone()).await {
            RelayResponse::State(TaskState::Running { .. } | TaskState::Ended(_)) => Some(()),
            RelayResponse::Refused(_) => None,
            other => panic!("{other:?}"),
        })
        .await;
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

/// The policy no longer lists a namespace, and the relay has no rights there.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_without_rights_is_named() {
    let former_of = |units: &str| format!("former-{units}");
    let policy = |units: &str| json!({"namespaces": {units: [], (former_of(units)): []}});
    let fixture = RelayFixture::with_policy("lost", &[], policy).await;
    let former = former_of(&fixture.units);
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    create(&namespaces, json!({"metadata": {"name": former}})).await;
    fixture.replace_policy(&format!("namespaces: {{{}: []}}", fixture.units));
    let why = format!("no rights in the namespace `{former}` any more");
    until("the new policy", async || match fixture.release("instance-1").await {
        RelayResponse::Unavailable(message) => message.contains(&why).then_some(()),
        other => panic!("{other:?}"),
    })
    .await;
    let after = Some("unmanaged".to_owned());
    let RelayResponse::Listing(listing) = fixture.send(RelayRequest::List { after }).await else {
        panic!("no listing")
    };
    let error = format!("Secret in {former}: the relay has no rights there any more");
    assert!(listing.errors.contains(&error), "{listing:?}");
    // The operator has deleted what may remain, and no record names the namespace.
    fixture.restart().await;
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
    namespaces.delete(&former, &DeleteParams::default()).await.unwrap();
    fixture.close().await;
}

/// A sensitive output outlives the record of its task, the entry of its namespace in the policy, and the relay.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_outside_of_the_policy_are_released_after_a_restart() {
    let former_of = |units: &str| format!("former-{units}");
    let policy = |units: &str| json!({"namespaces": {units: [], (former_of(units)): []}, "kinds": ["ConfigMap"]});
    let fixture = RelayFixture::with_policy("outlives", &[], policy).await;
    let (client, units, former) = (&fixture.client, &*fixture.units, former_of(&fixture.units));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": former}})).await;
    for (role, rules) in [("units", json!(rights().units)), ("further", json!([rule_for("", "configmaps")]))] {
        grant_role(client, units, &former, role, rules).await;
    }
    let unit = name("unit", 1);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": "hunter2"}});
    let task = ObjectTask {
        namespace: Some(former.clone()),
        outputs: vec![output("kept", "object.data.a", "", true)],
        ..objects(vec![map])
    };
    until("the relay's rights", async || match fixture.apply(&unit, task.clone()).await {
        RelayResponse::State(_) => Some(()),
        RelayResponse::Refused(_) => None,
        other => panic!("{other:?}"),
    })
    .await;
    let kept = fixture.result(&unit).await.secrets["kept"].name.clone();
    until("the tombstone", async || (fixture.get(&unit).await == TaskState::Tombstoned).then_some(())).await;
    fixture.replace_policy(&format!("namespaces: {{{units}: []}}"));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &former);
    let records = fixture.records();
    let named = format!("ebb-namespace.{former}");
    // The relay looks there until it starts without an output.
    for is_kept in [true, false] {
        fixture.restart().await;
        assert_eq!(secrets.get_opt(&kept).await.unwrap().is_some(), is_kept);
        assert_eq!(records.get_opt(&named).await.unwrap().is_some(), is_kept);
        assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
        assert!(secrets.get_opt(&kept).await.unwrap().is_none());
    }
    namespaces.delete(&former, &DeleteParams::default()).await.unwrap();
    fixture.close().await;
}
