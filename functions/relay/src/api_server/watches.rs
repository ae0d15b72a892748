//! Watches the kinds of applied objects, one watch per kind and namespace. A watch only wakes loops, which then read
//! the state. An interrupted watch therefore loses nothing.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use tokio::task::JoinSet;

use crate::api_server::discovery::ResourceKind;
use crate::names::{self, UNIT};

/// Version, kind and namespace.
type WatchKey = (String, String, Option<String>);

/// The watches that were started, and their tasks, which end with this value.
#[derive(Default)]
pub(crate) struct ObjectWatches(Mutex<(HashSet<WatchKey>, JoinSet<()>)>);

impl ObjectWatches {
    /// Starts a watch of a kind unless one runs. `notify` gets the unit of each object that changes.
    pub(crate) fn start(
        &self,
        client: &Client,
        kind: &ResourceKind,
        namespace: Option<&str>,
        notify: impl Fn(&str) + Send + 'static,
    ) {
        let resource = &kind.resource;
        let key = (resource.api_version.clone(), resource.kind.clone(), namespace.map(str::to_owned));
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (started, tasks) = &mut *watches;
        if started.insert(key) {
            tasks.spawn(follow(kind.api(client, namespace), notify));
        }
    }
}

async fn follow(api: Api<PartialObjectMeta<DynamicObject>>, happened: impl Fn(&str)) {
    let mut touched = watcher(api, Config::default().labels(UNIT)).default_backoff().touched_objects().boxed();
    while let Some(object) = touched.next().await {
        match object {
            Ok(object) => {
                if let Some(name) = names::task_of_labels(object.labels()) {
                    happened(&name.unit);
                }
            }
            Err(error) => tracing::debug!(%error, "a watch was interrupted"),
        }
    }
}
