//! Ends of lives.

use std::time::{Duration, Instant};

use axum::http::Method;
use ebb_protocol::api::{Certainty, TargetState, UnitState};
use ebb_protocol::lifecycle::TargetStopCause;
use serde_json::{Value, json};

use crate::harness::{CannedReply, LifecycleHarness, find, plugin};

/// Whether a process of this machine was started with `word` among its arguments.
fn runs(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split(|&byte| byte == 0).any(|argument| argument == word.as_bytes()))
}

pub(crate) async fn a_script_that_is_deaf() {
    let world = LifecycleHarness::new().await;
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
    world.publish(&plugin("deaf@1.0.0", &rest.replace("SECONDS", &seconds))).await;
    world.create("a", "deaf").await;
    let run = crate::harness::run_id("a", ebb_engine::Hook::PreStart);
    crate::harness::eventually("its first line", async || {
        let log = world.get(&format!("/v1/runs/{run}/logs?unit=r/deaf")).await;
        (log.status == 200 && log.body.contains("begun") && runs(&seconds)).then_some(())
    })
    .await;
    world.delete("a").await;
    let target = world.phase("a", TargetState::Gone).await;
    assert!(!runs(&seconds));
    // What it had said is kept.
    let log = world.get(&format!("/v1/runs/{run}/logs?unit=r/deaf")).await;
    assert_eq!((log.status, log.body.as_str()), (200, "begun\n"));
    assert_eq!(find(&target, "preStart", "deaf").unwrap().state, UnitState::Cancelled);
    assert_eq!(find(&target, "preStart", "next").unwrap().state, UnitState::Blocked);
    let calls = |route: &str| world.receiver.calls(route).len();
    assert_eq!((calls("POST /undo"), calls("POST /next")), (1, 0));
    world.told("a", &["gone"]).await;
}

pub(crate) async fn what_never_started_is_left_alone() {
    let world = LifecycleHarness::new().await;
    world.receiver.on("POST /a", |_, _| CannedReply::status(202));
    let rest = r#"
preStart:
  a: {webhook: {url: "RECEIVER/a"}}
  b: {after: [a], webhook: {url: "RECEIVER/b"}}
postStop:
  undo-a: {undoes: a, after: [undo-b], webhook: {url: "RECEIVER/undo-a"}}
  undo-b: {undoes: b, webhook: {url: "RECEIVER/undo-b"}}
  tidy: {after: [undo-a], webhook: {url: "RECEIVER/tidy"}}
"#;
    world.publish(&plugin("two@1.0.0", rest)).await;
    world.create("s", "two").await;
    let call = world.receiver.call("POST /a", 1).await;
    world.delete("s").await;
    // It is known how it ended: nobody has to wait for it.
    let failed = world.callback(call.token(), &json!({"status": "failed"})).await;
    assert!(matches!(failed.status, 204 | 409), "{failed:?}");
    let target = world.phase("s", TargetState::Gone).await;
    let skipped = find(&target, "postStop", "undo-b").unwrap();
    assert_eq!(skipped.state, UnitState::Skipped);
    assert!(skipped.reason.unwrap().message.contains("r/b never started"));
    assert_eq!(world.receiver.order(), ["POST /a", "POST /undo-a", "POST /tidy"]);
}

pub(crate) async fn before_and_after_the_stop() {
    let world = LifecycleHarness::new().await;
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
    world.receiver.on("POST /make", |_, _| CannedReply::ok(json!({"id": "m 1/2"})));
    world.receiver.on("POST /drain", |_, _| CannedReply::ok(json!({"left": 3})));
    world.publish(&plugin("whole@1.0.0", rest)).await;
    world.create("a", "whole").await;
    world.phase("a", TargetState::Ready).await;
    world.unit("a", "postStart", "register", UnitState::Succeeded).await;
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
    let mut order = world.receiver.order();
    assert_eq!(order[..4], ["POST /make", "POST /register", "POST /drain", "POST /dump"]);
    order[4..].sort();
    // A value is one piece of a path, whatever is in it.
    assert_eq!(order[4..], ["DELETE /make/m%201%2F2", "POST /tell"]);
    assert_eq!(world.receiver.calls("POST /tell")[0].body, json!({"left": 3}));
    assert_eq!(world.receiver.calls("POST /dump")[0].body, json!({"id": "m 1/2"}));
    world.told("a", &["ready", "gone"]).await;
}

