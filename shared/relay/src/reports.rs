//! Accepts the reports of entrypoints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::entrypoint::{ReportState, ScriptExit, ScriptReport, VERSION};
use ebb_protocol::limits::{OUTPUT as OUTPUT_BYTES, OUTPUTS};
use ebb_protocol::relay::TaskId;
use ebb_protocol::value::SecretRef;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::error::ReconcileError;
use crate::names::{self, OUTPUT, PART};
use crate::reconcile::CONFLICT_PAUSE;
use crate::reconciler::Reconciler;
use crate::record::{ObjectRef, TaskPhase, TaskSpec};
use crate::relay::Relay;
use crate::store::VersionedRecord;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// 204: the report is stored.
    Accepted,
    Gone,
    /// 401: the token belongs to another task.
    Unauthorized,
    /// 400, with the reason.
    Invalid(String),
}

/// The time to store a report. The entrypoint repeats it later.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

fn timed_out() -> Result<ReportOutcome, ReconcileError> {
    Err(ReconcileError::Internal("the API server did not respond in time".to_owned()))
}

impl Relay {
    /// Stores the report of an entrypoint. After an error, the entrypoint repeats the report.
    pub async fn report(&self, name: &TaskId, token: &str, body: &[u8]) -> Result<ReportOutcome, ReconcileError> {
        if names::check_task(name).is_err() {
            return Ok(ReportOutcome::Gone);
        }
        tokio::time::timeout(REPORT_TIMEOUT, self.retry_report(name, token, body)).await.unwrap_or_else(|_| timed_out())
    }

