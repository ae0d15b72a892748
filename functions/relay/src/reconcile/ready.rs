//! Waits for objects. When all are ready, their outputs are collected.

use std::sync::Arc;

use ebb_cel::{EvaluationError, ObjectExpressionError};
use ebb_kube::contract::built_in;
use ebb_protocol::limits::{OUTPUT, OUTPUTS};
use ebb_protocol::relay::{MAX_WAITS, ObjectCount, ObjectOutput, ObjectOutputFrom, TaskCompletion, TaskWait};
use ebb_protocol::{Callback, CallbackStatus, ObjectRemoval, ReasonCode, TaskId, UnitValue};
use serde_json::Value;
use tokio::time::Instant;

use crate::error::{ReconcileError, Result, StepError, StepResult, error_message, fail, is_final, status};
use crate::objects::{self, documents, references};
use crate::observe::ready_rules;
use crate::reasons::dependents::EXPLANATIONS;
use crate::reconcile::ReconcileAction;
use crate::task::decide::{self, ObjectsStep, deadline_failure};
use crate::{AppliedObject, ObjectRef, Reconciler, TaskSpec, VersionedRecord, now_ms, task_waits};

impl Reconciler {
    /// Observes a running task once. A refusal by the API server ends the task at its deadline.
    pub(crate) async fn wait(self: &Arc<Self>, held: &mut VersionedRecord) -> Result<ReconcileAction> {
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        let before = held.clone();
        let result = match self.try_wait(held, &spec).await {
            Err(StepError::Incomplete(ReconcileError::Api(error))) => {
                let why = self.record_refusal(&before.record, &error).await;
                if !is_final(&error, spec.deadline_ms) {
                    return Err(error.into());
                }
                // Discard unsaved changes of the step.
                *held = before;
                deadline_failure(Some(&why))
            }
            Err(StepError::Incomplete(error)) => return Err(error),
            Err(StepError::Failed(result)) => *result,
            Ok(next) => return Ok(next),
        };
        self.terminate_with(held, result).await
    }

    async fn try_wait(self: &Arc<Self>, held: &mut VersionedRecord, spec: &TaskSpec) -> StepResult<ReconcileAction> {
        let name = held.record.name.clone();
        let (removing, removal) = match self.remove_units(&name, &spec.objects.remove).await {
            // Rights may be granted until the deadline.
            Err(ReconcileError::Api(error)) if status(&error).is_some() => {
                let wait = task_waits::refusal("objects to remove", &error, &error_message(&error));
                (vec![wait], ObjectRemoval::default())
            }
            remaining => remaining?,
        };
        if spec.container().is_some() {
            return Ok(self.wait_for_container(held, removing).await?);
        }
        let (objects, mut waits) = self.read_objects(spec).await?;
        // Each object that is not ready has one wait.
        let total = spec.manifests().count();
        let count = ObjectCount { total, ready: total.saturating_sub(waits.len()) };
        self.registry.record_objects(&name, count, task_waits::object_states(spec, &waits));
        waits.extend(removing);
        for wait in &mut waits {
            wait.fails_in_ms = wait.fails_in_ms.or(decide::fails_in_ms(spec, wait, &self.settings));
        }
        // A task that fails now needs no record of what fails later.
        if !waits.iter().any(task_waits::is_failure) {
            self.record_failing_job(held, &objects, &waits).await?;
        }
        let mut step = decide::objects(spec, &waits, now_ms());
        if let ObjectsStep::Fail(result) = &mut step {
            let first = waits.iter().position(task_waits::is_failure).unwrap_or_default();
            if let Some(wait) = waits.get_mut(first) {
                let is_awaited = |object: &&Value| wait.object == ObjectRef::of(object).to_string();
                if let Some(object) = objects.iter().find(is_awaited) {
                    self.add_cause(result, spec, object).await;
                }
                // The state of the object has its cause, too.
                let why = result.reason.as_ref().and_then(|reason| reason.message.strip_prefix(&wait.object));
                if let Some(why) = why.and_then(|why| why.strip_prefix(": ")) {
                    wait.message = why.to_owned();
                }
            }
            result.objects = task_waits::object_states(spec, &waits);
        }
        self.registry.record_waits(&name, waits);
        match step {
            ObjectsStep::Wait(until) => Ok(ReconcileAction::requeue_at(until)),
            ObjectsStep::Fail(result) => Err(StepError::Failed(result)),
            ObjectsStep::Collect => {
                let mut result = match self.collect(&name, spec, &objects).await {
                    Err(StepError::Failed(result)) => *result,
                    collected => collected?,
                };
                result.removal = (!spec.objects.remove.is_empty()).then_some(removal);
                Ok(self.finish(held, result).await?)
            }
        }
    }

    async fn read_current(self: &Arc<Self>, object_ref: &ObjectRef) -> StepResult<Option<Value>> {
        self.watch(&object_ref.api_version, &object_ref.kind, object_ref.namespace.as_deref()).await?;
        Ok(self.read(object_ref).await?)
    }

