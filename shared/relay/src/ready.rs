//! Waits for objects. When all are ready, their outputs are collected.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::limits::{OUTPUT, OUTPUTS};
use ebb_protocol::relay::{ObjectOutput, ObjectOutputFrom, TaskCompletion, TaskId};
use ebb_readiness::ObjectReadiness;
use serde_json::Value;

use crate::documents;
use crate::error::{ReconcileError, error_message, is_final, status};
use crate::reconcile::ReconcileAction;
use crate::record::{ObjectRef, TaskSpec};
use crate::relay::Reconciler;
use crate::rules;
use crate::store::{VersionedRecord, now_ms};
use crate::wait_container;

/// The state of the objects of a task.
enum ObjectsState {
    /// The objects, and the first reason why they are not ready.
    Read(Vec<Value>, Option<String>),
    /// The task fails.
    Failed(Callback),
}

/// The state of an output.
enum OutputState {
    Found(CollectedOutput),
    Failed(ReasonCode, String),
}

impl Reconciler {
    /// Observes the objects of a task once. A refusal by the API server ends the task at its deadline.
    pub(crate) async fn wait(self: &Arc<Self>, held: &mut VersionedRecord) -> Result<ReconcileAction, ReconcileError> {
        let before = held.clone();
        let error = match self.try_wait(held).await {
            Err(ReconcileError::Api(error)) => error,
            done => return done,
        };
        let deadline = before.record.spec.as_ref().map_or(u64::MAX, |spec| spec.deadline_ms);
        if !is_final(&error, deadline) {
            return Err(error.into());
        }
        // Discard unsaved changes of the attempt above.
        *held = before;
        let result = wait_container::deadline_failure(held, &error_message(&error));
        self.terminate_with_result(held, result).await
    }

    async fn try_wait(self: &Arc<Self>, held: &mut VersionedRecord) -> Result<ReconcileAction, ReconcileError> {
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        let name = held.record.name.clone();
        let removing = match self.remove_units(&name, &spec.objects.remove).await {
            // Rights may be granted until the deadline.
            Err(ReconcileError::Api(error)) if status(&error).is_some() => Some(error_message(&error)),
            left => left?,
        };
        if spec.container().is_some() {
            return self.wait_for_container(held, removing).await;
        }
        let (objects, mut pending) = match self.judge(&spec).await? {
            ObjectsState::Read(objects, pending) => (objects, pending),
            ObjectsState::Failed(result) => return self.terminate_with_result(held, result).await,
        };
        pending = pending.or(removing);
        self.registry.record_pending(&name, pending.as_deref());
        let Some(why) = pending else {
            let result = self.collect(&name, &spec, &objects).await?;
            return self.finish(held, result).await;
        };
        if now_ms() < spec.deadline_ms {
            return Ok(match ReconcileAction::requeue_at(spec.deadline_ms) {
                // Objects of other tasks are watched by kind, but their records are not.
                ReconcileAction::Requeue(rest) if !spec.objects.remove.is_empty() => {
                    ReconcileAction::Requeue(rest.min(std::time::Duration::from_secs(1)))
                }
                next => next,
            });
        }
        let result = wait_container::deadline_failure(held, &why);
        self.terminate_with_result(held, result).await
    }

    /// Reads the objects of a task.
    async fn judge(self: &Arc<Self>, spec: &TaskSpec) -> Result<ObjectsState, ReconcileError> {
        let own = match &spec.objects.until {
            TaskCompletion::Ready(rules) => rules.as_slice(),
            TaskCompletion::Ended { .. } => &[],
        };
        let (mut objects, mut pending) = (Vec::new(), None);
        for (number, applied) in spec.manifests().enumerate() {
            let object_ref = &applied.object_ref;
            if let Some(kind) = self.discovery.find(&self.client, &object_ref.api_version, &object_ref.kind).await? {
                self.watch(&kind, object_ref.namespace.as_deref());
            }
            let object = self.read(object_ref).await?;
            let rules = match (own.get(number), &object) {
                (Some(rules), Some(object)) => rules::judge(rules, object),
                _ => Ok(ebb_readiness::DocumentRules::default()),
            };
            let rules = match rules {
                Ok(rules) => rules,
                Err(why) => {
                    let failure = Callback::failed(ReasonCode::Failed, &format!("{object_ref}: {why}"));
                    return Ok(ObjectsState::Failed(failure));
                }
            };
            match ebb_readiness::judge(object.as_ref(), Some(&applied.uid), rules) {
                ObjectReadiness::Ready => {}
                ObjectReadiness::Pending { reason: why } => {
                    pending.get_or_insert(format!("{object_ref}: {why}"));
                }
                ObjectReadiness::Failed { reason, message } => {
                    let why = format!("{object_ref}: {reason}: {message}");
                    return Ok(ObjectsState::Failed(Callback::failed(ReasonCode::Failed, &why)));
                }
                ObjectReadiness::Gone => {
                    let why = format!("{object_ref} was deleted or replaced");
                    return Ok(ObjectsState::Failed(Callback::failed(ReasonCode::Lost, &why)));
                }
            }
            objects.extend(object);
        }
        Ok(ObjectsState::Read(objects, pending))
    }

