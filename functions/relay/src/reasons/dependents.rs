//! Finds out why an object is not ready, from its pods and from other objects that it owns.

use std::sync::Arc;
use std::time::Duration;

use ebb_kube::contract::{self, ContractTable, DocumentRules, ObjectReadiness};
use ebb_protocol::limits::message;
use ebb_protocol::{ReasonCode, TaskWait};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use crate::api_server::discovery::ResourceKind;
use crate::objects::{self, group_kind};
use crate::observe::blockers::{self, StartBlocker, millis_at};
use crate::reasons::warnings::MAX_AGE;
use crate::{ObjectRef, Reconciler, now_ms, task_waits};

/// A step of a task must not wait longer for all its explanations, because it has a time limit of its own.
pub(crate) const EXPLANATIONS: Duration = Duration::from_secs(3);
/// Milliseconds within which most deletions end.
const PROMPT_DELETION_MS: u64 = 3_000;
/// Objects of a kind that are read. Further ones are ignored.
const PAGE: u32 = 500;
/// Kinds of the policy that are read.
const MAX_KINDS: usize = 20;
/// The age at which the kinds of the policy are looked up again.
const KINDS_MAX_AGE: Duration = Duration::from_secs(60);
/// Levels of owned objects below an object.
const MAX_LEVELS: usize = 3;
/// Owned objects of a level that are examined.
const MAX_OWNED: usize = 20;
/// Kinds that explain nothing, and pods, which are read in any case.
const SKIPPED: [&str; 3] = ["ConfigMap", "Secret", "Pod"];

/// The objects between an object and its blocker, for people, the blocker, and the pod that it is about.
pub(crate) type Explanation = (Option<String>, StartBlocker, Option<Value>);

impl Reconciler {
    /// Replaces the reason of a wait by what blocks the pods and objects that `object` owns. Without a right or a
    /// response before `until`, the wait stays as it is.
    pub(crate) async fn explain(&self, wait: TaskWait, object: &Value, until: Instant) -> TaskWait {
        match timeout_at(until, Box::pin(self.explanation(object))).await {
            Ok(Ok(Some((source, blocker, _)))) => task_waits::blocked(wait, source.as_deref(), &blocker, now_ms()),
            Ok(Ok(None)) => wait,
            failed => {
                tracing::debug!(object = wait.object, ?failed, "cannot find out why an object is not ready");
                wait
            }
        }
    }

    /// Returns what blocks an object, or what has failed it.
    pub(crate) async fn explanation(&self, object: &Value) -> kube::Result<Option<Explanation>> {
        let found = self.own_explanation(object).await?;
        if found.is_some() || !is_custom(object) || is_outdated(object) {
            return Ok(found);
        }
        let candidates = self.owned_objects(objects::namespace(object)).await;
        let mut owners = vec![objects::uid(object).to_owned()];
        let mut deepest = None;
        for _ in 0..MAX_LEVELS {
            let level: Vec<&Value> = candidates.iter().filter(|it| is_owned_by(it, &owners)).take(MAX_OWNED).collect();
            let mut waits_for = None;
            for owned in &level {
                let Some(pending) = pending(contract::built_in(), owned) else { continue };
                let name = ObjectRef::of(owned).to_string();
                if let Some((source, blocker, pod)) = self.own_explanation(owned).await? {
                    let source = source.map_or_else(|| name.clone(), |source| format!("{name}: {source}"));
                    return Ok(Some((Some(source), blocker, pod)));
                }
                waits_for = waits_for.or(Some((Some(name), pending, None)));
            }
            deepest = waits_for.or(deepest);
            owners = level.into_iter().map(|it| objects::uid(it).to_owned()).collect();
        }
        Ok(deepest)
    }

