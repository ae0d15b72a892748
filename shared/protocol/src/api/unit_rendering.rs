//! The rendered form of a unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What a unit was rendered to. Which of `inputs`, `request`, `manifests` and `instance` is there depends on its kind.
/// A sensitive value is `<sensitive>`. One that is in a Secret of the cluster is `{"secretKeyRef": {"name", "key"}}`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitRendering {
    pub run: String,
    /// `RESOURCE/UNIT`.
    pub unit: String,
    #[schema(pattern = "^(pod|webhook|object|removal|infrakit|destroy)$")]
    pub kind: String,
    pub attempt: u32,
    /// The cluster of the unit. Absent if it is the default of the control plane.
    pub cluster: Option<String>,
    /// The namespace of the pod, or of manifests that name none. Absent if it is the default of the relay.
    pub namespace: Option<String>,
    /// The image of a pod.
    pub image: Option<String>,
    /// The script of a pod, as its author wrote it. A long one is shortened to 65,536 characters.
    pub script: Option<String>,
    /// The reason why the unit does not run.
    pub skipped: Option<String>,
    /// The units that this one undoes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<String>,
    /// The inputs of a pod by name. An unset one is null. A long one is shortened.
    pub inputs: Option<BTreeMap<String, Value>>,
    pub request: Option<RequestRendering>,
    /// The manifests of an object unit, in the order in which they are applied.
    pub manifests: Option<Vec<Value>>,
    /// What a plugin of InfraKit gets.
    pub instance: Option<Value>,
}

/// The request of a webhook unit, without the headers that authorize it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestRendering {
    pub method: String,
    pub url: String,
    /// The connection that authorizes the request.
    pub connection: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    pub body: Option<Value>,
}
