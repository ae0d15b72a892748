//! What there is: tasks by their records with what is left of them, and objects with our labels that no record knows.

use std::collections::{BTreeSet, HashSet};

use ebb_protocol::listing::{ClusterListing, MAX_UNMANAGED, ObjectSummary, TaskSummary, UnmanagedObject};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::discovery::{ApiResource, Scope, oneshot, verbs};

use crate::discovery::ResourceKind;
use crate::error::{ReconcileError, error_message};
use crate::names::{ATTEMPT, UNIT, task_of_labels};
use crate::objects;
use crate::record::TaskRecord;
use crate::relay::Reconciler;
use crate::store::now_ms;

/// The page after the last one of records.
const UNMANAGED_PAGE: &str = "unmanaged";
/// What begins the place of a page of records.
const PAGE: &str = "records:";
/// Records of one page whose objects are looked at at once.
const AT_ONCE: usize = 8;
/// Kinds that hold what is ours, whatever else is allowed.
const OURS: [&str; 2] = ["Job.batch", "Secret"];

impl Reconciler {
    /// A page of what there is.
    ///
    /// # Errors
    /// When the API server does not answer, or the page before is too old to go on from.
    pub(crate) async fn list(&self, after: Option<&str>) -> Result<ClusterListing, ReconcileError> {
        if after == Some(UNMANAGED_PAGE) {
            return self.list_unmanaged().await;
        }
        let place = after.and_then(|after| after.strip_prefix(PAGE));
        let (records, next) = self.store.page(place).await?;
        let looks = records.into_iter().map(|record| self.summarize(record));
        let looks: Vec<_> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
        let mut listing = ClusterListing::default();
        for look in looks {
            let (summary, unseen) = look?;
            listing.tasks.extend(summary);
            listing.errors.extend(unseen);
        }
        listing.next_token = Some(next.map_or_else(|| UNMANAGED_PAGE.to_owned(), |next| format!("{PAGE}{next}")));
        Ok(listing)
    }

    async fn summarize(&self, record: TaskRecord) -> Result<(Option<TaskSummary>, Vec<String>), ReconcileError> {
        let mut unseen = Vec::new();
        let Some(spec) = record.spec else { return Ok((None, unseen)) };
        let mut objects = Vec::new();
        for applied in &spec.applied {
            let object = match self.read(&applied.object_ref).await {
                Ok(Some(object)) if objects::uid(&object) == applied.uid => object,
                Ok(_) => continue,
                Err(error @ kube::Error::Api(_)) => {
                    unseen.push(format!("{}: {}", applied.object_ref, error_message(&error)));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            objects.push(ObjectSummary {
                api_version: applied.object_ref.api_version.clone(),
                kind: applied.object_ref.kind.clone(),
                namespace: applied.object_ref.namespace.clone(),
                name: applied.object_ref.name.clone(),
                uid: applied.uid.clone(),
                labelled: objects::owner(&object).as_ref() == Some(&record.name),
            });
        }
        let listed = TaskSummary {
            phase: record.phase.label().to_owned(),
            instance: spec.objects.instance,
            callback: spec.callback.url,
            installation: spec.callback.installation,
            age_ms: now_ms().saturating_sub(spec.received_ms),
            task: record.name,
            objects,
        };
        Ok((Some(listed), unseen))
    }

    async fn list_unmanaged(&self) -> Result<ClusterListing, ReconcileError> {
        let mut listing = ClusterListing::default();
        let mut found = Vec::new();
        for kind in self.managed_kinds(&mut listing.errors).await? {
            for namespace in self.namespaces_of(&kind) {
                let ours = ListParams::default().labels(UNIT);
                match kind.api::<DynamicObject>(&self.client, namespace).list_metadata(&ours).await {
                    Ok(list) => found.extend(list.items.into_iter().map(|object| (kind.clone(), object))),
                    Err(error @ kube::Error::Api(_)) => {
                        let place = namespace.map(|name| format!(" in {name}")).unwrap_or_default();
                        listing.errors.push(format!("{}{place}: {}", kind.resource.kind, error_message(&error)));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        // After the objects: whatever was recorded before them is known, and what is being started is young.
        let applied = self.store.collect(|record| record.spec.map(|spec| spec.applied)).await?;
        let known: HashSet<&str> = applied.iter().flatten().map(|applied| applied.uid.as_str()).collect();
        let strangers = found.iter().filter_map(|(kind, object)| unmanaged_object(kind, object));
        listing.unmanaged =
            strangers.filter(|it| !known.contains(it.object.uid.as_str())).take(MAX_UNMANAGED).collect();
        Ok(listing)
    }

    /// The namespaces in which objects of a kind may be ours; `None` for a kind outside of them.
    fn namespaces_of(&self, kind: &ResourceKind) -> BTreeSet<Option<&str>> {
        if !kind.namespaced {
            return BTreeSet::from([None]);
        }
        let default = std::iter::once(&self.settings.default_namespace);
        let all = self.settings.policy.namespaces.keys().chain(default);
        all.map(|name| Some(name.as_str())).collect()
    }

    /// The kinds of which tasks may have objects, as the cluster has them now.
    async fn managed_kinds(&self, unseen: &mut Vec<String>) -> Result<Vec<ResourceKind>, ReconcileError> {
        let allowed = &self.settings.policy;
        let ours = OURS.into_iter().map(str::to_owned);
        let names: BTreeSet<String> = ours.chain(allowed.kinds.iter().chain(&allowed.cluster_kinds).cloned()).collect();
        let mut kinds: Vec<ResourceKind> = Vec::new();
        for name in names {
            let (kind, group) = name.split_once('.').unwrap_or((&name, ""));
            match oneshot::group(&self.client, group).await {
                Ok(found) => {
                    for (resource, can) in found.recommended_resources() {
                        let is_meant = kind == "*" || resource.kind == kind;
                        let is_new = !kinds.iter().any(|it| same(&it.resource, &resource));
                        if is_meant && is_new && can.supports_operation(verbs::LIST) {
                            kinds.push(ResourceKind { resource, namespaced: can.scope == Scope::Namespaced });
                        }
                    }
                }
                // The cluster has none of it.
                Err(kube::Error::Discovery(_)) => {}
                Err(error @ kube::Error::Api(_)) => unseen.push(format!("{name}: {}", error_message(&error))),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(kinds)
    }
}

fn same(one: &ApiResource, other: &ApiResource) -> bool {
    one.api_version == other.api_version && one.kind == other.kind
}

/// An object with our labels, unless it goes with what owns it.
fn unmanaged_object(kind: &ResourceKind, object: &PartialObjectMeta<DynamicObject>) -> Option<UnmanagedObject> {
    if object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) {
        return None;
    }
    let labels = object.labels();
    let made = object.creation_timestamp().map_or(0, |made| made.0.as_millisecond());
    Some(UnmanagedObject {
        unit: labels.get(UNIT)?.clone(),
        age_ms: now_ms().saturating_sub(u64::try_from(made).unwrap_or(0)),
        object: ObjectSummary {
            api_version: kind.resource.api_version.clone(),
            kind: kind.resource.kind.clone(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid()?,
            labelled: labels.contains_key(ATTEMPT) && task_of_labels(labels).is_some(),
        },
    })
}
