//! The end of an attempt before it is recorded, and the decision about a further attempt.

use ebb_documents::plan::{Action, OutputFrom, OutputPlan, UnitPlan};
use ebb_engine::Attempt;
use ebb_engine::retry::attempts_used;
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::evidence::Evidence;
use ebb_protocol::object_status::ObjectStatus;
use ebb_protocol::removal::{ObjectRemoval, RemovalEvidence};
use ebb_protocol::value::{Outputs, UnitValue};
use ebb_protocol::{limits, words};

#[derive(Clone, Debug, PartialEq)]
pub enum AttemptEnd {
    Succeeded(AttemptSuccess),
    /// The unit had nothing to do. The value is the reason.
    Skipped(String),
    Failed(AttemptFailure),
    /// The attempt was stopped, or must not start. The value is the reason.
    Cancelled(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptSuccess {
    pub outputs: Outputs,
    pub duration_ms: Option<u64>,
    pub log: Option<String>,
    /// True if an undo found nothing to delete, and a request of its undone unit had no response.
    pub found_nothing: bool,
    /// The report of a relay about the objects that it has removed.
    pub observed: Option<ObjectRemoval>,
    /// The evidence of an undo. Without it, the grade follows from the unit, see [`crate::run::removal::evidence`].
    pub removal: Option<RemovalEvidence>,
    /// The digest of the credential of the request, for a webhook with a connection.
    pub sent_by: Option<Box<str>>,
    /// The IDs by which an InfraKit plugin knows what the attempt has made.
    pub made: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    pub reason: FailureReason,
    pub status: Option<u16>,
    /// The wait in seconds that the server requests before the next attempt.
    pub retry_after: Option<u64>,
    pub duration_ms: Option<u64>,
    /// The report of the relay, if a relay has executed the attempt.
    pub task: Option<Box<TaskReport>>,
    /// The evidence of the request, for a webhook.
    pub evidence: Option<Box<Evidence>>,
    /// True if the response to the request was a success, and the attempt failed afterwards: its wait for a state ended
    /// without it. Another request would make another thing.
    pub is_made: bool,
    /// As in [`AttemptSuccess`].
    pub sent_by: Option<Box<str>>,
}

/// The parts of the end of a task that only a relay sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    pub log: Option<String>,
    /// The applied objects of a task with several ones, as they are stored.
    pub objects: Vec<ObjectStatus>,
}

impl TaskReport {
    /// Returns the report with the log of a task without objects.
    pub(crate) fn of_log(log: Option<String>) -> Option<Box<Self>> {
        log.map(|log| Box::new(Self { log: Some(log), objects: Vec::new() }))
    }
}

impl AttemptFailure {
    /// Creates a failure. The message is shortened and made printable.
    pub fn new(code: ReasonCode, message: &str) -> Self {
        let reason = FailureReason { code, message: limits::message(message) };
        Self {
            reason,
            status: None,
            retry_after: None,
            duration_ms: None,
            task: None,
            evidence: None,
            is_made: false,
            sent_by: None,
        }
    }

    /// Returns true if the backend did not respond, so that the request may still arrive or be processed. The
    /// status of a gateway does not count as a response of the server behind it (rule GatewayIsNoAnswer).
    pub(crate) fn is_unanswered(&self) -> bool {
        match (self.reason.code, self.status) {
            _ if self.is_made => false,
            (ReasonCode::Connect | ReasonCode::Timeout, _) => true,
            (ReasonCode::HttpStatus, Some(status)) => {
                matches!(status, 408 | 425 | 499 | 502..=504 | 520..=529)
            }
            _ => false,
        }
    }

