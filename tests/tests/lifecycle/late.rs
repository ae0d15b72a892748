//! Successes that come when nobody waits for them: whatever was made is taken away.

use std::collections::BTreeSet;

use ebb_engine::{Attempt, Hook, Unit};
use ebb_flow::run::attempt::AttemptRef;
use ebb_flow::run::attempt_end::AttemptEnd;
use ebb_flow::run::attempt_end::AttemptSuccess;
use ebb_flow::run::dispatch_outcome::DispatchReason;
use ebb_flow::run::head::Run;
use ebb_flow::run::inputs::InvocationCache;
use ebb_flow::run::records;
use ebb_flow::run::reopen::ReopenCause;
use ebb_flow::run::reopen::reopen_seen;
use ebb_protocol::api::{Certainty, TargetState, UnitState};
use ebb_protocol::record::AttemptResult;
use serde_json::{Value, json};

use crate::harness::CannedReply;
use crate::harness::LifecycleHarness;
use crate::harness::ReceivedCall;
use crate::harness::eventually;
use crate::harness::find;
use crate::harness::plugin;
use crate::harness::run_id;

fn made(id: &str) -> Value {
    json!({"status": "succeeded", "outputs": {"id": id}})
}

/// `make` is accepted, for as long as `timing` says.
fn document(timing: &str) -> String {
    let rest = r#"
preStart:
  make:
    TIMING
    webhook: {url: "RECEIVER/make"}
    outputs: {id: {value: "${response.body.id}"}}
postStop:
  undo:
    undoes: make
    webhook: {url: "RECEIVER/undo", body: {id: "${units.make.outputs.?id.orValue('unknown')}"}}
outputs: {id: "${units.make.outputs.id}"}
"#;
    plugin("makes@1.0.0", &rest.replace("TIMING", timing))
}

fn undone(harness: &LifecycleHarness) -> BTreeSet<String> {
    let calls = harness.receiver.calls("POST /undo");
    calls.iter().map(|call| call.body["id"].as_str().unwrap_or_default().to_owned()).collect()
}

fn ids<const N: usize>(ids: [&str; N]) -> BTreeSet<String> {
    ids.map(str::to_owned).into()
}

/// A sandbox `a` whose first try was given up and whose second was accepted.
async fn two_tries(document: &str) -> (LifecycleHarness, ReceivedCall, ReceivedCall) {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.publish(document).await;
    harness.create("a", "makes").await;
    let first = harness.receiver.call("POST /make", 1).await;
    let failed = json!({"status": "failed", "reason": {"code": "timeout", "message": "too slow"}});
    harness.callback(first.token(), &failed).await.is(204);
    let second = harness.receiver.call("POST /make", 2).await;
    (harness, first, second)
}

fn two() -> String {
    document("timeout: 5m\n    retry: {attempts: 2, backoff: 10ms}")
}

pub(crate) async fn after_the_teardown() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.publish(&document("timeout: 5m")).await;
    harness.create("a", "makes").await;
    let call = harness.receiver.call("POST /make", 1).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    // Something may exist: the undo has run without knowing its name.
    assert_eq!(undone(&harness), ids(["unknown"]));
    harness.callback(call.token(), &made("x")).await.is_problem(409, "late-result");
    eventually("the undo of x", async || undone(&harness).contains("x").then_some(())).await;
    let target = harness.phase("a", TargetState::Gone).await;
    assert_eq!(find(&target, "preStart", "make").unwrap().state, UnitState::Cancelled);
    assert!(harness.why("a").await.remaining.is_empty());
    harness.told("a", &["gone", "gone"]).await;
}

