//! Teardowns.

use std::time::{Duration, Instant};

use axum::http::Method;
use ebb_protocol::api::{Certainty, TargetState, UnitState};
use ebb_protocol::lifecycle::TargetStopCause;
use serde_json::{Value, json};

use crate::harness::{CannedReply, LifecycleHarness, find, plugin};

/// Returns true if a process of this machine was started with `word` among its arguments.
fn runs(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split(|&byte| byte == 0).any(|argument| argument == word.as_bytes()))
}

pub(crate) async fn a_script_that_is_deaf() {
    let harness = LifecycleHarness::new().await;
    // Found again among all processes by how long it sleeps.
    let seconds = format!("3600.{}", std::process::id());
    let rest = r#"
runners: {sh: {image: "busybox:1"}}
preStart:
  deaf:
    pod:
      runner: sh
      script: |
        #!/bin/sh
        trap '' TERM INT HUP
        echo begun
        sleep SECONDS
        echo over
  next: {after: [deaf], webhook: {url: "RECEIVER/next"}}
postStop:
  undo: {undoes: deaf, webhook: {url: "RECEIVER/undo"}}
"#;
    harness.publish(&plugin("deaf@1.0.0", &rest.replace("SECONDS", &seconds))).await;
    harness.create("a", "deaf").await;
    let run = crate::harness::run_id("a", ebb_engine::Hook::PreStart);
    crate::harness::eventually("its first line", async || {
        let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/deaf")).await;
        (log.status == 200 && log.body.contains("begun") && runs(&seconds)).then_some(())
    })
    .await;
    harness.delete("a").await;
    let target = harness.phase("a", TargetState::Gone).await;
    assert!(!runs(&seconds));
    // What it had said is kept.
    let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/deaf")).await;
    assert_eq!((log.status, log.body.as_str()), (200, "begun\n"));
    assert_eq!(find(&target, "preStart", "deaf").unwrap().state, UnitState::Cancelled);
    assert_eq!(find(&target, "preStart", "next").unwrap().state, UnitState::Blocked);
    let calls = |route: &str| harness.receiver.calls(route).len();
    assert_eq!((calls("POST /undo"), calls("POST /next")), (1, 0));
    harness.told("a", &["gone"]).await;
}

pub(crate) async fn what_never_started_is_left_alone() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /a", |_, _| CannedReply::status(202));
    let rest = r#"
preStart:
  a: {webhook: {url: "RECEIVER/a"}}
  b: {after: [a], webhook: {url: "RECEIVER/b"}}
postStop:
  undo-a: {undoes: a, after: [undo-b], webhook: {url: "RECEIVER/undo-a"}}
  undo-b: {undoes: b, webhook: {url: "RECEIVER/undo-b"}}
  tidy: {after: [undo-a], webhook: {url: "RECEIVER/tidy"}}
"#;
    harness.publish(&plugin("two@1.0.0", rest)).await;
    harness.create("s", "two").await;
    let call = harness.receiver.call("POST /a", 1).await;
    harness.delete("s").await;
    // It is known how it ended: nobody has to wait for it.
    let failed = harness.callback(call.token(), &json!({"status": "failed"})).await;
    assert!(matches!(failed.status, 204 | 409), "{failed:?}");
    let target = harness.phase("s", TargetState::Gone).await;
    let skipped = find(&target, "postStop", "undo-b").unwrap();
    assert_eq!(skipped.state, UnitState::Skipped);
    assert!(skipped.reason.unwrap().message.contains("r/b never started"));
    assert_eq!(harness.receiver.order(), ["POST /a", "POST /undo-a", "POST /tidy"]);
}

pub(crate) async fn before_and_after_the_stop() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make:
    webhook: {url: "RECEIVER/make"}
    outputs: {id: {value: "${response.body.id}"}}
postStart:
  register: {webhook: {url: "RECEIVER/register", body: {id: "${units.make.outputs.id}"}}}
preStop:
  drain: {webhook: {url: "RECEIVER/drain"}, outputs: {left: {value: "${response.body.left}"}}}
  dump: {after: [drain], webhook: {url: "RECEIVER/dump", body: {id: "${units.make.outputs.id}"}}}
postStop:
  drop: {undoes: make, webhook: {method: DELETE, url: "RECEIVER/make/${units.make.outputs.id}"}}
  tell: {webhook: {url: "RECEIVER/tell", body: {left: "${units.drain.outputs.?left}"}}}
