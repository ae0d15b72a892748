//! Keeps the Secrets and ConfigMaps of an instance from other instances that name them.
//!
//! The relay judges an object by the label of its instance. Another instance can make the object later, so each record has
//! labels for the objects that its task reads and makes. At least one of two concurrent tasks finds the record of the other.

use std::collections::BTreeMap;

use ebb_kube::podspec::RESERVED_PREFIX;
use ebb_protocol::callback::ReasonCode;
use serde_json::Value;

use crate::names::{self, INSTANCE, MAKES, OUTPUT, PART, READS, TARGET};
use crate::{ObjectRef, Reconciler, Result, StepResult, TaskSpec, fail, objects, status};

/// Returns the Secrets and ConfigMaps that manifests name and are, with [`READS`] or [`MAKES`]. Ebb's own are left out:
/// the policy of the task lists those that it may name.
fn uses<'a>(manifests: &'a [Value], namespace: &'a str) -> impl Iterator<Item = (ObjectRef, &'static str)> {
    let named = manifests.iter().flat_map(move |manifest| {
        ebb_kube::podspec::references(manifest, manifest["metadata"]["namespace"].as_str().unwrap_or(namespace))
    });
    let read = named.map(|(kind, namespace, name)| {
        (ObjectRef { kind: kind.to_owned(), ..ObjectRef::secret(namespace, name) }, READS)
    });
    let all = read.chain(manifests.iter().map(|manifest| (ObjectRef::of(manifest), MAKES)));
    all.filter(|(it, _)| {
        let is_kind = it.api_version == "v1" && ["ConfigMap", "Secret"].contains(&it.kind.as_str());
        // No object has a name with other characters.
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let may_exist = |text: &String| !text.is_empty() && text.chars().all(is_plain);
        is_kind && !it.name.starts_with(RESERVED_PREFIX) && it.namespace.iter().chain([&it.name]).all(may_exist)
    })
}

/// Returns the labels of the record of a task. What the task makes and reads has [`MAKES`].
pub(crate) fn use_labels(manifests: &[Value], namespace: &str) -> BTreeMap<String, String> {
    uses(manifests, namespace).map(|(object_ref, what)| (object_ref.use_label(), what.to_owned())).collect()
}

impl Reconciler {
    /// Refuses a task that would read an object of another instance, or make one that objects of another instance name.
    pub(crate) async fn check_references(&self, spec: &TaskSpec) -> StepResult<()> {
        let instance = &spec.objects.instance;
        for (object_ref, what) in uses(&spec.objects.apply, &spec.namespace) {
            if what == MAKES {
                if let Some(owner) = self.store.other_user(&object_ref, READS, instance).await? {
                    let why = format!("{object_ref}: objects of {owner} name it and would read it");
                    return fail(ReasonCode::Denied, &format!("{why}; choose another name, or delete these objects"));
                }
                continue;
            }
            let object = match self.read(&object_ref).await {
                // Where the relay may not read objects of a kind, it makes none.
                Err(error) if status(&error) == Some(403) => continue,
                object => object?,
            };
            if let Some(owner) = self.foreign_owner(&object_ref, object.as_ref(), instance).await? {
                return fail(ReasonCode::Denied, &foreign(&object_ref, &owner));
            }
        }
        Ok(())
    }

    /// Returns another instance, for people, if the units of `instance` may not read its object. Of Ebb's own Secrets, they
    /// may read only the outputs of their instance.
    pub(crate) async fn foreign_owner(
        &self,
        object_ref: &ObjectRef,
        object: Option<&Value>,
        instance: &str,
    ) -> Result<Option<String>> {
        let label = |key: &str| object.and_then(|it| it["metadata"]["labels"][key].as_str());
        let is_reserved = object_ref.name.starts_with(RESERVED_PREFIX);
        let is_foreign = match label(INSTANCE) {
            Some(owner) => owner != instance || (is_reserved && label(PART) != Some(OUTPUT)),
            None if is_reserved => object.is_some(),
            // It is about to be made, or a person has removed the labels of an object that a relay has made.
            None if object.is_none_or(objects::is_managed) => {
                return self.store.other_user(object_ref, MAKES, instance).await;
            }
            None => false,
        };
        Ok(is_foreign.then(|| names::other_instance(label(TARGET))))
    }
}

/// Returns the error for an object that a unit may not read.
pub(crate) fn foreign(object_ref: &ObjectRef, owner: &str) -> String {
    let fix = "name a Secret or ConfigMap of this target, or one that no unit has made";
    format!("{object_ref}: it belongs to {owner}; {fix}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_api::{TestApi, rows};

    #[tokio::test]
    async fn objects_of_other_instances_are_foreign() {
        let server = TestApi::silent();
        let relay = server.relay().await;
        // The server lists this record as that of another instance, whatever is selected.
        let records = json!([{"metadata": {"name": "r", "labels": {TARGET: "sandbox.b"}}}]);
        server.objects.lock().unwrap().get_mut("secrets").unwrap()["items"] = records;
        let rows = rows::<(String, Value, String, Option<String>)>("objects_of_other_instances_are_foreign");
        for (name, labels, manager, expected) in rows {
            let object = json!({"metadata": {"labels": labels, "managedFields": [{"manager": manager}]}});
            let found = relay.inner.foreign_owner(&ObjectRef::secret("n", &name), Some(&object), "own").await.unwrap();
            assert_eq!(found, expected, "{name} {object}");
        }
        let pod = json!({"imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "ebb-a"}, {"name": "a b"}]});
        let made = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b", "namespace": "n"}});
        let expected = [("a", READS), ("b", MAKES)];
        let expected = expected.map(|(name, what)| (ObjectRef::secret("n", name).use_label(), what.to_owned()));
        assert_eq!(use_labels(&[made, pod], "n"), expected.into());
    }
}
