//! Renders units of a plan with the known values.
//!
//! The caller calls [`unit()`] for each dispatch. The functions are pure: they use no clock and no network.
//!
//! A sensitive value is never part of an expression. One that stays in its cluster is passed on whole as a
//! [`SecretRef`], or named by `secretRef(…)`. One that is stored encrypted is passed on whole as a [`SealedValue`], and
//! decrypted by the caller of [`unit()`] where its recipient may have it. Errors contain the names of inputs,
//! units and outputs, and never a value.

mod answers;
mod context;
mod evaluate;
mod facts;
mod outputs;
mod unit;
mod url;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cel::EvaluationError;
use crate::plan::{Plan, UnitRef, document_name};

pub use crate::cel::MAX_VALUE_BYTES;
pub use answers::{AnswerFailure, PollState, reads_values, response_value};
pub use ebb_engine::SecretRef;
pub(crate) use evaluate::LookupResult;
pub use facts::TargetFacts;
pub use outputs::{env, outputs_from_instance, resource_outputs};
pub use unit::{preview, repeated_unit, unit};

/// A value of an input, output or param.
#[derive(Clone, Debug, PartialEq)]
pub enum RenderValue {
    /// Any JSON. Text outputs of pods are strings.
    Json(serde_json::Value),
    /// An output of a pod that is not UTF-8.
    Bytes(Vec<u8>),
    Secret(SecretRef),
    Sealed(SealedValue),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealedValue {
    /// The place for which it is encrypted. It is valid for no other one.
    pub place: String,
    pub text: String,
}

impl SealedValue {
    /// Returns the place of the literal of a sensitive param in the instance with the key `instance`. Earlier forms of a
    /// resource have the same.
    pub fn param_place(instance: &str, resource: &str, param: &str) -> String {
        format!("param {instance} {} {param}", document_name(resource))
    }
}

/// Decrypts a value. Returns `None` if its key is missing.
pub type OpenSealed<'a> = dyn Fn(&SealedValue) -> Option<RenderValue> + 'a;

/// The state of a unit whose outputs are read.
#[derive(Clone, Debug, PartialEq)]
pub enum ProducerState {
    /// The unit succeeded with these outputs, or reported them before it failed.
    Outputs(BTreeMap<String, RenderValue>),
    Skipped,
    /// The unit never started, or failed without outputs.
    Absent,
}

/// The states of units by their plan reference. A missing unit counts as [`ProducerState::Absent`].
pub type KnownOutputs = BTreeMap<UnitRef, ProducerState>;

/// A unit of a plan, and the values that it reads.
#[derive(Clone, Copy)]
pub struct UnitContext<'a> {
    pub plan: &'a Plan,
    pub at: UnitRef,
    pub facts: &'a TargetFacts,
    pub known: &'a KnownOutputs,
}

/// The answers to the requests of a unit, as [`response_value`] returns them.
#[derive(Clone, Copy)]
pub struct Answers<'a> {
    pub response: &'a serde_json::Value,
    /// The answer to the last question of `until`.
    pub poll: Option<&'a serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RenderedUnit {
    /// The unit does not run, for this reason.
    Skipped(String),
    /// The script of [`Action::Pod`](crate::plan::Action::Pod) runs with these inputs.
    Pod {
        /// The inputs in the order of the document.
        inputs: Vec<RenderedInput>,
    },
    Webhook(RenderedRequest),
    Object {
        /// The complete manifests, in the order in which they are applied.
        manifests: Vec<serde_json::Value>,
        /// The keys in `data` of the first manifest that get values of other Secrets of the cluster. Only an object of `bind`
        /// has some.
        fill: Vec<(String, SecretRef)>,
    },
    /// Removes the objects of the unit that this one undoes.
    Removal,
    /// The resource of an InfraKit plugin. [`Action::Destroy`](crate::plan::Action::Destroy) renders the resource of the
    /// unit that it undoes.
    Infrakit(RenderedInstance),
}

