//! Accepts the reports of entrypoints, and sends heartbeats of scripts to the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::entrypoint::{ReportState, ScriptExit, ScriptReport, VERSION};
use ebb_protocol::limits::{self, OUTPUT as OUTPUT_BYTES, OUTPUTS};
use ebb_protocol::{Callback, CallbackStatus, ReasonCode, SecretRef, TaskId, has_digest, token_digest};

use crate::error::{ReconcileError, Result, within};
use crate::names::{self, OUTPUT, PART};
use crate::reconcile::CONFLICT_PAUSE;
use crate::reconcile::task_events::{self, TaskEnd};
use crate::{ObjectRef, Reconciler, Relay, TaskPhase, TaskSpec, VersionedRecord};

#[derive(Debug)]
pub(crate) enum ReportError {
    /// The relay does not need the report.
    Gone,
    /// The token belongs to another task.
    Unauthorized,
    Invalid(String),
    /// The entrypoint repeats the report.
    Failed(ReconcileError),
}

impl<E: Into<ReconcileError>> From<E> for ReportError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The timeout for storing a report. The entrypoint repeats it later.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a heartbeat for the control plane. A lost one has no effect, so none is repeated.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

impl Relay {
    /// Checks the token of a report before its body is read.
    pub(crate) async fn expects(&self, name: &TaskId, token: &str) -> Result<(), ReportError> {
        name.check().map_err(|_| ReportError::Gone)?;
        expected(&within(REPORT_TIMEOUT, self.inner.store.head(name)).await?.ok_or(ReportError::Gone)?, token)?;
        // Every report shows that the entrypoint runs, also one that cannot be stored.
        self.inner.registry.record_heartbeat(name);
        Ok(())
    }

    pub(crate) async fn report(&self, name: &TaskId, token: &str, body: &[u8]) -> Result<(), ReportError> {
        within(REPORT_TIMEOUT, async {
            loop {
                match self.inner.accept_report(name, token, body).await {
                    Err(ReportError::Failed(ReconcileError::Conflict)) => tokio::time::sleep(CONFLICT_PAUSE).await,
                    Err(ReportError::Failed(error)) => return Err(error),
                    outcome => return Ok(outcome),
                }
            }
        })
        .await?
    }
}

fn expected(held: &VersionedRecord, token: &str) -> Result<TaskSpec, ReportError> {
    let spec = held.record.spec.as_ref().ok_or(ReportError::Gone)?;
    match has_digest(token, &token_digest(&spec.token)) {
        true => Ok(spec.clone()),
        false => Err(ReportError::Unauthorized),
    }
}

type DecodedOutputs = Vec<(String, Vec<u8>)>;

/// Decodes sensitive outputs. Rejects undeclared and too large ones.
fn decode_outputs(
    reported: BTreeMap<String, String>,
    declared: &BTreeSet<String>,
) -> Result<DecodedOutputs, (ReasonCode, String)> {
    let (mut all, mut total) = (Vec::new(), 0);
    for (name, text) in reported {
        let invalid = |why: String| Err((ReasonCode::OutputInvalid, why));
        if !declared.contains(&name) {
            return invalid("the report has a sensitive output that is not declared".to_owned());
        }
        let Ok(bytes) = STANDARD.decode(text) else { return invalid(format!("output {name:?} is not base64")) };
        total += bytes.len();
        if bytes.len() > OUTPUT_BYTES || total > OUTPUTS {
            let why = format!("output {name:?} has {} bytes, all so far {total}", bytes.len());
            return Err((ReasonCode::OutputTooLarge, why));
        }
        all.push((name, bytes));
    }
    Ok(all)
}

impl Reconciler {
    async fn accept_report(self: &Arc<Self>, name: &TaskId, token: &str, body: &[u8]) -> Result<(), ReportError> {
        let _lock = self.registry.lock(&name.unit).await;
        let mut held = self.store.get(name).await?.ok_or(ReportError::Gone)?;
        let spec = expected(&held, token)?;
        let report: ScriptReport =
            serde_json::from_slice(body).map_err(|error| ReportError::Invalid(error.to_string()))?;
        if report.v != VERSION {
            let why = format!("version {} of the report is not supported; expected {VERSION}", report.v);
            return Err(ReportError::Invalid(why));
        }
        match (&held.record.phase, report.state) {
            // The first report counts.
            (TaskPhase::Ended | TaskPhase::Acknowledged, _) if spec.reported => Ok(()),
            (TaskPhase::Ended | TaskPhase::Acknowledged | TaskPhase::Tombstone { .. }, _) => Err(ReportError::Gone),
            (_, ReportState::Ended(_)) if spec.reported => Ok(()),
            (_, ReportState::Running) => {
                self.accept_progress(name, &spec, report.progress.as_deref().and_then(limits::progress));
                Ok(())
            }
            (_, ReportState::Ended(ended)) => self.accept_end(&mut held, &spec, *ended).await,
        }
    }

