//! Reads, applies and deletes objects.

pub(crate) mod documents;
mod list;
pub(crate) mod references;

use ebb_protocol::relay::{TaskId, TaskWait};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::api_server::client;
use crate::api_server::discovery::ResourceKind;
use crate::names::{self, MANAGER};
use crate::observe::blockers::millis_at;
use crate::{AppliedObject, ObjectRef, ReconcileError, Reconciler, Result, TaskRecord, now_ms, status, task_waits};

impl Reconciler {
    pub(crate) async fn read(&self, object_ref: &ObjectRef) -> kube::Result<Option<Value>> {
        let Some(api) = self.discovery.api_for(object_ref).await? else { return Ok(None) };
        let found = match client::retry_forbidden(&self.client, || api.get(&object_ref.name)).await {
            Err(error) if status(&error) == Some(404) && !names_object(&error, &object_ref.name) => {
                // The 404 is about the kind or its version, not about the object.
                self.discovery.forget(object_ref);
                let Some(api) = self.discovery.api_for(object_ref).await? else { return Ok(None) };
                client::retry_forbidden(&self.client, || api.get(&object_ref.name)).await
            }
            found => found,
        };
        match found {
            // An object that was read can be serialized.
            Ok(object) => Ok(Some(serde_json::to_value(object).unwrap_or_default())),
            Err(error) if status(&error) == Some(404) => Ok(None),
            // The rights in a namespace are deleted with it.
            Err(error) => {
                let is_gone = self.is_namespace_missing(object_ref.namespace.as_deref(), &error).await;
                if is_gone { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Lists objects of a namespace, or cluster-wide ones.
    pub(crate) async fn read_all(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        which: &ListParams,
    ) -> kube::Result<Vec<Value>> {
        let api: Api<DynamicObject> = kind.api(&self.client, Some(namespace));
        let values = api.list(which).await?.items.into_iter().map(|object| {
            let mut object = serde_json::to_value(object).unwrap_or_default();
            // A list has the kind once for all items.
            object["apiVersion"] = kind.resource.api_version.clone().into();
            object["kind"] = kind.resource.kind.clone().into();
            object
        });
        Ok(values.collect())
    }

    async fn served_api(&self, object_ref: &ObjectRef) -> kube::Result<Api<DynamicObject>> {
        let kind = self.discovery.find(&object_ref.api_version, &object_ref.kind).await?;
        let missing = || kube::Error::Discovery(kube::error::DiscoveryError::MissingKind(object_ref.to_string()));
        Ok(kind.ok_or_else(missing)?.api(&self.client, object_ref.namespace.as_deref()))
    }

    /// Applies a manifest to an object of the task, or creates it. Takes over fields of others. Returns the UID.
    pub(crate) async fn apply(&self, object_ref: &ObjectRef, manifest: &Value) -> kube::Result<String> {
        let api = self.served_api(object_ref).await?;
        let (how, patch) = (PatchParams::apply(MANAGER).force().validation_strict(), Patch::Apply(manifest));
        let applied = client::retry_forbidden(&self.client, || api.patch(&object_ref.name, &how, &patch)).await?;
        Ok(applied.uid().unwrap_or_default())
    }

    /// Creates an object and returns its UID. Fails with 409 if the object exists.
    pub(crate) async fn create(&self, object_ref: &ObjectRef, manifest: &Value) -> kube::Result<String> {
        let api = self.served_api(object_ref).await?;
        // A request by hand. The client's `create` drops unknown fields, but they must be refused, as by `apply`.
        let url = format!("{}?fieldManager={MANAGER}&fieldValidation=Strict", api.resource_url());
        let request = http::Request::post(url).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(manifest.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        Ok(self.client.request::<DynamicObject>(request).await?.uid().unwrap_or_default())
    }

    /// Replaces the object of a lower attempt and returns its UID. Fields that only the lower attempt set are removed.
    /// Fails with 409 if the object was changed or replaced since it was read.
    pub(crate) async fn replace_lower(
        &self,
        object_ref: &ObjectRef,
        object: &Value,
        manifest: &Value,
    ) -> kube::Result<String> {
        let mut version = object["metadata"]["resourceVersion"].clone();
        if let Some(managed) = as_apply_managed(&object["metadata"]["managedFields"]) {
            let patch = json!({"metadata": {
                "uid": uid(object), "resourceVersion": version, "managedFields": managed,
            }});
            let api = self.served_api(object_ref).await?;
            let patched = api.patch(&object_ref.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            version = json!(patched.resource_version());
        }
        let mut manifest = manifest.clone();
        manifest["metadata"]["uid"] = uid(object).into();
        manifest["metadata"]["resourceVersion"] = version;
        self.apply(object_ref, &manifest).await
    }

    /// Deletes the object of a lower attempt and its dependents. The object may exist for some time.
    pub(crate) async fn delete_lower(&self, object_ref: &ObjectRef, object: &Value) -> kube::Result<()> {
        let Some(api) = self.discovery.api_for(object_ref).await? else { return Ok(()) };
        delete_uid(&api, &object_ref.name, uid(object).to_owned(), DeleteParams::foreground()).await
    }

    /// Decides whether an existing object is that of a task. `recorded` is its UID in the record of the task, or empty if
    /// a relay was killed before it recorded the UID. A person can change the labels of an object that is the task's own.
    pub(crate) async fn identify(&self, name: &TaskId, recorded: &str, object: &Value) -> Result<ObjectIdentity> {
        let (uid, labelled) = (uid(object), owner(object));
        let is_recorded = !recorded.is_empty();
        if is_recorded && uid != recorded {
            return Ok(ObjectIdentity::Other);
        }
        if labelled.as_ref() == Some(name) {
            return Ok(ObjectIdentity::Own);
        }
        // An object that another task has taken over keeps its UID, which is in the records of both tasks.
        let may_own = |record: &TaskRecord| record.name != *name && (!is_recorded || record.takes_over(name));
        let has_uid = |record: &TaskRecord| record.applied().iter().any(|applied| applied.uid == uid);
        if let Some(labelled) = labelled {
            let records = self.store.list(&labelled.unit).await?;
            // An open task may not have recorded the UID yet.
            let owns = |it: &TaskRecord| it.name == labelled && may_own(it) && (it.phase.is_open() || has_uid(it));
            if records.iter().any(owns) {
                return Ok(ObjectIdentity::Other);
            }
        }
        if !is_recorded {
            match object["metadata"]["annotations"][names::RUN].as_str() {
                _ if !is_managed(object) => return Ok(ObjectIdentity::Other),
                Some(run) if run != names::run(name) => return Ok(ObjectIdentity::Other),
                Some(_) => {}
                None => return Ok(ObjectIdentity::Undecided),
            }
        }
        // All records are read once only: an object that is being deleted is lost for each of its tasks.
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(ObjectIdentity::Own);
        }
        let owners = self.store.collect(None, |record| (may_own(&record) && has_uid(&record)).then_some(())).await?;
        Ok(if owners.is_empty() { ObjectIdentity::Own } else { ObjectIdentity::Other })
    }

    /// Deletes an applied object and its dependents if it is still that of the task. Returns a wait if it still exists.
    pub(crate) async fn delete(&self, name: &TaskId, applied: &AppliedObject) -> Result<Option<TaskWait>> {
        let AppliedObject { object_ref, uid: recorded, .. } = applied;
        let Some(object) = self.read(object_ref).await? else { return Ok(None) };
        if !recorded.is_empty() && uid(&object) != recorded && owner(&object).as_ref() == Some(name) {
            return Ok(Some(task_waits::restored(object_ref, recorded, uid(&object))));
        }
        match self.identify(name, recorded, &object).await? {
            ObjectIdentity::Own => {}
            ObjectIdentity::Other => return Ok(None),
            ObjectIdentity::Undecided => return Ok(Some(task_waits::undecided(object_ref, name))),
        }
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Some(self.deletion_wait(object_ref, &object).await));
        }
        let Some(api) = self.discovery.api_for(object_ref).await? else { return Ok(None) };
        delete_uid(&api, &object_ref.name, uid(&object).to_owned(), DeleteParams::foreground()).await?;
        Ok(Some(task_waits::wait(object_ref, "its deletion has begun")))
    }

    /// Deletes applied objects, the last one first. Returns the waits for those that still exist, in their order.
    pub(crate) async fn delete_all<'a>(
        &self,
        name: &TaskId,
        applied: impl DoubleEndedIterator<Item = &'a AppliedObject>,
    ) -> Result<Vec<TaskWait>> {
        let mut remaining = Vec::new();
        for applied in applied.rev() {
            remaining.extend(match self.delete(name, applied).await {
                // Rights may be granted, and policies changed, until the deadline.
                Err(ReconcileError::Api(error)) => {
                    let object_ref = &applied.object_ref;
                    Some(self.explain_refusal(object_ref, object_ref.namespace.as_deref(), error).await?)
                }
                deleted => deleted?,
            });
        }
        remaining.reverse();
        Ok(remaining)
    }
}

/// Deletes an object with this UID. Does nothing if the object is gone or was replaced.
pub(crate) async fn delete_uid<K>(api: &Api<K>, name: &str, uid: String, how: DeleteParams) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &how.preconditions(Preconditions { uid: Some(uid), resource_version: None })).await {
        Err(error) if !matches!(status(&error), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if a 404 is about the object. A 404 about a kind or version does not contain the name of an object.
pub(crate) fn names_object(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.as_ref().is_some_and(|details| details.name == name)
}

/// Marks fields of `create` as applied, because apply removes only such fields. Returns `None` if there are none.
fn as_apply_managed(managed: &Value) -> Option<Value> {
    let mut managed = managed.clone();
    let ours = |entry: &&mut Value| {
        entry["manager"] == MANAGER && entry["operation"] == "Update" && entry["subresource"].is_null()
    };
    managed.as_array_mut()?.iter_mut().find(ours)?["operation"] = "Apply".into();
    Some(managed)
}

/// Returns the wait for the end of an object that is being deleted: its finalizers, or its grace period.
pub(crate) fn deletion(object_ref: &ObjectRef, object: &Value) -> TaskWait {
    let metadata = &object["metadata"];
    let grace_s = metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
    let grace = if grace_s > 0 { format!(", with a grace period of {grace_s} s") } else { String::new() };
    let why = ebb_kube::contract::deletion(object);
    // The time in the object is the end of the grace period.
    let since_ms = millis_at(&metadata["deletionTimestamp"]).saturating_sub(grace_s.saturating_mul(1000));
    let since_ms = (since_ms > 0).then(|| now_ms().saturating_sub(since_ms));
    TaskWait { since_ms, ..task_waits::wait(object_ref, &format!("{why}{grace}")) }
}

/// Returns the API group of an object, `""` for the core group, and its kind.
pub(crate) fn group_kind(object: &Value) -> (&str, &str) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    (version.rsplit_once('/').map_or("", |(group, _)| group), object["kind"].as_str().unwrap_or_default())
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the namespace of an object, or an empty text.
pub(crate) fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectOwnership {
    Own,
    /// A lower attempt of the same unit, or a unit that this task takes over from. The task replaces the object.
    LowerAttempt,
    Foreign,
}

/// Returns the owner of an object. `adopts` has the units from which the task may take objects over.
pub(crate) fn ownership(object: &Value, name: &TaskId, adopts: &[String]) -> ObjectOwnership {
    match owner(object) {
        Some(owner) if owner == *name => ObjectOwnership::Own,
        Some(owner) if adopts.contains(&owner.unit) => ObjectOwnership::LowerAttempt,
        Some(owner) if owner.unit == name.unit && owner.attempt < name.attempt => ObjectOwnership::LowerAttempt,
        _ => ObjectOwnership::Foreign,
    }
}

/// Returns the error for an object that exists and that the task must not change.
pub(crate) fn foreign(object_ref: &ObjectRef) -> String {
    let fix = "choose another name in the document, or delete the object if nothing needs it";
    format!("{object_ref} already exists and does not belong to this task; {fix}")
}

/// The answer to whether an existing object is that of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectIdentity {
    Own,
    /// It was replaced, another task has taken it over, or another program made it.
    Other,
    /// Its UID is in no record, and its labels and annotations name no task. A person has to decide.
    Undecided,
}

pub(crate) fn is_managed(object: &Value) -> bool {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.is_some_and(|entries| entries.iter().any(|entry| entry["manager"] == MANAGER))
}

/// Returns the task in the labels of an object. A person can change them.
pub(crate) fn owner(object: &Value) -> Option<TaskId> {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    Some(TaskId { unit: label(names::UNIT)?.to_owned(), attempt: label(names::ATTEMPT)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use ebb_kube::contract::{built_in, is_failed_run};

    use super::*;
    use crate::test_api::rows;

    #[test]
    fn deletions_have_their_finalizers_and_grace_period() {
        let rows = rows::<(Value, String, u64)>("deletions_have_their_finalizers_and_grace_period");
        for (metadata, message, second) in rows {
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
            let wait = deletion(&ObjectRef::of(&object), &object);
            assert_eq!((wait.message, (now_ms() - wait.since_ms.unwrap()) / 1000), (message, second), "{object}");
        }
    }

    #[test]
    fn only_failed_objects_that_run_once_are_replaced() {
        let rows = rows::<(String, String, Value, bool)>("only_failed_objects_that_run_once_are_replaced");
        for (version, kind, status, expected) in rows {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "status": status});
            assert_eq!(is_failed_run(built_in(), &object), expected, "{object}");
        }
    }
}
