//! What is asked for, judged before anything is done.

use std::collections::BTreeSet;

use ebb_podspec::ClusterPolicy;
use ebb_protocol::relay::{EnsureTask, ObjectOutputFrom, ObjectTask, TaskCompletion, VERSION};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use url::Url;

use crate::error::{ReconcileError, error_message, status};
use crate::names;
use crate::objects::{self, ObjectOwnership};
use crate::record::ObjectRef;
use crate::relay::Reconciler;
use crate::rules;

/// Why something is not done.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// It will never be done as it is written.
    Refused(String),
    Failed(ReconcileError),
}

impl<E: Into<ReconcileError>> From<E> for RequestError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError::Refused(why.into()))
}

impl Reconciler {
    /// Checks a request and fills in what it leaves out: namespaces, and our labels. Reads the cluster, changes nothing.
    ///
    /// # Errors
    /// [`RequestError`].
    pub(crate) async fn validate(&self, request: &mut EnsureTask<ObjectTask>) -> Result<(), RequestError> {
        if request.v != VERSION {
            return refuse(format!("version {} of the request is not known here", request.v));
        }
        names::check_task(&request.task).map_err(RequestError::Refused)?;
        names::check_instance(&request.body.instance).map_err(RequestError::Refused)?;
        self.may_call(&request.callback.url).map_err(RequestError::Refused)?;
        let namespace = self.namespace(&request.body);
        let is_ours = namespace == self.settings.own_namespace;
        if is_ours || !self.settings.policy.namespaces.contains_key(&namespace) {
            return refuse(format!("the namespace `{namespace}` is not allowed"));
        }
        check_expressions(&request.body).map_err(RequestError::Refused)?;
        let allowed = self.effective_policy(&request.body).await?;
        let labels = json!(names::task_labels(&request.task, &request.body.instance));
        let until = request.body.until.clone();
        for (number, manifest) in request.body.apply.iter_mut().enumerate() {
            let is_awaited = number == 0 && matches!(until, TaskCompletion::Ended { .. });
            self.complete_manifest(manifest, &namespace, &allowed, is_awaited).await?;
            add_labels(manifest, "", &labels).map_err(RequestError::Refused)?;
            if is_awaited {
                if !ObjectRef::of(manifest).is_job() {
                    return refuse("a container's end is awaited, and the first object is no Job");
                }
                check_single_pod(&manifest["spec"]).map_err(RequestError::Refused)?;
                add_labels(manifest, "/spec/template", &labels).map_err(RequestError::Refused)?;
            }
        }
        let documents = request.body.secrets.iter().map(|it| ObjectRef::secret(&namespace, &it.name));
        let places: Vec<_> = documents.chain(request.body.apply.iter().map(ObjectRef::of)).collect();
        for place in &places {
            if let Some(object) = self.read(place).await.map_err(|error| read_error(place, error))?
                && objects::ownership(&object, &request.task) == ObjectOwnership::Foreign
            {
                return refuse(format!("{place} is there already, and was not made for this task"));
            }
        }
        Ok(())
    }

    /// The namespace of a unit.
    pub(crate) fn namespace(&self, objects: &ObjectTask) -> String {
        objects.namespace.clone().unwrap_or_else(|| self.settings.default_namespace.clone())
    }

    /// What the operator allows, the Secrets that come with the task, and those that hold outputs of its instance.
    async fn effective_policy(&self, objects: &ObjectTask) -> Result<ClusterPolicy, ReconcileError> {
        let mut allowed = self.settings.policy.clone();
        allowed.secrets.extend(objects.secrets.iter().map(|document| document.name.clone()));
        let reads_outputs = objects.apply.iter().any(|manifest| manifest.to_string().contains(names::OUTPUTS));
        if reads_outputs {
            let (found, unread) = self.output_secrets(&objects.instance).await;
            if let Some(error) = unread.into_iter().find(|error| status(error) != Some(403)) {
                return Err(error.into());
            }
            allowed.secrets.extend(found.iter().map(|(_, secret)| secret.name_any()));
        }
        Ok(allowed)
    }

    /// Fills in the namespace of a manifest and judges it. `is_awaited`: it is the Job whose container is awaited.
    async fn complete_manifest(
        &self,
        manifest: &mut Value,
        namespace: &str,
        allowed: &ClusterPolicy,
        is_awaited: bool,
    ) -> Result<(), RequestError> {
        if !manifest["metadata"]["name"].is_string() {
            return refuse("a manifest without `metadata.name`");
        }
        let place = ObjectRef::of(manifest);
        let found = self.discovery.find(&self.client, &place.api_version, &place.kind).await?;
        let Some(kind) = found else {
            return refuse(format!("the cluster has no kind `{}` of `{}`", place.kind, place.api_version));
        };
        match (kind.namespaced, &place.namespace) {
            (true, None) => manifest["metadata"]["namespace"] = namespace.into(),
            (false, Some(_)) => drop(manifest["metadata"].as_object_mut().map(|it| it.remove("namespace"))),
            _ => {}
        }
        if manifest["metadata"]["namespace"] == *self.settings.own_namespace {
            return refuse(format!("{place}: the relay's own namespace is nobody's"));
        }
        let mut judged = manifest.clone();
        if is_awaited && allowed.secrets.contains(&place.name) {
            // It is named like the Secret that comes with it, for whose names nobody else can ask.
            judged["metadata"]["name"] = "job".into();
        }
        let refusals = ebb_podspec::manifest_violations(&judged, allowed);
        if refusals.is_empty() {
            return Ok(());
        }
        let told: Vec<_> = refusals.iter().map(ToString::to_string).collect();
        refuse(format!("{place}: {}", told.join("; ")))
    }

