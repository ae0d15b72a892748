//! Validates a request before anything is written.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ebb_cel::ObjectExpression;
use ebb_kube::podspec::{self, ClusterPolicy, PodSecurityLevel, PodspecViolation};
use ebb_protocol::relay::{EnsureTask, ObjectOutputFrom, ObjectTask, TaskCompletion, VERSION};
use http::header::{CONTENT_TYPE, WARNING};
use kube::api::{Api, DynamicObject};
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use url::Url;

use crate::api_server::discovery::ResourceKind;
use crate::names::{self, MANAGER, ObjectMarks};
use crate::objects::{self, ObjectOwnership};
use crate::{ObjectRef, ReconcileError, Reconciler, Result, error_message, refuse, status};

type ManifestCheck = fn(&Value, &ClusterPolicy) -> Vec<PodspecViolation>;

impl Reconciler {
    /// Checks a request and fills in namespaces and labels. Reads the cluster and changes nothing.
    pub(crate) async fn validate(&self, request: &mut EnsureTask<ObjectTask>) -> Result<()> {
        if request.v != VERSION {
            return refuse(format!("version {} of the request is not supported; expected {VERSION}", request.v));
        }
        request.task.check().map_err(ReconcileError::Refused)?;
        names::check_instance(&request.body.instance).map_err(ReconcileError::Refused)?;
        self.may_call(&request.callback.url).map_err(ReconcileError::Refused)?;
        let namespace = self.namespace(&request.body);
        if namespace == self.settings.own_namespace {
            return refuse(format!("the namespace `{namespace}` holds the records of the relay; choose another one"));
        }
        if let Some(violation) = self.policy.namespace_violation(&namespace) {
            return refuse(format!("{}; {}", violation.why, violation.help));
        }
        check_expressions(&request.body).map_err(ReconcileError::Refused)?;
        let is_secret = |number: usize| {
            let manifest = request.body.apply.get(number);
            manifest.is_some_and(|manifest| manifest["apiVersion"] == "v1" && manifest["kind"] == "Secret")
        };
        if let Some(fill) = request.body.fill.iter().find(|fill| !is_secret(fill.manifest)) {
            return refuse(format!("a value for `data` is for manifest {}, which is not a Secret", fill.manifest));
        }
        let violations: ManifestCheck =
            if request.body.bind { podspec::bound_violations } else { podspec::manifest_violations };
        let allowed = self.effective_policy(&request.body).await?;
        names::clean(&mut request.names);
        let marks = names::object_marks(&request.task, &request.body.instance, &request.names, &[]);
        let until = request.body.until.clone();
        for (number, manifest) in request.body.apply.iter_mut().enumerate() {
            let is_awaited = number == 0 && matches!(until, TaskCompletion::Ended { .. });
            let kind = self.complete_manifest(manifest, &namespace, &allowed, violations, is_awaited).await?;
            add_marks(manifest, "", &marks).map_err(ReconcileError::Refused)?;
            let place = manifest["metadata"]["namespace"].as_str().unwrap_or(&namespace).to_owned();
            if is_awaited {
                if !ObjectRef::of(manifest).is_job() {
                    return refuse("the end of a container is awaited, so the first object must be a Job");
                }
                check_single_pod(&manifest["spec"]).map_err(ReconcileError::Refused)?;
                add_marks(manifest, "/spec/template", &marks).map_err(ReconcileError::Refused)?;
                if let Some(pod) = manifest.pointer_mut("/spec/template/spec") {
                    podspec::fill_defaults(pod, &place, &allowed);
                }
            }
            let api: Api<DynamicObject> = kind.api(&self.client, manifest["metadata"]["namespace"].as_str());
            let (code, why) = dry_run(&self.client, api.resource_url(), manifest).await?;
            // Others are ignored here, because the real request may succeed: a quota, or an object that an earlier
            // manifest creates. So are warnings of another level, which the namespace may not enforce.
            let level = format!("{POD_SECURITY} \"{}:", allowed.level(&place).name());
            let violates = why.contains("violates PodSecurity") || why.contains(&level);
            // Another level does not help a pod that the admission policy rejects, too.
            if violates && !why.contains("ValidatingAdmissionPolicy") {
                let fix = allowed.pod_security_fix(&place, &why);
                return refuse(format!("{}: {why}; {fix}", ObjectRef::of(manifest)));
            }
            if violates || (matches!(code, 400 | 422) && !why.starts_with("admission webhook")) {
                return refuse(format!("{}: {why}", ObjectRef::of(manifest)));
            }
        }
        let documents = request.body.secrets.iter().map(|it| ObjectRef::secret(&namespace, &it.name));
        let object_refs: Vec<_> = documents.chain(request.body.apply.iter().map(ObjectRef::of)).collect();
        for object_ref in &object_refs {
            let object = match self.read(object_ref).await {
                // Without the right to read an object, the relay has no right to create it.
                Err(error) if status(&error) == Some(403) => {
                    let (why, fix) = (error_message(&error), object_ref.right_fix(&self.settings.cluster));
                    return refuse(format!("the relay has no right to {object_ref}: {why}; {fix}"));
                }
                object => object?,
            };
            if let Some(object) = object
                && objects::ownership(&object, &request.task, &request.body.adopts) == ObjectOwnership::Foreign
            {
                return refuse(objects::foreign(object_ref));
            }
        }
        Ok(())
    }