pub(crate) async fn gives_up_and_is_retried() {
    let world = LifecycleHarness::new().await;
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
    world.receiver.on("POST /drop", |_, _| CannedReply::status(500));
    world.publish(&plugin("clings@1.0.0", rest)).await;
    world.create("a", "clings").await;
    world.phase("a", TargetState::Ready).await;
    world.delete("a").await;
    world.phase("a", TargetState::Stuck).await;
    assert_eq!(world.receiver.calls("POST /drop").len(), 2);
    let why = world.why("a").await;
    assert_eq!(why.remaining.iter().map(|it| it.unit.as_str()).collect::<Vec<_>>(), ["r/make"]);
    assert_eq!(why.cause.unwrap().unit, "r/drop");
    // Neither a repeated end nor a new life of the name moves it.
    world.delete("a").await;
    assert_eq!(world.target("a").await.unwrap().info.phase, TargetState::Stuck);
    let retry = "/v1/targets/sandbox/a/retry";
    let retried: Value = world.ask(Method::POST, retry, None).await.is(202).json();
    assert_eq!(retried["units"], json!(["r/drop"]));
    // Nothing is under way that would have to be waited for.
    let retried = Instant::now();
    world.receiver.call("POST /drop", 3).await;
    let sending = world.stack().env().settings.response_window().0;
    assert!(retried.elapsed() < Duration::from_millis(sending), "{:?}", retried.elapsed());
    // It fails as often again, and is stuck again.
    world.receiver.call("POST /drop", 4).await;
    world.phase("a", TargetState::Stuck).await;
    assert_eq!(world.receiver.calls("POST /drop").len(), 4);
    world.receiver.on("POST /drop", |_, _| CannedReply::status(204));
    world.ask(Method::POST, retry, None).await.is(202);
    world.phase("a", TargetState::Gone).await;
    assert_eq!(world.receiver.calls("POST /drop").len(), 5);
    assert_eq!(world.receiver.calls("POST /last").len(), 1);
    world.told("a", &["ready", "stuck", "stuck", "gone"]).await;
    world.ask(Method::POST, retry, None).await.is_problem(409, "nothing-failed");
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
    let world = LifecycleHarness::new().await;
    world.receiver.on("POST /drop", |_, _| CannedReply::status(500));
    world.publish(&plugin("clings@1.0.0", CLINGS)).await;
    world.create("a", "clings").await;
    world.phase("a", TargetState::Ready).await;
    let skip = json!({"unit": "r/drop", "reason": "it is ours no more"});
    let early = world.ask(Method::POST, "/v1/targets/sandbox/a/skip", Some(skip)).await;
    early.is_problem(409, "not-stuck");
    let early = world.ask(Method::POST, "/v1/targets/sandbox/a/abandon", Some(json!({"reason": "x"}))).await;
    early.is_problem(409, "not-stuck");
    world.delete("a").await;
    world.phase("a", TargetState::Stuck).await;
    world
}

async fn left(world: &LifecycleHarness) -> Vec<String> {
    world.why("a").await.remaining.into_iter().map(|it| it.unit).collect()
}

pub(crate) async fn gives_up_and_is_skipped() {
    let world = stuck().await;
    let skip = "/v1/targets/sandbox/a/skip";
    let ask = |unit: &str, reason: &str| Some(json!({"unit": unit, "reason": reason, "by": "ada"}));
    world.ask(Method::POST, skip, ask("r/drop", " ")).await.is_problem(422, "missing-field");
    // One that waits for what has failed has not failed itself.
    world.ask(Method::POST, skip, ask("r/unmark", "no")).await.is_problem(409, "not-stuck");
    world
        .ask(Method::POST, "/v1/targets/sandbox/b/skip", ask("r/drop", "no"))
        .await
        .is_problem(404, "not-found");
    assert!(
        world
            .why("a")
            .await
            .next_steps
            .iter()
            .any(|step| step.starts_with("go on without it: ebb skip a r/drop"))
    );
    let skipped: Value = world.ask(Method::POST, skip, ask("r/drop", "removed by hand")).await.is(202).json();
    assert_eq!(skipped["units"], json!(["r/drop"]));
    let target = world.phase("a", TargetState::Gone).await;
    let unit = find(&target, "postStop", "drop").unwrap();
    assert_eq!(unit.state, UnitState::Skipped);
    assert_eq!(unit.reason.as_ref().unwrap().message, "waived by ada: removed by hand");
    assert_eq!(
        (world.receiver.calls("POST /drop").len(), world.receiver.calls("POST /unmark").len()),
        (1, 1)
    );
    assert_eq!(left(&world).await, ["r/make"], "it may still be there");
    world.told("a", &["ready", "stuck", "gone"]).await;
    world.ask(Method::POST, skip, ask("r/drop", "again")).await.is_problem(409, "not-stuck");
}

