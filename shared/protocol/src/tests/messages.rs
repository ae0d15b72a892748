//! The serialized form of every message. Programs of other versions rely on it, so a changed golden file is a changed
//! contract.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::golden::ignores_unknown_fields;
use crate::callback::{Callback, CallbackStatus, FailureReason, ReasonCode};
use crate::engine::Hook;
use crate::evidence::Evidence;
use crate::id::{RunId, instance_key, unit_key};
use crate::lifecycle::{LifecycleData, LifecycleResponse, LifecycleResult, OutcomeData, OutputValue, TargetStopCause};
use crate::listing::{ClusterListing, ObjectSummary, RelayInfo, TaskSummary, UnmanagedObject};
use crate::pull::{PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch};
use crate::record::{AttemptOutcome, AttemptRecord, AttemptResult, CallbackRefusals, OutputStorage};
use crate::relay::{
    Batch, BatchResponse, CallbackEndpoint, DocumentFill, EnsureTask, FillWith, ObjectOutput, ObjectOutputFrom,
    ObjectTask, ReadyRules, RelayRequest, RelayResponse, ScriptInput, ScriptOutput, ScriptTask, SecretDocument,
    TaskBody, TaskCompletion, TaskId, TaskState,
};
use crate::value::{SecretRef, UnitValue};

fn refuses_unknown_fields<T: Serialize + DeserializeOwned + Debug>(message: &T) {
    let mut json = serde_json::to_value(message).expect("it can be written");
    json["addedLater"] = json!(1);
    let error = serde_json::from_value::<T>(json).expect_err("it is refused");
    assert!(error.to_string().contains("unknown field `addedLater`"), "{error}");
}

fn secret() -> SecretRef {
    SecretRef {
        cluster: Some("staging-eu".to_owned()),
        namespace: Some("ebb-units".to_owned()),
        name: "pr-1234-users".to_owned(),
        key: "dsn".to_owned(),
    }
}

fn values() -> BTreeMap<String, UnitValue> {
    BTreeMap::from([
        ("bytes".to_owned(), UnitValue::Bytes(vec![0xff, 0, 0xfe])),
        ("json".to_owned(), UnitValue::Json(json!({"a": [1, 2.5, null, true]}))),
        ("secret".to_owned(), UnitValue::Secret(secret())),
        ("text".to_owned(), UnitValue::from_bytes(b"line\n".to_vec())),
    ])
}

fn output_values() -> BTreeMap<String, OutputValue> {
    BTreeMap::from([
        ("database.dsn".to_owned(), OutputValue::Secret(secret())),
        ("database.key".to_owned(), OutputValue::Base64("/wD+".to_owned())),
        ("database.name".to_owned(), OutputValue::Value(json!("usersk3j2"))),
    ])
}

fn reason() -> FailureReason {
    FailureReason { code: ReasonCode::Exit, message: "exit code 3".to_owned() }
}

