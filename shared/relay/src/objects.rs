//! Objects in the cluster: reading, applying, deleting.

use ebb_protocol::relay::TaskId;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::discovery::ResourceKind;
use crate::error::{ReconcileError, status};
use crate::names::{self, MANAGER};
use crate::record::{AppliedObject, ObjectRef};
use crate::relay::Reconciler;
use crate::startup;

impl Reconciler {
    /// An object as it is now.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn read(&self, place: &ObjectRef) -> Result<Option<Value>, kube::Error> {
        let Some(api) = self.discovery.api_for(&self.client, place).await? else { return Ok(None) };
        let found = match startup::retry_forbidden(&self.client, || api.get(&place.name)).await {
            Err(error) if status(&error) == Some(404) && !names_object(&error, place) => {
                // It is not the object that is missing but its kind, or its version.
                self.discovery.forget(place);
                let Some(api) = self.discovery.api_for(&self.client, place).await? else { return Ok(None) };
                startup::retry_forbidden(&self.client, || api.get(&place.name)).await
            }
            found => found,
        };
        match found {
            // An object that was read can be written.
            Ok(object) => Ok(Some(serde_json::to_value(object).unwrap_or_default())),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn served_kind(&self, place: &ObjectRef) -> Result<ResourceKind, kube::Error> {
        let kind = self.discovery.find(&self.client, &place.api_version, &place.kind).await?;
        let missing = || kube::error::DiscoveryError::MissingKind(place.to_string());
        kind.ok_or_else(|| kube::Error::Discovery(missing()))
    }

    /// Applies a manifest to what has a name of ours, be it there or not; gives the object's uid.
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn apply(&self, place: &ObjectRef, manifest: &Value) -> Result<String, kube::Error> {
        let api: Api<DynamicObject> = self.served_kind(place).await?.api(&self.client, place.namespace.as_deref());
        let how = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let how = how.validation_strict();
        let patch = Patch::Apply(manifest);
        let applied = startup::retry_forbidden(&self.client, || api.patch(&place.name, &how, &patch)).await?;
        Ok(applied.uid().unwrap_or_default())
    }

    /// Makes an object that is not there; gives its uid. One that somebody else has made meanwhile stays as it is: 409.
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn create(&self, place: &ObjectRef, manifest: &Value) -> Result<String, kube::Error> {
        let api: Api<DynamicObject> = self.served_kind(place).await?.api(&self.client, place.namespace.as_deref());
        // By hand: the client's `create` has unknown fields dropped, where applying refuses them.
        let url = format!("{}?fieldManager={MANAGER}&fieldValidation=Strict", api.resource_url());
        let request = http::Request::post(url).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(manifest.to_string().into_bytes());
        let request =
            request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
        Ok(self.client.request::<DynamicObject>(request).await?.uid().unwrap_or_default())
    }

    /// Applies a manifest onto this very object, as it was read, which a lower attempt has made; gives its uid. What that attempt
    /// gave and this one does not goes. If it was changed meanwhile, or is another: 409.
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn replace_lower(
        &self,
        place: &ObjectRef,
        object: &Value,
        manifest: &Value,
    ) -> Result<String, kube::Error> {
        let api: Api<DynamicObject> = self.served_kind(place).await?.api(&self.client, place.namespace.as_deref());
        let mut version = object["metadata"]["resourceVersion"].clone();
        if let Some(managed) = as_apply_managed(&object["metadata"]["managedFields"]) {
            let patch = json!({"metadata": {
                "uid": uid(object), "resourceVersion": version, "managedFields": managed,
            }});
            let patched = api.patch(&place.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            version = json!(patched.resource_version());
        }
        let mut manifest = manifest.clone();
        manifest["metadata"]["uid"] = uid(object).into();
        manifest["metadata"]["resourceVersion"] = version;
        self.apply(place, &manifest).await
    }

    /// Deletes what was applied for a task, if it is still that object, and whatever it owns. Gives whether it is gone.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
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
            Ok(_) => Ok(DeleteOutcome::Pending(format!("{}: it was just deleted", applied.object_ref))),
            // Gone, or another object by now: the next look tells.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {
                Ok(DeleteOutcome::Pending(format!("{}: {error}", applied.object_ref)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an answer of 404 says that the object is not there. Of a kind or version that is not served it says less.
fn names_object(error: &kube::Error, place: &ObjectRef) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.as_ref().is_some_and(|details| details.name == place.name)
}

/// The owners of fields, where what we have created counts as applied by us: only then does applying remove what it does
/// not give. `None`: it does already.
fn as_apply_managed(managed: &Value) -> Option<Value> {
    let mut managed = managed.clone();
    let ours = |entry: &&mut Value| {
        entry["manager"] == MANAGER && entry["operation"] == "Update" && entry["subresource"].is_null()
    };
    let entry = managed.as_array_mut()?.iter_mut().find(ours)?;
    entry["operation"] = "Apply".into();
    Some(managed)
}

/// What a deletion has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeleteOutcome {
    /// It is not there.
    Gone,
    /// It is still there: which and why.
    Pending(String),
}

/// The uid of an object.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whose an object is, as a task sees it that would apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectOwnership {
    /// It was applied for this very task.
    Own,
    /// It was applied for a lower attempt of the unit, which a higher one replaces.
    LowerAttempt,
    Foreign,
}

/// Whose an object is.
pub(crate) fn ownership(object: &Value, name: &TaskId) -> ObjectOwnership {
    match owner(object) {
        Some(owner) if owner == *name => ObjectOwnership::Own,
        Some(owner) if owner.unit == name.unit && owner.attempt < name.attempt => ObjectOwnership::LowerAttempt,
        _ => ObjectOwnership::Foreign,
    }
}

/// The task that an object was applied for.
pub(crate) fn owner(object: &Value) -> Option<TaskId> {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    Some(TaskId { unit: label(names::UNIT)?.to_owned(), attempt: label(names::ATTEMPT)?.parse().ok()? })
}