    /// Returns what blocks an object of a namespace by itself, by its pods, or by its newest warning. Returns nothing while
    /// its pods and warnings may be those of a former generation.
    async fn own_explanation(&self, object: &Value) -> kube::Result<Option<Explanation>> {
        let namespace = object["metadata"]["namespace"].as_str().filter(|_| !is_outdated(object));
        let Some(namespace) = namespace else { return Ok(None) };
        let warnings = self.warnings(namespace).await;
        let own = |blocker: Option<StartBlocker>| blocker.map(|blocker| (None, blocker, None));
        let Some((controllers, pods)) = self.pods_of(object).await? else {
            return Ok(own(self.blocker("object", object, &[], &warnings, 0)));
        };
        let (pods, newest_pod_ms) = present_pods(pods, is_pod(object) || is_failing_job(object));
        let blocked = pods.into_iter().rev().find_map(|pod| {
            let find = |name| self.blocker(name, &pod, &[], &warnings, 0);
            let blocker = find("pod").or_else(|| find("crash"))?;
            Some((source(object, &pod), blocker, Some(pod)))
        });
        let refused = || self.blocker("controller", object, &controllers, &warnings, newest_pod_ms);
        Ok(blocked.or_else(|| own(refused())))
    }

    /// Finds a cause, by contracts. The warnings about the object and its controllers count.
    pub(crate) fn blocker(
        &self,
        name: &str,
        object: &Value,
        controllers: &[String],
        warnings: &[Value],
        newest_pod_ms: u64,
    ) -> Option<StartBlocker> {
        let facts = json!({"nowMs": now_ms(), "podMs": newest_pod_ms, "cluster": self.settings.cluster});
        blockers::find(contract::built_in(), name, object, controllers, warnings, facts)
    }

    /// Returns the UIDs of the controllers of an object's pods, and these pods. A pod has itself and no controller. Returns
    /// `None` for another kind without pods, and outside of a namespace.
    async fn pods_of(&self, object: &Value) -> kube::Result<Option<(Vec<String>, Vec<Value>)>> {
        let Some(namespace) = object["metadata"]["namespace"].as_str() else { return Ok(None) };
        if is_pod(object) {
            return Ok(Some((Vec::new(), vec![object.clone()])));
        }
        let contracts = contract::built_in();
        let Some(owners) = contracts.pod_owners(object) else { return Ok(None) };
        let (mut controllers, selected) = (vec![objects::uid(object).to_owned()], selected(object));
        for [version, kind, number] in owners {
            let Some(kind) = self.discovery.find(version, kind).await? else { continue };
            let mut owned = self.read_all(&kind, namespace, &selected).await?;
            owned.retain(|it| is_owned_by(it, &controllers));
            let number = |it: &&Value| it["metadata"]["annotations"][number].as_str()?.parse::<u64>().ok();
            controllers.extend(owned.iter().max_by_key(number).map(|newest| objects::uid(newest).to_owned()));
        }
        let mut pods = self.read_all(&ResourceKind::pod(), namespace, &selected).await?;
        pods.retain(|pod| is_owned_by(pod, &controllers));
        Ok(Some((controllers, pods)))
    }

    /// Returns the wait for an object that is ready between crashes of its pods, if they can be read before `until`.
    pub(crate) async fn crash_wait(&self, object: &Value, until: Instant) -> Option<TaskWait> {
        let (_, pods) = timeout_at(until, Box::pin(self.pods_of(object))).await.ok()?.ok()??;
        let (pods, _) = present_pods(pods, false);
        let crash = |pod: &Value| Some((source(object, pod), self.blocker("crash", pod, &[], &[], 0)?));
        let (source, blocker) = pods.iter().find_map(crash)?;
        Some(task_waits::blocked(task_waits::wait(ObjectRef::of(object), ""), source.as_deref(), &blocker, now_ms()))
    }