    /// Whether callbacks may go to a URL.
    ///
    /// # Errors
    /// When they may not; says why.
    pub(crate) fn may_call(&self, url: &str) -> Result<(), String> {
        let parsed = Url::parse(url).map_err(|error| format!("the callback's URL: {error}"))?;
        let host = parsed.host_str().unwrap_or_default();
        let with_port = parsed.port_or_known_default().map(|port| format!("{host}:{port}"));
        let hosts = &self.settings.callback_hosts;
        let known = hosts.contains(host) || with_port.is_some_and(|it| hosts.contains(&it));
        if !matches!(parsed.scheme(), "http" | "https") || !known {
            return Err(format!("callbacks may not go to `{host}`: ask the operator of the cluster"));
        }
        Ok(())
    }
}

/// What the relay may not even read it will not be allowed to make: whoever asks has to hear that, and not to ask again.
fn read_error(place: &ObjectRef, error: kube::Error) -> RequestError {
    match status(&error) {
        Some(403) => RequestError::Refused(format!("the relay has no right to {place}: {}", error_message(&error))),
        _ => error.into(),
    }
}

/// That what has to be evaluated can be, and that what has to be collected can be found.
fn check_expressions(objects: &ObjectTask) -> Result<(), String> {
    let mut texts = Vec::new();
    match &objects.until {
        TaskCompletion::Ready(rules) => {
            if rules.len() > objects.apply.len() {
                return Err("there are more rules than manifests".to_owned());
            }
            texts.extend(rules.iter().flat_map(|it| [&it.ready, &it.fail]).flatten());
        }
        TaskCompletion::Ended { .. } if objects.apply.is_empty() => {
            return Err("a container's end is awaited, and nothing is applied".to_owned());
        }
        TaskCompletion::Ended { .. } if !objects.outputs.is_empty() => {
            return Err(
                "outputs of objects are collected once these are ready; an entrypoint reports its own".to_owned()
            );
        }
        TaskCompletion::Ended { .. } => {}
    }
    let mut seen = BTreeSet::new();
    for output in &objects.outputs {
        if objects.apply.is_empty() || !seen.insert(&output.name) {
            return Err(format!("output {:?} is of no object, or there twice", output.name));
        }
        match &output.from {
            ObjectOutputFrom::Value(text) | ObjectOutputFrom::Secret { name: text, .. } => texts.push(text),
        }
    }
    texts.into_iter().try_for_each(|text| rules::check(text).map_err(|why| format!("`{text}`: {why}")))
}

/// That the Job whose container is awaited has one pod and never another: a task is one place among those that run.
fn check_single_pod(spec: &Value) -> Result<(), String> {
    let why = "a Job whose container is awaited has one pod, and is tried once";
    for (field, value) in spec.as_object().into_iter().flatten() {
        let fits = match field.as_str() {
            "activeDeadlineSeconds" | "template" => true,
            "backoffLimit" => *value == 0,
            "completions" | "parallelism" => *value == 1,
            _ => false,
        };
        if !fits {
            return Err(format!("spec.{field}: {why}"));
        }
    }
    if spec["backoffLimit"].is_null() {
        return Err(format!("spec.backoffLimit: {why}; write 0"));
    }
    Ok(())
}

/// Adds labels to what is at a JSON Pointer of a manifest.
///
/// # Errors
/// When it cannot have any; says why.
fn add_labels(manifest: &mut Value, at: &str, labels: &Value) -> Result<(), String> {
    let no_map = |what: &str| format!("{at}/{what} is no map");
    let mut there = manifest.pointer_mut(at).ok_or_else(|| no_map(""))?;
    for part in ["metadata", "labels"] {
        let map = there.as_object_mut().ok_or_else(|| no_map(part))?;
        there = map.entry(part).or_insert(Value::Null);
        if there.is_null() {
            *there = json!({});
        }
    }
    let map = there.as_object_mut().ok_or_else(|| no_map("metadata/labels"))?;
    map.extend(labels.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_where_there_may_be_some() {
        let labels = json!({"a": "b"});
        for (manifest, at, expected) in [
            (json!({}), "", Some(json!({"metadata": {"labels": {"a": "b"}}}))),
            (
                json!({"metadata": {"labels": {"c": "d"}}}),
                "",
                Some(json!({"metadata": {"labels": {"a": "b", "c": "d"}}})),
            ),
            (json!({"t": {"metadata": null}}), "/t", Some(json!({"t": {"metadata": {"labels": {"a": "b"}}}}))),
            (json!({"metadata": {"labels": "text"}}), "", None),
            (json!({"metadata": "text"}), "", None),
            (json!({"t": "text"}), "/t", None),
            (json!({}), "/t", None),
        ] {
            let mut labelled = manifest.clone();
            let done = add_labels(&mut labelled, at, &labels).is_ok();
            assert_eq!(done.then_some(labelled), expected, "{manifest}");
        }
    }
}
