use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

pub use ebb_engine::SecretRef;

/// A value of an output or input. In JSON: `{"json": …}`, `{"base64": "…"}`, `{"secret": {…}}` or `{"sealed": "…"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnitValue {
    /// Any JSON. Text outputs of pods are strings.
    Json(serde_json::Value),
    /// Bytes that are not UTF-8.
    #[serde(with = "base64_bytes", rename = "base64")]
    Bytes(Vec<u8>),
    /// A value that stays in its cluster.
    Secret(SecretRef),
    /// A sensitive value that the control plane stores, encrypted by [`crate::seal::seal_value`]. Its plain text is the
    /// JSON of another variant.
    Sealed(String),
}

pub type Outputs = BTreeMap<String, UnitValue>;

impl UnitValue {
    /// Returns text if the bytes are UTF-8.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Json(serde_json::Value::String(text)),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }

    /// Returns the bytes that a script sees: strings and bytes unchanged, other JSON as text. `None` for a
    /// sensitive value.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Json(serde_json::Value::String(text)) => Some(text.clone().into_bytes()),
            Self::Json(json) => Some(json.to_string().into_bytes()),
            Self::Bytes(bytes) => Some(bytes.clone()),
            Self::Secret(_) | Self::Sealed(_) => None,
        }
    }

    /// Returns the number of bytes that count against limits.
    pub fn size(&self) -> usize {
        match self {
            Self::Json(serde_json::Value::String(text)) => text.len(),
            Self::Json(json) => json.to_string().len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Secret(_) => 0,
            Self::Sealed(text) => text.len(),
        }
    }
}

mod base64_bytes {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