/// The condition of an undo is false for the first and the third of four results. It does not count for the others.
pub(crate) async fn a_condition_of_an_undo_counts_for_each_result() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.receiver.on("POST /undo", |_, _| CannedReply::status(204));
    let condition = "undoes: make\n    when: ${!(units.make.outputs.?id.orValue('') in ['w', 'y'])}";
    harness.publish(&document("timeout: 5m").replace("undoes: make", condition)).await;
    harness.create("a", "makes").await;
    let call = harness.receiver.call("POST /make", 1).await;
    for id in ["w", "x", "y", "z"] {
        harness.callback(call.token(), &made(id)).await;
    }
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["x", "z"]));
    assert_eq!(harness.receiver.calls("POST /undo").len(), 2);
}

/// A try of an undo is sent again after its result was recorded.
pub(crate) async fn a_repeated_try_undoes_the_same() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.receiver.on("POST /undo", |_, _| CannedReply::status(202));
    harness.publish(&document("timeout: 5m")).await;
    harness.create("a", "makes").await;
    let call = harness.receiver.call("POST /make", 1).await;
    for id in ["x", "y", "z"] {
        harness.callback(call.token(), &made(id)).await;
    }
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let done = json!({"status": "succeeded"});
    for number in 1..3 {
        let call = harness.receiver.call("POST /undo", number).await;
        harness.callback(call.token(), &done).await.is(204);
    }
    let last = harness.receiver.call("POST /undo", 3).await;
    let state = harness.state("a", Hook::PostStop).await;
    let (unit, attempt, _) = state.records[1];
    send_again(&harness, AttemptRef { unit, number: attempt, epoch: state.heads[0].head.epoch }).await;
    let again = harness.receiver.call("POST /undo", 4).await;
    let second = &harness.receiver.calls("POST /undo")[1];
    assert_eq!((again.header("webhook-id"), &again.body), (second.header("webhook-id"), &second.body));
    harness.callback(again.token(), &done).await;
    harness.callback(last.token(), &done).await.is(204);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["x", "y", "z"]));
}

/// The undo of a late result begins at the first result again. A try of the pass before is sent again, and does not count.
pub(crate) async fn a_new_pass_undoes_everything() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.receiver.on("POST /undo", |_, _| CannedReply::status(202));
    harness.publish(&document("timeout: 5m")).await;
    harness.create("a", "makes").await;
    let make = harness.receiver.call("POST /make", 1).await;
    harness.callback(make.token(), &made("x")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let done = json!({"status": "succeeded"});
    let first = harness.receiver.call("POST /undo", 1).await;
    let before = last_try(&harness).await;
    harness.callback(first.token(), &done).await.is(204);
    harness.phase("a", TargetState::Gone).await;
    harness.callback(make.token(), &made("y")).await.is(204);
    let second = harness.receiver.call("POST /undo", 2).await;
    assert_eq!(second.body["id"], "x");
    harness.callback(make.token(), &made("z")).await.is(204);
    send_again(&harness, before).await;
    // The next pass may be quicker.
    let third = harness.receiver.call("POST /undo", 3).await;
    let fourth = harness.receiver.call("POST /undo", 4).await;
    let is_again = third.header("webhook-id") == first.header("webhook-id");
    let (again, next) = if is_again { (third, fourth) } else { (fourth, third) };
    assert_eq!((again.header("webhook-id"), &again.body), (first.header("webhook-id"), &first.body));
    harness.callback(again.token(), &done).await;
    harness.callback(second.token(), &done).await;
    assert_eq!(next.body["id"], "x");
    harness.callback(next.token(), &done).await.is(204);
    for (number, id) in [(5, "y"), (6, "z")] {
        let call = harness.receiver.call("POST /undo", number).await;
        assert_eq!(call.body["id"], id);
        harness.callback(call.token(), &done).await.is(204);
    }
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.calls("POST /undo").len(), 6);
}