"#;
    harness.receiver.on("POST /make", |_, _| CannedReply::ok(json!({"id": "m 1/2"})));
    harness.receiver.on("POST /drain", |_, _| CannedReply::ok(json!({"left": 3})));
    harness.publish(&plugin("whole@1.0.0", rest)).await;
    harness.create("a", "whole").await;
    harness.phase("a", TargetState::Ready).await;
    harness.unit("a", "postStart", "register", UnitState::Succeeded).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    let mut order = harness.receiver.order();
    assert_eq!(order[..4], ["POST /make", "POST /register", "POST /drain", "POST /dump"]);
    order[4..].sort();
    // A value is one piece of a path, whatever is in it.
    assert_eq!(order[4..], ["DELETE /make/m%201%2F2", "POST /tell"]);
    assert_eq!(harness.receiver.calls("POST /tell")[0].body, json!({"left": 3}));
    assert_eq!(harness.receiver.calls("POST /dump")[0].body, json!({"id": "m 1/2"}));
    harness.told("a", &["ready", "gone"]).await;
}

pub(crate) async fn gives_up_and_is_retried() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
postStop:
  drop:
    undoes: make
    retry: {attempts: 2, backoff: 10ms}
    webhook: {url: "RECEIVER/drop"}
  last: {after: [drop], webhook: {url: "RECEIVER/last"}}
"#;
    harness.receiver.on("POST /drop", |_, _| CannedReply::status(500));
    harness.publish(&plugin("clings@1.0.0", rest)).await;
    harness.create("a", "clings").await;
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Stuck).await;
    assert_eq!(harness.receiver.calls("POST /drop").len(), 2);
    let why = harness.why("a").await;
    assert_eq!(why.remaining.iter().map(|it| it.unit.as_str()).collect::<Vec<_>>(), ["r/make"]);
    assert_eq!(why.cause.unwrap().unit, "r/drop");
    // Neither a repeated end nor a new life of the name moves it.
    harness.delete("a").await;
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Stuck);
    let retry = "/v1/targets/sandbox/a/retry";
    let retried: Value = harness.ask(Method::POST, retry, None).await.is(202).json();
    assert_eq!(retried["units"], json!(["r/drop"]));
    // Nothing is under way that would have to be waited for.
    let retried = Instant::now();
    harness.receiver.call("POST /drop", 3).await;
    let sending = harness.stack().env().settings.response_window().0;
    assert!(retried.elapsed() < Duration::from_millis(sending), "{:?}", retried.elapsed());
    // It fails as often again, and is stuck again.
    harness.receiver.call("POST /drop", 4).await;
    harness.phase("a", TargetState::Stuck).await;
    assert_eq!(harness.receiver.calls("POST /drop").len(), 4);
    harness.receiver.on("POST /drop", |_, _| CannedReply::status(204));
    harness.ask(Method::POST, retry, None).await.is(202);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.calls("POST /drop").len(), 5);
    assert_eq!(harness.receiver.calls("POST /last").len(), 1);
    harness.told("a", &["ready", "stuck", "stuck", "gone"]).await;
    harness.ask(Method::POST, retry, None).await.is_problem(409, "nothing-failed");
}

const CLINGS: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
  mark: {webhook: {url: "RECEIVER/mark"}}
postStop:
  drop:
    undoes: make
    retry: {attempts: 1}
    webhook: {url: "RECEIVER/drop"}
  unmark: {undoes: mark, after: [drop], webhook: {url: "RECEIVER/unmark"}}
"#;

async fn stuck() -> LifecycleHarness {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /drop", |_, _| CannedReply::status(500));
    harness.publish(&plugin("clings@1.0.0", CLINGS)).await;
    harness.create("a", "clings").await;
    harness.phase("a", TargetState::Ready).await;
    let asked = json!({"unit": "r/drop", "reason": "it is ours no more"});
    let early = harness.ask(Method::POST, "/v1/targets/sandbox/a/force-complete", Some(asked)).await;
    early.is_problem(409, "not-stuck");
    let early = harness.ask(Method::POST, "/v1/targets/sandbox/a/force-delete", Some(json!({"reason": "x"}))).await;
    early.is_problem(409, "not-stuck");
    harness.delete("a").await;
    harness.phase("a", TargetState::Stuck).await;
    harness
}

async fn left(harness: &LifecycleHarness) -> Vec<String> {
    harness.why("a").await.remaining.into_iter().map(|it| it.unit).collect()
}

