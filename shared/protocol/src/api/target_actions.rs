//! The request that takes an action on several targets, and its answer.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{DocumentError, ProblemDetails, RetryResponse, TargetInfo, TargetPhase, TargetReceipt};
use crate::{ErrorCode, limits};

/// Takes an action on several targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActOnTargets {
    pub select: TargetSelection,
    pub action: TargetAction,
    /// Returns what would change, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The targets of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetSelection {
    /// These targets, at most 100.
    Targets(Vec<NamedTarget>),
    /// The targets that a list shows, and for which the action can have an effect. At least one member beside the kind has to
    /// be given.
    Filter(TargetSelector),
}

impl TargetSelection {
    /// Maximum targets of a request, and of the outcomes in its answer.
    pub const MAX_TARGETS: usize = 100;
}

/// A target of an action.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedTarget {
    #[schema(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    pub kind: String,
    #[schema(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,253}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub name: String,
    /// The identity of the instance. Another one is not changed. The default is the present one, and for a deletion also the
    /// one that waits for the name.
    #[schema(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,128}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub uid: Option<String>,
    /// The last run that the caller has seen. With another one, nothing is changed.
    pub run: Option<String>,
    /// The generation that the caller has seen. A deletion leaves an instance with another one. Needs `uid`.
    pub generation: Option<u64>,
}

/// The targets of a list, or of an action. A target is selected if it fits all members. An action selects no gone targets.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSelector {
    /// The kind of the targets. By default all kinds.
    #[schema(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    #[param(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    pub kind: Option<String>,
    /// A target is selected if it has one of these phases. Repeatable in a query. The default is all phases.
    #[serde(rename = "phase", default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<TargetPhase>,
    /// A target is selected if it has all of these labels, `KEY=VALUE`, with commas between several. Repeatable in a query.
    #[serde(rename = "label", default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The owner, such as `token ci`, or its name for people. `me` is the caller.
    pub owner: Option<String>,
    /// A plugin in use, as `NAME` or `NAME@VERSION`. The default of an action is its plugin, in any version.
    pub plugin: Option<String>,
    /// A text in name, UID, owner, its name for people, labels, plugins or first cause, in upper or lower case.
    #[serde(rename = "q")]
    pub text: Option<String>,
    /// The place after which the list continues: `nextToken` of the previous page, or of `next` after an action.
    #[param(
        pattern = r"^([A-Za-z0-9_=-]+|[a-z][a-z0-9-]{0,62}/([!\x22$&-.0->@-\[\]-~]{1,253}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75}))$"
    )]
    pub next_token: Option<String>,
}

impl TargetSelector {
    /// Returns true if all targets of the kind fit, or all targets.
    pub fn is_open(&self) -> bool {
        let texts = [&self.owner, &self.plugin, &self.text];
        let is_blank = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
        self.phases.is_empty() && self.labels.is_empty() && texts.into_iter().all(is_blank)
    }

    /// Parses labels of a selector, with commas between several. `KEY==VALUE` is `KEY=VALUE`, and `\,` a comma of a value.
    ///
    /// # Errors
    /// Returns the expected form, also for the operators of Kubernetes that no label has.
    pub fn label_pairs(text: &str) -> Result<Vec<(String, String)>, &'static str> {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=')?;
            let key = key.trim();
            let is_key =
                !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || c.is_control() || "!()<>".contains(c));
            is_key.then(|| (key.to_owned(), value.strip_prefix('=').unwrap_or(value).replace('\0', ",")))
        };
        // NUL stands for a comma of a value.
        text.replace("\\,", "\0").split(',').map(pair).collect::<Option<_>>().ok_or(
            "expected KEY=VALUE, with commas between several (`\\,` is a comma of a value); `!=`, `in`, `notin` and a key \
             alone are not supported",
        )
    }
}