/// The write of a late success takes long, and the undo goes on from one result to the next one meanwhile. By its time the late
/// success is the first one of all, which the next try of the undo would leave out.
pub(crate) async fn a_late_success_and_an_undo_that_goes_on() {
    let (harness, _first, second) = two_tries(&two()).await;
    harness.receiver.on("POST /undo", |_, _| CannedReply::status(202));
    for id in ["y", "z"] {
        harness.callback(second.token(), &made(id)).await;
    }
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let undo = harness.receiver.call("POST /undo", 1).await;
    let env = harness.stack().env();
    let run = Run::load(env, &run_id("a", Hook::PostStop)).await.unwrap().unwrap();
    // A late success is in the record, its sender has looked at the run of the undo, and then the undo goes on.
    let view = run.read_view(env).await.unwrap();
    let outputs = serde_json::from_value(json!({"id": {"json": "x"}})).unwrap();
    let success = AttemptEnd::Succeeded(AttemptSuccess { outputs, ..AttemptSuccess::default() });
    let setup = Run::load(env, &run_id("a", Hook::PreStart)).await.unwrap().unwrap();
    let (result, _) = records::build_result(env, &setup, Unit(0), Attempt::FIRST, &success, None).await.unwrap();
    // Its write took longer than everything since.
    let result = AttemptResult { at: setup.facts.started.0, ..result };
    env.store.put_result(&setup.id, Unit(0), Attempt::FIRST, &result).await.unwrap();
    let done = json!({"status": "succeeded"});
    harness.callback(undo.token(), &done).await.is(204);
    let next = harness.receiver.call("POST /undo", 2).await;
    reopen_seen(env, &run, &view, &[Unit(0)], ReopenCause::LateSuccess).await.unwrap();
    harness.callback(next.token(), &done).await;
    for number in 3.. {
        let call = harness.receiver.call("POST /undo", number).await;
        harness.callback(call.token(), &done).await;
        if call.body["id"] == "z" {
            break;
        }
    }
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["x", "y", "z"]));
}

/// Returns the last try of the undo of the sandbox `a` that has a record.
async fn last_try(harness: &LifecycleHarness) -> AttemptRef {
    let state = harness.state("a", Hook::PostStop).await;
    let (unit, attempt, _) = *state.records.last().unwrap();
    AttemptRef { unit, number: attempt, epoch: state.heads[0].head.epoch }
}

/// Sends a try of the undo of the sandbox `a` again.
async fn send_again(harness: &LifecycleHarness, attempt: AttemptRef) {
    let env = harness.stack().env();
    let run = Run::load(env, &run_id("a", Hook::PostStop)).await.unwrap().unwrap();
    ebb_flow::run::dispatch::send(env, &run, attempt, &InvocationCache::default(), DispatchReason::Result)
        .await
        .unwrap();
}

/// Both tries were given up, and both had succeeded. Their successes come at the same time.
pub(crate) async fn two_tries_after_the_undo() {
    let (harness, first, second) = two_tries(&two()).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["unknown"]));
    let (one, two) = (made("one"), made("two"));
    let (one, two) = tokio::join!(harness.callback(first.token(), &one), harness.callback(second.token(), &two));
    one.is_problem(409, "late-result");
    two.is_problem(409, "late-result");
    eventually("both undos", async || (undone(&harness) == ids(["unknown", "one", "two"])).then_some(())).await;
    harness.phase("a", TargetState::Gone).await;
    assert!(harness.why("a").await.remaining.is_empty());
}

/// Two of three successes are taken away, one after the other; the third comes when that is over.
pub(crate) async fn a_third_try_after_two_undos() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.publish(&document("timeout: 5m\n    retry: {attempts: 3, backoff: 10ms}")).await;
    harness.create("a", "makes").await;
    let failed = json!({"status": "failed", "reason": {"code": "timeout", "message": "too slow"}});
    let first = harness.receiver.call("POST /make", 1).await;
    harness.callback(first.token(), &failed).await.is(204);
    let second = harness.receiver.call("POST /make", 2).await;
    harness.callback(second.token(), &failed).await.is(204);
    let third = harness.receiver.call("POST /make", 3).await;
    harness.callback(second.token(), &made("two")).await.is_problem(409, "late-result");
    harness.callback(third.token(), &made("three")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["two", "three"]));
    harness.callback(first.token(), &made("one")).await.is_problem(409, "late-result");
    eventually("the undo of one", async || undone(&harness).contains("one").then_some(())).await;
    harness.phase("a", TargetState::Gone).await;
}

