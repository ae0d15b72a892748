//! Setups that fail at first, or for good.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_engine::{Hook, Unit};
use ebb_flow::sweep::{SweepCondition, sweep_run};
use ebb_protocol::api::{Certainty, TargetState, UnitState};
use ebb_protocol::callback::ReasonCode;
use ebb_store::ReadRecords as _;
use serde_json::json;

use crate::harness::{CannedReply, LifecycleHarness, find, now, plugin, run_id};

pub(crate) async fn failure_upstream() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  a:
    retry: {attempts: 1}
    webhook: {url: "RECEIVER/a"}
    outputs: {id: {value: "${response.body.id}"}}
  b: {webhook: {url: "RECEIVER/b", body: {id: "${units.a.outputs.id}"}}}
  b2: {after: [b], webhook: {url: "RECEIVER/b2"}}
  c:
    webhook: {url: "RECEIVER/c"}
    outputs: {id: {value: "${response.body.id}"}}
  d: {after: [c], webhook: {url: "RECEIVER/d"}}
postStop:
  undo-a: {undoes: a, webhook: {url: "RECEIVER/undo-a", body: {id: "${units.a.outputs.?id.orValue('unknown')}"}}}
  undo-b: {undoes: b, webhook: {url: "RECEIVER/undo-b"}}
  undo-c: {undoes: c, webhook: {url: "RECEIVER/undo-c", body: {id: "${units.c.outputs.id}"}}}
"#;
    harness.receiver.on("POST /a", |_, _| CannedReply::status(500));
    harness.receiver.on("POST /c", |_, _| CannedReply::status(202));
    harness.publish(&plugin("branches@1.0.0", rest)).await;
    harness.create("s", "branches").await;
    let call = harness.receiver.call("POST /c", 1).await;
    harness.unit("s", "preStart", "a", UnitState::Failed).await;
    // The other branch goes on, and the target has not failed before it is over.
    assert_eq!(harness.target("s").await.unwrap().info.phase, TargetState::Starting);
    harness.callback(call.token(), &json!({"status": "succeeded", "outputs": {"id": "c1"}})).await.is(204);
    let target = harness.phase("s", TargetState::Failed).await;
    let state = |unit| find(&target, "preStart", unit).unwrap().state;
    assert_eq!([state("a"), state("b"), state("b2")], [UnitState::Failed, UnitState::Blocked, UnitState::Blocked]);
    assert_eq!([state("c"), state("d")], [UnitState::Succeeded; 2]);
    harness.told("s", &["failed"]).await;
    let told = harness.stack().outcomes().events()[0].clone();
    assert_eq!(told["data"]["unit"], "r/a");
    assert_eq!(told["data"]["reason"]["code"], "httpStatus");
    harness.delete("s").await;
    let target = harness.phase("s", TargetState::Gone).await;
    assert_eq!(find(&target, "postStop", "undo-b").unwrap().state, UnitState::Skipped);
    assert_eq!(harness.receiver.calls("POST /undo-a")[0].body, json!({"id": "unknown"}));
    assert_eq!(harness.receiver.calls("POST /undo-c")[0].body, json!({"id": "c1"}));
    for never in ["POST /b", "POST /b2", "POST /undo-b"] {
        assert!(harness.receiver.calls(never).is_empty(), "{never}");
    }
}

pub(crate) async fn retries_until_it_succeeds() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make: {retry: {attempts: 5, backoff: 10ms}, webhook: {url: "RECEIVER/make"}}
"#;
    harness.receiver.on("POST /make", |_, number| CannedReply::status([503, 429, 500, 200][number - 1]));
    harness.publish(&plugin("flaky@1.0.0", rest)).await;
    harness.create("a", "flaky").await;
    let target = harness.phase("a", TargetState::Ready).await;
    assert_eq!(find(&target, "preStart", "make").unwrap().attempt, 4);
    let calls = harness.receiver.calls("POST /make");
    let all = |name: &str| calls.iter().map(|call| call.header(name).to_owned()).collect::<Vec<_>>();
    assert_eq!(all("ebb-attempt"), ["1", "2", "3", "4"]);
    assert_eq!(all("webhook-id").iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(all("idempotency-key").iter().collect::<BTreeSet<_>>().len(), 1);
    assert!(all("webhook-signature").iter().all(|signature| signature.starts_with("v1,")));
}

