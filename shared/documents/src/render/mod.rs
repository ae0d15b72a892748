//! A unit of the plan with what is known: what is sent to run it.
//!
//! Flow: [`CompiledExpressions::new`] once per plan (parses each expression once; share it in an `Arc`), then [`unit()`] for each
//! dispatch. Nothing here reads a clock or the network, and the same arguments give the same answer.
//!
//! A sensitive value never gets into an expression: it is passed on whole as a [`SecretKeyRef`], or named by
//! `secretRef(…)`. Errors name inputs, units and outputs; they never contain a value.

mod context;
mod evaluate;
mod facts;
mod outputs;
mod unit;
mod url;

use std::collections::BTreeMap;

use crate::plan::UnitRef;

pub use crate::expr::{MAX_COST, MAX_VALUE_BYTES};
pub use evaluate::CompiledExpressions;
pub use facts::TargetFacts;
pub use outputs::{WebhookResponse, env, outputs_from_response, resource_outputs};
pub use unit::{preview, unit};

/// A value that a unit made or is given.
#[derive(Clone, Debug, PartialEq)]
pub enum RenderValue {
    /// Text (a pod's output that is UTF-8) or any JSON (a webhook's).
    Json(serde_json::Value),
    /// A pod's output that is not UTF-8.
    Bytes(Vec<u8>),
    Secret(SecretKeyRef),
}

/// A key of a Kubernetes Secret: the sensitive value itself stays in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKeyRef {
    /// The cluster that holds it; `None`: the control plane's default.
    pub cluster: Option<String>,
    /// Its namespace; `None`: that of the target.
    pub namespace: Option<String>,
    pub name: String,
    pub key: String,
}

/// The state of a unit when another one reads its outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum ProducerState {
    /// It succeeded with these outputs, or left them behind before it failed.
    Outputs(BTreeMap<String, RenderValue>),
    Skipped,
    /// It never started, or failed without outputs.
    Absent,
}

/// The states of the units that are read. A unit that is not listed is [`ProducerState::Absent`].
pub type KnownOutputs = BTreeMap<UnitRef, ProducerState>;

/// A rendered unit.
#[derive(Clone, Debug, PartialEq)]
pub enum RenderedUnit {
    Skipped(SkipReason),
    /// Run the script of [`Action::Pod`](crate::plan::Action::Pod) with these.
    Pod {
        /// The inputs in the order of the document.
        inputs: Vec<RenderedInput>,
    },
    Webhook(RenderedRequest),
    Object {
        /// The manifests, complete, in the order in which they are applied.
        manifests: Vec<serde_json::Value>,
    },
    /// Removes the objects of the unit that this one undoes.
    Removal,
}

/// Why a unit is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Its `when` is false.
    WhenFalse,
    /// It reads an output of a skipped unit.
    ReadsSkipped {
        /// The key of the skipped unit.
        unit: String,
        /// The output that it would have made.
        output: String,
    },
}

/// An input of a pod with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedInput {
    pub name: String,
    /// The environment variable that carries it.
    pub env: Option<String>,
    /// The absolute path of the file that carries it.
    pub path: Option<String>,
    /// Its value. Absent: the variable is unset and there is no file.
    pub value: InputValue,
}

/// The value of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputValue {
    /// Text; what is not text in the document is JSON here.
    Text(String),
    /// Bytes that are not UTF-8: for a file only.
    Bytes(Vec<u8>),
    Secret(SecretKeyRef),
    /// None.
    Absent,
}

/// A webhook's request.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedRequest {
    pub method: String,
    /// Absolute; everything that was rendered into it is percent-encoded.
    pub url: String,
    pub headers: BTreeMap<String, String>,
    /// JSON; `None`: no body.
    pub body: Option<serde_json::Value>,
    /// The URL that tells what it has made, if there is one.
    pub describe: Option<String>,
}

/// Why a unit cannot be rendered. The text names inputs, units and outputs and never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// There is no such unit in the plan.
    #[error("the plan has no unit {0:?}")]
    NoUnit(UnitRef),
    /// A value that is needed is not there.
    #[error("{place} needs {what}, which has no value")]
    Missing {
        /// The part of the unit, such as "input `dsn`".
        place: String,
        /// The reference, as it is written.
        what: String,
    },
    /// An expression fails on these values.
    #[error("{place}: {reason}")]
    Evaluation {
        place: String,
        /// The mistake, without values.
        reason: String,
    },
    /// A value has the wrong type for where it goes.
    #[error("{place} has to be {wanted}, not {got}")]
    Type {
        place: String,
        wanted: &'static str,
        /// The type of what was made.
        got: &'static str,
    },
    #[error("{place} has {bytes} bytes; the limit is {MAX_VALUE_BYTES}")]
    TooLarge { place: String, bytes: usize },
    /// Evaluation could take too long on these values.
    #[error("{place}: the expression could touch {cost} values; the limit is {MAX_COST}")]
    TooCostly { place: String, cost: u64 },
    /// A sensitive value would leave its cluster.
    #[error("{place}: {what} is sensitive and lies in cluster {holder}, so it cannot be used in cluster {user}")]
    OtherCluster { place: String, what: String, holder: String, user: String },
    /// A sensitive value would get where it must not be.
    #[error("{place}: {what} is sensitive and cannot be used here")]
    Sensitive { place: String, what: String },
    /// A declared output is not in the response.
    #[error("output `{output}` is not in the response: {reason}")]
    NoOutput {
        output: String,
        /// Why, without values.
        reason: String,
    },
    /// The plan was not made by this crate or was tampered with.
    #[error("the plan holds an expression that does not compile: {place}: {reason}")]
    Plan { place: String, reason: String },
}
