//! Watches the kinds of applied objects, one watch per kind and namespace. A watch only wakes loops, which then read
//! the state. An interrupted watch therefore loses nothing.

use std::sync::Arc;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::runtime::{WatchStreamExt as _, watcher};

use crate::names::{self, UNIT};
use crate::{Reconciler, lock};

impl Reconciler {
    /// Starts a watch of a kind of the cluster, unless one runs. Its events wake the loops of the objects' tasks.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> kube::Result<()> {
        let Some(kind) = self.discovery.find(api_version, kind).await? else { return Ok(()) };
        let key = (kind.resource.api_version.clone(), kind.resource.kind.clone(), namespace.map(str::to_owned));
        let is_new = lock(&self.watches).insert(key);
        if is_new {
            tokio::spawn(follow(Arc::clone(self), kind.api(&self.client, namespace)));
        }
        Ok(())
    }
}

async fn follow(inner: Arc<Reconciler>, api: Api<PartialObjectMeta<DynamicObject>>) {
    let mut touched = watcher(api, Config::default().labels(UNIT)).default_backoff().touched_objects().boxed();
    while let Some(object) = touched.next().await {
        match object {
            Ok(object) => {
                if let Some(name) = names::task_of_labels(object.labels()) {
                    inner.registry.notify_unit(&name.unit);
                }
            }
            Err(error) => tracing::debug!(%error, "a watch was interrupted"),
        }
    }
}
