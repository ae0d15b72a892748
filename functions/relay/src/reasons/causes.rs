//! Adds to the failure of an object how a container of its pods ended, and the end of the container's log.

use ebb_protocol::limits::message;
use ebb_protocol::{Callback, FailureReason, TaskWait};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::objects::{self, group_kind};
use crate::observe::blockers::StartBlocker;
use crate::reasons::dependents::{EXPLANATIONS, is_failing_job};
use crate::{ObjectRef, Reconciler, Result, TaskSpec, VersionedRecord, status};

impl Reconciler {
    /// Adds what blocks `object` to the reason of a failure, unless the reason contains it, and the log of the container
    /// that has failed. Without a right or a response in time, a part is missing. Without the right to read the log, the
    /// reason has the command that prints it.
    pub(crate) async fn add_cause(&self, result: &mut Callback, spec: &TaskSpec, object: &Value) {
        let Some(reason) = &mut result.reason else { return };
        let until = Instant::now() + EXPLANATIONS;
        let found = timeout_at(until, Box::pin(self.explanation(object))).await.ok().and_then(Result::ok).flatten();
        let told = match &found {
            // The contract of a pod names its container.
            Some(_) if group_kind(object) == ("", "Pod") => None,
            Some((Some(source), blocker, _)) => Some((source, format!("{source}: {}", blocker.message))),
            Some((None, blocker, _)) => Some((&blocker.message, blocker.message.clone())),
            None => spec.early_failure.as_ref().map(|early| (&early.message, early.message.clone())),
        };
        if let Some((_, told)) = told.filter(|(key, _)| !reason.message.contains(*key)) {
            reason.message = message(&format!("{}; {told}", reason.message));
        }
        let Some((_, StartBlocker { log: Some((container, is_former)), .. }, Some(pod))) = &found else { return };
        match timeout_at(until, Box::pin(self.masked_log(pod, container, *is_former))).await {
            Ok(Ok(log)) => result.log = Some(log).filter(|log| !log.trim().is_empty()),
            Ok(Err(error)) if status(&error) == Some(403) => {
                let (namespace, name) = (objects::namespace(pod), objects::name(pod));
                let former = if *is_former { " --previous" } else { "" };
                let command = format!("kubectl logs {name} --namespace {namespace} --container {container}{former}");
                reason.message = message(&format!("{}; its log: {command}", reason.message));
            }
            failed => tracing::debug!(?failed, "cannot read the log of a failed container"),
        }
    }

    /// Records what blocks a Job that is about to fail, because its pods may be deleted by then.
    pub(crate) async fn record_failing_job(
        &self,
        held: &mut VersionedRecord,
        objects: &[Value],
        waits: &[TaskWait],
    ) -> Result<()> {
        let mut failing = objects.iter().filter(|it| is_failing_job(it)).map(|it| ObjectRef::of(it).to_string());
        // Its pods may be gone already. Then the last observation before tells how they ended.
        let former = self.registry.status(&held.record.name).waits;
        let all = || waits.iter().chain(&former);
        // A wait without a time has no cause.
        let wait = failing.find_map(|job| all().find(|it| it.object == job && it.since_ms.is_some()));
        let (Some(wait), Some(spec)) = (wait, &mut held.record.spec) else { return Ok(()) };
        if spec.early_failure.is_some() {
            return Ok(());
        }
        spec.early_failure = Some(FailureReason { code: wait.code, message: wait.message.clone() });
        self.store.save(held).await
    }
}
