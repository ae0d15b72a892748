//! Creates Secrets from documents whose sensitive values are known only in the cluster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::relay::{FillWith, SecretDocument};
use ebb_protocol::{ReasonCode, RelayAddress, SecretRef, TaskId, UnitValue};
use serde_json::{Value, json};

use crate::objects::references;
use crate::{ObjectRef, Reconciler, StepResult, TaskSpec, fail, millis, names};

/// Bytes of a document after its values are filled in.
const MAX_DOCUMENT: usize = 1 << 20;

pub(crate) fn secret_bytes(secret: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(secret["data"][key].as_str()?).ok()
}

/// Returns the names of the sensitive outputs of a script that reports to the relay.
pub(crate) fn sensitive_outputs(document: &SecretDocument) -> Vec<String> {
    let reports = document.fill.iter().any(|fill| fill.with == FillWith::Report);
    let outputs = document.document["outputs"].as_array().filter(|_| reports);
    let outputs = outputs.into_iter().flatten().filter(|output| output["sensitive"] == true);
    outputs.filter_map(|output| output["name"].as_str().map(str::to_owned)).collect()
}

impl Reconciler {
    /// Returns the manifest of a Secret with its document filled in. The name of the Secret is the recorded one, which
    /// a repeated request of another version may not have.
    pub(crate) async fn render_document(
        &self,
        name: &TaskId,
        spec: &TaskSpec,
        object_ref: &ObjectRef,
        document: &SecretDocument,
    ) -> StepResult<Value> {
        let mut filled = document.document.clone();
        for fill in &document.fill {
            let value = match &fill.with {
                FillWith::Report => json!(RelayAddress {
                    url: format!("{}/v1/reports/{}/{}", self.settings.advertise_url, name.unit, name.attempt),
                    token: spec.token.clone(),
                    heartbeat_ms: millis(self.settings.heartbeat),
                    report_retry_ms: millis(self.settings.report_retry),
                }),
                FillWith::Secret(from) => json!(self.secret_value(spec, from).await?),
            };
            let Some(there) = filled.pointer_mut(&fill.pointer) else {
                return fail(ReasonCode::Render, &format!("the document has no value at {:?}", fill.pointer));
            };
            *there = value;
        }
        let text = filled.to_string();
        if text.len() > MAX_DOCUMENT {
            let why = format!("the document has {} bytes when filled in; {MAX_DOCUMENT} is the limit", text.len());
            return fail(ReasonCode::Render, &why);
        }
        let marks = names::object_marks(name, &spec.objects.instance, &spec.names, &[]);
        Ok(object_ref.secret_manifest(&marks, &document.key, text.as_bytes()))
    }

    /// Copies values into the `data` of a Secret, the manifest with this position.
    pub(crate) async fn fill_manifest(&self, spec: &TaskSpec, number: usize, manifest: &mut Value) -> StepResult<()> {
        for fill in spec.objects.fill.iter().filter(|fill| fill.manifest == number) {
            let value = self.secret_value(spec, &fill.secret).await?;
            manifest["data"][fill.key.as_str()] = STANDARD.encode(value.to_bytes().unwrap_or_default()).into();
        }
        Ok(())
    }

    async fn secret_value(&self, spec: &TaskSpec, from: &SecretRef) -> StepResult<UnitValue> {
        let namespace = from.namespace.as_deref().unwrap_or(&spec.namespace);
        let object_ref = ObjectRef::secret(namespace, &from.name);
        let refused = |why: &str| fail(ReasonCode::Render, &format!("{object_ref}: {why}"));
        if namespace == self.settings.own_namespace {
            return refused("the relay's own namespace is not allowed");
        }
        // A task that began before a change of the policy reads the Secrets of its own namespace.
        if namespace != spec.namespace
            && let Some(violation) = self.policy.namespace_violation(namespace)
        {
            return refused(&format!("{}; copy the Secret into a namespace of the policy", violation.why));
        }
        let Some(secret) = self.read(&object_ref).await? else { return refused("the Secret does not exist") };
        if let Some(owner) = self.foreign_owner(&object_ref, Some(&secret), &spec.objects.instance).await? {
            return fail(ReasonCode::Render, &references::foreign(&object_ref, &owner));
        }
        match secret_bytes(&secret, &from.key) {
            Some(bytes) => Ok(UnitValue::from_bytes(bytes)),
            None => refused(&format!("it has no key {:?}", from.key)),
        }
    }
}