pub(crate) async fn a_script_is_retried() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
runners: {sh: {image: "busybox:1"}}
preStart:
  make:
    retry: {attempts: 3, backoff: 10ms}
    pod:
      runner: sh
      script: |
        #!/bin/sh
        echo "try $EBB_ATTEMPT"
        [ "$EBB_ATTEMPT" = 3 ] || exit 7
        printf %s "$EBB_ATTEMPT" >/tmp/n
    outputs: {n: {file: /tmp/n}}
outputs: {n: "${units.make.outputs.n}"}
"#;
    harness.publish(&plugin("third@1.0.0", rest)).await;
    harness.create("a", "third").await;
    let target = harness.phase("a", TargetState::Ready).await;
    assert_eq!(serde_json::to_value(&target.resources["r"].outputs).unwrap(), json!({"n": {"value": "3"}}));
    let run = run_id("a", Hook::PreStart);
    for attempt in 1..=3 {
        let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/make&attempt={attempt}")).await;
        assert_eq!(log.body.trim_end(), format!("try {attempt}"));
    }
}

pub(crate) async fn waits_as_long_as_asked() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make: {retry: {attempts: 2, backoff: 10ms}, webhook: {url: "RECEIVER/make"}}
"#;
    let (first, second) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let times = (Arc::clone(&first), Arc::clone(&second));
    harness.receiver.on("POST /make", move |_, number| {
        if number == 1 {
            times.0.store(now().0, Ordering::SeqCst);
            return CannedReply::status(503).after(2);
        }
        times.1.store(now().0, Ordering::SeqCst);
        CannedReply::status(200)
    });
    harness.publish(&plugin("busy@1.0.0", rest)).await;
    harness.create("a", "busy").await;
    let waiting = harness.unit("a", "preStart", "make", UnitState::Retrying).await;
    assert!(waiting.next.is_some(), "{waiting:?}");
    harness.phase("a", TargetState::Ready).await;
    let waited = second.load(Ordering::SeqCst) - first.load(Ordering::SeqCst);
    assert!(waited >= 2_000, "{waited}");
}

pub(crate) async fn asks_again() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make:
    webhook: {url: "RECEIVER/make"}
    outputs: {id: {value: "${response.body.id}"}}
outputs: {id: "${units.make.outputs.id}"}
"#;
    harness.receiver.on("POST /make", |_, number| match number {
        1 | 2 => CannedReply::status(202).after(1),
        _ => CannedReply::ok(json!({"id": "late"})),
    });
    harness.publish(&plugin("patient@1.0.0", rest)).await;
    harness.create("a", "patient").await;
    let target = harness.phase("a", TargetState::Ready).await;
    assert_eq!(find(&target, "preStart", "make").unwrap().attempt, 1);
    assert_eq!(serde_json::to_value(&target.resources["r"].outputs).unwrap(), json!({"id": {"value": "late"}}));
    let calls = harness.receiver.calls("POST /make");
    let ids: BTreeSet<&str> = calls.iter().map(|call| call.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1, "the same question every time");
    assert!(calls.len() >= 3);
}

/// Units whose acceptances were noted together are not asked any more.
pub(crate) async fn accepted_together() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  first: {timeout: 5m, webhook: {url: "RECEIVER/make"}}
  second: {timeout: 5m, webhook: {url: "RECEIVER/make"}}
  third: {timeout: 5m, webhook: {url: "RECEIVER/make"}}