#[derive(Clone, Debug, PartialEq)]
pub struct RenderedInput {
    pub name: String,
    pub env: Option<String>,
    pub path: Option<String>,
    /// The value. Without one, the variable is unset and the file is not created.
    pub value: InputValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputValue {
    /// Text. Values of other types are JSON text.
    Text(String),
    /// Bytes that are not UTF-8. Only for files.
    Bytes(Vec<u8>),
    Secret(SecretRef),
    /// A sensitive value that was decrypted. It is masked in logs.
    Opened(Vec<u8>),
    Absent,
}

impl InputValue {
    /// Returns the value for people. A sensitive one is masked.
    pub fn shown(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Bytes(bytes) => Some(format!("<{} bytes>", bytes.len())),
            Self::Secret(_) | Self::Opened(_) => Some("<sensitive>".to_owned()),
            Self::Absent => None,
        }
    }
}

/// The request of a webhook unit.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedRequest {
    pub method: String,
    /// The absolute URL. Rendered values in it are percent-encoded.
    pub url: String,
    /// The URL for people, if it can have values of an answer. `***` replaces them.
    pub shown: Option<String>,
    /// The expression whose value gives the URL a line feed.
    pub line_feed: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub body: Option<RequestBody>,
    /// The question about the result of a request with an unknown outcome, if there is one.
    pub describe: Option<RenderedQuestion>,
}

impl RenderedRequest {
    /// Returns the URL without values of an answer.
    pub fn shown_url(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.url)
    }
}

/// A question of a webhook unit: a `POST` with a body, otherwise a `GET`.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedQuestion {
    pub url: String,
    pub body: Option<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RequestBody {
    Json(serde_json::Value),
    /// A form, or the text of another content type.
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
}

impl RequestBody {
    /// Returns the bytes that are signed and sent.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Json(json) => json.to_string().into_bytes(),
            Self::Text(text) => text.clone().into_bytes(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }

    /// Returns the body for people: JSON as it is, and another one as text.
    pub fn shown(&self) -> serde_json::Value {
        match self {
            Self::Json(json) => json.clone(),
            Self::Text(text) => text.as_str().into(),
            Self::Bytes(bytes) => format!("<{} bytes>", bytes.len()).into(),
        }
    }
}

/// The resource of an InfraKit unit. It is serialized as the `Spec` of an instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RenderedInstance {
    pub properties: serde_json::Value,
    /// The boot script. Empty without one.
    pub init: String,
    pub tags: BTreeMap<String, String>,
    #[serde(rename = "LogicalID")]
    pub logical_id: Option<String>,
    pub attachments: Option<serde_json::Value>,
}

/// The error of a unit that cannot be rendered. The text contains the names of inputs, units and outputs, and never a
/// value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("the plan has no unit {0:?}")]
    NoUnit(UnitRef),
    #[error("{place} needs {what}, which has no value")]
    Missing {
        /// The part of the unit, such as "input `dsn`".
        place: String,
        /// The reference as written.
        what: String,
    },
    #[error("{place}: {what} is null; expected a value; {fix}")]
    Null {
        place: String,
        /// The reference as written, or the references of a computed value.
        what: String,
        fix: &'static str,
    },
    /// An expression fails on these values, or could take too long on them.
    #[error("{place}: {error}")]
    Evaluation { place: String, error: EvaluationError },
    /// An expression selects a part of an answer that has another form, such as a text. The answer shows nothing then.
    #[error("{place}: {what}")]
    Misread { place: String, what: String },
    /// A value has a type, a size or a cluster that its place does not permit, or an output is null that is not optional.
    #[error("{0}")]
    Unfit(String),
    /// A sensitive value would be exposed.
    #[error("{place}: {what} is sensitive and cannot be used here")]
    Sensitive { place: String, what: String },
    #[error(
        "{place}: the sensitive value cannot be decrypted, because the root secret that encrypted it is missing; restore it \
         in the list of unit secrets (EBB_UNIT_SECRETS)"
    )]
    Undecryptable { place: String },
    #[error("output `{output}` is not in the response: {reason}")]
    NoOutput {
        output: String,
        /// The reason without values.
        reason: String,
    },
    /// This crate did not create the plan, or the plan was changed.
    #[error("the plan holds an expression that does not compile: {place}: {reason}")]
    Plan { place: String, reason: String },
}

pub type RenderResult<T> = Result<T, RenderError>;
