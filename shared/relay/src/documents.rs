//! Secrets that hold a document, with values that only the cluster knows.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::entrypoint::RelayAddress;
use ebb_protocol::relay::{FillWith, SecretDocument, TaskId};
use ebb_protocol::value::{SecretRef, UnitValue as OutputValue};
use serde_json::{Value, json};

use crate::admit::RequestError;
use crate::names::{self, INSTANCE, OUTPUT, PART};
use crate::record::{ObjectRef, TaskSpec};
use crate::relay::Reconciler;
use crate::settings::millis;

/// Bytes of a document that is filled in.
const MAX_DOCUMENT: usize = 1 << 20;

/// Names that begin so are ours.
const OURS: &str = ebb_podspec::RESERVED_PREFIX;

/// Returns true if an instance may have what is in a Secret: nobody else's scripts, inputs and outputs.
pub(crate) fn is_readable(secret: &Value, instance: &str) -> bool {
    let label = |key: &str| secret["metadata"]["labels"][key].as_str();
    let is_ours = secret["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(OURS));
    !is_ours || (label(PART) == Some(OUTPUT) && label(INSTANCE) == Some(instance))
}

/// Names of the sensitive outputs of a script, whose document is told where to report.
pub(crate) fn sensitive_outputs(document: &SecretDocument) -> Vec<String> {
    let reports = document.fill.iter().any(|fill| fill.with == FillWith::Report);
    let outputs = document.document["outputs"].as_array().filter(|_| reports);
    let outputs = outputs.into_iter().flatten().filter(|output| output["sensitive"] == true);
    outputs.filter_map(|output| output["name"].as_str().map(str::to_owned)).collect()
}

impl Reconciler {
    /// The manifest of a Secret with its document filled in.
    ///
    /// # Errors
    /// [`RequestError`].
    pub(crate) async fn render_document(
        &self,
        name: &TaskId,
        spec: &TaskSpec,
        document: &SecretDocument,
    ) -> Result<(ObjectRef, Value), RequestError> {
        let mut filled = document.document.clone();
        for fill in &document.fill {
            let value = match &fill.with {
                FillWith::Report => json!(self.report_address(name, spec)),
                FillWith::Secret(from) => json!(self.secret_value(spec, from).await?),
            };
            let Some(there) = filled.pointer_mut(&fill.pointer) else {
                return Err(RequestError::Refused(format!("the document has nothing at {:?}", fill.pointer)));
            };
            *there = value;
        }
        let text = filled.to_string();
        if text.len() > MAX_DOCUMENT {
            let why = format!("the document has {} bytes when filled in; {MAX_DOCUMENT} is the limit", text.len());
            return Err(RequestError::Refused(why));
        }
        let place = ObjectRef::secret(&spec.namespace, &document.name);
        let labels = names::task_labels(name, &spec.objects.instance);
        let manifest = json!({
            "apiVersion": place.api_version,
            "kind": place.kind,
            "metadata": {"name": place.name, "namespace": place.namespace, "labels": labels},
            "data": BTreeMap::from([(&document.key, STANDARD.encode(text))]),
        });
        Ok((place, manifest))
    }

    /// Where the entrypoint of a task reports to.
    fn report_address(&self, name: &TaskId, spec: &TaskSpec) -> RelayAddress {
        RelayAddress {
            url: format!("{}/v1/reports/{}/{}", self.settings.advertise_url, name.unit, name.attempt),
            token: spec.token.clone(),
            heartbeat_ms: millis(self.settings.heartbeat),
            report_retry_ms: millis(self.settings.report_retry),
        }
    }

    /// The value of a Secret's key. Secrets with our names are read for the instance that they belong to alone.
    async fn secret_value(&self, spec: &TaskSpec, from: &SecretRef) -> Result<OutputValue, RequestError> {
        let namespace = from.namespace.as_deref().unwrap_or(&spec.namespace);
        let place = ObjectRef::secret(namespace, &from.name);
        let never = |why: &str| Err(RequestError::Refused(format!("{place}: {why}")));
        let is_own = namespace == self.settings.own_namespace;
        if is_own || !self.settings.policy.namespaces.contains_key(namespace) {
            return never("the namespace is not allowed");
        }
        let Some(secret) = self.read(&place).await? else { return never("there is no such Secret") };
        if !is_readable(&secret, &spec.objects.instance) {
            return never("it belongs to another instance");
        }
        let value = secret["data"][&from.key].as_str().and_then(|text| STANDARD.decode(text).ok());
        match value {
            Some(bytes) => Ok(OutputValue::from_bytes(bytes)),
            None => never(&format!("it has no key {:?}", from.key)),
        }
    }
}
