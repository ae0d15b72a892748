//! Objects in the cluster: reading, applying, deleting.

use ebb_wire::relay::WorkName;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::Value;

use crate::error::{Error, status};
use crate::names::{self, MANAGER};
use crate::record::{Applied, Place};
use crate::relay::Inner;
use crate::warm;

impl Inner {
    /// An object as it is now.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn read(&self, place: &Place) -> Result<Option<Value>, kube::Error> {
        let Some(api) = self.kinds.of(&self.client, place).await? else { return Ok(None) };
        let found = warm::settled(&self.client, || api.get_opt(&place.name)).await?;
        // An object that was read can be written.
        Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
    }

    /// Applies a manifest; gives the object's uid.
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn apply(&self, place: &Place, manifest: &Value) -> Result<String, kube::Error> {
        let Some(api) = self.kinds.of(&self.client, place).await? else {
            return Err(kube::Error::Discovery(kube::error::DiscoveryError::MissingKind(place.to_string())));
        };
        let how = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let how = how.validation_strict();
        let patch = Patch::Apply(manifest);
        let applied = warm::settled(&self.client, || api.patch(&place.name, &how, &patch)).await?;
        Ok(applied.uid().unwrap_or_default())
    }

    /// Deletes what was applied for a work, if it is still that object, and whatever it owns. Gives whether it is gone.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub(crate) async fn delete(&self, name: &WorkName, applied: &Applied) -> Result<Deletion, Error> {
        let Some(object) = self.read(&applied.place).await? else { return Ok(Deletion::Gone) };
        if uid(&object) != applied.uid || owner(&object).as_ref() != Some(name) {
            return Ok(Deletion::Gone);
        }
        let deletion = ebb_readiness::deletion(Some(&object), Some(&applied.uid));
        let why = match deletion {
            ebb_readiness::Verdict::Pending { why } => why,
            _ => String::new(),
        };
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Deletion::Ends(format!("{}: {why}", applied.place)));
        }
        let Some(api) = self.kinds.of(&self.client, &applied.place).await? else {
            return Ok(Deletion::Gone);
        };
        let same = Preconditions { uid: Some(applied.uid.clone()), resource_version: None };
        let how = DeleteParams::foreground().preconditions(same);
        match api.delete(&applied.place.name, &how).await {
            Ok(_) => Ok(Deletion::Ends(format!("{}: it was just deleted", applied.place))),
            // Gone, or another object by now: the next look tells.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {
                Ok(Deletion::Ends(format!("{}: {error}", applied.place)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What a deletion has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// It is not there.
    Gone,
    /// It is still there: which and why.
    Ends(String),
}

/// The uid of an object.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whose an object is, as a work sees it that would apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// It was applied for this very work.
    Own,
    /// It was applied for a lower try of the unit, which a higher one replaces.
    Lower,
    /// It is somebody else's.
    Foreign,
}

/// Whose an object is.
pub(crate) fn belongs(object: &Value, name: &WorkName) -> Belongs {
    match owner(object) {
        Some(owner) if owner == *name => Belongs::Own,
        Some(owner) if owner.unit == name.unit && owner.attempt < name.attempt => Belongs::Lower,
        _ => Belongs::Foreign,
    }
}

/// The work that an object was applied for.
pub(crate) fn owner(object: &Value) -> Option<WorkName> {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    Some(WorkName { unit: label(names::UNIT)?.to_owned(), attempt: label(names::ATTEMPT)?.parse().ok()? })
}
