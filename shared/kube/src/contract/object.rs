//! Reads objects without guaranteed types, and the result of judging one observation. A malformed field is missing.

use serde_json::Value;

/// The maximum number of characters of a reason or message.
pub const MAX_TEXT: usize = 1024;

#[derive(Clone, Copy)]
pub(crate) struct ObjectView<'a>(pub(crate) &'a Value);

#[derive(Clone, Copy)]
pub(crate) struct StatusCondition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    /// Only in Azure Service Operator and in Cluster API before v1beta2.
    pub(crate) severity: &'a str,
    /// The time of the last transition.
    pub(crate) since: &'a str,
    /// The generation that the condition describes, if present.
    pub(crate) observed: Option<i64>,
}

impl<'a> ObjectView<'a> {
    pub(crate) fn at(self, path: &str) -> Option<&'a Value> {
        path.split('.').try_fold(self.0, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    pub(crate) fn text(self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn number(self, path: &str) -> Option<i64> {
        self.at(path).and_then(Value::as_i64)
    }

    pub(crate) fn list(self, path: &str) -> &'a [Value] {
        self.at(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the API group, or an empty text for the core group.
    pub(crate) fn group(self) -> &'a str {
        self.text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group)
    }

    pub(crate) fn kind(self) -> &'a str {
        self.text("kind")
    }

    pub(crate) fn generation(self) -> Option<i64> {
        self.number("metadata.generation")
    }

    pub(crate) fn conditions(self) -> impl Iterator<Item = StatusCondition<'a>> {
        self.conditions_at("status.conditions")
    }

    pub(crate) fn conditions_at(self, path: &str) -> impl Iterator<Item = StatusCondition<'a>> + use<'a> {
        self.list(path).iter().map(|entry| {
            let entry = ObjectView(entry);
            StatusCondition {
                kind: entry.text("type"),
                status: entry.text("status"),
                reason: entry.text("reason"),
                message: entry.text("message"),
                severity: entry.text("severity"),
                since: entry.text("lastTransitionTime"),
                observed: entry.number("observedGeneration"),
            }
        })
    }

    pub(crate) fn condition(self, kind: &str) -> Option<StatusCondition<'a>> {
        self.conditions().find(|condition| condition.kind == kind)
    }
}

impl StatusCondition<'_> {
    /// Compares the status without case, as `kubectl wait` does.
    pub(crate) fn is(&self, status: &str) -> bool {
        self.status.eq_ignore_ascii_case(status)
    }

    /// Returns true if the condition describes another generation. A condition without a generation counts as current.
    pub(crate) fn is_stale(&self, object: ObjectView<'_>) -> bool {
        matches!((self.observed, object.generation()), (Some(seen), Some(now)) if seen != now)
    }

    /// Returns the reason, or the type without one.
    pub(crate) fn word(&self) -> &str {
        if self.reason.is_empty() { self.kind } else { self.reason }
    }

    pub(crate) fn describe(&self) -> String {
        let Self { kind, status, reason, message, .. } = self;
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        format!("`{kind}` is `{status}`{reason}{message}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectReadiness {
    Pending {
        /// The awaited field or condition with its present value.
        reason: String,
    },
    Ready,
    /// The object cannot become ready without a change.
    Failed {
        /// One word for programs, from the controller if it has one.
        reason: String,
        /// A sentence for people, possibly from the controller. May be empty.
        message: String,
    },
    /// The object is missing or replaced.
    Gone,
}

impl ObjectReadiness {
    /// Returns the awaited field of a pending object, such as `status.readyReplicas`, with which its reason begins.
    pub fn awaited_field(&self) -> Option<&str> {
        let Self::Pending { reason } = self else { return None };
        let (field, _) = reason.strip_prefix('`')?.split_once('`')?;
        ["metadata.", "spec.", "status."].iter().any(|root| field.starts_with(root)).then_some(field)
    }

    pub(crate) fn pending(why: impl AsRef<str>) -> Self {
        Self::Pending { reason: shown(why.as_ref()) }
    }

    pub(crate) fn failed(reason: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self::Failed { reason: shown(reason.as_ref()), message: shown(message.as_ref()) }
    }

    /// Returns pending for a field with another value than the awaited one.
    pub(crate) fn awaits(field: &str, now: &str, wanted: &str) -> Self {
        if now.is_empty() {
            return Self::pending(format!("`{field}` does not exist yet, `{wanted}` is awaited"));
        }
        Self::pending(format!("`{field}` is `{now}`, `{wanted}` is awaited"))
    }
}

/// Returns one line of at most [`MAX_TEXT`] characters, without control characters.
pub(super) fn shown(text: &str) -> String {
    let text = text.trim();
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_TEXT - 1).chain(text.chars().nth(MAX_TEXT - 1).map(|_| '…')).collect()
}
