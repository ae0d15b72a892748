//! What `target.…` stands for.

use std::collections::BTreeMap;

/// What is known of a target when its units are rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `sandbox`, `namespace`, …
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Identity of this life.
    pub uid: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Short, stable over attempts, safe as a DNS label and in SQL identifiers.
    pub key: String,
    /// Rises with each change of the document.
    pub generation: u64,
    /// Its cluster; `None`: the control plane's default.
    pub cluster: Option<String>,
    /// Labels of the document.
    pub labels: BTreeMap<String, String>,
}

impl Facts {
    /// The value of `target.FIELD`; `None` for a field that is not set.
    pub(crate) fn field(&self, field: &str) -> Option<serde_json::Value> {
        match field {
            "kind" => Some(self.kind.as_str().into()),
            "name" => Some(self.name.as_str().into()),
            "uid" => Some(self.uid.as_str().into()),
            "namespace" => self.namespace.as_deref().map(Into::into),
            "key" => Some(self.key.as_str().into()),
            "generation" => Some(self.generation.into()),
            "cluster" => self.cluster.as_deref().map(Into::into),
            "labels" => Some(
                self.labels
                    .iter()
                    .map(|(k, v)| (k.clone(), v.as_str().into()))
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
            ),
            _ => None,
        }
    }
}
