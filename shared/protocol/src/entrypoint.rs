//! The messages between a relay and the entrypoint of a pod.
//!
//! The relay puts an [`EntrypointSpec`] into a Secret that the pod mounts. The entrypoint reports the end of the script twice:
//! with a [`TerminationResult`] in the container's termination message, which survives the relay, and with a [`ScriptReport`]
//! to the relay, which has what the message cannot hold (it has 4,096 bytes, and a right to read pods suffices to read it):
//! large outputs, sensitive ones, the log. The relay alone makes Secrets and callbacks of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::callback::Callback;
use crate::limits::{CALLBACK_BODY, LOG_TAIL, OUTPUTS};
use crate::relay::{ScriptInput, ScriptOutput};

/// Version of every message in this module.
pub const VERSION: u32 = 1;
/// The name of the entrypoint below the folder of `install`.
pub const PROGRAM_NAME: &str = "ebb-entrypoint";
/// Bytes of a termination message that Kubernetes keeps.
pub const TERMINATION: usize = 4096;
/// Bytes of a report: a callback, and sensitive outputs in base64 with their names.
pub const REPORT_BODY: usize = CALLBACK_BODY + OUTPUTS / 3 * 4 + (1 << 20);

/// The exit codes of the entrypoint itself, where there is none of the script.
pub mod exit {
    /// The unit failed although the script has ended with 0: a missing output, a timeout.
    pub const FAILED: i32 = 125;
    /// The interpreter is there and cannot be executed, or the script cannot be started as it is written.
    pub const NOT_STARTABLE: i32 = 126;
    /// The image has no such interpreter.
    pub const NO_INTERPRETER: i32 = 127;
    /// The arguments of the entrypoint are wrong, or it cannot read its spec.
    pub const USAGE: i32 = 2;
}

/// A script and how to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntrypointSpec {
    /// Version of this message; 1.
    pub v: u32,
    /// The script; without a `#!` in its first line it is run by `/bin/sh`.
    pub text: String,
    /// Environment variables, beside those of the container, which they replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// Inputs. Their values are there: `{"json": "text"}` or `{"base64": "…"}`, never a reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<ScriptInput>,
    /// Files to collect when it has succeeded, anywhere in the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<ScriptOutput>,
    /// Milliseconds from the entrypoint's start after which the script is terminated.
    pub timeout_ms: u64,
    /// Milliseconds between `SIGTERM` and `SIGKILL`.
    pub grace_ms: u64,
    /// Bytes at the end of the log that are kept and reported; [`LOG_TAIL`] if left out, which is what a callback carries.
    #[serde(default = "log_tail")]
    pub log_tail: usize,
    /// A folder to write to, for the script itself; it may be mounted `noexec`.
    pub folder: String,
    /// The file of the termination message.
    #[serde(default = "termination_log")]
    pub termination_log: String,
    /// The relay that takes reports. Without it there is only the termination message, and every output has to fit into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayAddress>,
}

/// The address for reports, and how long they are retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayAddress {
    /// `POST` here: `http://ADDRESS[:PORT]/PATH`. The host is an IP address, for the entrypoint looks up no names.
    pub url: String,
    /// The bearer token, which is valid for this attempt alone.
    pub token: String,
    pub heartbeat_ms: u64,
    /// Milliseconds for which the report of the end is retried until it is acknowledged. After a `SIGTERM` at most the grace
    /// period is left.
    pub report_retry_ms: u64,
}

/// The body of a request to the relay. Every status from 200 to 299 acknowledges it; 410 says that the relay does not want it;
/// after any other status, and without a response, the report of the end is retried. Heartbeats are never repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptReport {
    /// Version of this message; 1.
    pub v: u32,
    /// Bytes that the script has printed so far: the end of the tail of its log.
    pub log_bytes: u64,
    pub state: ReportState,
}

/// The state of a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReportState {
    Running,
    /// It has ended. Each report of it has the same bytes.
    Ended(Box<ScriptExit>),
}

/// The end of a script, with its outputs and its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptExit {
    /// The result for the control plane, without `secrets`, which only the relay can name.
    pub result: Callback,
    /// Outputs that stay in the cluster, in base64 as a Secret's `data` has them. Never part of `result`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sensitive: BTreeMap<String, String>,
    /// The script's exit code, 128 and the number for a signal; `None`: it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The container's termination message: at most [`TERMINATION`] bytes.
///
/// It is written before the report is sent and once more when that was acknowledged, so that it exists whatever happens to
/// the relay. If it has a `report`, the relay needs that report: if it has not come, it is lost, and so are the outputs of
/// the script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminationResult {
    /// Version of this message; 1.
    pub v: u32,
    /// The result, always without the log, and without any output if `report` is there.
    pub result: Callback,
    /// As in [`ScriptExit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// SHA-256 of the body of the report, in hexadecimal, if outputs are in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    #[serde(default)]
    pub reported: bool,
}

fn log_tail() -> usize {
    LOG_TAIL
}

fn termination_log() -> String {
    "/dev/termination-log".to_owned()
}
