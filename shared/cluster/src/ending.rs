//! Ending what runs: the Job and its pods, and of a work that does not keep its objects all of them.

use ebb_wire::callback::{Callback, CallbackStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};

use crate::attend::Next;
use crate::error::{Error, status};
use crate::objects::{self, Deletion};
use crate::record::{Applied, Phase, Place};
use crate::relay::Inner;
use crate::store::{Held, now_ms};

/// Milliseconds that containers get which the relay ends by itself.
pub(crate) const GRACE_MS: u64 = 5_000;
/// Milliseconds after the grace period from when on a pod is not expected to go any more: its node is lost.
pub(crate) const STUCK_MS: u64 = 120_000;
/// Between two looks at what ends: watches do not see everything go.
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

impl Inner {
    /// The work has this result. What may still run is ended first.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn conclude(&self, held: &mut Held, result: Callback) -> Result<Next, Error> {
        let may_run = held.record.work.as_ref().is_some_and(|work| work.container().is_some());
        if may_run {
            self.begin_end(held, GRACE_MS, Some(result)).await?;
        } else {
            self.finish(held, result).await?;
        }
        Ok(Next::Now)
    }

    /// The work has this result, and nothing of it runs that could change it.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn finish(&self, held: &mut Held, mut result: Callback) -> Result<Next, Error> {
        if let Some(work) = &held.record.work
            && result.took_ms.is_none()
        {
            result.took_ms = Some(now_ms().saturating_sub(work.received_ms));
        }
        held.conclude(&result.fit());
        held.record.phase = Phase::Ended;
        self.store.save(held).await?;
        Ok(Next::Now)
    }

    /// Notes that the work is to be ended. One that waits for its turn is over at once.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn begin_end(
        &self,
        held: &mut Held,
        grace_ms: u64,
        result: Option<Callback>,
    ) -> Result<(), Error> {
        if held.record.waits() && result.is_none() {
            held.bury();
            return self.store.save(held).await;
        }
        let name = held.record.name.clone();
        if let Some(mut work) = held.record.work.take() {
            // What was applied and could not be noted any more.
            let documents = work.objects.secrets.iter().map(|it| Place::secret(&work.namespace, &it.name));
            let all: Vec<_> = documents.chain(work.objects.apply.iter().map(Place::of)).collect();
            for (number, place) in all.iter().enumerate().skip(work.applied.len()) {
                if let Some(object) = self.read(place).await?
                    && objects::owner(&object).as_ref() == Some(&name)
                {
                    let (uid, place) = (objects::uid(&object).to_owned(), place.clone());
                    let document = number < work.objects.secrets.len();
                    work.applied.push(Applied { place, uid, document });
                }
            }
            work.objects.apply.clear();
            held.record.work = Some(work);
        }
        held.record.phase = Phase::Ending { grace_ms, since_ms: now_ms(), result: result.map(Box::new) };
        self.store.save(held).await
    }

    /// Ends what runs, and once it is gone says what became of the work.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
    pub(crate) async fn end(&self, held: &mut Held) -> Result<Next, Error> {
        let Phase::Ending { grace_ms, since_ms, result } = held.record.phase.clone() else {
            return Ok(Next::Now);
        };
        let Some(work) = held.record.work.clone() else { return Ok(Next::Leave) };
        let name = held.record.name.clone();
        let mut is_gone = true;
        let job = work.manifests().next().filter(|_| work.container().is_some());
        let doomed = work.applied.iter().rev().filter(|it| !work.objects.keep || Some(*it) == job);
        for applied in doomed {
            is_gone &= self.delete(&name, applied).await? == Deletion::Gone;
        }
        if job.is_some() {
            let pods = self.pods(&name, &work).await?;
            is_gone &= pods.is_empty();
            for pod in &pods {
                self.end_pod(pod, grace_ms).await?;
            }
        }
        if !is_gone {
            // The control plane has to hear of a node that does not answer. A cancellation waits: it asks again.
            let is_stuck = now_ms().saturating_sub(since_ms) > grace_ms.saturating_add(STUCK_MS);
            return match result.filter(|_| is_stuck) {
                Some(result) => self.finish(held, *result).await,
                None => Ok(Next::Wait(LOOK)),
            };
        }
        if !work.objects.keep
            && let Some(work) = &mut held.record.work
        {
            work.applied.clear();
        }
        let reported = if work.reported { Some(held.result()?) } else { None };
        // What came through although it was to be ended: what it has made is known, which is better.
        let came_through = reported.filter(|it| it.status == CallbackStatus::Succeeded);
        match came_through.or(result.map(|result| *result)) {
            Some(result) => self.finish(held, result).await,
            None => {
                held.bury();
                self.store.save(held).await?;
                Ok(Next::Leave)
            }
        }
    }

    async fn end_pod(&self, pod: &Pod, grace_ms: u64) -> Result<(), Error> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        // 0 would take the pod out of the list while it still runs.
        let seconds = u32::try_from(grace_ms.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let same = Preconditions { uid: pod.uid(), resource_version: None };
        let how = DeleteParams::default().grace_period(seconds).preconditions(same);
        match api.delete(&pod.name_any(), &how).await {
            Err(error) if !matches!(status(&error), Some(404 | 409)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
