//! Reading an object whose shape nobody promises: what is not there or of another type reads as absent.

use serde_json::Value;

/// An object as the API server shows it.
#[derive(Clone, Copy)]
pub(crate) struct ObjectView<'a>(pub(crate) &'a Value);

/// An entry of a list of conditions.
#[derive(Clone, Copy)]
pub(crate) struct StatusCondition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    /// Of Azure Service Operator and of Cluster API before v1beta2.
    pub(crate) severity: &'a str,
    /// The generation that it is about, where it says.
    pub(crate) observed: Option<i64>,
}

impl<'a> ObjectView<'a> {
    /// The value at a dotted path.
    pub(crate) fn at(self, path: &str) -> Option<&'a Value> {
        path.split('.').try_fold(self.0, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    /// The text at a path, empty if there is none.
    pub(crate) fn text(self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The whole number at a path.
    pub(crate) fn number(self, path: &str) -> Option<i64> {
        self.at(path).and_then(Value::as_i64)
    }

    /// The number at a path that the API leaves out when it is zero.
    pub(crate) fn count(self, path: &str) -> i64 {
        self.number(path).unwrap_or(0)
    }

    /// Returns true if `true` stands at a path.
    pub(crate) fn says(self, path: &str) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The list at a path, empty if there is none.
    pub(crate) fn list(self, path: &str) -> &'a [Value] {
        self.at(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// An annotation.
    pub(crate) fn annotation(self, name: &str) -> Option<&'a str> {
        self.at("metadata.annotations")?.get(name)?.as_str()
    }

    /// The API group, empty for the core's.
    pub(crate) fn group(self) -> &'a str {
        self.text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The version of the API group.
    pub(crate) fn version(self) -> &'a str {
        let version = self.text("apiVersion");
        version.rsplit_once('/').map_or(version, |(_, version)| version)
    }

    pub(crate) fn kind(self) -> &'a str {
        self.text("kind")
    }

    pub(crate) fn generation(self) -> Option<i64> {
        self.number("metadata.generation")
    }

    /// The conditions of the status.
    pub(crate) fn conditions(self) -> impl Iterator<Item = StatusCondition<'a>> {
        self.conditions_at("status.conditions")
    }

    /// The conditions at a path.
    pub(crate) fn conditions_at(self, path: &str) -> impl Iterator<Item = StatusCondition<'a>> + use<'a> {
        self.list(path).iter().map(|entry| {
            let entry = ObjectView(entry);
            StatusCondition {
                kind: entry.text("type"),
                status: entry.text("status"),
                reason: entry.text("reason"),
                message: entry.text("message"),
                severity: entry.text("severity"),
                observed: entry.number("observedGeneration"),
            }
        })
    }

    /// The condition of a type.
    pub(crate) fn condition(self, kind: &str) -> Option<StatusCondition<'a>> {
        self.conditions().find(|condition| condition.kind == kind)
    }
}

impl StatusCondition<'_> {
    /// Returns true if it has a status. `kubectl wait` does not look at the case either.
    pub(crate) fn is(&self, status: &str) -> bool {
        self.status.eq_ignore_ascii_case(status)
    }

    /// Returns true if it is about an older generation than the object's. One that does not say is believed.
    pub(crate) fn is_stale(&self, object: ObjectView<'_>) -> bool {
        matches!((self.observed, object.generation()), (Some(seen), Some(now)) if seen != now)
    }

    /// What it says, in words.
    pub(crate) fn describe(&self) -> String {
        let mut said = format!("`{}` is `{}`", self.kind, self.status);
        if !self.reason.is_empty() {
            said.push_str(&format!(" ({})", self.reason));
        }
        if !self.message.is_empty() {
            said.push_str(&format!(": {}", self.message));
        }
        said
    }
}
