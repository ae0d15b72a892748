//! What the control plane asks of a relay. Durations, never points in time: clocks differ.

use serde::{Deserialize, Serialize};

use crate::callback::Callback;
use crate::value::Value;

/// Starts work under a name, or finds it there. Idempotent: the name decides, and a second request changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ensure {
    /// Version of this message; 1.
    pub v: u32,
    /// Which work.
    pub name: WorkName,
    /// Milliseconds after which this request must not start anything any more.
    pub not_after_ms: u64,
    /// Milliseconds that the work may take.
    pub timeout_ms: u64,
    /// Where the result goes.
    pub callback: Destination,
    /// The work.
    pub script: Script,
}

/// Names a try of a unit. Tries of one unit share `unit`; a higher try replaces the lower ones: they are killed or
/// tombstoned before it starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkName {
    /// The unit of one run, a DNS label: `RUN-INDEX`.
    pub unit: String,
    /// The try, from 1.
    pub attempt: u32,
}

/// Where a result goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    /// `POST` here.
    pub url: String,
    /// With this bearer token.
    pub token: String,
}

/// A script with its surroundings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    /// The image.
    pub image: String,
    /// The namespace of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A pod template as YAML text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<String>,
    /// The script, first line `#!`.
    pub text: String,
    /// Environment variables that are not inputs.
    pub env: Vec<(String, String)>,
    /// Inputs.
    pub inputs: Vec<ScriptInput>,
    /// Files to collect when it has succeeded.
    pub outputs: Vec<ScriptOutput>,
}

/// An input of a script. Without a value it is unset, and no file is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptInput {
    /// Its name.
    pub name: String,
    /// The environment variable that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The absolute path of the file that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// An output of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptOutput {
    /// Its name.
    pub name: String,
    /// The absolute path of the file.
    pub path: String,
    /// Whether the value stays in the cluster.
    #[serde(default)]
    pub sensitive: bool,
}

/// Where work stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkState {
    /// Not known here.
    Unknown,
    /// It runs, or will.
    Running {
        /// The tail of its log so far.
        log: String,
    },
    /// It has ended so.
    Ended(Box<Callback>),
    /// It does not run and never will: killed, or named by a cancellation before it came.
    Tombstoned,
}