#[test]
fn callbacks() {
    let succeeded = Callback {
        outputs: BTreeMap::from([("tenant".to_owned(), json!("t-7")), ("port".to_owned(), json!(5432))]),
        binary: BTreeMap::from([("key".to_owned(), "/wD+".to_owned())]),
        secrets: BTreeMap::from([("dsn".to_owned(), secret())]),
        log: Some("created\n".to_owned()),
        duration_ms: Some(1234),
        ..Callback::new(CallbackStatus::Succeeded)
    };
    refuses_unknown_fields(&succeeded);
    golden!("callback-succeeded", succeeded);
    golden!("callback-failed", Callback::failed(ReasonCode::Timeout, "5m are over\0"));
    golden!("callback-accepted", Callback::new(CallbackStatus::Accepted));
    let again = Callback { retry_after: Some(30), ..Callback::new(CallbackStatus::Again) };
    golden!("callback-again", again);
    let beat = Callback { progress: Some("3 of 7".to_owned()), ..Callback::new(CallbackStatus::Heartbeat) };
    golden!("callback-heartbeat", beat);
    let shortest: Callback = serde_json::from_str(r#"{"status": "succeeded"}"#).unwrap();
    assert_eq!(shortest, Callback::new(CallbackStatus::Succeeded));
}

#[test]
fn reason_codes() {
    use ReasonCode::*;
    let codes = [
        Exit,
        Timeout,
        Lost,
        Connect,
        HttpStatus,
        Refused,
        OutputMissing,
        OutputTooLarge,
        OutputInvalid,
        Render,
        NotStartable,
        ImagePull,
        Unschedulable,
        OutOfMemory,
        Evicted,
        Quota,
        Denied,
        Failed,
        Cancelled,
        Skipped,
        Overridden,
    ];
    golden!("reason-codes", codes);
}

#[test]
fn relay_messages() {
    let ensure = EnsureTask {
        v: 1,
        task: TaskId { unit: "k3j2h4q5w6e7r3t2-1-pre-start-7".to_owned(), attempt: 2 },
        valid_for_ms: 45_000,
        timeout_ms: 300_000,
        callback: CallbackEndpoint {
            url: "https://ebb.example.org/v1/callbacks".to_owned(),
            token: "ebb1.k1.r.…".to_owned(),
            installation: "k3j2h4q5w6e7r3t2".to_owned(),
        },
        body: TaskBody::Script(ScriptTask {
            image: "postgres:17-alpine".to_owned(),
            namespace: Some("ebb-units".to_owned()),
            pod_template: Some("spec: {}\n".to_owned()),
            text: "#!/bin/sh -eu\ncreatedb \"$EBB_KEY\"\n".to_owned(),
            env: vec![("EBB_KEY".to_owned(), "usersdatabasek3j2".to_owned())],
            inputs: vec![
                ScriptInput {
                    name: "admin-dsn".to_owned(),
                    env: Some("ADMIN_DSN".to_owned()),
                    path: None,
                    value: Some(UnitValue::Secret(secret())),
                },
                ScriptInput { name: "rows".to_owned(), env: None, path: Some("/in/rows".to_owned()), value: None },
            ],
            outputs: vec![ScriptOutput { name: "dsn".to_owned(), path: "/out/dsn".to_owned(), sensitive: true }],
        }),
    };
    ignores_unknown_fields(&ensure);
    golden!("ensure", ensure.clone());
    let EnsureTask { v, task, valid_for_ms, timeout_ms, callback, .. } = ensure;
    let value = |name: &str, from, sensitive| ObjectOutput { name: name.to_owned(), from, sensitive };
    let password = ObjectOutputFrom::Secret { name: "object.spec.secretName".to_owned(), key: "password".to_owned() };
    let objects = ObjectTask {
        instance: "k3j2h4q5w6e7r3t2".to_owned(),
        namespace: Some("ebb-units".to_owned()),
        apply: vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})],
        secrets: vec![SecretDocument {
            name: "ebb-k3j2".to_owned(),
            key: "spec.json".to_owned(),
            document: json!({"v": 1, "relay": null}),
            fill: vec![
                DocumentFill { pointer: "/relay".to_owned(), with: FillWith::Report },
                DocumentFill { pointer: "/inputs/0/value".to_owned(), with: FillWith::Secret(secret()) },
            ],
        }],
        remove: vec!["k3j2h4q5w6e7r3t2-1-pre-start-3".to_owned()],
        until: TaskCompletion::Ready(vec![ReadyRules { ready: Some("object.status.up".to_owned()), fail: None }]),
        outputs: vec![
            value("host", ObjectOutputFrom::Value("object.status.host".to_owned()), false),
            value("password", password, true),
        ],
        keep: true,
    };
    refuses_unknown_fields(&objects);
    let ended = ObjectTask { until: TaskCompletion::Ended { container: "main".to_owned() }, ..ObjectTask::default() };
    let other = TaskId { unit: "a-1".to_owned(), attempt: 1 };
    let ensure = |body| {
        let (task, callback) = (task.clone(), callback.clone());
        RelayRequest::Ensure(Box::new(EnsureTask { v, task, valid_for_ms, timeout_ms, callback, body }))
    };
    let requests = vec![
        ensure(objects),
        ensure(ended),
        RelayRequest::Get(other.clone()),
        RelayRequest::Cancel { task: other.clone(), grace_ms: 10_000 },
        RelayRequest::Acknowledge(other.clone()),
        RelayRequest::Release { instance: "k3j2h4q5w6e7r3t2".to_owned() },
        RelayRequest::About,
        RelayRequest::List { after: None },
        RelayRequest::List { after: Some("records:x".to_owned()) },
        RelayRequest::Delete(other.clone()),
        RelayRequest::Dequeue(other.clone()),
    ];
    let batch = Batch { v, cluster: "8c1a".to_owned(), requests };
    golden!("batch", batch.clone());
    let late = batch.after(Duration::from_millis(45_001));
    let RelayRequest::Ensure(late) = &late.requests[0] else { panic!("{late:?}") };
    assert_eq!((late.valid_for_ms, late.timeout_ms), (0, 254_999));
    let object = ObjectSummary {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("ebb-units".to_owned()),
        name: "c".to_owned(),
        uid: "9d2b".to_owned(),
        labelled: true,
    };
    let summary = TaskSummary {
        task: other,
        phase: "acknowledged".to_owned(),
        instance: "a".to_owned(),
        callback: "https://ebb.example.org/v1/callbacks".to_owned(),
        installation: "k3j2h4q5w6e7r3t2".to_owned(),
        age_ms: 7,
        objects: vec![object.clone()],
    };
    let unmanaged = UnmanagedObject { unit: "b-1".to_owned(), age_ms: 8, object };
    let listing = ClusterListing {
        tasks: vec![summary],
        unmanaged: vec![unmanaged],
        errors: vec!["Pod: forbidden".to_owned()],
        next_token: Some("unmanaged".to_owned()),
    };
    ignores_unknown_fields(&listing);
    let about = RelayInfo { version: "0.1.0".to_owned(), up_ms: 9, tasks: 3 };
    ignores_unknown_fields(&about);
    let responses = vec![
        RelayResponse::State(TaskState::Tombstoned),
        RelayResponse::Done,
        RelayResponse::Refused("no such kind".to_owned()),
        RelayResponse::Unavailable("busy".to_owned()),
        RelayResponse::TooLarge,
        RelayResponse::About(about),
        RelayResponse::Listing(listing),
    ];
    let response = BatchResponse { v, cluster: "8c1a".to_owned(), responses };
    golden!("answers", response.clone());
    let reply = |id: &str, outcome| QueuedReply { id: id.to_owned(), outcome };
    let status = ReplyOutcome::Status { status: 409, message: "another cluster".to_owned() };
    let poll = PollRequest {
        v,
        cluster: "8c1a".to_owned(),
        wait_ms: Some(20_000),
        in_progress: vec!["0-1".to_owned()],
        replies: vec![
            reply("0-2", ReplyOutcome::Response(BatchResponse { responses: vec![], ..response })),
            reply("0-3", status),
        ],
    };
    ignores_unknown_fields(&poll);
    golden!("poll", poll);
    let sealed = SealedBatch { id: "0-4".to_owned(), age_ms: 1, expires_in_ms: 2, ciphertext: "c2VhbGVk".to_owned() };
    let post = PollResponse { v, waited_ms: 3, batches: vec![sealed] };
    ignores_unknown_fields(&post);
    golden!("post", post);
    let ended = TaskState::Ended(Box::new(Callback::new(CallbackStatus::Succeeded)));
    let running = TaskState::Running {
        log: "waiting\n".to_owned(),
        pending: Some("Pod p: 0/3 nodes are available".to_owned()),
        heartbeat_ms: Some(1_200),
    };
    golden!("work-states", vec![TaskState::Unknown, running, ended, TaskState::Tombstoned]);
}