/// Different results of one try, one after the other, each after the undo of those before.
pub(crate) async fn ever_more_results_of_one_try() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.publish(&document("timeout: 5m")).await;
    harness.create("a", "makes").await;
    let call = harness.receiver.call("POST /make", 1).await;
    harness.callback(call.token(), &made("r0")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    harness.callback(call.token(), &made("r1")).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["r0", "r1"]));
    for n in 2..5 {
        let id = format!("r{n}");
        harness.callback(call.token(), &made(&id)).await;
        eventually(&format!("the undo of {id}"), async || undone(&harness).contains(&id).then_some(())).await;
        harness.phase("a", TargetState::Gone).await;
    }
}

/// The same with a script, whose log is kept and which therefore leaves a record of every undo.
pub(crate) async fn two_tries_after_a_scripts_undo() {
    let script = r#"postStop:
  undo:
    undoes: make
    pod:
      runner: sh
      script: |
        #!/bin/sh
        echo "undone: ${ID-unknown}"
    inputs: {id: "${units.make.outputs.?id}"}
outputs:"#;
    let document = two();
    let (before, after) = document.split_once("postStop:").unwrap();
    let (_, outputs) = after.split_once("outputs: {id: \"${units.make").unwrap();
    let document =
        format!("{before}runners: {{sh: {{image: \"busybox:1\"}}}}\n{script} {{id: \"${{units.make{outputs}");
    let (harness, first, second) = two_tries(&document).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    for (call, id) in [(&second, "two"), (&first, "one")] {
        harness.callback(call.token(), &made(id)).await.is_problem(409, "late-result");
    }
    let run = crate::harness::run_id("a", ebb_engine::Hook::PostStop);
    eventually("both undos", async || {
        let mut said = BTreeSet::new();
        for attempt in 1..100 {
            let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/undo&attempt={attempt}")).await;
            if log.status == 200 {
                said.extend(log.body.lines().map(str::to_owned));
            }
        }
        (said.contains("undone: one") && said.contains("undone: two")).then_some(())
    })
    .await;
    harness.phase("a", TargetState::Gone).await;
}

/// The second try was the one that counted.
pub(crate) async fn both_tries_count() {
    let (harness, first, second) = two_tries(&two()).await;
    harness.callback(second.token(), &made("two")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    harness.callback(first.token(), &made("one")).await.is_problem(409, "late-result");
    let target = harness.phase("a", TargetState::Ready).await;
    assert_eq!(serde_json::to_value(&target.resources["r"].outputs).unwrap(), json!({"id": {"value": "two"}}));
    let exists = harness.why("a").await.remaining;
    assert!(exists.iter().all(|existing| existing.certainty == Certainty::Exists), "{exists:?}");
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["one", "two"]));
    assert!(harness.why("a").await.remaining.is_empty());
}

/// The first try's success comes while the second is being waited for after a cancel.
pub(crate) async fn two_tries_while_settling() {
    let (harness, first, second) = two_tries(&two()).await;
    harness.delete("a").await;
    harness.callback(first.token(), &made("one")).await.is_problem(409, "late-result");
    harness.phase("a", TargetState::Gone).await;
    assert!(undone(&harness).contains("one"), "{:?}", undone(&harness));
    harness.callback(second.token(), &made("two")).await.is_problem(409, "late-result");
    eventually("the undo of two", async || undone(&harness).contains("two").then_some(())).await;
    harness.phase("a", TargetState::Gone).await;
}
