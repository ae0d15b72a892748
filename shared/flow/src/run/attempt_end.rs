//! How a try ended, before it is recorded; and whether it is worth another.

use ebb_documents::plan::UnitPlan;
use ebb_engine::Attempt;
use ebb_engine::retry::attempts_used;
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::evidence::Evidence;
use ebb_protocol::limits;
use ebb_protocol::value::{Outputs, UnitValue};

/// How a try ended.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptEnd {
    Succeeded(AttemptSuccess),
    /// Nothing was to be done; why.
    Skipped(String),
    Failed(AttemptFailure),
    /// Killed, or never to be started.
    Cancelled(String),
}

/// What a success brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptSuccess {
    pub outputs: Outputs,
    pub duration_ms: Option<u64>,
    pub log: Option<String>,
}

/// What a failure says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    pub reason: FailureReason,
    /// The HTTP status, if the class is [`ReasonCode::HttpStatus`].
    pub status: Option<u16>,
    /// Seconds that its server asks for before the next try.
    pub retry_after: Option<u64>,
    pub duration_ms: Option<u64>,
    pub log: Option<String>,
    /// The evidence of its request, if it is a webhook's.
    pub evidence: Option<Box<Evidence>>,
}

impl AttemptFailure {
    /// A failure of a class; the words are capped and scrubbed.
    pub fn new(code: ReasonCode, message: &str) -> Self {
        let reason = FailureReason { code, message: limits::message(message) };
        Self { reason, status: None, retry_after: None, duration_ms: None, log: None, evidence: None }
    }

    /// Returns whether the backend did not answer: its request may still arrive, or be acted on. A gateway that gives up says
    /// nothing of the server behind it.
    pub fn is_unanswered(&self) -> bool {
        match (self.reason.code, self.status) {
            (ReasonCode::Connect | ReasonCode::Timeout, _) => true,
            (ReasonCode::HttpStatus, Some(status)) => {
                matches!(status, 408 | 425 | 499 | 502..=504 | 520..=529)
            }
            _ => false,
        }
    }

    /// Returns true if `unit` is tried again after this failure of `attempt`.
    ///
    /// The number of tries counts from the last time that an operator or a late success reopened the unit.
    pub fn is_retried(&self, unit: &UnitPlan, attempt: Attempt) -> bool {
        let tries = unit.retry.attempts.max(1);
        let unknown = unit.action.is_non_idempotent() && self.is_unanswered();
        attempts_used(attempt, tries) < tries && !unknown && self.is_worth_retrying(&unit.retry.on)
    }

    fn is_worth_retrying(&self, on: &[String]) -> bool {
        if self.reason.code == ReasonCode::Refused || self.reason.code == ReasonCode::Cancelled {
            return false;
        }
        if on.is_empty() {
            return match self.status {
                Some(status) => matches!(status, 408 | 425 | 429 | 500..=599),
                None => self.reason.code.can_pass(),
            };
        }
        on.iter().any(|class| self.is_of(class))
    }

    fn is_of(&self, class: &str) -> bool {
        match (class, self.reason.code, self.status) {
            ("timeout", ReasonCode::Timeout, _)
            | ("connect", ReasonCode::Connect, _)
            | ("exit", ReasonCode::Exit, _)
            | ("lost", ReasonCode::Lost, _)
            | ("failed", ReasonCode::Failed, _)
            | ("imagePull", ReasonCode::ImagePull, _)
            | ("unschedulable", ReasonCode::Unschedulable, _)
            | ("outOfMemory", ReasonCode::OutOfMemory, _)
            | ("evicted", ReasonCode::Evicted, _)
            | ("quota", ReasonCode::Quota, _) => true,
            ("5xx", ReasonCode::HttpStatus, Some(500..=599)) => true,
            ("4xx", ReasonCode::HttpStatus, Some(400..=499)) => true,
            (exact, ReasonCode::HttpStatus, Some(status)) => exact.parse() == Ok(status),
            _ => false,
        }
    }
}