    /// Returns the wait for the end of an object that is being deleted. If that lasts because of its pods, the wait names
    /// one of them, with its finalizers. Without a right or a response, it does not.
    pub(crate) async fn deletion_wait(&self, object_ref: &ObjectRef, object: &Value) -> TaskWait {
        let wait = objects::deletion(object_ref, object);
        if wait.since_ms.is_none_or(|since| since < PROMPT_DELETION_MS) {
            return wait;
        }
        match timeout(EXPLANATIONS, Box::pin(self.terminating_pod(object))).await {
            Ok(Ok(Some(why))) => TaskWait { message: message(&format!("{}; {why}", wait.message)), ..wait },
            _ => wait,
        }
    }

    /// Returns why a pod of an object that is being deleted still exists. Pods with finalizers come first.
    async fn terminating_pod(&self, object: &Value) -> kube::Result<Option<String>> {
        // The wait for a pod has its own finalizers.
        let pods = self.pods_of(object).await?.filter(|_| !is_pod(object)).map(|(_, pods)| pods);
        let terminating = pods.iter().flatten().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string());
        let held = terminating.max_by_key(|pod| !pod["metadata"]["finalizers"].is_null());
        Ok(held.map(|pod| {
            let wait = objects::deletion(&ObjectRef::of(pod), pod);
            format!("pod `{}`: {}", objects::name(pod), wait.message)
        }))
    }

    /// Returns the objects with owners in a namespace, or cluster-wide for `""`: pods, and those of the kinds that tasks
    /// may create. A kind that cannot be listed is skipped.
    async fn owned_objects(&self, namespace: &str) -> Arc<Vec<Value>> {
        let read = async {
            let mut owned = Vec::new();
            let managed = async { self.managed_kinds(&mut Vec::new()).await.unwrap_or_default() };
            let kinds = self.kinds.get("", KINDS_MAX_AGE, managed).await;
            let kinds = kinds.iter().filter(|kind| kind.namespaced != namespace.is_empty());
            let kinds = kinds.filter(|kind| !SKIPPED.contains(&kind.resource.kind.as_str())).take(MAX_KINDS).cloned();
            let pods = (!namespace.is_empty()).then(ResourceKind::pod);
            for kind in kinds.chain(pods) {
                let all = ListParams::default().limit(PAGE);
                let mut list = self.read_all(&kind, namespace, &all).await.unwrap_or_default();
                list.retain(|it| !it["metadata"]["ownerReferences"].is_null());
                list.iter_mut().filter(|it| !is_pod(it)).for_each(keep_status);
                owned.extend(list);
            }
            owned
        };
        self.owned.get(namespace, MAX_AGE, read).await
    }
}

fn is_pod(object: &Value) -> bool {
    group_kind(object) == ("", "Pod")
}

/// Returns the name of a pod of an object, for people, unless it is the object itself.
fn source(object: &Value, pod: &Value) -> Option<String> {
    (!is_pod(object)).then(|| format!("pod `{}`", objects::name(pod)))
}

