//! The serialized messages between relay and entrypoint, which are updated separately.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::callback::{Callback, CallbackStatus, ReasonCode};
use crate::entrypoint::{
    EntrypointSpec, RelayAddress, ReportState, ScriptExit, ScriptReport, TerminationResult, VERSION,
};
use crate::relay::{ScriptInput, ScriptOutput};
use crate::value::UnitValue;

/// A message with fields of a later version can be read.
fn lasting<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: T) -> T {
    super::golden::ignores_unknown_fields(&message);
    message
}

#[test]
fn specs() {
    let input = |name: &str, value| ScriptInput {
        name: name.to_owned(),
        env: Some(name.to_uppercase()),
        path: Some(format!("/inputs/{name}")),
        value: Some(value),
    };
    let output =
        |name: &str, sensitive| ScriptOutput { name: name.to_owned(), path: format!("/tmp/{name}"), sensitive };
    let spec = EntrypointSpec {
        v: VERSION,
        text: "#!/bin/sh\ntrue\n".to_owned(),
        env: vec![("SIGNADOT_SANDBOX_NAME".to_owned(), "pr-1234".to_owned())],
        inputs: vec![input("text", UnitValue::Json(json!("a\n"))), input("bytes", UnitValue::Bytes(vec![0xff, 0]))],
        outputs: vec![output("name", false), output("password", true)],
        timeout_ms: 600_000,
        grace_ms: 10_000,
        log_tail: 262_144,
        folder: "/ebb/own".to_owned(),
        termination_log: "/dev/termination-log".to_owned(),
        relay: Some(RelayAddress {
            url: "http://10.96.0.7:8080/v1/reports/run-0-3.1".to_owned(),
            token: "TOKEN".to_owned(),
            heartbeat_ms: 10_000,
            report_retry_ms: 120_000,
        }),
    };
    golden!("spec", lasting(spec));
    let least = json!({"v": 1, "text": "true", "timeoutMs": 1, "graceMs": 2, "folder": "/ebb/own"});
    let least: EntrypointSpec = serde_json::from_value(least).expect("what is left out has a default");
    golden!("spec-least", lasting(least));
}

#[test]
fn ends() {
    golden!("report-running", lasting(ScriptReport { v: VERSION, log_bytes: 1234, state: ReportState::Running }));
    let mut result = Callback { duration_ms: Some(1500), ..Callback::new(CallbackStatus::Succeeded) };
    result.hold("name", b"users\n".to_vec());
    result.hold("bytes", vec![0xff, 0]);
    let termination =
        TerminationResult { v: VERSION, result: result.clone(), exit_code: Some(0), report: None, reported: true };
    golden!("termination", lasting(termination.clone()));
    result.log = Some("creating\n".to_owned());
    let sensitive = BTreeMap::from([("password".to_owned(), "czNjcjN0".to_owned())]);
    let ended = ScriptExit { result, sensitive, exit_code: Some(0) };
    golden!(
        "report-ended",
        lasting(ScriptReport { v: VERSION, log_bytes: 9, state: ReportState::Ended(Box::new(ended)) })
    );
    let result = Callback::new(CallbackStatus::Succeeded);
    let elsewhere =
        TerminationResult { result, report: Some("5e88".repeat(16)), reported: false, ..termination.clone() };
    golden!("termination-elsewhere", lasting(elsewhere));
    let result = Callback::failed(ReasonCode::NotStartable, "this image has no /bin/sh, the script's interpreter");
    golden!("termination-not-started", lasting(TerminationResult { result, exit_code: None, ..termination }));
}
