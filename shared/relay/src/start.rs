//! Applies the objects of a task.
//!
//! The UID of each object is in the record before the next object is applied. An existing object with the labels of
//! the task was applied by a relay that was killed before it recorded the UID. It is recorded and not applied again.

use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::callback::{Callback, ReasonCode};
use ebb_protocol::relay::SecretDocument;
use serde_json::{Value, json};

use crate::admit::RequestError;
use crate::clock::now_ms;
use crate::error::{ApiRefusal, ReconcileError, api_refusal, error_message, is_final, status};
use crate::objects::{self, ObjectOwnership};
use crate::other_attempts::AttemptConflict;
use crate::reconcile::ReconcileAction;
use crate::reconciler::Reconciler;
use crate::record::{AppliedObject, ObjectRef, TaskPhase, TaskSpec};
use crate::store::VersionedRecord;

const DYING: Duration = Duration::from_millis(200);

enum ApplyOutcome {
    All,
    /// The start has failed with this result.
    Failed(Callback),
    /// The object of a lower attempt is being deleted.
    LowerTerminating,
    /// The documents are in no record. The request must come again.
    MissingDocuments,
}

impl Reconciler {
    /// Applies the missing objects. `documents` come from the request, because records do not hold them.
    pub(crate) async fn start(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<ReconcileAction, ReconcileError> {
        let name = held.record.name.clone();
        held.confirmed |= self.registry.take_confirmed(&name, &held.resource_version) || held.record.is_queued();
        let done = self.try_start(held, documents).await;
        if held.confirmed && held.record.phase == TaskPhase::Starting {
            self.registry.mark_confirmed(&name, &held.resource_version);
        }
        match done {
            Err(ReconcileError::Conflict) => {
                self.remove_unrecorded(held).await?;
                Err(ReconcileError::Conflict)
            }
            // Rights may be granted until the task may no longer start.
            Err(ReconcileError::Api(error))
                if held.record.spec.as_ref().is_some_and(|it| is_final(&error, it.not_after_ms)) =>
            {
                let result = Callback::failed(reason_code(&error), &error_message(&error));
                self.terminate_with_result(held, result).await
            }
            done => done,
        }
    }

    async fn try_start(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<ReconcileAction, ReconcileError> {
        let is_new = held.record.spec.as_ref().is_some_and(|spec| spec.applied.is_empty());
        // A queued task is checked when it gets its slot.
        let is_new = is_new && self.queue.position(&held.record.name).is_none();
        match if is_new { self.attempt_conflict(&held.record.name).await? } else { AttemptConflict::None } {
            AttemptConflict::None => {}
            AttemptConflict::Higher => {
                held.make_tombstone();
                self.store.save(held).await?;
                return Ok(ReconcileAction::Done);
            }
            AttemptConflict::Lower => {
                self.save_queued_documents(held, documents).await?;
                return Ok(ReconcileAction::Requeue(DYING));
            }
        }
        if !self.acquire_slot(held, documents).await? {
            // Only a slot, a request or a cancel concerns this task, and each of them wakes it.
            return Ok(ReconcileAction::AwaitChange);
        }
        match self.apply_all(held, documents).await? {
            ApplyOutcome::All => {
                if let Some(spec) = &mut held.record.spec {
                    spec.objects.apply.clear();
                }
                held.record.phase = TaskPhase::Running;
                self.store.save(held).await?;
                Ok(ReconcileAction::RequeueNow)
            }
            ApplyOutcome::Failed(result) => {
                let result = after_apply(held.record.spec.as_ref(), result);
                self.terminate_with_result(held, result).await
            }
            ApplyOutcome::LowerTerminating => {
                self.save_queued_documents(held, documents).await?;
                Ok(ReconcileAction::Requeue(DYING))
            }
            ApplyOutcome::MissingDocuments => {
                let not_after = held.record.spec.as_ref().map_or(0, |spec| spec.not_after_ms);
                Ok(ReconcileAction::requeue_at(not_after))
            }
        }
    }

    async fn apply_all(
        &self,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<ApplyOutcome, ReconcileError> {
        let name = held.record.name.clone();
        let Some(mut spec) = held.record.spec.clone() else { return Ok(ApplyOutcome::All) };
        let (all, was_confirmed): (Vec<_>, _) = (spec.object_refs().collect(), held.confirmed);
        for (number, (object_ref, document)) in all.iter().enumerate().skip(spec.applied.len()) {
            let existing = self.read(object_ref).await?;
            let uid = match existing.as_ref().map(|object| (objects::ownership(object, &name), object)) {
                Some((ObjectOwnership::Own, object)) => objects::uid(object).to_owned(),
                Some((ObjectOwnership::Foreign, _)) => {
                    let why = format!("{object_ref} already exists and does not belong to this task");
                    return Ok(ApplyOutcome::Failed(Callback::failed(ReasonCode::Denied, &why)));
                }
                _ if now_ms() > spec.not_after_ms => return Ok(ApplyOutcome::Failed(too_late())),
                Some((ObjectOwnership::LowerAttempt, object)) if !object["metadata"]["deletionTimestamp"].is_null() => {
                    return Ok(ApplyOutcome::LowerTerminating);
                }
                lower => {
                    let manifest = match self.manifest(&spec, held, number, documents).await {
                        Ok(Some(manifest)) => manifest,
                        Ok(None) => return Ok(ApplyOutcome::MissingDocuments),
                        Err(RequestError::Failed(error)) => return Err(error),
                        Err(RequestError::Refused(why)) => {
                            return Ok(ApplyOutcome::Failed(Callback::failed(ReasonCode::Render, &why)));
                        }
                    };
                    held.confirmed = false;
                    let created = match lower {
                        Some((_, object)) => self.replace_lower(object_ref, object, &manifest).await,
                        None => self.create(object_ref, &manifest).await,
                    };
                    match created {
                        Ok(uid) => uid,
                        Err(error) => {
                            // A response below 500 proves that nothing was created.
                            held.confirmed = was_confirmed && status(&error).is_some_and(|code| code < 500);
                            return match (api_refusal(&error), status(&error)) {
                                (Some(_), _) => Ok(ApplyOutcome::Failed(apply_failure(object_ref, &error))),
                                (None, Some(409)) => Err(ReconcileError::Conflict),
                                (None, _) => Err(error.into()),
                            };
                        }
                    }
                }
            };
            // The object exists and its UID is not recorded yet.
            held.confirmed = false;
            spec.applied.push(AppliedObject { object_ref: object_ref.clone(), uid, document: *document });
            held.record.spec = Some(spec.clone());
            let is_last = number + 1 == all.len();
            // The last UID is saved together with the next phase.
            if !is_last {
                self.store.save(held).await?;
                held.confirmed = was_confirmed;
            }
        }
        self.own_documents(&spec).await?;
        Ok(ApplyOutcome::All)
    }

    /// Returns `None` if a document is not stored.
    async fn manifest(
        &self,
        spec: &TaskSpec,
        held: &VersionedRecord,
        number: usize,
        documents: &[SecretDocument],
    ) -> Result<Option<Value>, RequestError> {
        if let Some(manifest) =
            number.checked_sub(spec.objects.secrets.len()).and_then(|number| spec.objects.apply.get(number))
        {
            return Ok(Some(manifest.clone()));
        }
        let stored = match documents {
            [] => self.store.documents(held).await?,
            given => given.to_vec(),
        };
        let Some(document) = stored.get(number) else { return Ok(None) };
        Ok(Some(self.render_document(&held.record.name, spec, document).await?.1))
    }

    /// Makes the first object the owner of the documents, so that they are deleted with it.
    async fn own_documents(&self, spec: &TaskSpec) -> Result<(), ReconcileError> {
        let Some(first) = spec.manifests().next() else { return Ok(()) };
        if first.object_ref.namespace.as_ref().is_some_and(|namespace| *namespace != spec.namespace) {
            return Ok(());
        }
        for document in spec.applied.iter().filter(|applied| applied.document) {
            let Some(api) = self.discovery.api_for(&self.client, &document.object_ref).await? else {
                continue;
            };
            let owner = json!({
                "apiVersion": first.object_ref.api_version,
                "kind": first.object_ref.kind,
                "name": first.object_ref.name,
                "uid": first.uid,
            });
            let patch = json!({"metadata": {"uid": document.uid, "ownerReferences": [owner]}});
            let how = kube::api::PatchParams::default();
            match api.patch(&document.object_ref.name, &how, &kube::api::Patch::Merge(&patch)).await {
                Ok(_) => {}
                // The document is gone or was replaced. The pod's status will show the effect.
                Err(error) if api_refusal(&error).is_some() || status(&error) == Some(409) => {
                    tracing::warn!(document = %document.object_ref, %error, "a document was deleted or replaced");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A start that failed after an object was applied counts as a failure, because that object may have had an effect.
fn after_apply(spec: Option<&TaskSpec>, mut result: Callback) -> Callback {
    if spec.is_some_and(|spec| spec.manifests().next().is_some())
        && let Some(reason) = &mut result.reason
        && matches!(reason.code, ReasonCode::NotStartable | ReasonCode::Render)
    {
        reason.code = ReasonCode::Failed;
    }
    result
}

fn too_late() -> Callback {
    Callback::failed(ReasonCode::Lost, "the relay was unavailable until the request expired")
}

fn apply_failure(object_ref: &ObjectRef, error: &kube::Error) -> Callback {
    Callback::failed(reason_code(error), &format!("{object_ref}: {}", error_message(error)))
}

fn reason_code(error: &kube::Error) -> ReasonCode {
    match api_refusal(error) {
        Some(ApiRefusal::Quota) => ReasonCode::Quota,
        Some(ApiRefusal::Denied) => ReasonCode::Denied,
        Some(ApiRefusal::Invalid) => ReasonCode::NotStartable,
        None => ReasonCode::Lost,
    }
}