/// Returns true for a kind that Kubernetes does not define. Only such kinds own objects of unknown kinds.
fn is_custom(object: &Value) -> bool {
    let (group, _) = group_kind(object);
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Returns the parameters that list the objects with the labels of a controller's selector.
fn selected(controller: &Value) -> ListParams {
    let labels = controller["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let labels: Vec<_> = labels.collect();
    match labels.is_empty() {
        true => ListParams::default().limit(PAGE),
        // The API server answers from its memory.
        false => ListParams::default().labels(&labels.join(",")).match_any(),
    }
}

/// Returns true if the controller of an object has not seen its present specification.
fn is_outdated(object: &Value) -> bool {
    let observed = &object["status"]["observedGeneration"];
    observed.is_number() && *observed != object["metadata"]["generation"]
}

/// Returns true for a Job that fails or has failed. Kubernetes deletes its remaining pods before it has failed.
pub(crate) fn is_failing_job(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut holding = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
    group_kind(object) == ("batch", "Job") && holding.any(|it| it["type"] == "FailureTarget" || it["type"] == "Failed")
}

/// Returns the pods of an object that may explain something, the newest last, and the time at which the newest of all was
/// created. Failed pods that were replaced explain nothing. Terminating ones do if the object `is_failing`.
fn present_pods(mut pods: Vec<Value>, is_failing: bool) -> (Vec<Value>, u64) {
    let made_ms = |pod: &Value| millis_at(&pod["metadata"]["creationTimestamp"]);
    let newest_ms = pods.iter().map(made_ms).max().unwrap_or(0);
    pods.retain(|pod| {
        let is_replaced = pod["status"]["phase"] == "Failed" && made_ms(pod) < newest_ms;
        (is_failing || pod["metadata"]["deletionTimestamp"].is_null()) && !is_replaced
    });
    pods.sort_by_key(made_ms);
    (pods, newest_ms)
}

/// Removes what explains nothing from an object that is not a pod: all except its kind, its metadata, its status, its
/// selector, and the fields of its spec that its contract reads.
fn keep_status(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.retain(|key, _| ["apiVersion", "kind", "metadata", "spec", "status"].contains(&&**key));
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) {
        let is_small = |value: &Value| !value.is_object() && !value.is_array();
        spec.retain(|key, value| is_small(value) || ["selector", "updateStrategy", "claimNames"].contains(&&**key));
    }
}

fn is_owned_by(object: &Value, owners: &[String]) -> bool {
    let mut found = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    found.any(|it| owners.iter().any(|owner| it["uid"] == *owner))
}

fn pending(contracts: &ContractTable, object: &Value) -> Option<StartBlocker> {
    let (code, message) = match contract::judge(contracts, Some(object), None, DocumentRules::default()) {
        ObjectReadiness::Pending { reason } => (ReasonCode::Timeout, reason),
        ObjectReadiness::Failed { reason, message } => (ReasonCode::Failed, format!("{reason}: {message}")),
        ObjectReadiness::Ready | ObjectReadiness::Gone => return None,
    };
    Some(StartBlocker { code, message, ..StartBlocker::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::rows;

    #[test]
    fn selectors_owners_and_conditions() {
        let deployment = rows::<Value>("selectors_owners_and_conditions").remove(0);
        let (some, all) = (selected(&deployment), selected(&json!({})));
        assert_eq!((some.label_selector.as_deref(), some.limit), (Some("app=web,tier=x"), None));
        assert_eq!((some.resource_version.as_deref(), all.resource_version), (Some("0"), None));
        assert_eq!((all.label_selector, all.limit), (None, Some(PAGE)));
        let is_owned = |owner: &str| is_owned_by(&deployment, &[owner.to_owned()]);
        assert!(is_owned("b") && !is_owned("c"));
        for (version, expected) in rows::<(String, bool)>("versions_of_kinds") {
            assert_eq!(is_custom(&json!({"apiVersion": version})), expected, "{version}");
        }
    }

    #[test]
    fn owned_objects_keep_what_their_contracts_read() {
        for (mut object, expected) in rows::<(Value, Value)>("owned_objects_keep_what_their_contracts_read") {
            keep_status(&mut object);
            assert_eq!(object, expected);
        }
    }

    /// A rollout that has just begun has the status and the pods of the former generation.
    #[test]
    fn former_generations_and_pods_explain_nothing() {
        for (observed, expected) in rows::<(Value, bool)>("former_generations") {
            let object = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": observed}});
            assert_eq!(is_outdated(&object), expected, "{observed}");
        }
        let mut pods = rows::<Value>("former_pods");
        pods.retain(|pod| is_owned_by(pod, &["a".to_owned()]));
        for (is_failing, expected) in [(false, vec!["older", "newest"]), (true, vec!["older", "newest", "terminating"])]
        {
            let (present, newest_ms) = present_pods(pods.clone(), is_failing);
            let names: Vec<_> = present.iter().map(objects::name).collect();
            assert_eq!((names, newest_ms), (expected, 4_000));
        }
        assert_eq!(present_pods(rows("failed_pods"), false).0.len(), 1);
    }
}
