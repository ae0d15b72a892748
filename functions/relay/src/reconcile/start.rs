//! Applies the objects of a task that has a slot, if it needs one.
//!
//! The UID of each object is in the record before the next object is applied. If an existing object has the labels of
//! the task, a relay was killed before it recorded the UID. The object is then recorded and not applied again.

use std::sync::Arc;
use std::time::Duration;

use ebb_kube::contract::{built_in, is_failed_run};
use ebb_protocol::limits::message;
use ebb_protocol::{Callback, ReasonCode, SecretDocument, TaskId, TaskWait};
use serde_json::Value;

use crate::error::{ReconcileError, Result, StepError, StepResult, api_refusal, error_message, fail, is_final, status};
use crate::objects::{self, ObjectOwnership};
use crate::reconcile::{DELETION_PAUSE, ReconcileAction};
use crate::task::{decide, task_waits};
use crate::{AppliedObject, ObjectRef, Reconciler, TaskPhase, TaskSpec, VersionedRecord, millis, now_ms};

const DYING: Duration = Duration::from_millis(200);

impl Reconciler {
    /// Applies the missing objects. `documents` come from the request, because records do not hold them.
    pub(crate) async fn start(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<ReconcileAction> {
        let not_after_ms = held.record.spec.as_ref().map_or(u64::MAX, |spec| spec.not_after_ms);
        // Until this step ends, the outcome of its requests is unknown.
        self.store.forget(&held.record.name);
        let done = match self.try_start(held, documents).await {
            Err(StepError::Failed(result)) => {
                let result = match &held.record.spec {
                    Some(spec) => decide::after_apply(spec, *result),
                    None => *result,
                };
                self.terminate_with(held, result).await
            }
            // Rights may be granted until the task may no longer start.
            Err(StepError::Incomplete(ReconcileError::Api(error))) => {
                let why = self.record_refusal(&held.record, &error).await;
                if is_final(&error, not_after_ms) {
                    let result = Callback::failed(api_refusal(&error).unwrap_or(ReasonCode::Lost), &why);
                    self.terminate_with(held, result).await
                } else {
                    Err(error.into())
                }
            }
            Err(StepError::Incomplete(error)) => Err(error),
            Ok(next) => Ok(next),
        };
        self.store.mark_confirmed(held);
        if matches!(done, Err(ReconcileError::Conflict)) {
            self.remove_unrecorded(held).await?;
        }
        done
    }

    async fn try_start(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> StepResult<ReconcileAction> {
        let name = held.record.name.clone();
        // A queued task is checked when it gets its slot.
        if held.record.applied().is_empty() && self.queue.position(&name).is_none() {
            // Of two concurrent attempts, at least one reads the record of the other, because each has a record
            // already. The locks of a relay order only its own tasks.
            let lower = decide::open_lower_attempts(&name, self.store.list(&name.unit).await?);
            let Some(lower) = lower else {
                held.make_tombstone();
                self.store.save(held).await?;
                return Ok(ReconcileAction::Done);
            };
            for lower in &lower {
                if let Some(mut lower) = self.store.get(lower).await? {
                    self.stop(&mut lower).await?;
                }
            }
            if !lower.is_empty() {
                self.registry.record_waits(&name, lower.iter().map(task_waits::termination).collect());
                self.save_queued_documents(held, documents).await?;
                return Ok(ReconcileAction::Requeue(DYING));
            }
        }
        if held.record.is_queued()
            && let Some(spec) = &mut held.record.spec
        {
            if !self.queue.acquire(&name, &spec.objects.instance) {
                self.save_queued_documents(held, documents).await?;
                // The task is woken by a slot, a request or a cancel. No other event affects it.
                return Ok(ReconcileAction::Requeue(Duration::MAX));
            }
            spec.start_clock(now_ms());
            self.store.save(held).await?;
        }
        if let Some(wait) = self.apply_all(held, documents).await? {
            return Ok(wait);
        }
        if let Some(spec) = &mut held.record.spec {
            spec.objects.apply.clear();
        }
        held.record.phase = TaskPhase::Running;
        self.store.save(held).await?;
        if let Some(spec) = &held.record.spec {
            self.publish(&name, spec, "Started", "Start", None);
        }
        Ok(ReconcileAction::RequeueNow)
    }

    /// Stores the documents of a waiting task once, because they are not sent again.
    async fn save_queued_documents(&self, held: &mut VersionedRecord, documents: &[SecretDocument]) -> Result<()> {
        if held.record.document_parts == 0 && !documents.is_empty() {
            self.store.save_documents(held, documents).await?;
        }
        Ok(())
    }

    /// Releases the slot of a task, or its place in the queue.
    pub(crate) fn release_slot(self: &Arc<Self>, name: &TaskId) {
        for next in self.queue.release(name) {
            self.reconcile(&next);
        }
    }

    /// Releases the slot of a task with a result when none of its containers runs.
    pub(crate) async fn release_slot_once_over(self: &Arc<Self>, held: &VersionedRecord) -> Result<()> {
        let name = &held.record.name;
        let Some(spec) = held.record.spec.as_ref().filter(|_| self.queue.has_slot(name)) else {
            return Ok(());
        };
        let namespace = spec.manifests().next().and_then(|job| job.object_ref.namespace.as_deref());
        self.watch("v1", "Pod", Some(namespace.unwrap_or(&spec.namespace))).await?;
        if decide::is_slot_free(self.pods(spec).await, now_ms())? {
            self.release_slot(name);
        }
        Ok(())
    }

    /// Applies the missing objects. Returns the next action if an object cannot be applied yet.
    async fn apply_all(
        &self,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> StepResult<Option<ReconcileAction>> {
        let name = held.record.name.clone();
        let Some(mut spec) = held.record.spec.clone() else { return Ok(None) };
        self.check_references(&spec).await?;
        let (all, was_confirmed): (Vec<_>, _) = (spec.object_refs().collect(), held.confirmed);
        for (number, (object_ref, document)) in all.iter().enumerate().skip(spec.applied.len()) {
            let existing = self.read(object_ref).await?;
            let owned =
                existing.as_ref().map(|object| (objects::ownership(object, &name, &spec.objects.adopts), object));
            let uid = match owned {
                Some((ObjectOwnership::Own, object)) => {
                    spec.taken_over |= *document;
                    objects::uid(object).to_owned()
                }
                Some((ObjectOwnership::Foreign, _)) => return fail(ReasonCode::Denied, &objects::foreign(object_ref)),
                Some((ObjectOwnership::LowerAttempt, object)) if !object["metadata"]["deletionTimestamp"].is_null() => {
                    let wait = self.deletion_wait(object_ref, object).await;
                    let why = format!("the object of an earlier attempt is still being deleted: {}", wait.message);
                    let wait = TaskWait { message: message(&why), ..wait };
                    return Ok(Some(self.start_later(held, wait, documents).await?));
                }
                _ if now_ms() > spec.not_after_ms => {
                    return fail(ReasonCode::Lost, "the relay was unavailable until the request expired");
                }
                Some((ObjectOwnership::LowerAttempt, object)) if is_failed_run(built_in(), object) => {
                    self.delete_lower(object_ref, object).await?;
                    let wait = task_waits::wait(object_ref, "the failed object of an earlier attempt is being deleted");
                    return Ok(Some(self.start_later(held, wait, documents).await?));
                }
                lower => {
                    let Some(manifest) = self.manifest(&spec, held, number, object_ref, documents).await? else {
                        // The documents are in no record. The control plane must repeat the request.
                        return Ok(Some(ReconcileAction::requeue_at(spec.not_after_ms)));
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
                            let waits_until = spec.received_ms.saturating_add(millis(self.settings.pod_start_timeout));
                            return match (api_refusal(&error), status(&error)) {
                                (Some(code @ ReasonCode::Quota), _) if now_ms() < waits_until => {
                                    let wait = task_waits::refusal(object_ref, &error, &error_message(&error));
                                    let wait = TaskWait { code, ..wait };
                                    Ok(Some(self.start_later(held, wait, documents).await?))
                                }
                                (Some(code), _) => {
                                    let why = self.explain_error(object_ref.namespace.as_deref(), &error).await;
                                    let fix = match why.contains(" cannot create resource ") {
                                        true => format!("; {}", object_ref.right_fix(&self.settings.cluster)),
                                        false => String::new(),
                                    };
                                    fail(code, &format!("{object_ref}: {why}{fix}"))
                                }
                                (None, Some(409)) => Err(ReconcileError::Conflict.into()),
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
            // The last UID is saved together with the next phase.
            if number + 1 < all.len() {
                self.store.save(held).await?;
                held.confirmed = was_confirmed;
            }
        }
        Ok(None)
    }

    /// Waits until the object of a lower attempt is gone, or a quota has a place, and fails at the deadline of the task. The
    /// request arrived in time, so the task may start until then.
    async fn start_later(
        &self,
        held: &mut VersionedRecord,
        wait: TaskWait,
        documents: &[SecretDocument],
    ) -> StepResult<ReconcileAction> {
        if let Some(spec) = &mut held.record.spec {
            if now_ms() >= spec.deadline_ms {
                return Err(StepError::Failed(Box::new(decide::deadline_failure(Some(&wait.to_string())))));
            }
            if spec.not_after_ms < spec.deadline_ms {
                spec.not_after_ms = spec.deadline_ms;
                self.store.save(held).await?;
            }
        }
        self.registry.record_waits(&held.record.name, vec![wait]);
        self.save_queued_documents(held, documents).await?;
        Ok(ReconcileAction::Requeue(DELETION_PAUSE))
    }

    /// Returns `None` if a document is not stored.
    async fn manifest(
        &self,
        spec: &TaskSpec,
        held: &VersionedRecord,
        number: usize,
        object_ref: &ObjectRef,
        documents: &[SecretDocument],
    ) -> StepResult<Option<Value>> {
        if let Some(number) = number.checked_sub(spec.objects.secrets.len()) {
            let Some(mut manifest) = spec.objects.apply.get(number).cloned() else { return Ok(None) };
            self.fill_manifest(spec, number, &mut manifest).await?;
            return Ok(Some(manifest));
        }
        let stored = match documents {
            [] => self.store.documents(&held.record).await?,
            given => given.to_vec(),
        };
        let Some(document) = stored.get(number) else { return Ok(None) };
        Ok(Some(self.render_document(&held.record.name, spec, object_ref, document).await?))
    }
}