#[test]
fn lifecycle_messages() {
    let asked = LifecycleData {
        kind: "sandbox".to_owned(),
        name: "pr-1234".to_owned(),
        uid: "8c1a".to_owned(),
        generation: 3,
        document: Some("kind: Sandbox\n".to_owned()),
        routing_key: Some("r7".to_owned()),
    };
    refuses_unknown_fields(&asked);
    golden!("lifecycle", asked);
    let response = |result| LifecycleResponse {
        target: "sandbox/pr-1234".to_owned(),
        uid: "8c1a".to_owned(),
        generation: 3,
        result,
    };
    golden!(
        "lifecycle-answers",
        [
            LifecycleResult::Starting,
            LifecycleResult::Waiting,
            LifecycleResult::Stopping,
            LifecycleResult::Unchanged,
            LifecycleResult::Retrying,
        ]
        .map(response)
    );
    let outcome = OutcomeData {
        kind: "sandbox".to_owned(),
        name: "pr-1234".to_owned(),
        uid: "8c1a".to_owned(),
        generation: 3,
        outputs: BTreeMap::from([("users".to_owned(), output_values())]),
        env: BTreeMap::from([("PORT".to_owned(), OutputValue::Value(json!("5432")))]),
        unit: None,
        reason: None,
        stop_cause: None,
        overridden: false,
    };
    ignores_unknown_fields(&outcome);
    golden!("notification-ready", outcome.clone());
    let failed = OutcomeData {
        outputs: BTreeMap::new(),
        env: BTreeMap::new(),
        unit: Some("users/database".to_owned()),
        reason: Some(reason()),
        ..outcome.clone()
    };
    golden!("notification-failed", failed);
    let gone = OutcomeData {
        outputs: BTreeMap::new(),
        env: BTreeMap::new(),
        stop_cause: Some(TargetStopCause::Expired),
        overridden: true,
        ..outcome
    };
    golden!("notification-gone", gone);
}