pub(crate) async fn gives_up_and_is_force_completed() {
    let harness = stuck().await;
    let path = "/v1/targets/sandbox/a/force-complete";
    let ask = |unit: &str, reason: &str| Some(json!({"unit": unit, "reason": reason, "by": "ada"}));
    harness.ask(Method::POST, path, ask("r/drop", " ")).await.is_problem(422, "missing-field");
    // One that waits for what has failed has not failed itself.
    harness.ask(Method::POST, path, ask("r/unmark", "no")).await.is_problem(409, "not-stuck");
    harness
        .ask(Method::POST, "/v1/targets/sandbox/b/force-complete", ask("r/drop", "no"))
        .await
        .is_problem(404, "not-found");
    assert!(
        harness
            .why("a")
            .await
            .next_steps
            .iter()
            .any(|next| next.starts_with("continue without it: ebb unit force-complete a r/drop"))
    );
    let overridden: Value = harness.ask(Method::POST, path, ask("r/drop", "removed by hand")).await.is(202).json();
    assert_eq!(overridden["units"], json!(["r/drop"]));
    let target = harness.phase("a", TargetState::Gone).await;
    let unit = find(&target, "postStop", "drop").unwrap();
    assert_eq!(unit.state, UnitState::Skipped);
    assert_eq!(unit.reason.as_ref().unwrap().message, "overridden by ada: removed by hand");
    assert_eq!((harness.receiver.calls("POST /drop").len(), harness.receiver.calls("POST /unmark").len()), (1, 1));
    assert_eq!(left(&harness).await, ["r/make"], "it may still be there");
    harness.told("a", &["ready", "stuck", "gone"]).await;
    harness.ask(Method::POST, path, ask("r/drop", "again")).await.is_problem(409, "not-stuck");
}

pub(crate) async fn gives_up_and_is_force_deleted() {
    let harness = stuck().await;
    let path = "/v1/targets/sandbox/a/force-delete";
    harness.ask(Method::POST, path, Some(json!({"reason": ""}))).await.is_problem(422, "missing-field");
    let reason = Some(json!({"reason": "the cluster is no more"}));
    let overridden: Value = harness.ask(Method::POST, path, reason.clone()).await.is(202).json();
    assert_eq!(overridden["units"], json!(["r/drop", "r/unmark"]));
    let target = harness.phase("a", TargetState::Gone).await;
    for unit in ["drop", "unmark"] {
        let unit = find(&target, "postStop", unit).unwrap();
        assert_eq!(unit.state, UnitState::Skipped);
        assert_eq!(unit.reason.as_ref().unwrap().message, "overridden by an operator: the cluster is no more");
    }
    assert_eq!((harness.receiver.calls("POST /drop").len(), harness.receiver.calls("POST /unmark").len()), (1, 0));
    assert_eq!(left(&harness).await, ["r/make", "r/mark"]);
    let summary = harness.why("a").await.summary;
    let end = "resources may remain; r/drop, r/unmark: overridden by an operator: the cluster is no more";
    assert!(summary.starts_with("gone since ") && summary.ends_with(end), "{summary}");
    let told = harness.told("a", &["ready", "stuck", "gone"]).await;
    let of_events: Vec<_> = told.iter().map(|data| (&data["stopCause"], &data["overridden"])).collect();
    let nothing = (&Value::Null, &Value::Null);
    assert_eq!(of_events, [nothing, nothing, (&json!("deleted"), &json!(true))]);
    let info = harness.target("a").await.unwrap().info;
    assert_eq!((info.stop_cause, info.overridden), (Some(TargetStopCause::Deleted), true));
    harness.ask(Method::POST, path, reason).await.is_problem(409, "not-stuck");
}

pub(crate) async fn not_there_counts_as_done() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  one: {webhook: {url: "RECEIVER/one"}}
  two: {webhook: {url: "RECEIVER/two"}}
postStop:
  drop-one: {undoes: one, webhook: {method: DELETE, url: "RECEIVER/one"}}
  drop-two: {undoes: two, webhook: {method: DELETE, url: "RECEIVER/two"}}
"#;
    harness.receiver.on("DELETE /one", |_, _| CannedReply::status(404));
    harness.receiver.on("DELETE /two", |_, _| CannedReply::status(410));
    harness.publish(&plugin("absent@1.0.0", rest)).await;
    harness.create("a", "absent").await;
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let target = harness.phase("a", TargetState::Gone).await;
    for unit in ["drop-one", "drop-two"] {
        let unit = find(&target, "postStop", unit).unwrap();
        assert_eq!((unit.state, unit.attempt), (UnitState::Succeeded, 1));
    }
}

/// `make` is tried once and gives no answer in time; `undo` deletes by its key.
const SLOW: &str = r#"
preStart:
  make: {timeout: 1s, retry: {attempts: 1}, webhook: {url: "RECEIVER/make", maxProcessingTime: 4s}}
postStop:
  undo: {undoes: make, webhook: {method: DELETE, url: "RECEIVER/thing"}}
"#;

pub(crate) async fn a_receiver_that_acts_after_its_timeout() {
    let harness = LifecycleHarness::new().await;
    let make = harness.receiver.hold("POST /make");
    harness.receiver.on("DELETE /thing", |_, number| CannedReply::status(if number == 1 { 404 } else { 204 }));
    harness.publish(&plugin("slow@1.0.0", SLOW)).await;
    harness.create("a", "slow").await;
    harness.phase("a", TargetState::Failed).await;
    harness.delete("a").await;
    harness.receiver.call("DELETE /thing", 1).await;
    // There is nothing yet, and the receiver may still act.
    let why = harness.why("a").await;
    assert_eq!(why.phase, TargetState::Stopping);
    let [possible] = &why.remaining[..] else { panic!("{why:?}") };
    assert_eq!((possible.unit.as_str(), possible.certainty), ("r/make", Certainty::Possible));
    harness.receiver.call("DELETE /thing", 2).await;
    harness.phase("a", TargetState::Gone).await;
    drop(make);
    assert_eq!(harness.receiver.calls("DELETE /thing").len(), 2);
}