    pub(crate) fn namespace(&self, objects: &ObjectTask) -> String {
        objects.namespace.clone().unwrap_or_else(|| self.settings.default_namespace.clone())
    }

    /// Returns the operator's policy, extended by the Secrets of the task and by those with outputs of its instance.
    async fn effective_policy(&self, objects: &ObjectTask) -> Result<ClusterPolicy> {
        let mut allowed = self.policy.clone();
        allowed.secrets.extend(objects.secrets.iter().map(|document| document.name.clone()));
        let reads_outputs = objects.apply.iter().any(|manifest| manifest.to_string().contains(names::OUTPUTS));
        if reads_outputs {
            let (found, unread) = self.output_secrets(&objects.instance).await;
            if let Some((_, error)) = unread.into_iter().find(|(_, error)| status(error) != Some(403)) {
                return Err(error.into());
            }
            allowed.secrets.extend(found.iter().map(|(_, secret)| secret.name_any()));
        }
        Ok(allowed)
    }

    /// Fills in the namespace of a manifest, checks it and returns its kind. `is_awaited` marks the Job of a script.
    async fn complete_manifest(
        &self,
        manifest: &mut Value,
        namespace: &str,
        allowed: &ClusterPolicy,
        violations: ManifestCheck,
        is_awaited: bool,
    ) -> Result<ResourceKind> {
        if !manifest["metadata"]["name"].is_string() {
            return refuse("a manifest has no `metadata.name`");
        }
        let object_ref = ObjectRef::of(manifest);
        let Some(kind) = self.discovery.find(&object_ref.api_version, &object_ref.kind).await? else {
            return refuse(format!("the cluster has no kind `{}` of `{}`", object_ref.kind, object_ref.api_version));
        };
        match (kind.namespaced, &object_ref.namespace) {
            (true, None) => manifest["metadata"]["namespace"] = namespace.into(),
            (false, Some(_)) => drop(manifest["metadata"].as_object_mut().map(|it| it.remove("namespace"))),
            _ => {}
        }
        if manifest["metadata"]["namespace"] == *self.settings.own_namespace {
            return refuse(format!("{object_ref}: the relay's own namespace is not allowed"));
        }
        let mut judged = manifest.clone();
        if is_awaited && allowed.secrets.contains(&object_ref.name) {
            // The Job has the name of its Secret, which the policy reserves for this task.
            judged["metadata"]["name"] = "job".into();
        }
        let refusals = violations(&judged, allowed);
        if refusals.is_empty() {
            return Ok(kind);
        }
        let messages: Vec<_> = refusals.iter().map(ToString::to_string).collect();
        refuse(format!("{object_ref}: {}", messages.join("; ")))
    }

    pub(crate) fn may_call(&self, url: &str) -> Result<(), String> {
        let parsed = Url::parse(url).map_err(|error| format!("invalid callback URL: {error}"))?;
        let host = parsed.host_str().unwrap_or_default();
        let with_port = parsed.port_or_known_default().map(|port| format!("{host}:{port}"));
        let is_listed = |name: &str| self.settings.callback_hosts.iter().any(|host| host == name);
        let is_known = is_listed(host) || with_port.is_some_and(|name| is_listed(&name));
        if !matches!(parsed.scheme(), "http" | "https") || !is_known {
            return Err(format!(
                "callbacks to `{host}` are not allowed; the operator can add it to the relay's callback hosts"
            ));
        }
        Ok(())
    }
}

/// The longest time after which a new admission policy is in force.
const POLICY_TIMEOUT: Duration = Duration::from_secs(10);
const POLICY_INTERVAL: Duration = Duration::from_millis(250);

