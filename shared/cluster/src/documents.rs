//! Secrets that hold a document, with values that only the cluster knows.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_wire::relay::{FillWith, SecretDocument, WorkName};
use ebb_wire::runner::RelayAddress;
use ebb_wire::value::{SecretRef, Value as OutputValue};
use serde_json::{Value, json};

use crate::admit::Refusal;
use crate::names::{self, LIFE, OUTPUT, PART};
use crate::record::{Place, Work};
use crate::relay::Inner;
use crate::settings::millis;

/// Bytes of a document that is filled in.
const LARGEST: usize = 1 << 20;

/// Names that begin so are ours.
const OURS: &str = ebb_podspec::OURS;

/// Whether a life may have what is in a Secret: nobody else's scripts, inputs and outputs.
pub(crate) fn is_readable(secret: &Value, life: &str) -> bool {
    let label = |key: &str| secret["metadata"]["labels"][key].as_str();
    let is_ours = secret["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(OURS));
    !is_ours || (label(PART) == Some(OUTPUT) && label(LIFE) == Some(life))
}

/// Names of the sensitive outputs of a script, whose document is told where to report.
pub(crate) fn sensitive(document: &SecretDocument) -> Vec<String> {
    let reports = document.fill.iter().any(|fill| fill.with == FillWith::Report);
    let outputs = document.document["outputs"].as_array().filter(|_| reports);
    let outputs = outputs.into_iter().flatten().filter(|output| output["sensitive"] == true);
    outputs.filter_map(|output| output["name"].as_str().map(str::to_owned)).collect()
}

impl Inner {
    /// The manifest of a Secret with its document filled in.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn document(
        &self,
        name: &WorkName,
        work: &Work,
        document: &SecretDocument,
    ) -> Result<(Place, Value), Refusal> {
        let mut filled = document.document.clone();
        for fill in &document.fill {
            let value = match &fill.with {
                FillWith::Report => json!(self.address(name, work)),
                FillWith::Secret(from) => json!(self.secret(work, from).await?),
            };
            let Some(there) = filled.pointer_mut(&fill.pointer) else {
                return Err(Refusal::Never(format!("the document has nothing at {:?}", fill.pointer)));
            };
            *there = value;
        }
        let text = filled.to_string();
        if text.len() > LARGEST {
            let why = format!("the document has {} bytes when filled in; {LARGEST} is the limit", text.len());
            return Err(Refusal::Never(why));
        }
        let place = Place::secret(&work.namespace, &document.name);
        let labels = names::labels(name, &work.objects.life);
        let manifest = json!({
            "apiVersion": place.api_version,
            "kind": place.kind,
            "metadata": {"name": place.name, "namespace": place.namespace, "labels": labels},
            "data": BTreeMap::from([(&document.key, STANDARD.encode(text))]),
        });
        Ok((place, manifest))
    }

    /// Where the runner of a work reports to.
    fn address(&self, name: &WorkName, work: &Work) -> RelayAddress {
        RelayAddress {
            url: format!("{}/v1/reports/{}/{}", self.settings.reach, name.unit, name.attempt),
            token: work.token.clone(),
            heartbeat_ms: millis(self.settings.heartbeat),
            patience_ms: millis(self.settings.runner_patience),
        }
    }

    /// The value of a Secret's key. Secrets with our names are read for the life that they belong to alone.
    async fn secret(&self, work: &Work, from: &SecretRef) -> Result<OutputValue, Refusal> {
        let namespace = from.namespace.as_deref().unwrap_or(&work.namespace);
        let place = Place::secret(namespace, &from.name);
        let never = |why: &str| Err(Refusal::Never(format!("{place}: {why}")));
        let is_own = namespace == self.settings.own_namespace;
        if is_own || !self.settings.allowed.namespaces.contains_key(namespace) {
            return never("the namespace is not allowed");
        }
        let Some(secret) = self.read(&place).await? else { return never("there is no such Secret") };
        if !is_readable(&secret, &work.objects.life) {
            return never("it is not this life's");
        }
        let value = secret["data"][&from.key].as_str().and_then(|text| STANDARD.decode(text).ok());
        match value {
            Some(bytes) => Ok(OutputValue::from_bytes(bytes)),
            None => never(&format!("it has no key {:?}", from.key)),
        }
    }
}