    /// Collects the outputs. Returns a failed result if one is missing or invalid.
    async fn collect(&self, name: &TaskId, spec: &TaskSpec, objects: &[Value]) -> Result<Callback, ReconcileError> {
        let mut result = Callback::new(CallbackStatus::Succeeded);
        let mut total = 0;
        for (number, output) in spec.objects.outputs.iter().enumerate() {
            let bytes = match self.read_output(spec, output, objects).await? {
                OutputState::Found(found) => found,
                OutputState::Failed(code, why) => {
                    return Ok(Callback::failed(code, &format!("output {:?}: {why}", output.name)));
                }
            };
            let size = bytes.size();
            total += size;
            if size > OUTPUT || total > OUTPUTS {
                let why = format!("output {:?} has {size} bytes, all so far {total}", output.name);
                return Ok(Callback::failed(ReasonCode::OutputTooLarge, &why));
            }
            match (output.sensitive, bytes) {
                (true, found) => {
                    let secret_ref = self.store_output(name, spec, number, found.bytes()).await?;
                    result.secrets.insert(output.name.clone(), secret_ref);
                }
                (false, CollectedOutput::Json(value)) => drop(result.outputs.insert(output.name.clone(), value)),
                (false, CollectedOutput::Bytes(bytes)) => result.hold(&output.name, bytes),
            }
        }
        Ok(result)
    }

    async fn read_output(
        &self,
        spec: &TaskSpec,
        output: &ObjectOutput,
        objects: &[Value],
    ) -> Result<OutputState, ReconcileError> {
        let (text, key) = match &output.from {
            ObjectOutputFrom::Value(text) => (text, None),
            ObjectOutputFrom::Secret { name, key } => (name, Some(key)),
        };
        let value = match rules::evaluate(text, objects) {
            Ok(value) => value,
            Err(why) => return Ok(OutputState::Failed(ReasonCode::OutputInvalid, why)),
        };
        let Some(key) = key else { return Ok(OutputState::Found(CollectedOutput::Json(value))) };
        let Some(name) = value.as_str() else {
            let why = "the name of the Secret is not a string".to_owned();
            return Ok(OutputState::Failed(ReasonCode::OutputInvalid, why));
        };
        let first = spec.manifests().next().and_then(|it| it.object_ref.namespace.as_ref());
        let object_ref = ObjectRef::secret(first.unwrap_or(&spec.namespace), name);
        let secret = self.read(&object_ref).await?.unwrap_or_default();
        if !documents::is_readable(&secret, &spec.objects.instance) {
            let why = format!("{object_ref}: it belongs to another instance");
            return Ok(OutputState::Failed(ReasonCode::Denied, why));
        }
        let found = secret["data"][key].as_str().and_then(|text| STANDARD.decode(text).ok());
        Ok(match found {
            Some(bytes) => OutputState::Found(CollectedOutput::Bytes(bytes)),
            None => OutputState::Failed(ReasonCode::OutputMissing, format!("{object_ref} has no key {key:?}")),
        })
    }
}

enum CollectedOutput {
    Json(Value),
    Bytes(Vec<u8>),
}

impl CollectedOutput {
    fn size(&self) -> usize {
        match self {
            Self::Json(value) => ebb_protocol::value::UnitValue::Json(value.clone()).size(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Returns the bytes in the form that a script would see.
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Json(value) => ebb_protocol::value::UnitValue::Json(value).to_bytes().unwrap_or_default(),
            Self::Bytes(bytes) => bytes,
        }
    }
}