/// Checks that the API server enforces the admission policy of the relay and Pod Security, in the namespace of units.
/// The policy requires Pod Security in the other namespaces. At the level `privileged`, Pod Security warns of nothing.
///
/// # Errors
/// Returns the missing part. Nothing else protects the node and credentials from pods.
pub async fn check_admission(client: &Client, namespace: &str, level: PodSecurityLevel) -> Result<(), String> {
    let pod =
        json!({"hostNetwork": true, "restartPolicy": "Never", "containers": [{"name": "check", "image": "check"}]});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ebb-admission-check"},
        "spec": {"template": {"spec": pod}},
    });
    let url = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    let begun = Instant::now();
    loop {
        let (code, text) = dry_run(client, &url, &job).await.map_err(|error| error_message(&error))?;
        let is_judged = level == PodSecurityLevel::Privileged || text.contains(POD_SECURITY);
        let why = match (text.contains("may not set hostNetwork"), is_judged) {
            (true, true) => return Ok(()),
            (true, false) => {
                "Pod Security does not warn of pods; enable its admission plugin, and remove the label \
                 pod-security.kubernetes.io/warn"
            }
            (false, _) if code < 300 => {
                "the API server does not enforce the ValidatingAdmissionPolicy of the relay; install it with the chart, \
                 in Kubernetes 1.30 or newer"
            }
            (false, _) => &text,
        };
        if begun.elapsed() > POLICY_TIMEOUT {
            return Err(format!("the namespace {namespace} is not protected: {why}"));
        }
        tokio::time::sleep(POLICY_INTERVAL).await;
    }
}

/// Pod Security rejects pods, and warns about pod templates, with this text.
const POD_SECURITY: &str = "PodSecurity";

/// Requests a new object without storing it. Returns the status and the reasons for a rejection.
async fn dry_run(client: &Client, url: &str, manifest: &Value) -> kube::Result<(u16, String)> {
    let url = format!("{url}?dryRun=All&fieldManager={MANAGER}&fieldValidation=Strict");
    let request = http::Request::post(url).header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(manifest.to_string().into_bytes()));
    let request =
        request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    // `299 - "would violate PodSecurity \"restricted:latest\": …"`
    let warnings = response.headers().get_all(WARNING).iter().filter_map(|warning| warning.to_str().ok());
    let warnings = warnings.filter(|warning| warning.contains(POD_SECURITY));
    let warnings: Vec<_> =
        warnings.map(|it| it.trim_start_matches("299 - ").trim_matches('"').replace("\\\"", "\"")).collect();
    let body: Value = serde_json::from_slice(&response.into_body().collect_bytes().await?).unwrap_or_default();
    let message = body["message"].as_str().filter(|_| code >= 400).map(str::to_owned);
    Ok((code, message.into_iter().chain(warnings).collect::<Vec<_>>().join("; ")))
}

/// Checks that all expressions compile and that every output has an object.
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
            return Err("the task waits for the end of a container, but it has no manifest".to_owned());
        }
        TaskCompletion::Ended { .. } if !objects.outputs.is_empty() => {
            return Err(
                "outputs of objects require rules for readiness; a container reports its own outputs".to_owned()
            );
        }
        TaskCompletion::Ended { .. } => {}
    }
    let mut seen = BTreeSet::new();
    for output in &objects.outputs {
        if objects.apply.is_empty() || !seen.insert(&output.name) {
            return Err(format!("output {:?} is a duplicate or has no object", output.name));
        }
        let (ObjectOutputFrom::Value(text) | ObjectOutputFrom::Secret { name: text, .. }) = &output.from;
        texts.push(text);
    }
    texts
        .into_iter()
        .try_for_each(|text| ObjectExpression::new(text).map(drop).map_err(|error| format!("`{text}`: {error}")))
}

/// Checks that the awaited Job has exactly one pod, because a task has one slot.
fn check_single_pod(spec: &Value) -> Result<(), String> {
    let why = "a Job whose container is awaited must have one pod and no retries";
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

/// Adds labels and annotations to the object at a JSON Pointer of a manifest.
fn add_marks(manifest: &mut Value, at: &str, marks: &ObjectMarks) -> Result<(), String> {
    let no_map = |what: &str| format!("{at}/{what} is not an object");
    for (part, entries) in [("labels", &marks.labels), ("annotations", &marks.annotations)] {
        let mut node = manifest.pointer_mut(at).ok_or_else(|| no_map(""))?;
        for part in ["metadata", part] {
            node = node.as_object_mut().ok_or_else(|| no_map(part))?.entry(part).or_insert(Value::Null);
            if node.is_null() {
                *node = json!({});
            }
        }
        let map = node.as_object_mut().ok_or_else(|| no_map(&format!("metadata/{part}")))?;
        for (key, value) in entries {
            // The manifest has no other key of these: the domain is reserved.
            if key != names::MANAGED_BY || !map.contains_key(key) {
                map.insert(key.clone(), value.as_str().into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::rows;

    #[test]
    fn marks_are_added_to_objects_with_metadata() {
        let map = |entries: Value| serde_json::from_value(entries).unwrap();
        let (labels, annotations) = (map(json!({"a": "b", names::MANAGED_BY: "ebb"})), map(json!({"x": "y"})));
        let marks = ObjectMarks { labels, annotations };
        let rows = rows::<(Value, String, Option<Value>)>("marks_are_added_to_objects_with_metadata");
        for (manifest, at, expected) in rows {
            let mut given = manifest.clone();
            assert_eq!(add_marks(&mut given, &at, &marks).is_ok().then_some(given), expected, "{manifest}");
        }
    }
}
