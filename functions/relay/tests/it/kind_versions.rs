//! A kind with two API versions, one of which the API server stops to serve.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, pinned_kind};

use crate::fixture::*;

/// The relay finds objects of a removed version by another one, checks their readiness and removes them.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_version_is_removed() {
    let group_of = |units: &str| format!("{units}.test.example");
    let policy = |units: &str| json!({"namespaces": {units: []}, "kinds": [format!("Thing.{}", group_of(units))]});
    let fixture = RelayFixture::with_policy("versions", &[], policy).await;
    let group = group_of(&fixture.units);
    fixture.grant(&[(&group, "things")]).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(fixture.client.clone());
    let mut definition = yaml(include_str!("kind_versions/definition.yaml"), &[("GROUP", &group)]);
    let definition_name = format!("things.{group}");
    let serve = async |definition: &Value| {
        let (parameters, patch) = (PatchParams::apply("tests"), Patch::Apply(definition));
        definitions.patch(&definition_name, &parameters, &patch).await.unwrap();
    };
    let kind = |version: &str| GroupVersionKind::gvk(&group, version, "Thing");
    let things = |version: &str| -> Api<DynamicObject> {
        Api::namespaced_with(fixture.client.clone(), &fixture.units, &ApiResource::from_gvk(&kind(version)))
    };
    let (first, second) = (things("v1"), things("v2"));
    serve(&definition).await;
    until("the kind", async || {
        pinned_kind(&fixture.client, &kind("v1")).await.ok()?;
        first.get_opt("none").await.ok()
    })
    .await;
    let [known, unknown, waits] = ["known", "unknown", "waits"].map(|unit| name(unit, 1));
    for unit in [&known, &unknown, &waits] {
        let thing = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": unit.unit}, "spec": {"done": "no"},
        });
        let rule = if *unit == waits { "object.spec.done == 'yes'" } else { "true" };
        let task = ObjectTask { keep: *unit != waits, until: ready_if(rule), ..objects(vec![thing]) };
        let response = fixture.apply(unit, task).await;
        assert!(matches!(response, RelayResponse::State(_)), "{response:?}");
    }
    for unit in [&known, &unknown] {
        fixture.success(unit).await;
    }
    definition["spec"]["versions"].as_array_mut().unwrap().remove(0);
    serve(&definition).await;
    until("the removal of the version", async || {
        let is_gone = first.get("waits").await.is_err();
        (is_gone && pinned_kind(&fixture.client, &kind("v1")).await.is_err()).then_some(())
    })
    .await;
    let remove = async |unit: &str| {
        fixture.remove(&[unit]).await;
        assert!(second.get_opt(unit).await.unwrap().is_none(), "{unit}");
    };
    remove("known").await;
    assert!(matches!(fixture.get(&waits).await, TaskState::Running { .. }));
    merge(&second, "waits", json!({"spec": {"done": "yes"}})).await;
    fixture.restart().await;
    fixture.success(&waits).await;
    until("the deletion", async || second.get_opt("waits").await.unwrap().is_none().then_some(())).await;
    remove("unknown").await;
    definitions.delete(&definition_name, &DeleteParams::default()).await.unwrap();
    fixture.close().await;
}
