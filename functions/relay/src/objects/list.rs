//! Lists tasks with their remaining objects, and labelled objects that are in no record.

use std::collections::{BTreeSet, HashSet};

use ebb_protocol::listing::{ClusterListing, MAX_UNMANAGED, ObjectSummary, TaskSummary, UnmanagedObject};
use ebb_protocol::relay::{MAX_WAITS, TaskWait, WaitResolution};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::discovery::{ApiResource, Scope, oneshot, verbs};

use crate::api_server::discovery::ResourceKind;
use crate::names::{CONTINUED, OUTPUT, PART, RECORD, UNIT, task_of_labels};
use crate::objects::{self, ObjectIdentity};
use crate::{AppliedObject, ObjectRef, Reconciler, Result, TaskRecord, error_message, now_ms, status, task_waits};

const UNMANAGED_PAGE: &str = "unmanaged";
const PAGE: &str = "records:";
/// Records of a page whose objects are read at the same time.
const AT_ONCE: usize = 8;
/// Kinds that Ebb creates itself, whatever the policy allows.
const OURS: [&str; 2] = ["Job.batch", "Secret"];

const WITHOUT_RECORD: &str = "no record of this relay names it, because its records were deleted; delete it with \
                              kubectl, then run `ebb retry`";

/// Objects with labels of tasks, except those with an owner.
#[derive(Default)]
struct LabelledObjects {
    objects: Vec<UnmanagedObject>,
    /// The places that the relay has no right to list, for people.
    forbidden: Vec<String>,
    /// The places that could not be listed for another reason.
    errors: Vec<String>,
}

impl Reconciler {
    pub(crate) async fn list(&self, after: Option<&str>) -> Result<ClusterListing> {
        if after == Some(UNMANAGED_PAGE) {
            return self.list_unmanaged().await;
        }
        let (records, next) = self.store.page(None, after.and_then(|after| after.strip_prefix(PAGE))).await?;
        let summaries = records.into_iter().map(|record| self.summarize(record));
        let summaries: Vec<_> = futures::stream::iter(summaries).buffered(AT_ONCE).try_collect().await?;
        let mut listing = ClusterListing::default();
        for (summary, errors) in summaries {
            listing.tasks.extend(summary);
            listing.errors.extend(errors);
        }
        listing.next_token = Some(next.map_or_else(|| UNMANAGED_PAGE.to_owned(), |next| format!("{PAGE}{next}")));
        Ok(listing)
    }

