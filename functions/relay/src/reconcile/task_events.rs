//! Tells people about tasks: Kubernetes Events on the first object of a task, and a log line per end and per refusal. Ends are counted.

use std::time::Duration;

use ebb_protocol::{Callback, CallbackStatus, ObjectTask, RelayRequest, TaskId, TaskNames, limits};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use serde_json::json;

use crate::metrics::METRICS;
use crate::names::{self, CONTROLLER};
use crate::{AppliedObject, Reconciler, TaskSpec};

/// Kubernetes accepts notes of up to 1,024 bytes.
const MAX_NOTE: usize = 1000;
/// Bytes of the reason of a refusal in the log.
const MAX_REASON: usize = 300;
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of a task as people see it.
pub(crate) struct TaskEnd {
    /// `succeeded`, `cancelled`, or the code of the reason.
    code: String,
    message: Option<String>,
    duration_ms: Option<u64>,
}

impl TaskEnd {
    pub(crate) fn of(result: &Callback) -> Self {
        let reason = result.reason.as_ref().filter(|_| result.status == CallbackStatus::Failed);
        let code = reason.map_or_else(|| json!(result.status), |reason| json!(reason.code));
        Self {
            code: code.as_str().unwrap_or_default().to_owned(),
            message: reason.map(|reason| reason.message.clone()),
            duration_ms: result.duration_ms,
        }
    }

    pub(crate) fn cancelled() -> Self {
        Self { code: "cancelled".to_owned(), message: None, duration_ms: None }
    }
}

impl Reconciler {
    pub(crate) fn publish_end(&self, name: &TaskId, spec: &TaskSpec, end: &TaskEnd) {
        let reason = match (&*end.code, spec.container()) {
            ("succeeded", Some(_)) => "Succeeded",
            ("succeeded", None) => "Ready",
            ("cancelled", _) => "Cancelled",
            _ => return self.publish(name, spec, "Failed", "End", Some(end)),
        };
        self.publish(name, spec, reason, "End", None);
    }

    /// Publishes an event about the first object of a task, in the background and at most once. It never delays a task, and
    /// its failure has no effect. A `failure` makes it a warning.
    pub(crate) fn publish(
        &self,
        name: &TaskId,
        spec: &TaskSpec,
        reason: &str,
        action: &str,
        failure: Option<&TaskEnd>,
    ) {
        // The relay has no right to events about objects outside of a namespace.
        let is_namespaced = |applied: &&AppliedObject| applied.object_ref.namespace.is_some();
        let Some(AppliedObject { object_ref, uid, .. }) = spec.manifests().next().filter(is_namespaced) else { return };
        let Ok(permit) = self.event_permits.clone().try_acquire_owned() else { return };
        let regarding = ObjectReference {
            api_version: Some(object_ref.api_version.clone()),
            kind: Some(object_ref.kind.clone()),
            namespace: object_ref.namespace.clone(),
            name: Some(object_ref.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        // The message may repeat a field of an object. Events have more readers than Secrets.
        let is_shown = spec.manifests().all(|it| it.object_ref.kind != "Secret");
        let type_ = if failure.is_some() { EventType::Warning } else { EventType::Normal };
        let failure = failure.map(|end| match end.message.as_deref().filter(|_| is_shown) {
            Some(message) => format!(": {}: {message}", end.code),
            None => format!(": {}", end.code),
        });
        let note = format!("{}{}", title(name, &spec.names), failure.unwrap_or_default());
        let note = Some(limits::clean(&note, MAX_NOTE));
        let (reason, action) = (reason.to_owned(), action.to_owned());
        let event = Event { type_, reason, note, action, secondary: None };
        // One recorder for all events would keep those of six minutes, to count equal ones.
        let recorder = Recorder::new(self.client.clone(), CONTROLLER.into());
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(EVENT_TIMEOUT, recorder.publish(&event, &regarding)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an event was not published"),
                Err(_) => tracing::debug!("an event was not published in time"),
            }
        });
    }
}

/// Returns the names of a task for an event: `sandbox/shop db/create, attempt 1`.
fn title(TaskId { unit, attempt }: &TaskId, names: &TaskNames) -> String {
    let own =
        [&*names.resource, &*names.unit].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/");
    match own.is_empty() {
        true => format!("{unit}, attempt {attempt}"),
        false => format!("{} {own}, attempt {attempt}", names.target).trim_start().to_owned(),
    }
}

pub(crate) fn record_end(TaskId { unit, attempt }: &TaskId, names: &TaskNames, end: &TaskEnd) {
    let TaskNames { target, resource, unit: unit_name, plugin, hook } = names;
    let TaskEnd { code, duration_ms, .. } = end;
    tracing::info!(unit, attempt, target, resource, unit_name, plugin, hook, code, duration_ms, "a task has ended");
    METRICS.tasks_ended.with_label_values(&[code]).inc();
}

/// Logs the refusal of a start. Refusals of other requests go to the control plane only.
pub(crate) fn log_refusal(request: &RelayRequest, why: &str) {
    let RelayRequest::Ensure(request) = request else { return };
    let (TaskId { unit, attempt }, mut shown) = (&request.task, request.names.clone());
    names::clean(&mut shown);
    let TaskNames { target, resource, unit: unit_name, plugin, hook } = shown;
    let (unit, reason) = (limits::clean(unit, MAX_REASON), shown_reason(&request.body, why));
    tracing::info!(unit, attempt, target, resource, unit_name, plugin, hook, reason, "a task was refused");
}

/// Returns the reason of a refusal for the log. An admission webhook may quote the data of a Secret.
fn shown_reason(task: &ObjectTask, why: &str) -> Option<String> {
    (!task.apply.iter().any(|manifest| manifest["kind"] == "Secret")).then(|| limits::clean(why, MAX_REASON))
}

#[cfg(test)]
mod tests {
    use ebb_protocol::callback::ReasonCode;

    use super::*;

    #[test]
    fn ends_have_a_code_and_a_title() {
        let succeeded = TaskEnd::of(&Callback::new(CallbackStatus::Succeeded));
        assert_eq!((&*succeeded.code, succeeded.message), ("succeeded", None));
        let failed = TaskEnd::of(&Callback::failed(ReasonCode::ImagePull, "no such image"));
        assert_eq!((&*failed.code, failed.message.as_deref()), ("imagePull", Some("no such image")));
        let name = TaskId { unit: "run-0".to_owned(), attempt: 2 };
        let names = |target: &str, resource: &str, unit: &str| {
            let [target, resource, unit] = [target, resource, unit].map(str::to_owned);
            title(&name, &TaskNames { target, resource, unit, ..TaskNames::default() })
        };
        assert_eq!(names("sandbox/a", "db", "create"), "sandbox/a db/create, attempt 2");
        assert_eq!(names("sandbox/a", "", "create"), "sandbox/a create, attempt 2");
        assert_eq!(names("", "", ""), "run-0, attempt 2");
    }

    #[test]
    fn refusals_of_secrets_are_logged_without_text() {
        for (kind, expected) in [("ConfigMap", Some("denied: hunter2")), ("Secret", None)] {
            let apply = vec![json!({"kind": "ConfigMap"}), json!({"kind": kind})];
            let task = ObjectTask { apply, ..ObjectTask::default() };
            assert_eq!(shown_reason(&task, "denied: hunter2").as_deref(), expected);
        }
    }
}
