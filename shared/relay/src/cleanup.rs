//! Taking away what nobody needs any more.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PartialObjectMeta, Preconditions};

use crate::error::{ReconcileError, error_message, status};
use crate::names::{INSTANCE, OUTPUT, PART};
use crate::objects::DeleteOutcome;
use crate::reconcile::ReconcileAction;
use crate::record::{TaskPhase, TaskRecord};
use crate::relay::Reconciler;
use crate::store::{VersionedRecord, now_ms};

/// Between two looks at what goes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks for tombstones that are old enough.
const TOMBSTONE_INTERVAL: Duration = Duration::from_secs(300);
/// The shortest time that a tombstone is kept: longer than any request may be under way.
const MIN_TOMBSTONE_RETENTION: Duration = Duration::from_secs(3600);

impl Reconciler {
    /// Removes what is left of a task whose result was taken. A tombstone stays: a request that was sent twice may
    /// still arrive.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
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

    /// The Secrets that hold sensitive outputs of an instance, with their namespaces, and why some could not be listed.
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

    /// Removes the Secrets that hold sensitive outputs of an instance, as many as it can.
    ///
    /// # Errors
    /// When one cannot be removed; says of each namespace why.
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
        let told: BTreeSet<_> = errors.iter().map(error_message).collect();
        Err(ReconcileError::Internal(told.into_iter().collect::<Vec<_>>().join("; ")))
    }

    async fn remove_old_tombstones(&self) -> Result<(), ReconcileError> {
        let keep = self.settings.tombstone_retention.max(MIN_TOMBSTONE_RETENTION);
        let oldest = now_ms().saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
        // Without a task nothing is left that somebody could have to remove.
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

/// Removes tombstones that are old enough, for as long as the relay is open.
pub(crate) async fn tombstone_loop(inner: Weak<Reconciler>) {
    loop {
        {
            let Some(inner) = inner.upgrade() else { return };
            if let Err(error) = inner.remove_old_tombstones().await {
                tracing::warn!(%error, "old tombstones stay for now");
            }
        }
        tokio::time::sleep(TOMBSTONE_INTERVAL).await;
    }
}
