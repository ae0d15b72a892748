//! Watches the kinds of applied objects, one watch per kind and namespace. A watch only wakes loops, which then read
//! the state. An interrupted watch therefore loses nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use tokio::task::AbortHandle;

use crate::discovery::ResourceKind;
use crate::names::{self, UNIT};

/// Version, kind and namespace.
type WatchKey = (String, String, Option<String>);

#[derive(Default)]
pub(crate) struct ObjectWatches(Mutex<HashMap<WatchKey, AbortHandle>>);

impl Drop for ObjectWatches {
    fn drop(&mut self) {
        for task in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            task.abort();
        }
    }
}

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
        watches.entry(key).or_insert_with(|| tokio::spawn(follow(kind.api(client, namespace), notify)).abort_handle());
    }
}

async fn follow(api: Api<PartialObjectMeta<DynamicObject>>, happened: impl Fn(&str)) {
    let mut events = watcher(api, Config::default().labels(UNIT)).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                if let Some(name) = names::task_of_labels(object.labels()) {
                    happened(&name.unit);
                }
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => tracing::debug!(%error, "a watch was interrupted"),
        }
    }
}