    async fn retry_report(&self, name: &TaskId, token: &str, body: &[u8]) -> Result<ReportOutcome, ReconcileError> {
        loop {
            match self.inner.accept_report(name, token, body).await {
                Err(ReconcileError::Conflict) => tokio::time::sleep(CONFLICT_PAUSE).await,
                Ok(taken) => {
                    if taken.1 {
                        self.inner.reconcile(name);
                    }
                    return Ok(taken.0);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks the token of a report before its body is read. Returns [`ReportOutcome::Accepted`] if the body should be
    /// read.
    pub async fn expects(&self, name: &TaskId, token: &str) -> Result<ReportOutcome, ReconcileError> {
        if names::check_task(name).is_err() {
            return Ok(ReportOutcome::Gone);
        }
        tokio::time::timeout(REPORT_TIMEOUT, self.inner.expects(name, token)).await.unwrap_or_else(|_| timed_out())
    }
}

/// Compares digests: they have the same length, and their comparison reveals nothing about the token.
fn token_matches(token: &str, spec: &TaskSpec) -> bool {
    Sha256::digest(token.as_bytes()) == Sha256::digest(spec.token.as_bytes())
}

type DecodedOutputs = Vec<(String, Vec<u8>)>;

/// Decodes sensitive outputs. Rejects undeclared and too large ones.
fn decode_outputs(
    reported: BTreeMap<String, String>,
    declared: &BTreeSet<String>,
) -> Result<DecodedOutputs, (ReasonCode, String)> {
    let (mut all, mut total) = (Vec::new(), 0);
    for (name, text) in reported {
        if !declared.contains(&name) {
            let why = "the report has a sensitive output that is not declared".to_owned();
            return Err((ReasonCode::OutputInvalid, why));
        }
        let Ok(bytes) = STANDARD.decode(text) else {
            return Err((ReasonCode::OutputInvalid, format!("output {name:?} is not base64")));
        };
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
    async fn expects(&self, name: &TaskId, token: &str) -> Result<ReportOutcome, ReconcileError> {
        let held = self.store.head(name).await?;
        Ok(match held.and_then(|held| held.record.spec) {
            None => ReportOutcome::Gone,
            Some(spec) if token_matches(token, &spec) => ReportOutcome::Accepted,
            Some(_) => ReportOutcome::Unauthorized,
        })
    }

    /// Returns the outcome, and true if the task must be reconciled now.
    async fn accept_report(
        &self,
        name: &TaskId,
        token: &str,
        body: &[u8],
    ) -> Result<(ReportOutcome, bool), ReconcileError> {
        let _lock = self.registry.lock(&name.unit).await;
        let Some(mut held) = self.store.get(name).await? else { return Ok((ReportOutcome::Gone, false)) };
        let Some(spec) = held.record.spec.clone() else { return Ok((ReportOutcome::Gone, false)) };
        if !token_matches(token, &spec) {
            return Ok((ReportOutcome::Unauthorized, false));
        }
        let report: ScriptReport = match serde_json::from_slice(body) {
            Ok(report) => report,
            Err(error) => return Ok((ReportOutcome::Invalid(error.to_string()), false)),
        };
        if report.v != VERSION {
            let why = format!("version {} of the report is not supported; expected {VERSION}", report.v);
            return Ok((ReportOutcome::Invalid(why), false));
        }
        match (&held.record.phase, report.state) {
            // The first report counts.
            (TaskPhase::Ended | TaskPhase::Acknowledged, _) if spec.reported => Ok((ReportOutcome::Accepted, false)),
            (TaskPhase::Ended | TaskPhase::Acknowledged | TaskPhase::Tombstone { .. }, _) => {
                Ok((ReportOutcome::Gone, false))
            }
            (_, ReportState::Ended(_)) if spec.reported => Ok((ReportOutcome::Accepted, false)),
            (_, ReportState::Running) => {
                self.registry.record_heartbeat(name);
                Ok((ReportOutcome::Accepted, false))
            }
            (_, ReportState::Ended(ended)) => self.accept_end(&mut held, &spec, *ended).await,
        }
    }

    async fn accept_end(
        &self,
        held: &mut VersionedRecord,
        spec: &TaskSpec,
        ended: ScriptExit,
    ) -> Result<(ReportOutcome, bool), ReconcileError> {
        let mut result = ended.result;
        // Only a relay may refer to Secrets.
        result.secrets.clear();
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
            other => return Ok((ReportOutcome::Invalid(format!("a report cannot have the status {other:?}")), false)),
        }
        self.record_end(held, result.fit()).await?;
        Ok((ReportOutcome::Accepted, true))
    }

    async fn record_end(&self, held: &mut VersionedRecord, result: Callback) -> Result<(), ReconcileError> {
        let is_success = result.status == CallbackStatus::Succeeded;
        if let Some(spec) = &mut held.record.spec {
            spec.reported = true;
            // A failure waits for the status of the container, which has the better reason. Objects to remove must be
            // gone first.
            if is_success && held.record.phase == TaskPhase::Running && spec.objects.remove.is_empty() {
                held.record.phase = TaskPhase::Ended;
            }
        }
        // A task that is being terminated may have a result, which only a success replaces.
        if is_success || !matches!(held.record.phase, TaskPhase::Terminating { .. }) {
            held.set_result(result);
        }
        self.store.save(held).await
    }

    /// Stores a sensitive output as a Secret. It stays until its instance is released.
    pub(crate) async fn store_output(
        &self,
        name: &TaskId,
        spec: &TaskSpec,
        number: usize,
        bytes: Vec<u8>,
    ) -> Result<SecretRef, ReconcileError> {
        const KEY: &str = "value";
        let object_ref = ObjectRef::secret(&spec.namespace, &names::output_name(name, number));
        let mut labels = names::task_labels(name, &spec.objects.instance);
        labels.insert(PART.to_owned(), OUTPUT.to_owned());
        let manifest = json!({
            "apiVersion": object_ref.api_version,
            "kind": object_ref.kind,
            "metadata": {"name": object_ref.name, "namespace": object_ref.namespace, "labels": labels},
            "data": {KEY: STANDARD.encode(bytes)},
        });
        self.apply(&object_ref, &manifest).await?;
        Ok(SecretRef { cluster: None, namespace: object_ref.namespace, name: object_ref.name, key: KEY.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensitive_outputs_are_those_that_were_asked_for() {
        let large = STANDARD.encode(vec![0; OUTPUT_BYTES]);
        let declared: BTreeSet<_> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        for (reported, expected) in [
            (vec![("a", "eA=="), ("b", "")], Ok(2)),
            (vec![("a", "eA=="), ("x", "eA==")], Err(ReasonCode::OutputInvalid)),
            (vec![("a", "!")], Err(ReasonCode::OutputInvalid)),
            (vec![("a", &*format!("{large}AAAA"))], Err(ReasonCode::OutputInvalid)),
            (["a", "b", "c", "d"].map(|name| (name, &*large)).to_vec(), Ok(4)),
            (["a", "b", "c", "d", "e"].map(|name| (name, &*large)).to_vec(), Err(ReasonCode::OutputTooLarge)),
        ] {
            let reported = reported.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
            let found = decode_outputs(reported, &declared);
            assert_eq!(found.map(|all| all.len()).map_err(|(code, _)| code), expected);
        }
    }
}