pub(crate) async fn a_gateway_that_gives_up_says_nothing_of_its_backend() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(504));
    harness.receiver.on("DELETE /thing", |_, _| CannedReply::status(404));
    harness.publish(&plugin("slow@1.0.0", SLOW)).await;
    harness.create("a", "slow").await;
    harness.phase("a", TargetState::Failed).await;
    harness.delete("a").await;
    let target = harness.phase("a", TargetState::Gone).await;
    // Nothing was found, and nothing once more when the backend could not act any more.
    assert_eq!(harness.receiver.calls("DELETE /thing").len(), 2, "{target:?}");
}

pub(crate) async fn an_answer_of_the_backend_is_final() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(400));
    harness.receiver.on("DELETE /thing", |_, _| CannedReply::status(404));
    harness.publish(&plugin("slow@1.0.0", SLOW)).await;
    harness.create("a", "slow").await;
    harness.phase("a", TargetState::Failed).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.calls("DELETE /thing").len(), 1);
}

/// `drop` is tried once, and gets no answer in time.
const DEAF: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
postStop:
  drop: {undoes: make, timeout: 3s, retry: {attempts: 1}, webhook: {url: "RECEIVER/drop"}}
"#;

/// An undo whose request was given up may still be under way when an operator force-deletes the target.
pub(crate) async fn an_undo_that_ends_after_a_force_delete() {
    let harness = LifecycleHarness::new().await;
    harness.publish(&plugin("deaf@1.0.0", DEAF)).await;
    harness.create("a", "deaf").await;
    harness.phase("a", TargetState::Ready).await;
    let hold = harness.receiver.hold("POST /drop");
    harness.delete("a").await;
    let call = harness.receiver.call("POST /drop", 1).await;
    // The request is under way: nothing can be overridden yet, and the answer says why.
    let path = "/v1/targets/sandbox/a/force-delete";
    let reason = || Some(json!({"reason": "the receiver hangs"}));
    let early = harness.ask(Method::POST, path, reason()).await.is_problem(409, "not-stuck");
    assert!(early.detail.contains("may be running"), "{early:?}");
    harness.phase("a", TargetState::Stuck).await;
    harness.ask(Method::POST, path, reason()).await.is(202);
    harness.phase("a", TargetState::Gone).await;
    let why = harness.why("a").await;
    assert_eq!(why.remaining.iter().map(|it| it.unit.as_str()).collect::<Vec<_>>(), ["r/make"]);
    let [note] = &why.notes[..] else { panic!("{why:?}") };
    assert!(note.contains("r/drop") && note.contains("may still act"), "{note}");
    // The receiver reports its success, which is kept.
    let done = harness.callback(call.token(), &json!({"status": "succeeded"})).await;
    done.is_problem(409, "late-result");
    let why = harness.why("a").await;
    assert_eq!((why.remaining, why.notes), (vec![], vec![]));
    assert!(why.summary.ends_with("nothing remains"), "{}", why.summary);
    drop(hold);
}

pub(crate) async fn why_a_target_is_gone() {
    let harness = LifecycleHarness::new().await;
    harness.publish(&plugin("plain@1.0.0", DEAF)).await;
    harness.delete("never").await;
    let summary = harness.why("never").await.summary;
    assert!(summary.ends_with("it was deleted before it was created"), "{summary}");
    harness.create("a", "plain").await;
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    let summary = harness.why("a").await.summary;
    assert!(summary.ends_with("nothing remains"), "{summary}");
}

/// A receiver that died before it answered has only the key of the creation to find what it made.
pub(crate) async fn an_undo_has_the_key_of_what_it_undoes() {
    let harness = LifecycleHarness::new().await;
    harness.publish(&plugin("plain@1.0.0", DEAF)).await;
    harness.create("a", "plain").await;
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    let (make, undo) = (harness.receiver.call("POST /make", 1).await, harness.receiver.call("POST /drop", 1).await);
    let key = "idempotency-key";
    assert!(!make.header(key).is_empty());
    assert_eq!(undo.header("ebb-undoes-idempotency-key"), make.header(key));
    // A receiver that remembers answers by their key must not take the undo for a repetition of the creation.
    assert_ne!(undo.header(key), make.header(key));
    assert_eq!(make.header("ebb-undoes-idempotency-key"), "");
}