"#;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.publish(&plugin("together@1.0.0", rest)).await;
    harness.create("a", "together").await;
    harness.receiver.call("POST /make", 3).await;
    let run = run_id("a", Hook::PreStart);
    let units: Vec<Unit> = (0..3).map(Unit).collect();
    crate::harness::eventually("they are known to be accepted", async || {
        // An answer that comes a second after the others is noted by itself.
        let together = harness.stack().store().read_accepted(&run, &units).await.unwrap();
        let records = harness.state("a", Hook::PreStart).await.records;
        let alone = records.iter().filter(|(_, _, record)| record.accepted.is_some()).count();
        (together.len() >= 2 && together.len() + alone == units.len()).then_some(())
    })
    .await;
    for _ in 0..3 {
        sweep_run(harness.stack().env(), &run, SweepCondition::Always).await.unwrap();
    }
    let calls = harness.receiver.calls("POST /make");
    assert_eq!(calls.len(), 3);
    for call in calls {
        harness.callback(call.token(), &json!({"status": "succeeded"})).await.is(204);
    }
    harness.phase("a", TargetState::Ready).await;
}

/// Once it has said that it will call back it is not asked any more.
pub(crate) async fn asked_again_then_accepted() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make: {timeout: 5m, webhook: {url: "RECEIVER/make"}}
"#;
    harness.receiver.on("POST /make", |_, number| match number {
        1 => CannedReply::status(202).after(1),
        _ => CannedReply::status(202),
    });
    harness.publish(&plugin("decides@1.0.0", rest)).await;
    harness.create("a", "decides").await;
    let call = harness.receiver.call("POST /make", 2).await;
    let run = run_id("a", Hook::PreStart);
    crate::harness::eventually("it is known to be accepted", async || {
        let stored = harness.state("a", Hook::PreStart).await;
        stored.records.iter().any(|(_, _, record)| record.accepted.is_some()).then_some(())
    })
    .await;
    for _ in 0..3 {
        sweep_run(harness.stack().env(), &run, SweepCondition::Always).await.unwrap();
    }
    assert_eq!(harness.receiver.calls("POST /make").len(), 2);
    harness.callback(call.token(), &json!({"status": "succeeded"})).await.is(204);
    harness.phase("a", TargetState::Ready).await;
}

pub(crate) async fn gone_is_final() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make: {retry: {attempts: 5, backoff: 10ms}, webhook: {url: "RECEIVER/make"}}
"#;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(410));
    harness.publish(&plugin("final@1.0.0", rest)).await;
    harness.create("a", "final").await;
    let target = harness.phase("a", TargetState::Failed).await;
    let unit = find(&target, "preStart", "make").unwrap();
    assert_eq!((unit.state, unit.attempt), (UnitState::Failed, 1));
    assert_eq!(unit.reason.unwrap().code, ReasonCode::Refused);
    assert_eq!(harness.receiver.calls("POST /make").len(), 1);
}

pub(crate) async fn deadlines() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
runners: {sh: {image: "busybox:1"}}
preStart:
  slow:
    timeout: 1s
    retry: {attempts: 1}
    pod:
      runner: sh
      script: |
        #!/bin/sh
        sleep 600
  silent: {timeout: 1s, retry: {attempts: 2, backoff: 10ms}, webhook: {url: "RECEIVER/silent"}}
postStop:
  undo: {undoes: silent, webhook: {url: "RECEIVER/undo"}}
"#;
    harness.receiver.on("POST /silent", |_, _| CannedReply::status(202));
    harness.publish(&plugin("slow@1.0.0", rest)).await;
    harness.create("a", "slow").await;
    let target = harness.phase("a", TargetState::Failed).await;
    for (unit, attempt) in [("slow", 1), ("silent", 2)] {
        let unit = find(&target, "preStart", unit).unwrap();
        assert_eq!((unit.state, unit.attempt), (UnitState::Failed, attempt), "{unit:?}");
        assert_eq!(unit.reason.as_ref().unwrap().code, ReasonCode::Timeout, "{unit:?}");
    }
    assert_eq!(harness.receiver.calls("POST /silent").len(), 2);
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.calls("POST /undo").len(), 1);
}

