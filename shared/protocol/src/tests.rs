//! The serialized form of messages. Programs of other versions rely on it, so a changed file in `tests/messages` is a
//! changed contract.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::engine::EventName;
use crate::entrypoint::{ScriptReport, TerminationResult};
use crate::id::{instance_key, unit_key};
use crate::lifecycle::OutcomeData;
use crate::pull::{PollRequest, PollResponse};

pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, Vec<Value>> = serde_json::from_str(include_str!("../tests/rows.json")).unwrap();
    let rows = parts.remove(test).filter(|rows| !rows.is_empty()).unwrap_or_else(|| panic!("no rows of {test}"));
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}

pub(crate) fn keys(text: &str) -> WebhookKeys {
    WebhookKeys::parse(text).unwrap()
}

pub(crate) fn headers<N: AsRef<str>, V: AsRef<[u8]>>(given: &[(N, V)]) -> HeaderMap {
    let value = |value: &V| HeaderValue::from_bytes(value.as_ref()).unwrap();
    given.iter().map(|(name, bytes)| (name.as_ref().parse::<HeaderName>().unwrap(), value(bytes))).collect()
}

/// The treatment of members that another version has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddedMember {
    /// In messages of programs of Ebb.
    Ignored,
    /// In messages of users and other programs.
    Refused,
}
use AddedMember::{Ignored, Refused};

/// Reads a message, writes it, and compares both. Then adds a member.
fn check<T: Serialize + DeserializeOwned>(name: &str, json: &Value, added: AddedMember) -> T {
    let read = |json: &Value| serde_json::from_value::<T>(json.clone());
    let message = read(json).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(&serde_json::to_value(&message).unwrap(), json, "{name}");
    if json.is_object() {
        let mut later = json.clone();
        later["addedLater"] = json!({"a": 1});
        match (read(&later), added) {
            (Ok(message), Ignored) => assert_eq!(&serde_json::to_value(message).unwrap(), json, "{name}"),
            (Err(error), Refused) => {
                assert!(error.to_string().contains("unknown field `addedLater`"), "{name}: {error}")
            }
            (read, _) => panic!("{name}: {:?}, expected {added:?}", read.map(drop)),
        }
    }
    message
}

macro_rules! golden {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!("../tests/messages/", $name, ".json"))).unwrap()
    };
}

macro_rules! messages {
    ($($($name:literal)+: $message:ty, $added:ident;)+) => {
        $($(check::<$message>($name, &golden!($name), $added);)+)+
    };
}

#[test]
fn messages_are_read_and_written() {
    messages! {
        "batch": Batch, Ignored; "batch-response": BatchResponse, Ignored;
        "callback-accepted" "callback-again" "callback-failed": Callback, Refused;
        "callback-heartbeat" "callback-succeeded": Callback, Refused; "cluster-list": ClusterList, Ignored;
        "delete-orphans": DeleteOrphans, Refused; "delete-orphans-response": DeleteOrphansResponse, Ignored;
        "document-body": DocumentBody, Refused; "ensure-task": EnsureTask, Ignored;
        "entrypoint-spec" "entrypoint-spec-least": EntrypointSpec, Ignored;
        "force-complete": ForceCompleteUnit, Refused; "force-delete": ForceDeleteTarget, Refused;
        "lifecycle": LifecycleData, Refused; "lifecycle-responses": Vec<LifecycleResponse>, Ignored;
        "notification-event" "notification-failed" "notification-gone" "notification-ready": OutcomeData, Ignored;
        "orphan-list": OrphanList, Ignored; "override-response": OverrideResponse, Ignored;
        "plan-preview": PlanPreview, Ignored; "plugin-detail": PluginDetail, Ignored;
        "poll-request": PollRequest, Ignored; "poll-response": PollResponse, Ignored;
        "problem-details" "problem-details-short": ProblemDetails, Ignored; "reason-codes": Vec<ReasonCode>, Ignored;
        "retry-response": RetryResponse, Ignored; "run-states": Vec<RunState>, Ignored;
        "script-report-ended" "script-report-running": ScriptReport, Ignored; "target-detail": TargetDetail, Ignored;
        "target-diagnosis": TargetDiagnosis, Ignored; "target-page": TargetPage, Ignored;
        "target-states": Vec<TargetPhase>, Ignored; "task-states": Vec<TaskState>, Ignored;
        "termination" "termination-elsewhere" "termination-not-started": TerminationResult, Ignored;
        "unit-states": Vec<UnitState>, Ignored; "values": Vec<UnitValue>, Ignored;
    }
}

#[test]
fn parts_of_batches_accept_additions() {
    let batch = golden!("batch");
    let [objects, about, listing] = [
        &batch["requests"][0]["ensure"]["body"],
        &golden!("batch-response")["responses"][5]["about"],
        &golden!("batch-response")["responses"][6]["listing"],
    ];
    check::<ObjectTask>("objects", objects, Ignored);
    check::<RelayInfo>("about", about, Ignored);
    check::<ClusterListing>("listing", listing, Ignored);
    let late = check::<Batch>("batch", &batch, Ignored).after(Duration::from_millis(45_001));
    let RelayRequest::Ensure(late) = &late.requests[0] else { panic!("{late:?}") };
    assert_eq!((late.valid_for_ms, late.timeout_ms), (0, 254_999));
}