    /// Records the progress of a script that runs. At most once a minute, the control plane gets it with a heartbeat.
    fn accept_progress(self: &Arc<Self>, name: &TaskId, spec: &TaskSpec, progress: Option<String>) {
        let Some(callback) = self.registry.record_progress(name, progress) else { return };
        if self.may_call(&spec.callback.url).is_err() {
            return;
        }
        let request = self.http.post(&spec.callback.url).bearer_auth(&spec.callback.token).timeout(HEARTBEAT_TIMEOUT);
        let request = request.json(&callback);
        let (inner, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            // Results take precedence.
            let Ok(_permit) = inner.callbacks.try_acquire() else { return };
            if let Err(error) = request.send().await.and_then(reqwest::Response::error_for_status) {
                let error = error.without_url();
                tracing::debug!(unit = name.unit, attempt = name.attempt, %error, "a heartbeat was not accepted");
            }
        });
    }

    async fn accept_end(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        spec: &TaskSpec,
        ended: ScriptExit,
    ) -> Result<(), ReportError> {
        let mut result = ended.result;
        // Only a relay may refer to Secrets.
        result.secrets.clear();
        result.objects.clear();
        match result.status {
            CallbackStatus::Succeeded => match decode_outputs(ended.sensitive, &spec.sensitive) {
                Ok(all) => {
                    for (number, (name, bytes)) in all.into_iter().enumerate() {
                        let secret_ref = self.store_output(&held.record.name, spec, number, bytes).await?;
                        result.secrets.insert(name, secret_ref);
                    }
                }
                Err((code, why)) => {
                    let failed = Callback::failed(code, &why);
                    result = Callback { log: result.log, duration_ms: result.duration_ms, ..failed };
                }
            },
            CallbackStatus::Failed => {}
            other => return Err(ReportError::Invalid(format!("a report cannot have the status {other:?}"))),
        }
        let result = result.fit();
        let is_success = result.status == CallbackStatus::Succeeded;
        let mut end = None;
        if let Some(spec) = &mut held.record.spec {
            spec.reported = true;
            // A failure waits for the container's status, which has the better reason, and for objects to remove.
            if is_success && held.record.phase == TaskPhase::Running && spec.objects.remove.is_empty() {
                held.record.phase = TaskPhase::Ended;
                end = Some(TaskEnd::of(&result));
            }
        }
        // A task that is being terminated may have a result, which only a success replaces.
        if is_success || !matches!(held.record.phase, TaskPhase::Terminating { .. }) {
            held.set_result(result);
        }
        self.store.save(held).await?;
        if let Some(end) = end {
            task_events::record_end(&held.record.name, &spec.names, &end);
            self.publish_end(&held.record.name, spec, &end);
        }
        self.reconcile(&held.record.name);
        Ok(())
    }

    /// Stores a sensitive output as a Secret. It stays until its instance is released.
    pub(crate) async fn store_output(
        &self,
        name: &TaskId,
        spec: &TaskSpec,
        number: usize,
        bytes: Vec<u8>,
    ) -> Result<SecretRef> {
        const KEY: &str = "value";
        let object_ref = ObjectRef::secret(&spec.namespace, &names::output_name(name, number));
        let marks = names::object_marks(name, &spec.objects.instance, &spec.names, &[(PART, OUTPUT)]);
        let manifest = object_ref.secret_manifest(&marks, KEY, &bytes);
        self.store.add_output_namespace(&spec.namespace).await?;
        self.apply(&object_ref, &manifest).await?;
        Ok(SecretRef { cluster: None, namespace: object_ref.namespace, name: object_ref.name, key: KEY.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::rows;

    #[test]
    fn only_declared_sensitive_outputs_are_accepted() {
        let large = STANDARD.encode(vec![0; OUTPUT_BYTES]);
        let declared: BTreeSet<_> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        type Row = (Vec<(String, String)>, Result<usize, ReasonCode>);
        for (reported, expected) in rows::<Row>("only_declared_sensitive_outputs_are_accepted") {
            let reported = reported.into_iter().map(|(name, text)| (name, text.replace("LARGE", &large))).collect();
            assert_eq!(decode_outputs(reported, &declared).map(|all| all.len()).map_err(|(code, _)| code), expected);
        }
    }
}