/// Checks the outputs of a success against what the unit declares; what is not declared is dropped. What is sensitive lies
/// in the cluster of the unit, whatever its relay says: that knows no other, and none by the names of documents.
///
/// # Errors
/// The failure that it turns into: a declared output is missing, too large, or sensitive and yet sent as a value.
pub fn check_outputs(unit: &UnitPlan, cluster: Option<&str>, mut outputs: Outputs) -> Result<Outputs, AttemptFailure> {
    outputs.retain(|name, _| {
        let declared = unit.outputs.contains_key(name);
        if !declared {
            tracing::warn!(unit = unit.key, output = name, "an output that is not declared was dropped");
        }
        declared
    });
    for (name, declared) in &unit.outputs {
        let Some(value) = outputs.get_mut(name) else {
            let text = format!("the unit succeeded without its output `{name}`");
            return Err(AttemptFailure::new(ReasonCode::OutputMissing, &text));
        };
        let size = value.size();
        if size > limits::OUTPUT {
            let text = format!("output `{name}` has {size} bytes; the limit is {}", limits::OUTPUT);
            return Err(AttemptFailure::new(ReasonCode::OutputTooLarge, &text));
        }
        let is_reference = matches!(value, UnitValue::Secret(_));
        if declared.sensitive && !is_reference {
            let text = format!("output `{name}` is sensitive and was sent as a value instead of a reference");
            return Err(AttemptFailure::new(ReasonCode::OutputInvalid, &text));
        }
        if is_reference && !declared.sensitive {
            let text = format!("output `{name}` was sent as a reference and is not declared sensitive");
            return Err(AttemptFailure::new(ReasonCode::OutputInvalid, &text));
        }
        if let UnitValue::Secret(secret) = value {
            secret.cluster = cluster.map(str::to_owned);
        }
    }
    let total: usize = outputs.values().map(UnitValue::size).sum();
    if total > limits::OUTPUTS {
        let text = format!("the outputs have {total} bytes together; the limit is {}", limits::OUTPUTS);
        return Err(AttemptFailure::new(ReasonCode::OutputTooLarge, &text));
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use ebb_documents::compile::defaults::RETRY_CLASSES;
    use ebb_protocol::value::SecretRef;
    use serde_json::json;

    use super::*;

    /// Each class that a document may name stands for a failure.
    #[test]
    fn every_class_of_retry_is_retried() {
        let unit = |on: &str| -> UnitPlan {
            let unit = json!({
                "key": "r/u", "action": "removal", "timeoutMs": 1,
                "retry": {"attempts": 2, "backoffMs": 1, "maxBackoffMs": 1, "on": [on]},
                "source": {"file": "f", "line": 1, "column": 1},
            });
            serde_json::from_value(unit).unwrap()
        };
        let status =
            |status| AttemptFailure { status: Some(status), ..AttemptFailure::new(ReasonCode::HttpStatus, "") };
        let failures = [
            AttemptFailure::new(ReasonCode::Timeout, ""),
            AttemptFailure::new(ReasonCode::Connect, ""),
            AttemptFailure::new(ReasonCode::Exit, ""),
            AttemptFailure::new(ReasonCode::Lost, ""),
            AttemptFailure::new(ReasonCode::Failed, ""),
            AttemptFailure::new(ReasonCode::ImagePull, ""),
            AttemptFailure::new(ReasonCode::Unschedulable, ""),
            AttemptFailure::new(ReasonCode::OutOfMemory, ""),
            AttemptFailure::new(ReasonCode::Evicted, ""),
            AttemptFailure::new(ReasonCode::Quota, ""),
            status(408),
            status(429),
            status(404),
            status(503),
        ];
        for class in RETRY_CLASSES {
            let retried = failures.iter().filter(|failure| failure.is_retried(&unit(class), Attempt::FIRST));
            let expected = if class == "4xx" { 3 } else { 1 };
            assert_eq!(retried.count(), expected, "{class}");
        }
        assert!(status(404).is_retried(&unit("404"), Attempt::FIRST));
        assert!(!status(404).is_retried(&unit("405"), Attempt::FIRST));
    }

    #[test]
    fn references_are_into_the_cluster_of_the_unit() {
        let unit = json!({
            "key": "r/u", "action": "removal", "timeoutMs": 1,
            "retry": {"attempts": 1, "backoffMs": 1, "maxBackoffMs": 1},
            "source": {"file": "f", "line": 1, "column": 1},
            "outputs": {"o": {"from": {"file": "/o"}, "sensitive": true}},
        });
        let unit: UnitPlan = serde_json::from_value(unit).unwrap();
        let named = |cluster: Option<&str>| {
            let cluster = cluster.map(str::to_owned);
            let secret = SecretRef { cluster, namespace: None, name: "n".to_owned(), key: "k".to_owned() };
            Outputs::from([("o".to_owned(), UnitValue::Secret(secret))])
        };
        for said in [None, Some("eu"), Some("other")] {
            for own in [None, Some("eu")] {
                assert_eq!(check_outputs(&unit, own, named(said)), Ok(named(own)), "{said:?} {own:?}");
            }
        }
    }
}
