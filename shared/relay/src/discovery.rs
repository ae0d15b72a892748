//! Which resources the cluster has for a kind.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kube::api::{Api, DynamicObject};
use kube::core::{DynamicResourceScope, GroupVersionKind};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, oneshot};
use kube::{Client, Resource};

use crate::error::status;
use crate::record::ObjectRef;
use crate::startup;

/// A kind that the cluster has.
#[derive(Clone, Debug)]
pub(crate) struct ResourceKind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

impl ResourceKind {
    /// The objects of this kind in a namespace, or of all the cluster.
    pub(crate) fn api<K>(&self, client: &Client, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match namespace {
            Some(namespace) if self.namespaced => Api::namespaced_with(client.clone(), namespace, &self.resource),
            _ => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// What was found, by version and kind. What a cluster has once it keeps for as long as anybody uses it.
#[derive(Default)]
pub(crate) struct DiscoveryCache(Mutex<HashMap<(String, String), ResourceKind>>);

impl DiscoveryCache {
    /// Finds a kind; `None`: the cluster has no such kind now.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn find(
        &self,
        client: &Client,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ResourceKind>, kube::Error> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Some(known.clone()));
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let wanted = GroupVersionKind::gvk(group, version, kind);
        let mut found = discover(client, &wanted).await?;
        if found.is_none() {
            // One that has just started does not know all of its kinds.
            startup::check_ready(client).await?;
            found = discover(client, &wanted).await?;
        }
        let Some((resource, can)) = found else { return Ok(None) };
        let found = ResourceKind { resource, namespaced: can.scope == Scope::Namespaced };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
        Ok(Some(found))
    }

    /// The objects among which a recorded one is, in its version or in another one that is still served. A kind that is
    /// gone took its objects with it: `None`.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn api_for(
        &self,
        client: &Client,
        place: &ObjectRef,
    ) -> Result<Option<Api<DynamicObject>>, kube::Error> {
        let kind = match self.find(client, &place.api_version, &place.kind).await? {
            Some(kind) => Some(kind),
            None => other_version(client, place).await?,
        };
        Ok(kind.map(|kind| kind.api(client, place.namespace.as_deref())))
    }

    /// Forgets what was found for a place: its version is not served any more.
    pub(crate) fn forget(&self, place: &ObjectRef) {
        let key = (place.api_version.clone(), place.kind.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

/// A kind in the other versions of its group.
async fn other_version(client: &Client, place: &ObjectRef) -> Result<Option<ResourceKind>, kube::Error> {
    let Some((group, _)) = place.api_version.rsplit_once('/') else { return Ok(None) };
    let group = match oneshot::group(client, group).await {
        Ok(group) => group,
        Err(kube::Error::Discovery(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = group.versions().find_map(|version| {
        group.versioned_resources(version).into_iter().find(|(resource, _)| resource.kind == place.kind)
    });
    Ok(found.map(|(resource, can)| ResourceKind { resource, namespaced: can.scope == Scope::Namespaced }))
}

async fn discover(
    client: &Client,
    wanted: &GroupVersionKind,
) -> Result<Option<(ApiResource, ApiCapabilities)>, kube::Error> {
    match oneshot::pinned_kind(client, wanted).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) if status(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