pub(crate) async fn gives_up_and_is_abandoned() {
    let world = stuck().await;
    let abandon = "/v1/targets/sandbox/a/abandon";
    world.ask(Method::POST, abandon, Some(json!({"reason": ""}))).await.is_problem(422, "missing-field");
    let reason = Some(json!({"reason": "the cluster is no more"}));
    let abandoned: Value = world.ask(Method::POST, abandon, reason.clone()).await.is(202).json();
    assert_eq!(abandoned["units"], json!(["r/drop", "r/unmark"]));
    let target = world.phase("a", TargetState::Gone).await;
    for unit in ["drop", "unmark"] {
        let unit = find(&target, "postStop", unit).unwrap();
        assert_eq!(unit.state, UnitState::Skipped);
        assert_eq!(unit.reason.as_ref().unwrap().message, "waived by an operator: the cluster is no more");
    }
    assert_eq!(
        (world.receiver.calls("POST /drop").len(), world.receiver.calls("POST /unmark").len()),
        (1, 0)
    );
    assert_eq!(left(&world).await, ["r/make", "r/mark"]);
    let summary = world.why("a").await.summary;
    let end = "some of it may be left; r/drop, r/unmark: waived by an operator: the cluster is no more";
    assert!(summary.starts_with("gone since ") && summary.ends_with(end), "{summary}");
    let told = world.told("a", &["ready", "stuck", "gone"]).await;
    let of_events: Vec<_> = told.iter().map(|data| (&data["stopCause"], &data["waived"])).collect();
    let nothing = (&Value::Null, &Value::Null);
    assert_eq!(of_events, [nothing, nothing, (&json!("deleted"), &json!(true))]);
    let info = world.target("a").await.unwrap().info;
    assert_eq!((info.stop_cause, info.overridden), (Some(TargetStopCause::Deleted), true));
    world.ask(Method::POST, abandon, reason).await.is_problem(409, "not-stuck");
}

pub(crate) async fn not_there_counts_as_done() {
    let world = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  one: {webhook: {url: "RECEIVER/one"}}
  two: {webhook: {url: "RECEIVER/two"}}
postStop:
  drop-one: {undoes: one, webhook: {method: DELETE, url: "RECEIVER/one"}}
  drop-two: {undoes: two, webhook: {method: DELETE, url: "RECEIVER/two"}}
"#;
    world.receiver.on("DELETE /one", |_, _| CannedReply::status(404));
    world.receiver.on("DELETE /two", |_, _| CannedReply::status(410));
    world.publish(&plugin("absent@1.0.0", rest)).await;
    world.create("a", "absent").await;
    world.phase("a", TargetState::Ready).await;
    world.delete("a").await;
    let target = world.phase("a", TargetState::Gone).await;
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
    let world = LifecycleHarness::new().await;
    let make = world.receiver.hold("POST /make");
    world.receiver.on("DELETE /thing", |_, number| CannedReply::status(if number == 1 { 404 } else { 204 }));
    world.publish(&plugin("slow@1.0.0", SLOW)).await;
    world.create("a", "slow").await;
    world.phase("a", TargetState::Failed).await;
    world.delete("a").await;
    world.receiver.call("DELETE /thing", 1).await;
    // There is nothing yet, and the receiver may still act.
    let why = world.why("a").await;
    assert_eq!(why.phase, TargetState::Stopping);
    let [possible] = &why.remaining[..] else { panic!("{why:?}") };
    assert_eq!((possible.unit.as_str(), possible.certainty), ("r/make", Certainty::Possible));
    world.receiver.call("DELETE /thing", 2).await;
    world.phase("a", TargetState::Gone).await;
    drop(make);
    assert_eq!(world.receiver.calls("DELETE /thing").len(), 2);
}