    /// Reads the objects of a task. Returns them with the waits for those that are not ready or have failed.
    async fn read_objects(self: &Arc<Self>, spec: &TaskSpec) -> StepResult<(Vec<Value>, Vec<TaskWait>)> {
        let rules = match &spec.objects.until {
            TaskCompletion::Ready(rules) => rules.as_slice(),
            TaskCompletion::Ended { .. } => &[],
        };
        let contracts = built_in();
        let (mut judged, mut has_failed) = (Vec::new(), false);
        for (number, applied) in spec.manifests().enumerate() {
            let AppliedObject { object_ref, uid, .. } = applied;
            let object = match self.read_current(object_ref).await {
                // The failure is known. The other objects are only described.
                Err(_) if has_failed => break,
                object => object?,
            };
            let mut wait = decide::judge(contracts, applied, object.as_ref(), rules.get(number));
            if !has_failed
                && let (None, Some(namespace)) = (&object, &object_ref.namespace)
                && let Some(why) = self.namespace_problem(namespace).await
            {
                wait = Some(task_waits::failure(object_ref, ReasonCode::Lost, &why));
            }
            has_failed |= wait.as_ref().is_some_and(task_waits::is_failure);
            judged.push((wait, object.filter(|object| objects::uid(object) == uid)));
        }
        let unread = spec.manifests().skip(judged.len()).map(|applied| &applied.object_ref);
        let unread: Vec<_> = unread.map(|object_ref| task_waits::wait(object_ref, "its state is unknown")).collect();
        let until = Instant::now() + EXPLANATIONS;
        let (mut objects, mut waits) = (Vec::new(), Vec::new());
        for (wait, object) in judged {
            let wait = match (wait, &object) {
                (Some(wait), Some(object)) if !has_failed && waits.len() < MAX_WAITS => {
                    Some(self.explain(wait, object, until).await)
                }
                (wait, _) => wait,
            };
            waits.extend(wait);
            objects.extend(object);
        }
        waits.extend(unread);
        // The pods are read once all objects are ready. A rule of the document replaces this check.
        if waits.is_empty() {
            for (number, object) in objects.iter().enumerate() {
                if rules.get(number).is_none_or(|rules| rules.ready.is_none()) {
                    waits.extend(self.crash_wait(object, until).await);
                }
            }
        }
        Ok((objects, waits))
    }

    /// Collects the outputs. Fails if one is missing or invalid.
    async fn collect(&self, name: &TaskId, spec: &TaskSpec, objects: &[Value]) -> StepResult<Callback> {
        let mut result = Callback::new(CallbackStatus::Succeeded);
        let mut total = 0;
        for (number, output) in spec.objects.outputs.iter().enumerate() {
            let value = self.read_output(spec, output, objects).await?;
            let size = value.size();
            total += size;
            if size > OUTPUT || total > OUTPUTS {
                let why = format!("output {:?} has {size} bytes, all so far {total}", output.name);
                return fail(ReasonCode::OutputTooLarge, &why);
            }
            match value {
                // The control plane decides whether an output may be null.
                UnitValue::Json(Value::Null) => drop(result.outputs.insert(output.name.clone(), Value::Null)),
                value if output.sensitive => {
                    let bytes = value.to_bytes().unwrap_or_default();
                    let secret_ref = self.store_output(name, spec, number, bytes).await?;
                    result.secrets.insert(output.name.clone(), secret_ref);
                }
                UnitValue::Json(value) => drop(result.outputs.insert(output.name.clone(), value)),
                value => result.hold(&output.name, value.to_bytes().unwrap_or_default()),
            }
        }
        Ok(result)
    }

    async fn read_output(&self, spec: &TaskSpec, output: &ObjectOutput, objects: &[Value]) -> StepResult<UnitValue> {
        let failed = |code, why: &str| fail(code, &format!("output {:?}: {why}", output.name));
        let (text, key) = match &output.from {
            ObjectOutputFrom::Value(text) => (text, None),
            ObjectOutputFrom::Secret { name, key } => (name, Some(key)),
        };
        let value = match ready_rules::evaluate(text, objects) {
            Ok(value) => value,
            Err(
                ObjectExpressionError::Evaluation(EvaluationError::MissingValue(_)) | ObjectExpressionError::Nothing,
            ) if output.optional => Value::Null,
            Err(error) => return failed(ReasonCode::OutputInvalid, &format!("`{text}`: {error}")),
        };
        let Some(key) = key else { return Ok(UnitValue::Json(value)) };
        let Some(name) = value.as_str() else {
            return failed(ReasonCode::OutputInvalid, "the name of the Secret is not a string");
        };
        let first = spec.manifests().next().and_then(|it| it.object_ref.namespace.as_ref());
        let object_ref = ObjectRef::secret(first.unwrap_or(&spec.namespace), name);
        let secret = self.read(&object_ref).await?;
        if let Some(owner) = self.foreign_owner(&object_ref, secret.as_ref(), &spec.objects.instance).await? {
            return failed(ReasonCode::Denied, &references::foreign(&object_ref, &owner));
        }
        match documents::secret_bytes(&secret.unwrap_or_default(), key) {
            Some(bytes) => Ok(UnitValue::Bytes(bytes)),
            None => failed(ReasonCode::OutputMissing, &format!("{object_ref} has no key {key:?}")),
        }
    }
}