pub(crate) async fn skipping() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
params: {wanted: {type: boolean, default: false}}
preStart:
  maybe:
    when: ${params.wanted}
    webhook: {url: "RECEIVER/maybe"}
    outputs: {id: {value: "${response.body.id}"}}
  reader:
    webhook: {url: "RECEIVER/reader", body: {id: "${units.maybe.outputs.id}"}}
    outputs: {id: {value: "${response.body.id}"}}
  second: {webhook: {url: "RECEIVER/second", body: {id: "${units.reader.outputs.id}"}}}
  lenient: {webhook: {url: "RECEIVER/lenient", body: {id: "${units.maybe.outputs.?id.orValue('none')}"}}}
  after: {after: [maybe], webhook: {url: "RECEIVER/after"}}
postStop:
  undo-maybe: {undoes: maybe, webhook: {url: "RECEIVER/undo-maybe"}}
  undo-after: {undoes: after, webhook: {url: "RECEIVER/undo-after"}}
"#;
    harness.publish(&plugin("maybe@1.0.0", rest)).await;
    harness.create("a", "maybe").await;
    let target = harness.phase("a", TargetState::Ready).await;
    let state = |unit| find(&target, "preStart", unit).unwrap().state;
    assert_eq!(["maybe", "reader", "second"].map(state), [UnitState::Skipped; 3]);
    assert_eq!(["lenient", "after"].map(state), [UnitState::Succeeded; 2]);
    assert_eq!(harness.receiver.calls("POST /lenient")[0].body, json!({"id": "none"}));
    harness.delete("a").await;
    let target = harness.phase("a", TargetState::Gone).await;
    assert_eq!(find(&target, "postStop", "undo-maybe").unwrap().state, UnitState::Skipped);
    let mut order = harness.receiver.order();
    order.sort();
    assert_eq!(order, ["POST /after", "POST /lenient", "POST /undo-after"]);
}

pub(crate) async fn failure_after_ready() {
    let harness = LifecycleHarness::new().await;
    let rest = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
postStart:
  register: {retry: {attempts: 2, backoff: 10ms}, webhook: {url: "RECEIVER/register"}}
preStop:
  drain: {webhook: {url: "RECEIVER/drain"}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}}
  unregister: {undoes: register, webhook: {url: "RECEIVER/unregister"}}
"#;
    harness.receiver.on("POST /register", |_, _| CannedReply::status(500));
    harness.publish(&plugin("registers@1.0.0", rest)).await;
    harness.create("a", "registers").await;
    harness.phase("a", TargetState::Failed).await;
    harness.told("a", &["ready", "failed"]).await;
    assert_eq!(harness.receiver.calls("POST /register").len(), 2);
    assert_eq!(harness.why("a").await.cause.unwrap().unit, "r/register");
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    // It has been ready, so it is drained; and the registration may exist.
    let order = harness.receiver.order();
    assert_eq!(order[3], "POST /drain", "{order:?}");
    for path in ["POST /drop", "POST /unregister"] {
        assert_eq!(harness.receiver.calls(path).len(), 1, "{order:?}");
    }
    harness.told("a", &["ready", "failed", "gone"]).await;
}

/// `make` is posted once; `DESCRIBE` stands for how its outcome is found out.
const ONCE: &str = r#"
preStart:
  make:
    timeout: 20s
    retry: {attempts: 3, backoff: 1s, maxBackoff: 1s}
    webhook: {url: "RECEIVER/make", idempotent: false, maxProcessingTime: 1sDESCRIBE}
    outputs: {id: {value: "${response.body.id}"}}
postStop:
  undo: {undoes: make, webhook: {url: "RECEIVER/undo", body: {id: "${units.make.outputs.?id}"}}}
outputs: {id: "${units.make.outputs.id}"}
"#;