    /// Returns true if `unit` has a further attempt after this failure of `attempt`.
    ///
    /// Attempts count from the last reopening of the unit by an operator or a late success.
    pub fn is_retried(&self, unit: &UnitPlan, attempt: Attempt) -> bool {
        let attempts = unit.retry.attempts.max(1);
        // An undo is harmless.
        let is_final = self.is_made && unit.undoes.is_empty();
        let unknown = unit.action.is_non_idempotent() && self.is_unanswered();
        // The `describe` URL has reported that the request made nothing, so its repetition is the first one.
        let is_unmade = unit.action.is_non_idempotent() && self.reason.code == ReasonCode::Lost;
        // The deletion of an earlier attempt is in progress.
        let waits = matches!(&unit.action, Action::Webhook(webhook) if webhook.until.is_some());
        let is_busy = waits && !unit.undoes.is_empty() && unit.retry.on.is_empty();
        let is_busy = is_busy && matches!(self.status, Some(409 | 423));
        let is_wanted = is_unmade || is_busy || self.is_worth_retrying(&unit.retry.on);
        attempts_used(attempt, attempts) < attempts && !unknown && !is_final && is_wanted
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
            ("5xx", ReasonCode::HttpStatus, Some(500..=599)) | ("4xx", ReasonCode::HttpStatus, Some(400..=499)) => true,
            (exact, ReasonCode::HttpStatus, Some(status)) => exact.parse() == Ok(status),
            // The other classes are names of codes.
            (class, code, _) => words::name(&code) == class,
        }
    }
}