/// The action on each target, as in the request for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum TargetAction {
    /// Deletes the target.
    Delete {
        /// Deletes also a target with a resource that has `protect: true`. Scope: `operate`.
        #[serde(default, rename = "allowProtected", skip_serializing_if = "std::ops::Not::not")]
        allow_protected: bool,
    },
    /// Retries the failed units. A filter selects failed and stuck targets.
    Retry {
        /// A published version `NAME@VERSION`. The teardown of a stuck target continues with its units, and a filter selects
        /// stuck targets only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<String>,
    },
    /// Writes another version of a plugin into the document of a living target, and applies the document. A filter selects
    /// living targets with another version.
    Upgrade {
        /// The published version `NAME@VERSION`, or `NAME` for the highest one.
        plugin: String,
        /// `false` refuses an update that removes or replaces a complete resource, as for a document. The default is `true`.
        #[serde(default, rename = "allowReplace", skip_serializing_if = "Option::is_none")]
        allow_replace: Option<bool>,
    },
}

/// The outcome of an action on one target, or of its dry run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetOutcome {
    pub kind: String,
    pub name: String,
    /// The identity of the instance. Absent if it is not known.
    pub uid: Option<String>,
    /// The instance that waits for the name, if the deletion withdraws it, too.
    pub waiting_uid: Option<String>,
    /// The phase before the action. Absent if it is not known.
    pub phase: Option<TargetPhase>,
    pub owner: Option<String>,
    /// For people: `NAME SUBJECT`, if the issuer of the owner has a name.
    pub owner_name: Option<String>,
    /// The unit that failed first, with its reason.
    pub first_cause: Option<String>,
    /// True if nothing was changed because of `dryRun`.
    pub dry_run: bool,
    /// The effect of `retry`. Absent in a dry run without `plugin`.
    pub retry: Option<RetryResponse>,
    /// The effect of `upgrade`.
    pub update: Option<TargetReceipt>,
    /// The reason why nothing was changed.
    pub error: Option<String>,
    /// The code of the error.
    pub code: Option<String>,
    /// The errors of the document of an `upgrade`, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DocumentError>,
    /// The next step after the error, if its text has none.
    pub next_step: Option<String>,
}

impl TargetOutcome {
    /// Returns the outcome for a target of which only the name is known.
    pub fn named(kind: String, name: String) -> Self {
        Self { kind, name, ..Self::default() }
    }

    /// Returns the outcome for a target that was found.
    pub fn of(target: TargetInfo) -> Self {
        let TargetInfo { kind, name, uid, phase, owner, owner_name, first_cause, .. } = target;
        Self { uid: Some(uid), phase: Some(phase), owner, owner_name, first_cause, ..Self::named(kind, name) }
    }

    /// Adds the problem of the request for the target.
    #[must_use]
    pub fn refused(self, problem: ProblemDetails) -> Self {
        let next_step = problem.next_step();
        let (error, code, errors) = (Some(limits::message(&problem.detail)), Some(problem.code), problem.errors);
        Self { error, code, errors, next_step, ..self }
    }

    /// Returns the problem of the request for the target, if it was refused.
    pub fn into_problem(self) -> Option<ProblemDetails> {
        let (detail, code) = (self.error?, self.code.unwrap_or_default());
        let status = ErrorCode::named(&code).map_or(500, |code| code.statuses()[0]);
        Some(ProblemDetails { status, code, detail, errors: self.errors })
    }

    /// Returns true if the target was refused for the moment, so that a repetition can succeed.
    pub fn is_busy(&self) -> bool {
        let code = self.code.as_deref().and_then(ErrorCode::named);
        code.is_some_and(|code| matches!(code.statuses()[0], 429 | 503))
    }

    /// Returns true if the target was refused with this code.
    pub fn has_code(&self, code: ErrorCode) -> bool {
        self.code.as_deref() == Some(code.name())
    }
}

/// The outcomes of a part of the selected targets.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetOutcomes {
    /// One outcome per target, in the order of the request or of the list. May be empty although `next` is given.
    pub outcomes: Vec<TargetOutcome>,
    /// The version `NAME@VERSION` of `upgrade`.
    pub plugin: Option<String>,
    /// Errors of targets that cannot be read, because their items are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// The selection of the targets that this request has not handled: send it with the same action. Absent after the last
    /// one.
    pub next: Option<TargetSelection>,
}
