//! Finds the API resource of a kind.

use std::collections::HashMap;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject};
use kube::core::{DynamicResourceScope, GroupVersionKind};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, oneshot};
use kube::{Client, Resource};

use crate::api_server::client;
use crate::{ObjectRef, lock, status};

#[derive(Clone, Debug)]
pub(crate) struct ResourceKind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

impl ResourceKind {
    pub(crate) fn pod() -> Self {
        Self { resource: ApiResource::erase::<Pod>(&()), namespaced: true }
    }

    /// Returns the API of this kind in a namespace, or in the whole cluster.
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

/// Caches resources by version and kind. Missing kinds are not cached.
pub(crate) struct DiscoveryCache(pub(crate) Client, pub(crate) Mutex<HashMap<(String, String), ResourceKind>>);

impl DiscoveryCache {
    /// Finds a kind. Returns `None` if the cluster does not have it at present.
    pub(crate) async fn find(&self, api_version: &str, kind: &str) -> kube::Result<Option<ResourceKind>> {
        let key = (api_version.to_owned(), kind.to_owned());
        let Self(client, known) = self;
        if let Some(known) = lock(known).get(&key) {
            return Ok(Some(known.clone()));
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let wanted = GroupVersionKind::gvk(group, version, kind);
        let mut found = discover(client, &wanted).await?;
        if found.is_none() {
            // An API server that has just started does not serve all kinds yet.
            client::check_ready(client).await?;
            found = discover(client, &wanted).await?;
        }
        let Some((resource, can)) = found else { return Ok(None) };
        let found = ResourceKind { resource, namespaced: can.scope == Scope::Namespaced };
        lock(known).insert(key, found.clone());
        Ok(Some(found))
    }

    /// Returns the API for a recorded object, in its version or in another served version of its group. Returns `None`
    /// if the kind no longer exists. Its objects are then deleted too.
    pub(crate) async fn api_for(&self, object_ref: &ObjectRef) -> kube::Result<Option<Api<DynamicObject>>> {
        let kind = match self.find(&object_ref.api_version, &object_ref.kind).await? {
            Some(kind) => Some(kind),
            None => other_version(&self.0, object_ref).await?,
        };
        Ok(kind.map(|kind| kind.api(&self.0, object_ref.namespace.as_deref())))
    }

    /// Removes a kind from the cache when its version is no longer served.
    pub(crate) fn forget(&self, object_ref: &ObjectRef) {
        lock(&self.1).remove(&(object_ref.api_version.clone(), object_ref.kind.clone()));
    }
}

async fn other_version(client: &Client, object_ref: &ObjectRef) -> kube::Result<Option<ResourceKind>> {
    let Some((group, _)) = object_ref.api_version.rsplit_once('/') else { return Ok(None) };
    let group = match oneshot::group(client, group).await {
        Ok(group) => group,
        Err(kube::Error::Discovery(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = group.resources_by_stability().into_iter().find(|(resource, _)| resource.kind == object_ref.kind);
    Ok(found.map(|(resource, can)| ResourceKind { resource, namespaced: can.scope == Scope::Namespaced }))
}

async fn discover(client: &Client, wanted: &GroupVersionKind) -> kube::Result<Option<(ApiResource, ApiCapabilities)>> {
    match oneshot::pinned_kind(client, wanted).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) if status(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