pub(crate) async fn a_gateway_that_gives_up_says_nothing_of_its_backend() {
    let world = LifecycleHarness::new().await;
    world.receiver.on("POST /make", |_, _| CannedReply::status(504));
    world.receiver.on("DELETE /thing", |_, _| CannedReply::status(404));
    world.publish(&plugin("slow@1.0.0", SLOW)).await;
    world.create("a", "slow").await;
    world.phase("a", TargetState::Failed).await;
    world.delete("a").await;
    let target = world.phase("a", TargetState::Gone).await;
    // Nothing was found, and nothing once more when the backend could not act any more.
    assert_eq!(world.receiver.calls("DELETE /thing").len(), 2, "{target:?}");
}

pub(crate) async fn an_answer_of_the_backend_is_final() {
    let world = LifecycleHarness::new().await;
    world.receiver.on("POST /make", |_, _| CannedReply::status(400));
    world.receiver.on("DELETE /thing", |_, _| CannedReply::status(404));
    world.publish(&plugin("slow@1.0.0", SLOW)).await;
    world.create("a", "slow").await;
    world.phase("a", TargetState::Failed).await;
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
    assert_eq!(world.receiver.calls("DELETE /thing").len(), 1);
}

/// `drop` is tried once, and gets no answer in time.
const DEAF: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
postStop:
  drop: {undoes: make, timeout: 3s, retry: {attempts: 1}, webhook: {url: "RECEIVER/drop"}}
"#;

/// An undo whose request was given up may still be under way when an operator abandons the target.
pub(crate) async fn an_undo_that_ends_after_it_was_abandoned() {
    let world = LifecycleHarness::new().await;
    world.publish(&plugin("deaf@1.0.0", DEAF)).await;
    world.create("a", "deaf").await;
    world.phase("a", TargetState::Ready).await;
    let hold = world.receiver.hold("POST /drop");
    world.delete("a").await;
    let call = world.receiver.call("POST /drop", 1).await;
    // The request is under way: nothing can be waived yet, and the answer says why.
    let abandon = "/v1/targets/sandbox/a/abandon";
    let reason = || Some(json!({"reason": "the receiver hangs"}));
    let early = world.ask(Method::POST, abandon, reason()).await.is_problem(409, "not-stuck");
    assert!(early.detail.contains("may be running"), "{early:?}");
    world.phase("a", TargetState::Stuck).await;
    world.ask(Method::POST, abandon, reason()).await.is(202);
    world.phase("a", TargetState::Gone).await;
    let why = world.why("a").await;
    assert_eq!(why.remaining.iter().map(|it| it.unit.as_str()).collect::<Vec<_>>(), ["r/make"]);
    let [note] = &why.notes[..] else { panic!("{why:?}") };
    assert!(note.contains("r/drop") && note.contains("may still act"), "{note}");
    // The receiver reports its success, which is kept.
    let done = world.callback(call.token(), &json!({"status": "succeeded"})).await;
    done.is_problem(409, "late-result");
    let why = world.why("a").await;
    assert_eq!((why.remaining, why.notes), (vec![], vec![]));
    assert!(why.summary.ends_with("nothing of it is left"), "{}", why.summary);
    drop(hold);
}

pub(crate) async fn why_a_target_is_gone() {
    let world = LifecycleHarness::new().await;
    world.publish(&plugin("plain@1.0.0", DEAF)).await;
    world.delete("never").await;
    let summary = world.why("never").await.summary;
    assert!(summary.ends_with("it was deleted before it was created"), "{summary}");
    world.create("a", "plain").await;
    world.phase("a", TargetState::Ready).await;
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
    let summary = world.why("a").await.summary;
    assert!(summary.ends_with("nothing of it is left"), "{summary}");
}

/// A receiver that died before it answered has only the key of the creation to find what it made.
pub(crate) async fn an_undo_has_the_key_of_what_it_undoes() {
    let world = LifecycleHarness::new().await;
    world.publish(&plugin("plain@1.0.0", DEAF)).await;
    world.create("a", "plain").await;
    world.phase("a", TargetState::Ready).await;
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
    let (make, undo) =
        (world.receiver.call("POST /make", 1).await, world.receiver.call("POST /drop", 1).await);
    let key = "idempotency-key";
    assert!(!make.header(key).is_empty());
    assert_eq!(undo.header("ebb-undoes-idempotency-key"), make.header(key));
    // A receiver that remembers answers by their key must not take the undo for a repetition of the creation.
    assert_ne!(undo.header(key), make.header(key));
    assert_eq!(make.header("ebb-undoes-idempotency-key"), "");
}
