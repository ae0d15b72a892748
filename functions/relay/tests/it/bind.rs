//! Objects of `bind`: they get values that only the cluster has, and change in place.

use crate::fixture::*;

fn secret(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": data})
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    Some(String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).unwrap())
}

fn policy(units: &str) -> Value {
    let kinds = ["ConfigMap"];
    json!({"podSecurityLevel": "restricted", "namespaces": {units: []}, "kinds": kinds, "bindNamespaces": [units]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_secret_changes_in_place() {
    let fixture = RelayFixture::with_policy("bind", &[], policy).await;
    let made = name("make", 1);
    let outputs = vec![output("dsn", "'hunter2'", "", true)];
    let source = ObjectTask { outputs, ..objects(vec![config_map("source")]) };
    let kept = fixture.succeed(&made, source).await.secrets["dsn"].clone();
    let fill = || vec![ManifestFill { manifest: 0, key: "DSN".to_owned(), secret: kept.clone() }];
    let bound = |adopts: &[&str], data: Value| ObjectTask {
        bind: true,
        keep: true,
        fill: fill(),
        adopts: adopts.iter().map(|&unit| unit.to_owned()).collect(),
        ..objects(vec![secret(data)])
    };
    let (one, two, other) = (name("one", 1), name("two", 1), name("other", 1));
    fixture.succeed(&one, bound(&[], json!({"OLD": "eA=="}))).await;
    let secrets = fixture.api::<Secret>();
    let first = secrets.get("db").await.unwrap();
    let texts = |secret: &Secret| ["DSN", "OLD", "NEW"].map(|key| text(secret, key).unwrap_or_default());
    assert_eq!(texts(&first), ["hunter2", "x", ""]);
    // A person has changed a value. The next unit takes it over.
    merge(&secrets, "db", json!({"data": {"DSN": "ZWRpdGVk"}})).await;

    let refused = |response: RelayResponse, why: &str| {
        assert!(matches!(&response, RelayResponse::Refused(text) if text.contains(why)), "{why}: {response:?}");
    };
    refused(fixture.apply(&other, bound(&[], json!({}))).await, "does not belong to this task");
    fixture.succeed(&two, bound(&["one"], json!({"NEW": "eQ=="}))).await;
    let second = secrets.get("db").await.unwrap();
    assert_eq!((second.uid(), texts(&second)), (first.uid(), ["hunter2", "", "y"].map(str::to_owned)));

    // The object belongs to the unit that took it over.
    for (unit, remains) in [("one", true), ("two", false)] {
        fixture.remove(&[unit]).await;
        assert_eq!(secrets.get_opt("db").await.unwrap().is_some(), remains, "{unit}");
    }

    let mut elsewhere = bound(&[], json!({}));
    elsewhere.apply[0]["metadata"]["namespace"] = "default".into();
    refused(fixture.apply(&other, elsewhere).await, "`bindNamespaces`");
    let in_map = ObjectTask { bind: true, fill: fill(), ..objects(vec![config_map("db")]) };
    refused(fixture.apply(&other, in_map).await, "which is not a Secret");
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
    fixture.close().await;
}

/// A person changes or removes the labels of Secrets. Their units remove them by the recorded UIDs.
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_a_person_has_relabelled_are_removed() {
    let fixture = RelayFixture::with_policy("relabelled", &[], policy).await;
    let secrets = fixture.api::<Secret>();
    let bound = |object: &str, adopts: &str| {
        let mut manifest = secret(json!({"PASSWORD": "eA=="}));
        manifest["metadata"]["name"] = object.into();
        let adopts = adopts.split_whitespace().map(str::to_owned).collect();
        ObjectTask { bind: true, keep: true, adopts, ..objects(vec![manifest]) }
    };
    let alone = ["bare", "changed", "replaced"].map(|unit| (unit, unit, ""));
    let made = alone.into_iter().chain([("one", "shared", ""), ("two", "shared", "one")]);
    for (unit, object, adopts) in made.clone() {
        fixture.succeed(&name(unit, 1), bound(object, adopts)).await;
    }
    let script = name("script", 1);
    let outputs = vec![output("password", "'hunter2'", "", true)];
    let source = ObjectTask { outputs, ..objects(vec![config_map("source")]) };
    let kept = fixture.succeed(&script, source).await.secrets["password"].name.clone();

    secrets.delete("replaced", &DeleteParams::default()).await.unwrap();
    create(&secrets, json!({"metadata": {"name": "replaced"}})).await;
    for (object, unit) in [("bare", Value::Null), ("changed", json!("by-hand")), ("shared", Value::Null)] {
        merge(&secrets, object, json!({"metadata": {"labels": {"ebb.dev/unit": unit}}})).await;
    }
    merge(&secrets, &kept, json!({"metadata": {"labels": {"ebb.dev/unit": null}}})).await;

    // The unit that took over an object removes it, and an object with another UID stays.
    for (unit, object, _) in made {
        fixture.remove(&[unit]).await;
        let remains = !["bare", "changed", "two"].contains(&unit);
        assert_eq!(secrets.get_opt(object).await.unwrap().is_some(), remains, "{unit}");
    }
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
    assert_eq!(secrets.get_opt(&kept).await.unwrap(), None);
    fixture.close().await;
}
