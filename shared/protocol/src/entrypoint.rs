//! What a relay tells the runner in a pod, and what the runner tells it.
//!
//! The relay puts a [`EntrypointSpec`] into a Secret that the pod mounts. The runner says twice how the script has ended: with a
//! [`TerminationResult`] in the container's termination message, which survives the relay, and with a [`ScriptReport`] to the relay,
//! which has what the message cannot hold (4,096 bytes, readable by whoever may read pods): large outputs, sensitive ones,
//! the log. The relay is the only one that makes Secrets and callbacks of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::callback::Callback;
use crate::limits::{CALLBACK_BODY, LOG_TAIL, OUTPUTS};
use crate::relay::{ScriptInput, ScriptOutput};

/// Version of every message in this module.
pub const VERSION: u32 = 1;
/// The file below the folder of `install` that is the runner.
pub const PROGRAM_NAME: &str = "ebb-entrypoint";
/// Bytes of a termination message that Kubernetes keeps.
pub const TERMINATION: usize = 4096;
/// Bytes of a report: a callback, and sensitive outputs in base64 with their names.
pub const REPORT_BODY: usize = CALLBACK_BODY + OUTPUTS / 3 * 4 + (1 << 20);

/// The runner's own exit codes, where it has none of the script's to give.
pub mod exit {
    /// The unit failed although the script has ended with 0: a missing output, a passed deadline.
    pub const FAILED: i32 = 125;
    /// The interpreter is there and cannot be executed, or the script cannot be started as it is written.
    pub const NOT_STARTABLE: i32 = 126;
    /// The image has no such interpreter.
    pub const NO_INTERPRETER: i32 = 127;
    /// The runner was called in a way that it does not understand, or cannot read its spec.
    pub const USAGE: i32 = 2;
}

/// What to run and how.
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
    /// Milliseconds from the runner's start after which the script is ended.
    pub deadline_ms: u64,
    /// Milliseconds between `SIGTERM` and `SIGKILL`.
    pub grace_ms: u64,
    /// Bytes at the end of the log that are kept and reported; [`LOG_TAIL`] if left out, which is what a callback carries.
    #[serde(default = "log_tail")]
    pub log_tail: usize,
    /// A folder to write to, for the script itself; it may be mounted `noexec`.
    pub folder: String,
    /// Where the termination message is written.
    #[serde(default = "termination_log")]
    pub termination_log: String,
    /// Where reports go. Without it the termination message is all there is, and every output has to fit into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayAddress>,
}

/// Where reports go, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayAddress {
    /// `POST` here: `http://ADDRESS[:PORT]/PATH`. The host is an IP address, for the runner looks up no names.
    pub url: String,
    /// With this bearer token, which is good for this attempt alone.
    pub token: String,
    pub heartbeat_ms: u64,
    /// Milliseconds during which the end is reported again and again until it is acknowledged. After a `SIGTERM` at most
    /// the grace period is left.
    pub report_retry_ms: u64,
}

/// The body of a request to the relay. Every status from 200 to 299 acknowledges it; 410 says that nobody wants to know;
/// anything else, and no answer, has the end of the script reported again. Heartbeats are never repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptReport {
    /// Version of this message; 1.
    pub v: u32,
    /// Bytes that the script has printed so far: where the tail of its log ends.
    pub log_bytes: u64,
    pub state: ReportState,
}

/// How a script stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReportState {
    Running,
    /// It has ended. Said with the same bytes every time.
    Ended(Box<ScriptExit>),
}

/// How a script has ended, with everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptExit {
    /// What the control plane is told, but for `secrets`, which only the relay can name.
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
/// It is written before the report is sent and once more when that was acknowledged, so that it is there whatever
/// happens to the relay. Whoever finds a `report` in it needs that report: one that has not come is lost, and so is what
/// the script has made.
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