pub(crate) async fn not_idempotent_with_an_unknown_outcome() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(502));
    harness.publish(&plugin("once@1.0.0", &ONCE.replace("DESCRIBE", ""))).await;
    harness.create("a", "once").await;
    let target = harness.phase("a", TargetState::Failed).await;
    let unit = find(&target, "preStart", "make").unwrap();
    assert!(unit.reason.unwrap().message.contains("not sent again"));
    let why = harness.why("a").await;
    let [possible] = &why.remaining[..] else { panic!("{why:?}") };
    assert_eq!(possible.certainty, Certainty::Possible);
    assert_eq!(harness.receiver.calls("POST /make").len(), 1);
}

pub(crate) async fn not_idempotent_and_described() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, number| match number {
        1 => CannedReply::status(504),
        _ => CannedReply::ok(json!({"id": "second"})),
    });
    // The first request made nothing.
    harness.receiver.on("GET /made", |_, _| CannedReply::status(404));
    harness.publish(&plugin("once@1.0.0", &ONCE.replace("DESCRIBE", ", describe: {url: \"RECEIVER/made\"}"))).await;
    harness.create("a", "once").await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.order(), ["POST /make", "GET /made", "POST /make"]);
    // That of another sandbox made something.
    harness.receiver.on("POST /make", |_, _| CannedReply::status(504));
    harness.receiver.on("GET /made", |_, _| CannedReply::ok(json!({"id": "found"})));
    harness.create("b", "once").await;
    let target = harness.phase("b", TargetState::Ready).await;
    assert_eq!(target.info.phase, TargetState::Ready);
    assert_eq!(harness.receiver.calls("POST /make").len(), 3);
    harness.delete("b").await;
    harness.phase("b", TargetState::Gone).await;
    assert_eq!(harness.receiver.call("POST /undo", 1).await.body, json!({"id": "found"}));
}

/// A second sender that finds a request under way asks for its outcome only once it must have been answered.
pub(crate) async fn not_idempotent_and_looked_at_while_it_is_posted() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::ok(json!({"id": "made"})));
    harness.publish(&plugin("once@1.0.0", &ONCE.replace("DESCRIBE", ""))).await;
    let make = harness.receiver.hold("POST /make");
    harness.create("a", "once").await;
    harness.receiver.call("POST /make", 1).await;
    let run = crate::harness::run_id("a", ebb_engine::Hook::PreStart);
    let env = harness.stack().env();
    ebb_flow::sweep::sweep_run(env, &run, ebb_flow::sweep::SweepCondition::Always).await.unwrap();
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Starting);
    drop(make);
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /make").len(), 1);
}

/// `bad` cannot be sent: what it reads has no such field. `next` waits for `fails`.
const UNSTARTED: &str = r#"
preStart:
  made: {webhook: {url: "RECEIVER/made"}, outputs: {all: {value: "${response.body}"}}}
  fails: {retry: {attempts: 1}, webhook: {url: "RECEIVER/fails"}}
  next: {after: [fails], webhook: {url: "RECEIVER/next"}}
  bad: {retry: {attempts: 1}, webhook: {url: "RECEIVER/bad", body: {id: "${units.made.outputs.all.id}"}}}
postStop:
  undo-made: {undoes: made, webhook: {url: "RECEIVER/undo"}}
  undo-fails: {undoes: fails, webhook: {url: "RECEIVER/undo"}}
  undo-next: {undoes: next, webhook: {url: "RECEIVER/undo"}}
  undo-bad: {undoes: bad, webhook: {url: "RECEIVER/undo"}}
"#;

pub(crate) async fn what_never_started_is_not_listed() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /fails", |_, _| CannedReply::status(400));
    harness.publish(&plugin("unstarted@1.0.0", UNSTARTED)).await;
    harness.create("a", "unstarted").await;
    harness.phase("a", TargetState::Failed).await;
    assert!(harness.receiver.calls("POST /bad").is_empty() && harness.receiver.calls("POST /next").is_empty());
    let exists = harness.why("a").await.remaining;
    let exists: Vec<_> = exists.iter().map(|it| (it.unit.as_str(), it.certainty)).collect();
    assert_eq!(exists, [("r/made", Certainty::Exists), ("r/fails", Certainty::Possible)]);
}
