//! Strategic merge patches of pod templates. `ebb_kube::podspec` and the API server produce the same result, or both reject the
//! patch. The cases leave out the differences that `ebb_kube::podspec::strategic` documents.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;
use serde::Deserialize;

use crate::fixture::*;
use crate::rights::client;

#[derive(Deserialize)]
struct ServerMergeCases {
    base: Value,
    patches: BTreeMap<String, Value>,
}

/// A template that the API server returned, or the causes and fields of its rejection.
type MergeOutcome = Result<Value, Vec<String>>;

fn outcome(response: Result<DynamicObject, kube::Error>, at: &str) -> MergeOutcome {
    match response {
        Ok(object) => {
            let mut template = object.data.pointer(at).unwrap().clone();
            template["metadata"].as_object_mut().map(|it| it.remove("creationTimestamp"));
            Ok(template)
        }
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let mut fields: Vec<_> = causes.map(|cause| format!("{} {}", cause.reason, cause.field)).collect();
            fields.sort();
            Err(fields)
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn merges_equal_those_of_the_api_server() {
    let client = client().await;
    let namespace = format!("merges-{:08x}", rand::random::<u32>());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let manifest = json!({"metadata": {"name": namespace}});
    create(&namespaces, manifest).await;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let dry_patch = PatchParams { dry_run: true, ..PatchParams::default() };
    let (mut wrong, mut count, mut rejected) = (Vec::new(), 0, 0);
    for (number, text) in
        [include_str!("../../../../shared/kube/tests/merges/cases.yaml"), include_str!("merges/cases.yaml")]
            .into_iter()
            .enumerate()
    {
        let cases: ServerMergeCases = serde_saphyr::from_str(text).unwrap();
        for (version, kind, at) in [("v1", "PodTemplate", "/template"), ("apps/v1", "Deployment", "/spec/template")] {
            let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
            let kind = GroupVersionKind::gvk(group, version, kind);
            let (resource, _) = oneshot::pinned_kind(&client, &kind).await.unwrap();
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
            let name = format!("base-{number}");
            let mut base = cases.base.clone();
            let mut manifest =
                json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}});
            if kind.kind == "Deployment" {
                base["spec"]["restartPolicy"] = "Always".into();
                manifest["spec"] =
                    json!({"replicas": 0, "selector": {"matchLabels": {"app": "unit"}}, "template": base});
            } else {
                manifest["template"] = base;
            }
            let created = create(&api, manifest).await;
            let mut base = created.data.pointer(at).unwrap().clone();
            base["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
            for (title, patch) in &cases.patches {
                let mut whole = json!({});
                let mut inner = &mut whole;
                for key in at.split('/').skip(1) {
                    inner = &mut inner[key];
                }
                *inner = patch.clone();
                let theirs = outcome(api.patch(&name, &dry_patch, &Patch::Strategic(whole)).await, at);
                let mut ours = created.clone();
                *ours.data.pointer_mut(at).unwrap() = ebb_kube::podspec::strategic(&base, patch);
                ours.metadata.resource_version = None;
                ours.metadata.managed_fields = None;
                // The API server adds defaults, as it does after a merge.
                let ours = outcome(api.replace(&name, &dry_run, &ours).await, at);
                count += 1;
                rejected += usize::from(theirs.is_err());
                if ours != theirs {
                    wrong.push(format!("{}, {title}\n  ours   {ours:?}\n  theirs {theirs:?}", kind.kind));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rejected * 4 < count, "{rejected} of {count} are rejected: the cases compare too little");
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
}