#[test]
fn a_reported_policy_is_limited() {
    let kinds = |count: usize| (0..count).map(|number| format!("{number}\u{1b}")).collect::<BTreeSet<_>>();
    let unit_namespace = Some("x".repeat(100_000));
    let reported = ReportedPolicy { kinds: kinds(1_000), unit_namespace, ..ReportedPolicy::default() };
    let fitting = reported.fit();
    assert!(fitting.kinds.len() == 200 && fitting.kinds.iter().all(|kind| !kind.contains('\u{1b}')), "{fitting:?}");
    assert!(fitting.is_cut());
    assert!(fitting.unit_namespace.is_some_and(|name| name.len() < 10_000));
    let short = ReportedPolicy { kinds: kinds(3), ..ReportedPolicy::default() }.fit();
    assert!(short.kinds.len() == 3 && !short.is_cut());
}

#[test]
fn an_unreadable_request_does_not_hide_others() {
    let mut batch = golden!("batch");
    batch["requests"][0]["ensure"]["needs"] = json!(["addedLater"]);
    batch["requests"][1] = json!({"addedLater": {}});
    let read: Batch = serde_json::from_value(batch.clone()).unwrap();
    assert_eq!(read.requests.len(), batch["requests"].as_array().unwrap().len());
    let unreadable = read.requests.iter().filter_map(|request| match request {
        RelayRequest::Unreadable { is_start, reason } => Some((*is_start, reason.contains("`addedLater`"))),
        _ => None,
    });
    assert_eq!(unreadable.collect::<Vec<_>>(), [(true, true), (false, true)]);
}

#[test]
fn absent_members_have_defaults() {
    let callback: Callback = serde_json::from_str(r#"{"status": "succeeded"}"#).unwrap();
    assert_eq!(callback, Callback::new(CallbackStatus::Succeeded));
    let error = serde_json::from_str::<UnitValue>(r#"{"base64": "not base64"}"#).unwrap_err();
    assert!(error.to_string().contains("Invalid"), "{error}");
}

#[test]
fn a_reason_has_a_known_code_or_a_word_of_its_sender() {
    let longest = "x".repeat(FailureReason::MAX_CODE);
    let parse = |code: Value| serde_json::from_value::<FailureReason>(json!({"code": code, "message": "why"}));
    for (code, expected, message) in
        rows::<(Value, ReasonCode, String)>("a_reason_has_a_known_code_or_a_word_of_its_sender")
    {
        let reason = parse(code.clone()).unwrap();
        assert_eq!((reason.code, reason.message), (expected, message), "{code}");
    }
    for code in ["", "-a", "noQuota", "no quota", "no_quota", "ä", &format!("{longest}x")] {
        let error = parse(json!(code)).unwrap_err().to_string();
        assert!(error.contains("expected a word of a-z and `-`, at most 40 characters"), "{code:?}: {error}");
    }
    let error = serde_json::from_value::<FailureReason>(json!({"code": "no-quota"})).unwrap_err();
    assert!(error.to_string().contains("missing field `message`"), "{error}");
}

/// Stored items and names of objects contain these names.
#[test]
fn names_are_derived_from_their_subjects() {
    let instance = instance_key("sandbox", "pr-1234", "8c1a");
    let runs = [Hook::PreStart, Hook::PostStart, Hook::PreStop, Hook::PostStop]
        .map(|hook| RunId::new(&instance, 3, hook).to_string());
    let expected =
        ["pre-start", "post-start", "pre-stop", "post-stop"].map(|hook| format!("6j2qfwg2ckfflvir-3-{hook}"));
    assert_eq!(runs, expected);
    let event = EventRef::new(EventName::new("a1234567890").unwrap(), "7d0c2a1e");
    let run = RunId::of_event(&instance, (1 << 53) - 1, &event);
    assert_eq!(run.as_str(), "6j2qfwg2ckfflvir-9007199254740991-on-a1234567890-kjieromo");
    assert_eq!((run.hook(), run.to_string().parse()), (Hook::Event(event.name), Ok(run.clone())));
    assert!(TaskId::unit_of(&run, Unit(9_999)).len() <= 63, "the name of a task is a DNS label");
    assert_eq!(event.to_string().parse::<EventRef>(), Ok(event));
    for wrong in ["sleep", "sleep-", "sleep-abcdefg", "sleep-ABCD_FGH", "on-abcdefgh"] {
        assert!(wrong.parse::<EventRef>().is_err(), "{wrong}");
        assert!(format!("{instance}-1-on-{wrong}").parse::<RunId>().is_err(), "{wrong}");
    }
    for (resource, unit, key) in rows::<(String, String, String)>("keys_of_units") {
        assert_eq!(unit_key("k3j2h4q5w6e7r3t2", &resource, &unit), key, "{resource}/{unit}");
    }
    assert_ne!(unit_key("l", "ab", "c"), unit_key("l", "a", "bc"));
}
