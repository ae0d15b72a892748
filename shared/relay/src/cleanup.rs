//! Deletes objects of acknowledged tasks, sensitive outputs, and old tombstones.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PartialObjectMeta, Preconditions};

use crate::clock::now_ms;
use crate::error::{ReconcileError, error_message, status};
use crate::names::{INSTANCE, OUTPUT, PART};
use crate::objects::DeleteOutcome;
use crate::reconcile::ReconcileAction;
use crate::reconciler::Reconciler;
use crate::record::{TaskPhase, TaskRecord};
use crate::store::VersionedRecord;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const TOMBSTONE_INTERVAL: Duration = Duration::from_secs(300);
/// The shortest retention of a tombstone. It exceeds the longest time that a request can be under way.
const MIN_TOMBSTONE_RETENTION: Duration = Duration::from_secs(3600);

impl Reconciler {
    /// Deletes the objects of an acknowledged task. A tombstone remains, because a repeated request may still arrive.
    pub(crate) async fn cleanup(&self, held: &mut VersionedRecord) -> Result<ReconcileAction, ReconcileError> {
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        if spec.objects.keep && !spec.applied.is_empty() {
            return Ok(ReconcileAction::Done);
        }
        let mut is_gone = true;
        for applied in spec.applied.iter().rev() {
            is_gone &= self.delete(&held.record.name, applied).await? == DeleteOutcome::Gone;
        }
        if !is_gone {
            return Ok(ReconcileAction::Requeue(POLL_INTERVAL));
        }
        if let Some(spec) = &mut held.record.spec {
            spec.applied.clear();
        }
        held.make_tombstone();
        self.store.save(held).await?;
        Ok(ReconcileAction::Done)
    }

    /// Returns the Secrets with sensitive outputs of an instance, and the errors of namespaces that could not be
    /// listed.
    pub(crate) async fn output_secrets(
        &self,
        instance: &str,
    ) -> (Vec<(Api<Secret>, PartialObjectMeta<Secret>)>, Vec<kube::Error>) {
        let selector = format!("{INSTANCE}={instance},{PART}={OUTPUT}");
        let default = std::iter::once(&self.settings.default_namespace);
        let namespaces: BTreeSet<_> = self.settings.policy.namespaces.keys().chain(default).collect();
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
            match api.list_metadata(&ListParams::default().labels(&selector)).await {
                Ok(found) => all.extend(found.items.into_iter().map(|secret| (api.clone(), secret))),
                Err(error) => errors.push(error),
            }
        }
        (all, errors)
    }

    /// Deletes all Secrets with sensitive outputs of an instance. Continues after an error and returns all of them.
    pub(crate) async fn release(&self, instance: &str) -> Result<(), ReconcileError> {
        let (all, mut errors) = self.output_secrets(instance).await;
        for (api, secret) in all {
            let same = Preconditions { uid: secret.uid(), resource_version: None };
            let how = DeleteParams::default().preconditions(same);
            match api.delete(&secret.name_any(), &how).await {
                Err(error) if !matches!(status(&error), Some(404 | 409)) => errors.push(error),
                _ => {}
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        let messages: BTreeSet<_> = errors.iter().map(error_message).collect();
        Err(ReconcileError::Internal(messages.into_iter().collect::<Vec<_>>().join("; ")))
    }

    async fn remove_old_tombstones(&self) -> Result<(), ReconcileError> {
        let keep = self.settings.tombstone_retention.max(MIN_TOMBSTONE_RETENTION);
        let oldest = now_ms().saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
        // A record with a task may still name objects to delete.
        let is_old = |record: &TaskRecord| {
            matches!(record.phase, TaskPhase::Tombstone { since_ms } if since_ms < oldest) && record.spec.is_none()
        };
        let old = self.store.collect(|record| is_old(&record).then_some(record.name)).await?;
        for name in old {
            if let Some(held) = self.store.get(&name).await?
                && is_old(&held.record)
            {
                self.store.remove(&held).await?;
            }
        }
        Ok(())
    }
}

/// Deletes old tombstones until the relay closes.
pub(crate) async fn tombstone_loop(inner: Weak<Reconciler>) {
    loop {
        {
            let Some(inner) = inner.upgrade() else { return };
            if let Err(error) = inner.remove_old_tombstones().await {
                tracing::warn!(%error, "cannot delete old tombstones");
            }
        }
        tokio::time::sleep(TOMBSTONE_INTERVAL).await;
    }
}
