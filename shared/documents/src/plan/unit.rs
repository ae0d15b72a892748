//! Units of a plan: what they read, make and undo.

use std::collections::BTreeMap;

use ebb_engine::{Backoff, Hook};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Template};

/// A compiled unit. The compiler sets the fields that differ from the default.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[serde_with::apply(bool => #[serde(default, skip_serializing_if = "std::ops::Not::not")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitPlan {
    /// `resource/unit`, or `resource/unit[entry]` for an entry of `forEach`. Unique over all hooks of the plan.
    pub key: String,
    pub action: Action,
    /// The cluster that the document sets for the unit. Absent for the target's cluster, see
    /// [`Plan::cluster`](super::Plan::cluster). A webhook with a cluster is sent by its relay, another one by the control plane.
    pub cluster: Option<String>,
    /// The units of the same hook that must end first: because of references, `after`, or the order of teardown.
    pub dependencies: Vec<u32>,
    /// All outputs of this hook or earlier hooks that the unit reads, including those behind params and resources.
    pub reads: Vec<OutputRead>,
    /// The params that the unit reads as `old.params`. Only units of `update` have some.
    pub old_params: Vec<String>,
    /// A CEL condition. The unit is skipped if it is false.
    pub when: Option<String>,
    pub entry: Option<ListEntry>,
    /// The inputs of a pod, in the order of the document.
    pub inputs: Vec<InputPlan>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputPlan>,
    /// The units of earlier hooks that this unit undoes. A unit that undoes none always runs.
    pub undoes: Vec<UnitRef>,
    /// The dependencies on units of the same resource that only the order of teardown requires. Without this list, they
    /// could not be told from those of `after`.
    pub ordered_after: Vec<u32>,
    /// In an update: the hook of the document to which the unit belongs.
    pub stage: Option<Hook>,
    /// In preStop and postStop: the units of updates that did the same. If one of them is done, this unit is skipped.
    pub unless: Vec<UnitRef>,
    /// True for the `verify` of an undo: it shows whether what it undoes is gone, and removes nothing.
    pub verifies: bool,
    /// True for a unit of `inventory`: it fails if a page of an answer is not read.
    pub lists: bool,
    /// True for an undo on whose outputs another undo of its units acts. [`Plan::mark_looks`](super::Plan::mark_looks) sets it,
    /// and no plan stores it.
    #[serde(skip)]
    pub looks: bool,
    /// True if the run goes on after a failure of the unit and does not fail because of it. An undo never has it.
    pub tolerated: bool,
    /// The least evidence that an undo has to give, as its plugin requires. Absent if none is required.
    pub evidence: Option<RequiredEvidence>,
    /// The timeout of one attempt, in milliseconds.
    pub timeout_ms: u64,
    pub retry: RetryPolicy,
    pub source: SourceLocation,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListEntry {
    /// The expression of the list. Units with one list read from each other what the unit of the same entry makes.
    pub list: String,
    /// The text, number or boolean.
    pub item: serde_json::Value,
}

/// The least evidence of a removal that a plugin accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RequiredEvidence {
    /// The receiver or the script has reported the removal.
    Reported,
    /// A question after the removal was answered: the resource does not exist.
    Confirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitRef {
    pub hook: Hook,
    pub unit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputRead {
    #[serde(flatten)]
    pub at: UnitRef,
    pub output: String,
    /// True if the output is read with `.?` or `has()`. A skipped producer then does not skip the reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

#[serde_with::skip_serializing_none]
#[serde_with::apply(bool => #[serde(default, skip_serializing_if = "std::ops::Not::not")])]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputPlan {
    pub name: String,
    pub value: Template,
    pub env: Option<String>,
    pub path: Option<String>,
    /// True if the input is unset when its value is missing (Signadot). Otherwise the unit fails.
    pub optional: bool,
    /// True if the value is declared as sensitive. It is passed on whole.
    pub sensitive: bool,
}

#[serde_with::apply(bool => #[serde(default, skip_serializing_if = "std::ops::Not::not")])]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputPlan {
    pub from: OutputFrom,
    /// True if the value stays in the cluster in which it was created, or is stored encrypted if no relay made it.
    pub sensitive: bool,
    /// True if the value is sensitive only because the document, which is Signadot's, does not open it. An update does
    /// not replace a resource for it.
    pub sensitive_by_default: bool,
    /// True if the value may be null. A missing value then is null.
    pub optional: bool,
    /// True if the value is that of the JSON in the file.
    pub json: bool,
    /// True if the value has no white space of the file at its ends.
    pub trim: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum OutputFrom {
    /// A file of the pod with unmodified bytes.
    File(String),
    /// A CEL expression over `response` (webhook), over `object` and `objects`, or over `instance` (InfraKit).
    Expression(String),
    /// A key of a Secret in the namespace of the first object.
    #[serde(rename_all = "camelCase")]
    Secret {
        /// A CEL expression over `object` and `objects` for the name of the Secret.
        name: String,
        key: String,
    },
}

#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of attempts, at least 1.
    pub attempts: u32,
    /// The maximum of the first wait, in milliseconds.
    pub backoff_ms: u64,
    /// The maximum of every wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// The failures that are retried: [`RETRY_CLASSES`](crate::compile::defaults::RETRY_CLASSES), an exit code such as `75`, or
    /// a status such as `503`. If empty, all failures that can be transient are retried.
    pub on: Vec<String>,
    /// The failures that are never retried, as in `on`.
    pub never: Vec<String>,
}

impl RetryPolicy {
    pub fn backoff(&self) -> Backoff {
        Backoff { base: ebb_engine::Millis(self.backoff_ms), max: ebb_engine::Millis(self.max_backoff_ms) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceLocation {
    /// The name of the file as the user wrote it, or the plugin's `name@version`.
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl UnitPlan {
    pub fn resource(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(resource, _)| resource)
    }

    /// Returns the name of the unit in its plugin.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// Returns the name of the unit in its document, without an entry of `forEach`.
    pub fn document_name(&self) -> &str {
        self.name().split('[').next().unwrap_or_default()
    }

    /// Returns true for a unit that removes nothing: a `GET`, or an undo that only looks.
    pub fn only_asks(&self) -> bool {
        self.looks || self.action.is_get()
    }

    /// Returns true for an undo that shows no removal: it only asks, or it removes parts until nothing is left of them.
    pub fn shows_no_removal(&self) -> bool {
        let repeat = self.action.webhook().and_then(|webhook| webhook.repeat.as_ref());
        self.only_asks() || repeat.is_some_and(|repeat| repeat.url.is_some())
    }

    /// Returns false if both units exist for an entry of one list, and not for the same one.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        match (&self.entry, &other.entry) {
            (Some(own), Some(other)) => own.list != other.list || own.item == other.item,
            _ => true,
        }
    }

    /// Returns true for a unit of preStop in `hook` that undoes no other unit.
    pub fn is_plain_pre_stop(&self, hook: Hook) -> bool {
        self.stage.unwrap_or(hook) == Hook::PreStop && self.undoes.is_empty()
    }

    /// Returns true for a unit of `hook` that makes or changes a resource.
    pub fn is_setup(&self, hook: Hook) -> bool {
        self.stage.unwrap_or(hook).is_setup()
    }

    /// Returns true for a unit of `hook` that makes a resource. One of `update` or of an event changes it.
    pub fn makes_thing(&self, hook: Hook) -> bool {
        self.undoes.is_empty() && matches!(self.stage.unwrap_or(hook), Hook::PreStart | Hook::PostStart)
    }
}