    async fn summarize(&self, record: TaskRecord) -> Result<(Option<TaskSummary>, Vec<String>)> {
        let mut errors = Vec::new();
        let Some(spec) = record.spec else { return Ok((None, errors)) };
        let mut objects = Vec::new();
        for applied in spec.applied {
            let object = match self.read(&applied.object_ref).await {
                Ok(Some(object)) if objects::uid(&object) == applied.uid => object,
                Ok(_) => continue,
                Err(error @ kube::Error::Api(_)) => {
                    errors.push(format!("{}: {}", applied.object_ref, error_message(&error)));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let labelled = self.identify(&record.name, &applied.uid, &object).await? == ObjectIdentity::Own;
            let AppliedObject { object_ref: ObjectRef { api_version, kind, namespace, name }, uid, .. } = applied;
            objects.push(ObjectSummary { api_version, kind, namespace, name, uid, labelled });
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
        Ok((Some(listed), errors))
    }

    async fn list_unmanaged(&self) -> Result<ClusterListing> {
        let LabelledObjects { objects, forbidden, errors } = self.labelled(UNIT).await?;
        let mut listing = ClusterListing { errors: [errors, forbidden].concat(), ..ClusterListing::default() };
        // The records are read after the objects. Every object that was recorded before is therefore known.
        let applied = self.store.collect(None, |record| record.spec.map(|spec| spec.applied)).await?;
        let known: HashSet<&str> = applied.iter().flatten().map(|applied| applied.uid.as_str()).collect();
        let unmanaged = objects.into_iter().filter(|it| !known.contains(it.object.uid.as_str()));
        listing.unmanaged = unmanaged.take(MAX_UNMANAGED).collect();
        Ok(listing)
    }

    /// Returns the waits for unmanaged objects of units, which no record names, and the places that cannot be listed.
    pub(crate) async fn unmanaged_waits(&self, units: &[&str]) -> Result<(Vec<TaskWait>, Vec<String>)> {
        let (units, parts) = (units.join(","), [RECORD, CONTINUED, OUTPUT].join(","));
        let LabelledObjects { objects, forbidden, errors } =
            self.labelled(&format!("{UNIT} in ({units}),{PART} notin ({parts})")).await?;
        if !forbidden.is_empty() {
            // A kind of the policy without rights must not block all removals.
            let places = forbidden.join("; ");
            tracing::warn!(units, places, "cannot check whether objects of units without records remain");
        }
        let waits = objects.into_iter().map(|it| {
            let ObjectSummary { api_version, kind, namespace, name, .. } = it.object;
            task_waits::wait(ObjectRef { api_version, kind, namespace, name }, WITHOUT_RECORD)
        });
        // All kinds are listed again, so the pause is that of a wait for a person.
        let errors = errors.iter().map(|error| task_waits::wait("objects without a record", error));
        let waits = waits.chain(errors).map(|wait| TaskWait { resolves: WaitResolution::Person, ..wait });
        Ok((waits.take(MAX_WAITS).collect(), forbidden))
    }

    /// Lists the objects with these labels in all places that may contain objects of tasks.
    async fn labelled(&self, selector: &str) -> Result<LabelledObjects> {
        let mut found = LabelledObjects::default();
        let labels = ListParams::default().labels(selector);
        for (kind, namespace) in self.places(&mut found.errors).await? {
            let namespace = namespace.as_deref();
            let location = namespace.map(|name| format!(" in {name}")).unwrap_or_default();
            let place = format!("{}{location}", kind.resource.kind);
            match kind.api::<DynamicObject>(&self.client, namespace).list_metadata(&labels).await {
                Ok(list) => found.objects.extend(list.items.iter().filter_map(|it| unmanaged_object(&kind, it))),
                Err(error) if namespace.is_some_and(|namespace| self.has_lost_right(namespace, &error)) => {
                    found.forbidden.push(format!("{place}: the relay has no rights there any more"));
                }
                Err(error @ kube::Error::Api(_)) => {
                    let to = if status(&error) == Some(403) { &mut found.forbidden } else { &mut found.errors };
                    to.push(format!("{place}: {}", error_message(&error)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Returns the kinds of objects of tasks, each with a namespace that may contain some.
    async fn places(&self, errors: &mut Vec<String>) -> Result<Vec<(ResourceKind, Option<String>)>> {
        let (policy, mut namespaces) = (&self.policy, self.namespaces.clone());
        // In the other namespaces of `bind`, the relay has rights to two kinds only.
        namespaces.retain(|it| policy.namespaces.contains_key(it) || !policy.bind_namespaces.contains(it));
        let mut places = Vec::new();
        for kind in self.managed_kinds(errors).await? {
            match kind.namespaced {
                true => places.extend(namespaces.iter().map(|namespace| (kind.clone(), Some(namespace.clone())))),
                false => places.push((kind, None)),
            }
        }
        for resource in [ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&())] {
            for namespace in &policy.bind_namespaces {
                let is_listed = |(kind, place): &(ResourceKind, Option<String>)| {
                    place.as_ref() == Some(namespace) && same(&kind.resource, &resource)
                };
                if !places.iter().any(is_listed) {
                    let kind = ResourceKind { resource: resource.clone(), namespaced: true };
                    places.push((kind, Some(namespace.clone())));
                }
            }
        }
        Ok(places)
    }

    /// Returns the kinds that tasks may create and that the cluster serves.
    pub(crate) async fn managed_kinds(&self, errors: &mut Vec<String>) -> Result<Vec<ResourceKind>> {
        let ours = OURS.into_iter().map(str::to_owned);
        let names: BTreeSet<String> =
            ours.chain(self.policy.kinds.iter().chain(&self.policy.cluster_kinds).cloned()).collect();
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
                Err(kube::Error::Discovery(_)) => {}
                Err(error @ kube::Error::Api(_)) => errors.push(format!("{name}: {}", error_message(&error))),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(kinds)
    }
}

fn same(one: &ApiResource, other: &ApiResource) -> bool {
    one.api_version == other.api_version && one.kind == other.kind
}

/// Returns a labelled object, unless it has an owner.
fn unmanaged_object(kind: &ResourceKind, object: &PartialObjectMeta<DynamicObject>) -> Option<UnmanagedObject> {
    if object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) {
        return None;
    }
    let labels = object.labels();
    let created = object.creation_timestamp().map_or(0, |created| created.0.as_millisecond());
    Some(UnmanagedObject {
        unit: labels.get(UNIT)?.clone(),
        age_ms: now_ms().saturating_sub(u64::try_from(created).unwrap_or(0)),
        object: ObjectSummary {
            api_version: kind.resource.api_version.clone(),
            kind: kind.resource.kind.clone(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid()?,
            labelled: task_of_labels(labels).is_some(),
        },
    })
}
