//! The sensitive outputs of an instance, in whichever namespaces they are.

use ebb_protocol::relay::{ObjectOutput, ObjectOutputFrom};

use crate::fixture::*;
use crate::rights::{further, give, rights};

/// The response names objects that cannot be deleted. All others are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn released() {
    // In this order: one that it may not look into, one where it may not delete, its own, one more.
    let of = |units: &str| [format!("no-{units}"), format!("only-{units}"), units.to_owned(), format!("then-{units}")];
    let fixture = RelayFixture::allowing("released", &[], |units| {
        let namespaces = serde_json::Map::from_iter(of(units).map(|namespace| (namespace, json!([]))));
        json!({"namespaces": namespaces, "kinds": ["ConfigMap"]})
    })
    .await;
    let (client, units) = (&fixture.client, &*fixture.units);
    let all = of(units);
    let [no, only, _, then] = &all;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in [no, only, then] {
        create(&namespaces, json!({"metadata": {"name": namespace}})).await;
    }
    let maps = || json!([further("", "configmaps")]);
    let looks = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
    for (namespace, name, rules) in
        [(then, "units", json!(rights().units)), (then, "further", maps()), (only, "looks", looks)]
    {
        give(client, units, namespace, name, rules).await;
    }
    let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
    for (unit, namespace, life) in
        [("own", units, "instance-1"), ("there", then, "instance-1"), ("theirs", then, "instance-2")]
    {
        let output = ObjectOutput {
            name: "kept".to_owned(),
            from: ObjectOutputFrom::Value("object.data.a".to_owned()),
            sensitive: true,
        };
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unit}, "data": {"a": "hunter2"}});
        let work = ObjectTask {
            instance: life.to_owned(),
            namespace: Some(namespace.to_owned()),
            outputs: vec![output],
            ..objects(vec![map])
        };
        let unit = name(unit, 1);
        until("its rights", async || match fixture.apply(&unit, work.clone()).await {
            RelayResponse::State(TaskState::Running { .. } | TaskState::Ended(_)) => Some(()),
            RelayResponse::Refused(_) => None,
            other => panic!("{other:?}"),
        })
        .await;
        let kept = &fixture.result(&unit).await.secrets["kept"];
        assert_eq!(kept.namespace.as_deref(), Some(namespace));
        secrets(namespace).get(&kept.name).await.unwrap();
    }
    // Of a time when it had all rights there.
    let labels = json!({"ebb.dev/instance": "instance-1", "ebb.dev/part": "output"});
    for namespace in [no, only] {
        create(&secrets(namespace), json!({"metadata": {"name": "old", "labels": labels}})).await;
    }
    let left = async || {
        let mut left = Vec::new();
        for namespace in &all {
            let found = secrets(namespace).list(&ListParams::default().labels("ebb.dev/part=output")).await;
            left.extend(found.unwrap().iter().map(|it| it.name_any()));
        }
        left
    };
    let refused = until("the right to look", async || match fixture.release("instance-1").await {
        RelayResponse::Unavailable(why) if why.contains("cannot delete resource") => Some(why),
        RelayResponse::Unavailable(_) => None,
        other => panic!("{other:?}"),
    });
    let why = refused.await;
    assert!(why.contains(no.as_str()) && why.contains(only.as_str()) && !why.contains(then.as_str()), "{why}");
    assert_eq!(left().await, ["old", "old", "ebb-output.theirs.1.0"]);
    for namespace in [no, only] {
        give(client, units, namespace, "units", json!(rights().units)).await;
    }
    until("the rest to go", async || (fixture.release("instance-1").await == RelayResponse::Done).then_some(())).await;
    assert_eq!(left().await, ["ebb-output.theirs.1.0"]);
    assert_eq!((fixture.release("instance-2").await, left().await.len()), (RelayResponse::Done, 0));
    for namespace in [no, only, then] {
        namespaces.delete(namespace, &DeleteParams::default()).await.unwrap();
    }
    fixture.close().await;
}
