//! The values of `target.…`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::plan::{Plan, document_name};

/// The facts about a target that its units can read, and those at the time of a change that a notification reports.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// `sandbox`, `namespace`, …
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// The key of the target: short, the same for every attempt, and valid in DNS labels and SQL identifiers.
    pub key: String,
    /// Rises with each change of the document.
    pub generation: u64,
    pub namespace: Option<String>,
    /// The cluster. `None` means the default of the control plane.
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The maximum number of characters of a resource's name in its key.
const KEY_NAME: usize = 20;
/// The number of characters of the digest in a resource's key.
const KEY_DIGEST: usize = 16;

impl TargetFacts {
    /// The key of a target without an instance, in the preview of a plan.
    pub const UNKNOWN_KEY: &str = "<key>";

    /// Returns the value of `resource.FIELD` for a resource of the target.
    pub(crate) fn own(&self, plan: &Plan, resource: &str, field: &str) -> Option<serde_json::Value> {
        let incarnation = plan.resource(resource).map_or(0, |resource| resource.incarnation);
        match field {
            "name" => Some(document_name(resource).into()),
            "key" => Some(self.resource_key(document_name(resource), incarnation).into()),
            _ => None,
        }
    }

    /// Returns the key of a resource: `[a-z][a-z0-9]*`, at most 36 characters, the same for every unit and attempt.
    ///
    /// The key starts with the beginning of the resource's name. It ends with a digest of the target's key, the whole name
    /// and the incarnation, so it differs between the resources of a target, also those of one name after each other, and
    /// between targets.
    pub fn resource_key(&self, resource: &str, incarnation: u32) -> String {
        let named = resource.bytes().map(|byte| byte.to_ascii_lowercase());
        let named = named.filter(u8::is_ascii_alphanumeric).skip_while(u8::is_ascii_digit);
        let mut key: String = named.take(KEY_NAME).map(char::from).collect();
        if key.is_empty() {
            key.push('r');
        }
        let incarnation = if incarnation == 0 { String::new() } else { format!("~{incarnation}") };
        let parts = ["resource key", &self.key, &format!("{resource}{incarnation}")];
        let digest = parts.iter().fold(Sha256::new(), |digest, part| {
            digest.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
        });
        key.extend(hex::encode(digest.finalize()).chars().take(KEY_DIGEST));
        key
    }

    /// Returns the value of `target.FIELD`, or `None` for a field that is not set.
    pub(crate) fn field(&self, field: &str) -> Option<serde_json::Value> {
        match field {
            // Facts without labels have an empty mapping.
            "labels" => Some(serde_json::json!(self.labels)),
            field => serde_json::json!(self).get(field).cloned(),
        }
    }
}
