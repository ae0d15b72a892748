//! Messages between a relay and the entrypoint of a pod.
//!
//! The pod mounts a Secret with an [`EntrypointSpec`]. The entrypoint reports the end of the script twice:
//!
//! 1. as [`TerminationResult`] in the termination message, which outlives the relay. It has at most 4,096 bytes, and
//!    all readers of pods can read it.
//! 2. as [`ScriptReport`] to the relay, with large outputs, sensitive outputs and the log.
//!
//! Only the relay creates Secrets and callbacks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::callback::Callback;
use crate::limits::{CALLBACK_BODY, OUTPUTS};
use crate::relay::{ScriptInput, ScriptOutput};

/// The version of every message in this module.
pub const VERSION: u32 = 1;
/// The name of the entrypoint in the folder of `install`.
pub const PROGRAM_NAME: &str = "ebb-entrypoint";
/// The Kubernetes limit of a termination message in bytes.
pub const TERMINATION: usize = 4096;
/// The maximum size of a report in bytes: a callback, and sensitive outputs in base64.
pub const REPORT_BODY: usize = CALLBACK_BODY + OUTPUTS / 3 * 4 + (1 << 20);

/// Exit codes of the entrypoint itself.
pub mod exit {
    /// The unit failed, and the script ended with 0 (for example, an output is missing) or has no exit code.
    pub const FAILED: i32 = 125;
    /// The interpreter or the script cannot be executed.
    pub const NOT_STARTABLE: i32 = 126;
    /// The image has no such interpreter.
    pub const NO_INTERPRETER: i32 = 127;
    /// The arguments are wrong, or the spec cannot be read.
    pub const USAGE: i32 = 2;
}

/// A script with its environment and limits.
#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntrypointSpec {
    pub v: u32,
    /// The script. `/bin/sh` runs it if its first line has no `#!`.
    pub text: String,
    /// Environment variables. They replace those of the container.
    pub env: Vec<(String, String)>,
    /// Inputs with their values: `{"json": "text"}` or `{"base64": "…"}`, never a reference.
    pub inputs: Vec<ScriptInput>,
    /// Files to collect after a success, anywhere in the container.
    pub outputs: Vec<ScriptOutput>,
    /// Milliseconds after the start of the entrypoint at which the script is terminated.
    pub timeout_ms: u64,
    /// Milliseconds between `SIGTERM` and `SIGKILL`.
    pub grace_ms: u64,
    /// A writable folder for the script. It may be mounted `noexec`.
    pub folder: String,
    /// The file of the termination message.
    pub termination_log: String,
    /// The relay for reports. A pod and a container need one, and a process of one machine has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayAddress>,
}

/// The address for reports, with their intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayAddress {
    /// `http://ADDRESS[:PORT]/PATH`. The host is an IP address, because the entrypoint resolves no names.
    pub url: String,
    /// The bearer token of this attempt.
    pub token: String,
    pub heartbeat_ms: u64,
    /// Milliseconds for which the report of the end is repeated without an acknowledgement. After a `SIGTERM` it is at
    /// most the grace period.
    pub report_retry_ms: u64,
}

/// A request to the relay. 200 to 299 acknowledges it, and 410 means that no report is needed. After any other status
/// or no response, the report of the end is repeated. Heartbeats are not repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptReport {
    pub v: u32,
    /// Bytes of the log that the script has printed so far.
    pub log_bytes: u64,
    /// The last progress that the script has reported, at most [`PROGRESS`](crate::limits::PROGRESS) characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    pub state: ReportState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReportState {
    Running,
    /// The script has ended. Repeated reports have the same bytes.
    Ended(Box<ScriptExit>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptExit {
    /// The result for the control plane without `secrets`, which only the relay sets.
    pub result: Callback,
    /// Outputs that stay in the cluster, in base64 as in the `data` of a Secret. They are never in `result`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sensitive: BTreeMap<String, String>,
    /// The exit code of the script, 128 plus the number of a signal, or `None` if it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The termination message of the container, at most [`TERMINATION`] bytes.
///
/// The entrypoint writes it before it sends the report, and again after the acknowledgement. If it names a `report`
/// that never arrived, the outputs are lost.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminationResult {
    pub v: u32,
    /// The result without the log, and without outputs if `report` is set.
    pub result: Callback,
    /// As in [`ScriptExit`].
    pub exit_code: Option<i32>,
    /// The hexadecimal SHA-256 of the report, if only the report has the outputs.
    pub report: Option<String>,
    #[serde(default)]
    pub reported: bool,
}