#[test]
fn records() {
    let succeeded = AttemptResult {
        outcome: AttemptOutcome::Succeeded,
        at: 1_790_000_001_000,
        duration_ms: Some(900),
        outputs: OutputStorage::Inline(values()),
        reason: None,
        evidence: None,
        next: None,
        log: true,
        unanswered: false,
        digest: "sha256:00".to_owned(),
    };
    let failed = AttemptResult {
        outcome: AttemptOutcome::Failed,
        outputs: OutputStorage::Nothing,
        reason: Some(reason()),
        evidence: Some(Box::new(Evidence {
            method: "POST".to_owned(),
            url: "https://api.example.org/v1/db?key=***".to_owned(),
            status: Some(400),
            content_type: Some("application/json".to_owned()),
            body: Some("{\"error\":\"tier must be gold\"}".to_owned()),
            truncated: false,
            damaged: None,
        })),
        next: Some(1_790_000_005_000),
        log: false,
        unanswered: true,
        ..succeeded.clone()
    };
    let late = AttemptResult { outputs: OutputStorage::Bucket("o/run/7/2".to_owned()), ..succeeded.clone() };
    let record = AttemptRecord {
        started: Some(1_790_000_000_000),
        accepted: Some(1_790_000_000_100),
        next_dispatch: Some(1_790_000_030_000),
        posted: Some(1_790_000_000_050),
        leased_until: Some(1_790_000_122_000),
        heartbeat: Some(1_790_000_000_500),
        progress: Some("3 of 7".to_owned()),
        result: Some(failed),
        further_results: vec![late, succeeded],
        excess: 3,
        refused: Some(CallbackRefusals { count: 2, reason: "unknown field `error`".to_owned() }),
    };
    ignores_unknown_fields(&record);
    golden!("record", record);
    golden!("record-empty", AttemptRecord::default());
    golden!(
        "verdicts",
        [AttemptOutcome::Succeeded, AttemptOutcome::Skipped, AttemptOutcome::Failed, AttemptOutcome::Cancelled]
    );
}

#[test]
fn values_of_units() {
    golden!("values", values());
    let error = serde_json::from_str::<UnitValue>(r#"{"base64": "not base64"}"#).unwrap_err();
    assert!(error.to_string().contains("Invalid"), "{error}");
}

#[test]
fn run_ids() {
    let instance = instance_key("sandbox", "pr-1234", "8c1a");
    let hooks = [Hook::PreStart, Hook::PostStart, Hook::PreStop, Hook::PostStop];
    golden!("run-ids", hooks.map(|hook| RunId::new(&instance, 3, hook)));
}

#[test]
fn unit_keys_are_names_anywhere() {
    let mut report = String::new();
    for (resource, unit) in [
        ("users", "database"),
        ("my-postgres-db", "create-the-database-and-its-owner"),
        ("42", "7up"),
        ("9lives", "make"),
        ("Größe", "ÜBER"),
        ("-", "_"),
        ("", ""),
    ] {
        report.push_str(&format!("{resource}/{unit}: {}\n", unit_key("k3j2h4q5w6e7r3t2", resource, unit)));
    }
    insta::assert_snapshot!(report);
    assert_ne!(unit_key("l", "ab", "c"), unit_key("l", "a", "bc"));
}

proptest! {
    #[test]
    fn unit_keys_keep_their_form(instance in "[a-z2-7]{16}", resource in "\\PC{0,60}", unit in "\\PC{0,60}") {
        let key = unit_key(&instance, &resource, &unit);
        prop_assert!(key.len() <= crate::id::MAX_UNIT_KEY && key.len() > 16);
        prop_assert!(key.starts_with(|c: char| c.is_ascii_lowercase()));
        prop_assert!(key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        prop_assert_eq!(&key, &unit_key(&instance, &resource, &unit));
        prop_assert_ne!(&key, &unit_key(&instance, &resource, &format!("{unit}x")));
    }
}