/// Checks the outputs of a success against the declared outputs of the unit, and drops undeclared ones. Sets the
/// cluster of sensitive outputs to that of the unit, whatever the relay reports. A missing optional output becomes null.
///
/// # Errors
/// Returns the failure that replaces the success if a declared output is missing or null and not optional, too large, or
/// sensitive and sent as a value by a relay.
pub fn check_outputs(unit: &UnitPlan, cluster: Option<&str>, mut outputs: Outputs) -> Result<Outputs, AttemptFailure> {
    let sent: Vec<String> = outputs.keys().map(|name| format!("`{name}`")).collect();
    outputs.retain(|name, _| {
        let declared = unit.outputs.contains_key(name);
        if !declared {
            tracing::warn!(unit = unit.key, output = name, "dropped an undeclared output");
        }
        declared
    });
    for (name, declared) in &unit.outputs {
        if declared.optional {
            outputs.entry(name.clone()).or_insert(UnitValue::Json(serde_json::Value::Null));
        }
        let Some(value) = outputs.get_mut(name) else {
            let sent = if sent.is_empty() { "none".to_owned() } else { sent.join(", ") };
            let text = format!("the unit succeeded without its output `{name}`; it sent: {sent}");
            return Err(AttemptFailure::new(ReasonCode::OutputMissing, &text));
        };
        if *value == UnitValue::Json(serde_json::Value::Null) {
            if declared.optional {
                continue;
            }
            return Err(AttemptFailure::new(ReasonCode::OutputInvalid, &null_text(unit, name, declared)));
        }
        let size = value.size();
        if size > limits::OUTPUT {
            let text = format!("output `{name}` has {size} bytes; the limit is {}", limits::OUTPUT);
            return Err(AttemptFailure::new(ReasonCode::OutputTooLarge, &text));
        }
        let is_reference = matches!(value, UnitValue::Secret(_));
        if declared.sensitive && !is_reference && unit.action.is_relayed() {
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

/// Returns the message for a null output that is not optional.
fn null_text(unit: &UnitPlan, name: &str, declared: &OutputPlan) -> String {
    let (expression, fix) = match (&unit.action, &declared.from) {
        (Action::Object(_), OutputFrom::Expression(text)) => (format!(": `{text}`"), "wait for it with `ready`"),
        _ => (String::new(), "send one"),
    };
    format!("output `{name}` is null{expression}; expected a value; {fix}, or add `optional: true`")
}

#[cfg(test)]
mod tests {
    use ebb_documents::compile::defaults::RETRY_CLASSES;
    use ebb_protocol::value::SecretRef;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_retry_class_matches_a_failure() {
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

    fn unit_with_outputs(outputs: &serde_json::Value) -> UnitPlan {
        let unit = json!({
            "key": "r/u", "action": "removal", "timeoutMs": 1,
            "retry": {"attempts": 1, "backoffMs": 1, "maxBackoffMs": 1},
            "source": {"file": "f", "line": 1, "column": 1},
            "outputs": outputs,
        });
        serde_json::from_value(unit).unwrap()
    }

    #[test]
    fn a_missing_output_is_named_beside_the_sent_ones() {
        let unit = unit_with_outputs(&json!({"id": {"from": {"file": "/id"}, "sensitive": false}}));
        let sent = |names: &[&str]| {
            names.iter().map(|&name| (name.to_owned(), UnitValue::Json(json!("x")))).collect::<Outputs>()
        };
        let cases: [(&[&str], &str); 2] = [(&[], "none"), (&["ID", "key"], "`ID`, `key`")];
        for (names, listed) in cases {
            let failure = check_outputs(&unit, None, sent(names)).unwrap_err();
            let expected = format!("the unit succeeded without its output `id`; it sent: {listed}");
            assert_eq!(failure.reason.message, expected);
        }
    }

    #[test]
    fn only_an_optional_output_may_be_null_or_missing() {
        let unit = |action: serde_json::Value, output: serde_json::Value| {
            let plan = unit_with_outputs(&json!({ "o": output }));
            UnitPlan { action: serde_json::from_value(action).unwrap(), ..plan }
        };
        let webhook = || json!({"webhook": {"method": "POST", "url": {"literal": "https://e.example"}}});
        let object = || json!({"object": {"manifest": {}}});
        let null = || Outputs::from([("o".to_owned(), UnitValue::Json(serde_json::Value::Null))]);
        let from = |text: &str| json!({ "expression": text });
        for (action, fix) in [
            (webhook(), "output `o` is null; expected a value; send one, or add `optional: true`"),
            (
                object(),
                "output `o` is null: `object.o`; expected a value; wait for it with `ready`, or add `optional: true`",
            ),
        ] {
            let failure = check_outputs(&unit(action, json!({"from": from("object.o")})), None, null()).unwrap_err();
            assert_eq!((failure.reason.code, failure.reason.message.as_str()), (ReasonCode::OutputInvalid, fix));
        }
        for sensitive in [false, true] {
            let output = json!({"from": from("object.o"), "sensitive": sensitive, "optional": true});
            for sent in [null(), Outputs::new()] {
                assert_eq!(check_outputs(&unit(object(), output.clone()), None, sent), Ok(null()));
            }
        }
    }

    #[test]
    fn only_a_relay_cannot_send_a_sensitive_output_as_a_value() {
        let mut unit = unit_with_outputs(&json!({"o": {"from": {"expression": "response.o"}, "sensitive": true}}));
        let sent = || Outputs::from([("o".to_owned(), UnitValue::Json(json!("x")))]);
        let failure = check_outputs(&unit, None, sent()).unwrap_err();
        assert_eq!(failure.reason.code, ReasonCode::OutputInvalid);
        unit.action = serde_json::from_value(json!({"webhook": {"method": "POST", "url": {"literal": ""}}})).unwrap();
        assert_eq!(check_outputs(&unit, None, sent()), Ok(sent()));
    }

    #[test]
    fn references_get_the_cluster_of_the_unit() {
        let unit = unit_with_outputs(&json!({"o": {"from": {"file": "/o"}, "sensitive": true}}));
        let named = |cluster: Option<&str>| {
            let cluster = cluster.map(str::to_owned);
            let secret = SecretRef { cluster, namespace: None, name: "n".to_owned(), key: "k".to_owned() };
            Outputs::from([("o".to_owned(), UnitValue::Secret(secret))])
        };
        for reported in [None, Some("eu"), Some("other")] {
            for own in [None, Some("eu")] {
                assert_eq!(check_outputs(&unit, own, named(reported)), Ok(named(own)), "{reported:?} {own:?}");
            }
        }
    }
}
