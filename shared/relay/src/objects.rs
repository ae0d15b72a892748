//! Reads, applies and deletes objects.

use ebb_protocol::relay::TaskId;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::discovery::ResourceKind;
use crate::error::{ReconcileError, status};
use crate::names::{self, MANAGER};
use crate::reconciler::Reconciler;
use crate::record::{AppliedObject, ObjectRef};
use crate::startup;

impl Reconciler {
    /// Returns the present state of an object.
    pub(crate) async fn read(&self, object_ref: &ObjectRef) -> Result<Option<Value>, kube::Error> {
        let Some(api) = self.discovery.api_for(&self.client, object_ref).await? else { return Ok(None) };
        let found = match startup::retry_forbidden(&self.client, || api.get(&object_ref.name)).await {
            Err(error) if status(&error) == Some(404) && !names_object(&error, object_ref) => {
                // The 404 is about the kind or its version, not about the object.
                self.discovery.forget(object_ref);
                let Some(api) = self.discovery.api_for(&self.client, object_ref).await? else { return Ok(None) };
                startup::retry_forbidden(&self.client, || api.get(&object_ref.name)).await
            }
            found => found,
        };
        match found {
            // An object that was read can be serialized.
            Ok(object) => Ok(Some(serde_json::to_value(object).unwrap_or_default())),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn served_kind(&self, object_ref: &ObjectRef) -> Result<ResourceKind, kube::Error> {
        let kind = self.discovery.find(&self.client, &object_ref.api_version, &object_ref.kind).await?;
        let missing = || kube::error::DiscoveryError::MissingKind(object_ref.to_string());
        kind.ok_or_else(|| kube::Error::Discovery(missing()))
    }

    /// Applies a manifest to an object that the task owns, or creates it. Returns the UID.
    pub(crate) async fn apply(&self, object_ref: &ObjectRef, manifest: &Value) -> Result<String, kube::Error> {
        let api: Api<DynamicObject> =
            self.served_kind(object_ref).await?.api(&self.client, object_ref.namespace.as_deref());
        let how = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let how = how.validation_strict();
        let patch = Patch::Apply(manifest);
        let applied = startup::retry_forbidden(&self.client, || api.patch(&object_ref.name, &how, &patch)).await?;
        Ok(applied.uid().unwrap_or_default())
    }

    /// Creates an object and returns its UID. Fails with 409 if the object exists.
    pub(crate) async fn create(&self, object_ref: &ObjectRef, manifest: &Value) -> Result<String, kube::Error> {
        let api: Api<DynamicObject> =
            self.served_kind(object_ref).await?.api(&self.client, object_ref.namespace.as_deref());
        // A hand-written request: the client's `create` drops unknown fields, but they must be refused as by `apply`.
        let url = format!("{}?fieldManager={MANAGER}&fieldValidation=Strict", api.resource_url());
        let request = http::Request::post(url).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(manifest.to_string().into_bytes());
        let request =
            request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
        Ok(self.client.request::<DynamicObject>(request).await?.uid().unwrap_or_default())
    }

    /// Replaces the object of a lower attempt and returns its UID. Fields that only the lower attempt set are removed.
    /// Fails with 409 if the object was changed or replaced since it was read.
    pub(crate) async fn replace_lower(
        &self,
        object_ref: &ObjectRef,
        object: &Value,
        manifest: &Value,
    ) -> Result<String, kube::Error> {
        let api: Api<DynamicObject> =
            self.served_kind(object_ref).await?.api(&self.client, object_ref.namespace.as_deref());
        let mut version = object["metadata"]["resourceVersion"].clone();
        if let Some(managed) = as_apply_managed(&object["metadata"]["managedFields"]) {
            let patch = json!({"metadata": {
                "uid": uid(object), "resourceVersion": version, "managedFields": managed,
            }});
            let patched = api.patch(&object_ref.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            version = json!(patched.resource_version());
        }
        let mut manifest = manifest.clone();
        manifest["metadata"]["uid"] = uid(object).into();
        manifest["metadata"]["resourceVersion"] = version;
        self.apply(object_ref, &manifest).await
    }

    /// Deletes an applied object and its dependents if it still has the recorded UID and labels.
    pub(crate) async fn delete(&self, name: &TaskId, applied: &AppliedObject) -> Result<DeleteOutcome, ReconcileError> {
        let Some(object) = self.read(&applied.object_ref).await? else { return Ok(DeleteOutcome::Gone) };
        if uid(&object) != applied.uid || owner(&object).as_ref() != Some(name) {
            return Ok(DeleteOutcome::Gone);
        }
        let deletion = ebb_readiness::deletion(Some(&object), Some(&applied.uid));
        let why = match deletion {
            ebb_readiness::ObjectReadiness::Pending { reason: why } => why,
            _ => String::new(),
        };
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(DeleteOutcome::Pending(format!("{}: {why}", applied.object_ref)));
        }
        let Some(api) = self.discovery.api_for(&self.client, &applied.object_ref).await? else {
            return Ok(DeleteOutcome::Gone);
        };
        let same = Preconditions { uid: Some(applied.uid.clone()), resource_version: None };
        let how = DeleteParams::foreground().preconditions(same);
        match api.delete(&applied.object_ref.name, &how).await {
            Ok(_) => Ok(DeleteOutcome::Pending(format!("{}: its deletion has begun", applied.object_ref))),
            // The object is gone or was replaced. The next call finds out.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {
                Ok(DeleteOutcome::Pending(format!("{}: {error}", applied.object_ref)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns true if a 404 is about the object. A 404 for a kind or version names no object.
fn names_object(error: &kube::Error, object_ref: &ObjectRef) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.as_ref().is_some_and(|details| details.name == object_ref.name)
}

/// Marks fields that were set by `create` as applied, because apply removes only such fields. Returns `None` if none
/// need it.
fn as_apply_managed(managed: &Value) -> Option<Value> {
    let mut managed = managed.clone();
    let ours = |entry: &&mut Value| {
        entry["manager"] == MANAGER && entry["operation"] == "Update" && entry["subresource"].is_null()
    };
    let entry = managed.as_array_mut()?.iter_mut().find(ours)?;
    entry["operation"] = "Apply".into();
    Some(managed)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeleteOutcome {
    Gone,
    /// The object still exists, with its name and the reason.
    Pending(String),
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The owner of an object from the view of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectOwnership {
    Own,
    /// A lower attempt of the same unit, which this task replaces.
    LowerAttempt,
    Foreign,
}

pub(crate) fn ownership(object: &Value, name: &TaskId) -> ObjectOwnership {
    match owner(object) {
        Some(owner) if owner == *name => ObjectOwnership::Own,
        Some(owner) if owner.unit == name.unit && owner.attempt < name.attempt => ObjectOwnership::LowerAttempt,
        _ => ObjectOwnership::Foreign,
    }
}

/// Returns the task in the labels of an object.
pub(crate) fn owner(object: &Value) -> Option<TaskId> {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    Some(TaskId { unit: label(names::UNIT)?.to_owned(), attempt: label(names::ATTEMPT)?.parse().ok()? })
}
