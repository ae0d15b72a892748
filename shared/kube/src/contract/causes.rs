//! Finds out why an object waits or has failed.

use serde::Deserialize;
use serde_json::Value;

use crate::contract::facts::{ContractExpression, ObjectFacts};

/// Why an object waits or has failed. `code` and `resolves` are words of the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectCause {
    pub code: String,
    /// How it ends, or empty if it ends by itself.
    pub resolves: String,
    pub ends: CauseEnd,
    /// The time from which [`CauseEnd::PodStart`] counts. Times are milliseconds since 1970, or 0 if unknown.
    pub from_ms: u64,
    /// The time of the first report.
    pub since_ms: u64,
    /// For people.
    pub message: String,
    /// The container whose log tells more, and true for the log of its former run.
    pub log: Option<(String, bool)>,
}

/// The time at which a cause ends a task that cannot continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CauseEnd {
    #[default]
    Deadline,
    AtOnce,
    /// After the time for which a pod may fail to start.
    PodStart,
    /// After the time for which a pod may lack a node.
    Scheduling,
}

/// One cause, or some `rules` of which the first that holds counts. An expression that cannot be evaluated, such as one over a
/// missing field, does not hold.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CauseRule {
    /// A list. The rule is applied to each element, as `it`, until it holds.
    each: Option<ContractExpression>,
    #[serde(rename = "if")]
    guard: Option<ContractExpression>,
    rules: Vec<CauseRule>,
    code: String,
    resolves: String,
    ends: CauseEnd,
    /// The first report without it.
    from: Option<ContractExpression>,
    /// Times, or lists of times of which the earliest counts. The first that is known counts.
    since: Vec<ContractExpression>,
    /// A colon at its end is removed.
    message: Option<ContractExpression>,
    log: Option<ContractExpression>,
}

/// Causes of which the first that holds counts, with named values for them. A value that cannot be computed is missing.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CauseRules {
    /// Without it, no value is computed and no rule is applied.
    #[serde(rename = "if")]
    guard: Option<ContractExpression>,
    vars: Vec<(String, ContractExpression)>,
    rules: Vec<CauseRule>,
}

impl CauseRules {
    pub(super) fn find(&self, facts: &mut ObjectFacts<'_>) -> Option<ObjectCause> {
        if !holds(self.guard.as_ref(), facts) {
            return None;
        }
        facts.add_vars(&self.vars);
        self.rules.iter().find_map(|rule| rule.find(facts))
    }
}

impl CauseRule {
    fn find(&self, facts: &mut ObjectFacts<'_>) -> Option<ObjectCause> {
        let Some(each) = &self.each else { return self.apply(facts) };
        let Some(Value::Array(elements)) = facts.value(each) else { return None };
        elements.into_iter().find_map(|it| {
            facts.set("it", it);
            self.apply(facts)
        })
    }

    fn apply(&self, facts: &mut ObjectFacts<'_>) -> Option<ObjectCause> {
        if !holds(self.guard.as_ref(), facts) {
            return None;
        }
        if !self.rules.is_empty() {
            return self.rules.iter().find_map(|rule| rule.find(facts));
        }
        let message = facts.value(self.message.as_ref()?)?;
        let since_ms = self.since.iter().find_map(|since| earliest(facts.value(since)?)).unwrap_or(0);
        Some(ObjectCause {
            code: self.code.clone(),
            resolves: self.resolves.clone(),
            ends: self.ends,
            from_ms: self.from.as_ref().map_or(Some(since_ms), |from| earliest(facts.value(from)?)).unwrap_or(0),
            since_ms,
            message: message.as_str()?.trim_end().trim_end_matches(':').to_owned(),
            log: self.log.as_ref().and_then(|log| serde_json::from_value(facts.value(log)?).ok()),
        })
    }
}

fn holds(guard: Option<&ContractExpression>, facts: &ObjectFacts<'_>) -> bool {
    guard.is_none_or(|guard| facts.value(guard) == Some(Value::Bool(true)))
}

/// Returns a time, or the earliest of several.
fn earliest(times: Value) -> Option<u64> {
    match times {
        Value::Array(times) => times.iter().filter_map(Value::as_u64).min(),
        time => time.as_u64(),
    }
}
