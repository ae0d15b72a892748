//! `POST /v1/callbacks` from those who may not, cannot, or come too late.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use ebb_engine::{Attempt, Epoch, Hook, Timestamp, Unit};
use ebb_protocol::api::{Certainty, SigningSecrets, TargetState, UnitState};
use ebb_protocol::limits;
use ebb_protocol::record::AttemptOutcome;
use ebb_protocol::sign::{self, SignatureError, WebhookSecret};
use ebb_protocol::token::{TokenClaims, TokenKeys, TokenKind};
use serde_json::{Value, json};

use crate::harness::{CannedReply, LifecycleHarness, ReceivedCall, now, plugin, run_id};

const SETUP: Hook = Hook::PreStart;

/// `make` is accepted and calls back with `id`, which `next` reads.
const MAKE: &str = r#"
preStart:
  make:
    timeout: 5m
    webhook: {url: "RECEIVER/make"}
    outputs: {id: {value: "${response.body.id}"}}
  next:
    webhook: {url: "RECEIVER/next", body: {id: "${units.make.outputs.id}"}}
postStop:
  undo:
    undoes: make
    webhook: {url: "RECEIVER/undo", body: {id: "${units.make.outputs.?id.orValue('unknown')}"}}
outputs: {id: "${units.make.outputs.id}"}
"#;

/// A sandbox `a` whose unit `make` was accepted.
async fn accepted() -> (LifecycleHarness, ReceivedCall) {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    harness.publish(&plugin("waits@1.0.0", MAKE)).await;
    harness.create("a", "waits").await;
    let call = harness.receiver.call("POST /make", 1).await;
    (harness, call)
}

fn succeeded(id: &str) -> Value {
    json!({"status": "succeeded", "outputs": {"id": id}})
}

fn claims(harness: &LifecycleHarness, call: &ReceivedCall) -> TokenClaims {
    harness.stack().env().settings.token_keys.verify(call.token(), now()).unwrap()
}

fn mint(harness: &LifecycleHarness, claims: &TokenClaims) -> String {
    harness.stack().env().settings.token_keys.mint(claims)
}

pub(crate) async fn tokens_that_are_not_ours() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let foreign = TokenKeys::from_bytes("local", &[7; 32]).unwrap().mint(&claims(&harness, &call));
    harness.callback(&foreign, &succeeded("x")).await.is_problem(403, "invalid-token");
    let none = harness.http.post(harness.url("/v1/callbacks")).body(succeeded("x").to_string());
    let none = crate::harness::LifecycleReply::of(none.send().await.unwrap()).await;
    none.is_problem(401, "missing-token");
    // The operator's token is for the api alone.
    harness.callback(harness.stack().token(), &succeeded("x")).await.is_problem(403, "invalid-token");
    assert_eq!(harness.state("a", SETUP).await, before);
    assert!(harness.receiver.calls("POST /next").is_empty());
    harness.callback(call.token(), &succeeded("x")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
}

pub(crate) async fn bodies_that_are_none() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let secret = json!({"name": "s", "key": "k"});
    let wrong = [
        json!([]),
        json!("succeeded"),
        json!({}),
        json!({"status": "finished"}),
        json!({"status": "SUCCEEDED"}),
        json!({"status": 1}),
        json!({"status": "succeeded", "outputs": ["x"]}),
        json!({"status": "succeeded", "unit": 1}),
        json!({"status": "succeeded", "v": 2}),
        json!({"status": "succeeded", "binary": {"id": "not base64!"}}),
        json!({"status": "succeeded", "outputs": {"id": "x"}, "binary": {"id": "eA=="}}),
        json!({"status": "succeeded", "secrets": {"id": secret}}),
        json!({"status": "failed", "secrets": {"id": secret}}),
        json!({"status": "failed", "reason": {"code": "boredom", "message": "x"}}),
        json!({"status": "again"}),
        json!({"status": "again", "retryAfter": 86_401}),
        json!({"status": "again", "retryAfter": -1}),
        json!({"status": "succeeded", "outputs": {"id": "x"}, "log": "a line"}),
        json!({"status": "failed", "progress": "3 of 7"}),
    ];
    let refused = wrong.len() as u64;
    for body in wrong {
        harness.callback(call.token(), &body).await.is_problem(400, "invalid-callback");
    }
    for bytes in [&b""[..], b"succeeded", b"{\"status\": \"succeeded\"", b"\xff\xfe", b"{\"status\":\"succeeded\"} {}"]
    {
        harness.callback_bytes(call.token(), bytes.to_vec()).await.is_problem(400, "invalid-callback");
    }
    let large = vec![b' '; limits::CALLBACK_BODY + 1];
    harness.callback_bytes(call.token(), large).await.is_problem(413, "too-large");
    let after = harness.state("a", SETUP).await;
    assert_eq!(after.heads, before.heads);
    let mut record = after.records[0].2.clone();
    // Five of them are not JSON.
    assert_eq!(record.refused.take().map(|refused| refused.count), Some(refused + 5));
    assert_eq!(record, before.records[0].2);
    assert!(harness.receiver.calls("POST /next").is_empty());
}

pub(crate) async fn tokens_of_others() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let own = claims(&harness, &call);
    // A unit that the plan has not, a run that never was.
    let no_unit = mint(&harness, &TokenClaims { unit: Unit(99), ..own.clone() });
    harness.callback(&no_unit, &succeeded("x")).await.is_problem(403, "invalid-token");
    let no_run = mint(&harness, &TokenClaims { run: run_id("nobody", SETUP), ..own.clone() });
    harness.callback(&no_run, &succeeded("x")).await.is_problem(410, "gone");
    let not_begun = mint(&harness, &TokenClaims { run: run_id("a", Hook::PostStop), ..own.clone() });
    harness.callback(&not_begun, &succeeded("x")).await.is_problem(410, "gone");
    assert_eq!(harness.state("a", SETUP).await, before);
    // A failure of a try that nobody waits for changes nothing of the one that is waited for.
    let other_try = mint(&harness, &TokenClaims { attempt: Attempt(7), ..own.clone() });
    harness.callback(&other_try, &json!({"status": "failed"})).await.is_problem(409, "late-result");
    let other_epoch = mint(&harness, &TokenClaims { epoch: Epoch(9), ..own.clone() });
    harness.callback(&other_epoch, &json!({"status": "heartbeat"})).await.is(204);
    let after = harness.state("a", SETUP).await;
    assert_eq!(after.heads, before.heads);
    // A success of another try is in the ledger, and is no progress.
    harness.callback(&other_try, &succeeded("other")).await.is_problem(409, "late-result");
    let heads = harness.state("a", SETUP).await.heads;
    assert!(heads[0].head.done.is_empty(), "{heads:?}");
    let late = heads[0].head.late.iter().map(|late| (late.slot, late.attempt)).collect::<Vec<_>>();
    assert_eq!(late, [(own.unit.0, Attempt(7))]);
    assert!(harness.receiver.calls("POST /next").is_empty());
    harness.callback(call.token(), &succeeded("own")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /next")[0].body, json!({"id": "own"}));
}

pub(crate) async fn expired() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let old = TokenClaims { expiry: Timestamp(now().0 - 1_000), ..claims(&harness, &call) };
    let old = mint(&harness, &old);
    for body in [
        json!({"status": "failed"}),
        json!({"status": "heartbeat"}),
        json!({"status": "accepted"}),
        json!({"status": "again", "retryAfter": 1}),
        json!({"status": "succeeded"}),
    ] {
        harness.callback(&old, &body).await.is_problem(403, "token-expired");
    }
    assert_eq!(harness.state("a", SETUP).await, before);
    // What was made has to be known all the same.
    let answer = harness.callback(&old, &succeeded("late")).await;
    assert!(matches!(answer.status, 204 | 409), "{answer:?}");
    let records = harness.state("a", SETUP).await.records;
    assert_eq!(records[0].2.result.as_ref().unwrap().outcome, AttemptOutcome::Succeeded);
}

/// A script may wait for its turn for longer than its token is valid.
pub(crate) async fn expired_at_a_relay() {
    let harness = LifecycleHarness::new().await;
    let rest = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  make:
    retry: {attempts: 1}
    pod: {runner: sh, script: "#!/bin/sh\necho begun\nsleep 3600\n"}
"##;
    harness.publish(&plugin("long@1.0.0", rest)).await;
    harness.create("a", "long").await;
    let run = run_id("a", SETUP);
    crate::harness::eventually("its first line", async || {
        let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/make")).await;
        (log.status == 200 && log.body.contains("begun")).then_some(())
    })
    .await;
    let old = |attempt: u32| TokenClaims {
        run: run.clone(),
        unit: Unit(0),
        attempt: Attempt(attempt),
        epoch: Epoch(1),
        expiry: Timestamp(now().0 - 1_000),
        kind: TokenKind::Relay,
        remaining_results: 0,
    };
    let failed = json!({"status": "failed", "reason": {"code": "exit", "message": "code 3"}});
    // Of a try that nothing waits for: taken, so that its relay does not repeat it for ever.
    harness.callback(&mint(&harness, &old(2)), &failed).await.is_problem(410, "gone");
    assert_eq!(harness.state("a", SETUP).await.records, vec![]);
    harness.callback(&mint(&harness, &old(1)), &failed).await.is(204);
    let target = harness.phase("a", TargetState::Failed).await;
    let unit = crate::harness::find(&target, "preStart", "make").unwrap();
    assert_eq!(unit.reason.unwrap().message, "code 3");
    // It has failed since.
    harness.callback(&mint(&harness, &old(1)), &failed).await.is_problem(410, "gone");
    let late = TokenClaims { expiry: Timestamp(now().0 + 60_000), ..old(1) };
    harness.callback(&mint(&harness, &late), &failed).await.is(204);
}

pub(crate) async fn outputs_that_break_the_contract() {
    let too_large = "x".repeat(limits::OUTPUT + 1);
    for (outputs, code) in [
        (json!({}), "outputMissing"),
        (json!({"other": "x"}), "outputMissing"),
        (json!({"id": too_large}), "outputTooLarge"),
    ] {
        let (harness, call) = accepted().await;
        let body = json!({"status": "succeeded", "outputs": outputs});
        harness.callback(call.token(), &body).await.is(204);
        let target = harness.phase("a", TargetState::Failed).await;
        let unit = crate::harness::find(&target, "preStart", "make").unwrap();
        assert_eq!(unit.state, UnitState::Failed);
        let reason = serde_json::to_value(unit.reason.unwrap().code).unwrap();
        assert_eq!(reason, code);
        assert!(harness.receiver.calls("POST /next").is_empty());
    }
    // What is not declared is left out.
    let (harness, call) = accepted().await;
    let body = json!({"status": "succeeded", "outputs": {"id": "x", "more": "y"}});
    harness.callback(call.token(), &body).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    let kept = format!("{:?}", harness.state("a", SETUP).await.records);
    assert!(!kept.contains("more"), "{kept}");
}

pub(crate) async fn twice() {
    let (harness, call) = accepted().await;
    harness.callback(call.token(), &succeeded("one")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    harness.taken("a").await;
    let before = harness.state("a", SETUP).await;
    for _ in 0..3 {
        harness.callback(call.token(), &succeeded("one")).await.is(204);
    }
    assert_eq!(harness.state("a", SETUP).await, before);
    assert_eq!(harness.receiver.calls("POST /next").len(), 1);
    // A failure after the success: the first result stays.
    let answer = harness.callback(call.token(), &json!({"status": "failed"})).await;
    assert!(matches!(answer.status, 204 | 409), "{answer:?}");
    let after = harness.state("a", SETUP).await;
    assert_eq!(after.heads, before.heads);
    assert_eq!(after.records[0].2.result, before.records[0].2.result);
    // Another success is kept beside the first, and both are taken away.
    let answer = harness.callback(call.token(), &succeeded("two")).await;
    assert!(matches!(answer.status, 204 | 409), "{answer:?}");
    let record = harness.state("a", SETUP).await.records[0].2.clone();
    assert_eq!(record.result, before.records[0].2.result);
    let others: Vec<AttemptOutcome> = record.further_results.iter().map(|result| result.outcome).collect();
    assert!(others.contains(&AttemptOutcome::Succeeded), "{record:?}");
    assert_eq!(harness.receiver.calls("POST /next").len(), 1);
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    let mut undone: Vec<String> =
        harness.receiver.calls("POST /undo").iter().map(|call| call.body["id"].to_string()).collect();
    undone.sort();
    assert_eq!(undone, ["\"one\"", "\"two\""]);
}

/// A server may say when to ask again as a date, which may have passed by our clock.
pub(crate) async fn asked_again_at_a_date() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, number| match number {
        1 => CannedReply::status(202).header("retry-after", "Tue, 14 Nov 2023 22:15:20 GMT"),
        _ => CannedReply::ok(json!({"id": "x"})),
    });
    harness.publish(&plugin("waits@1.0.0", MAKE)).await;
    harness.create("a", "waits").await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /make").len(), 2);
}

/// A page instead of JSON is named in the failure, and not what an expression makes of it.
pub(crate) async fn answers_that_are_not_json() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::page("<html>\n<body>login to continue</body>"));
    harness.publish(&plugin("waits@1.0.0", &MAKE.replace("timeout: 5m", "retry: {attempts: 1}"))).await;
    harness.create("a", "waits").await;
    harness.phase("a", TargetState::Failed).await;
    let cause = harness.why("a").await.cause.unwrap();
    assert_eq!(cause.reason.message, "the response is text/html, not JSON: `<html> <body>login to continue</body>`");
    assert_eq!(cause.evidence.unwrap().status, Some(200));
}

/// A receiver verifies with the secret of its own plugin, and with no other.
pub(crate) async fn signing_secrets() {
    let (harness, call) = accepted().await;
    harness.publish(&plugin("other@1.0.0", MAKE)).await;
    let secret = async |name: &str| -> WebhookSecret {
        let path = format!("/v1/plugins/{name}/signing-secret");
        let secrets: SigningSecrets = harness.get(&path).await.is(200).json();
        assert_eq!((secrets.plugin.as_str(), secrets.secrets.len()), (name, 1));
        WebhookSecret::parse(&secrets.secrets[0]).unwrap()
    };
    let header = |(name, value): (&String, &String)| (name.parse().unwrap(), value.parse().unwrap());
    let headers: HeaderMap = call.headers.iter().map(header).collect();
    assert_eq!(call.body, Value::Null);
    let verified = |secret: WebhookSecret| sign::verify(&secret.into(), &headers, &[], now());
    assert!(verified(secret("waits").await).is_ok());
    assert_eq!(verified(secret("other").await), Err(SignatureError::NoMatch));
    let deployment = harness.stack().env().settings.unit_keys.first().clone();
    assert_eq!(verified(deployment), Err(SignatureError::NoMatch));
    harness.get("/v1/plugins/nothing/signing-secret").await.is_problem(404, "not-found");
}

/// `why` shows a refused callback of a unit that waits.
pub(crate) async fn refused_callbacks_are_shown() {
    let (harness, call) = accepted().await;
    let answer = harness.callback(call.token(), &json!({"status": "failed", "error": "quota"})).await;
    let problem = answer.is_problem(400, "invalid-callback");
    for word in ["`error`", "`status`", "`outputs`", "`reason`"] {
        assert!(problem.detail.contains(word), "{problem:?}");
    }
    let log = json!({"status": "succeeded", "outputs": {"id": "x"}, "log": "a line"});
    let problem = harness.callback(call.token(), &log).await.is_problem(400, "invalid-callback");
    assert!(problem.detail.contains("`log`") && problem.detail.contains("`progress`"), "{problem:?}");
    let target = harness.target("a").await.unwrap();
    let refused = crate::harness::find(&target, "preStart", "make").unwrap().refused_callbacks.unwrap();
    assert_eq!((refused.count, refused.reason.contains("`log`")), (2, true), "{refused:?}");
    let notes = harness.why("a").await.notes;
    assert!(notes.iter().any(|note| note.starts_with("r/make: 2 callbacks")), "{notes:?}");
    // Its progress is shown.
    harness.callback(call.token(), &json!({"status": "heartbeat", "progress": "3 of 7"})).await.is(204);
    let summary = harness.why("a").await.summary;
    assert!(summary.contains("3 of 7"), "{summary}");
    harness.callback(call.token(), &succeeded("x")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
}

/// Each distinct value of `id` that an undo was called with.
fn undone(harness: &LifecycleHarness) -> BTreeSet<String> {
    harness.receiver.calls("POST /undo").iter().map(|call| call.body["id"].to_string()).collect()
}

/// A sender that reports ever other results fills a bounded number of items; what is kept is undone, the rest is counted.
pub(crate) async fn a_flood_of_distinct_results() {
    const SENT: usize = limits::DISTINCT_RESULTS + 24;
    let (harness, call) = accepted().await;
    let mut refused = 0;
    for number in 0..SENT {
        let answer = harness.callback(call.token(), &succeeded(&format!("id-{number}"))).await;
        if number < limits::DISTINCT_RESULTS {
            assert!(matches!(answer.status, 204 | 409) && !answer.body.contains("too-many-results"), "{answer:?}");
        } else {
            answer.is_problem(409, "too-many-results");
            refused += 1;
        }
    }
    assert_eq!(refused, 24);
    // The kept results are known as before.
    let answer = harness.callback(call.token(), &succeeded("id-3")).await;
    assert!(!answer.body.contains("too-many-results"), "{answer:?}");
    harness.phase("a", TargetState::Ready).await;
    let state = harness.state("a", SETUP).await;
    let record = state.records[0].2.clone();
    assert_eq!((record.further_results.len(), record.excess), (limits::DISTINCT_RESULTS - 1, 24));
    assert!(state.heads[0].head.late.len() <= limits::DISTINCT_RESULTS, "{state:?}");
    let target = harness.target("a").await.unwrap();
    assert_eq!(crate::harness::find(&target, "preStart", "make").unwrap().excess_results, Some(24));
    let why = harness.why("a").await;
    assert!(why.notes.iter().any(|note| note.contains("r/make") && note.contains("24")), "{why:?}");
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    let wanted: BTreeSet<String> = (0..limits::DISTINCT_RESULTS).map(|number| format!("\"id-{number}\"")).collect();
    assert_eq!(undone(&harness), wanted);
}

/// The same after the life is over, when each new result reopens the undo.
pub(crate) async fn a_flood_after_the_end() {
    let (harness, call) = accepted().await;
    harness.callback(call.token(), &succeeded("id-0")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    for number in 1..limits::DISTINCT_RESULTS + 4 {
        harness.callback(call.token(), &succeeded(&format!("id-{number}"))).await;
    }
    let wanted: BTreeSet<String> = (0..limits::DISTINCT_RESULTS).map(|number| format!("\"id-{number}\"")).collect();
    let begun = std::time::Instant::now();
    while undone(&harness) != wanted {
        assert!(begun.elapsed() < crate::harness::PATIENCE, "{:?}", undone(&harness));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let state = harness.state("a", SETUP).await;
    assert_eq!(state.records[0].2.excess, 4);
    assert!(state.heads[0].head.late.len() < limits::DISTINCT_RESULTS, "{state:?}");
    // Of a relay it is taken, which would repeat it otherwise.
    let relay = mint(&harness, &TokenClaims { kind: TokenKind::Relay, ..claims(&harness, &call) });
    harness.callback(&relay, &succeeded("id of a relay")).await.is(204);
    assert_eq!(harness.state("a", SETUP).await.records[0].2.excess, 5);
}

pub(crate) async fn after_a_failure() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /make", |_, _| CannedReply::status(202));
    let once = MAKE.replace("timeout: 5m", "retry: {attempts: 1}");
    harness.publish(&plugin("waits@1.0.0", &once)).await;
    harness.create("a", "waits").await;
    let call = harness.receiver.call("POST /make", 1).await;
    let failure = json!({"status": "failed", "reason": {"code": "failed", "message": "no room"}});
    harness.callback(call.token(), &failure).await.is(204);
    harness.phase("a", TargetState::Failed).await;
    assert_eq!(harness.why("a").await.remaining[0].certainty, Certainty::Possible);
    harness.callback(call.token(), &failure).await.is(204);
    harness.callback(call.token(), &succeeded("x")).await.is_problem(409, "late-result");
    let target = harness.phase("a", TargetState::Failed).await;
    assert_eq!(crate::harness::find(&target, "preStart", "make").unwrap().state, UnitState::Failed);
    assert!(harness.receiver.calls("POST /next").is_empty());
    let why = harness.why("a").await;
    assert_eq!(why.remaining[0].certainty, Certainty::Exists, "{why:?}");
    assert_eq!(why.cause.unwrap().reason.message, "no room");
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.calls("POST /undo").last().unwrap().body, json!({"id": "x"}));
}

pub(crate) async fn after_a_cancel() {
    let (harness, call) = accepted().await;
    harness.delete("a").await;
    harness.callback(call.token(), &succeeded("x")).await.is_problem(409, "late-result");
    let stored = harness.state("a", SETUP).await;
    assert!(stored.heads[0].head.done.is_empty(), "{stored:?}");
    let late = stored.heads[0].head.late.iter().map(|late| (late.slot, late.attempt)).collect::<Vec<_>>();
    assert_eq!(late, [(0, Attempt(1))]);
    assert_eq!(stored.records[0].2.result.as_ref().unwrap().outcome, AttemptOutcome::Succeeded);
    harness.phase("a", TargetState::Gone).await;
    assert!(harness.receiver.calls("POST /next").is_empty());
    assert_eq!(harness.receiver.calls("POST /undo").last().unwrap().body, json!({"id": "x"}));
    assert!(harness.why("a").await.remaining.is_empty());
    // The same success again is in the ledger already.
    let undone = harness.receiver.calls("POST /undo").len();
    let answer = harness.callback(call.token(), &succeeded("x")).await;
    assert!(matches!(answer.status, 204 | 409), "{answer:?}");
    harness.phase("a", TargetState::Gone).await;
    assert!(harness.receiver.calls("POST /undo").len() <= undone + 1);
}

/// A repeated callback sends the successors again, for its writer may have died before it did; but not one that has
/// said already that it will call back.
pub(crate) async fn said_again_after_the_successor_was_accepted() {
    let (harness, call) = accepted().await;
    harness.receiver.on("POST /next", |_, _| CannedReply::status(202));
    harness.callback(call.token(), &succeeded("one")).await.is(204);
    let next = harness.receiver.call("POST /next", 1).await;
    for _ in 0..3 {
        harness.callback(call.token(), &succeeded("one")).await.is(204);
    }
    assert_eq!(harness.receiver.calls("POST /next").len(), 1);
    harness.callback(next.token(), &json!({"status": "succeeded"})).await.is(204);
    harness.phase("a", TargetState::Ready).await;
}

/// Whoever holds the token of a webhook unit may say how that try ended, and nothing else.
pub(crate) async fn what_a_receiver_can_do_with_its_token() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    // The api is not open to it.
    for path in ["/v1/targets", "/v1/plugins", "/v1/targets/sandbox/a"] {
        let asked = harness.http.get(harness.url(path)).bearer_auth(call.token()).send().await.unwrap();
        crate::harness::LifecycleReply::of(asked).await.is_problem(401, "invalid-token");
    }
    // Nor are references, logs, or classes of failure that are the relay's to find.
    let reference = json!({"status": "succeeded", "secrets": {"id": {"name": "admin", "key": "dsn"}}});
    harness.callback(call.token(), &reference).await.is_problem(400, "invalid-callback");
    assert_eq!(harness.state("a", SETUP).await.heads, before.heads);
    // Names of other units and runs in the body are not read: the token says which.
    let elsewhere = json!({"status": "heartbeat", "unit": 1, "run": "x"});
    harness.callback(call.token(), &elsewhere).await.is_problem(400, "invalid-callback");
    let next = harness.state("a", SETUP).await.heads;
    assert_eq!(next, before.heads);
    // What it says is kept as text of foreign origin: capped, without control characters.
    let progress = format!("{}\u{1b}[2J{}", "a", "x".repeat(9_000));
    harness.callback(call.token(), &json!({"status": "heartbeat", "progress": progress})).await.is(204);
    let record = harness.state("a", SETUP).await.records[0].2.clone();
    let kept = record.progress.unwrap();
    assert!(kept.len() <= limits::MESSAGE && !kept.contains('\u{1b}'), "{kept:?}");
    let failed = json!({
        "status": "failed",
        "reason": {"code": "lost", "message": format!("\u{7}{}", "y".repeat(9_000))},
    });
    harness.callback(call.token(), &failed).await.is(204);
    let record = harness.state("a", SETUP).await.records[0].2.clone();
    let result = record.result.unwrap();
    let reason = result.reason.unwrap();
    assert_eq!(serde_json::to_value(reason.code).unwrap(), "failed", "{reason:?}");
    assert!(reason.message.len() <= limits::MESSAGE && !reason.message.contains('\u{7}'), "{reason:?}");
    assert!(!result.log);
}

/// A token that was stolen from one try says nothing of the next: its failure is late, and its success is known only so
/// that what it made is taken away.
pub(crate) async fn of_an_earlier_try() {
    let harness = LifecycleHarness::new().await;
    harness.receiver.on(
        "POST /make",
        |_, number| {
            if number == 1 { CannedReply::status(503) } else { CannedReply::status(202) }
        },
    );
    let again = MAKE.replace("timeout: 5m", "timeout: 5m\n    retry: {attempts: 3, backoff: 50ms}");
    harness.publish(&plugin("waits@1.0.0", &again)).await;
    harness.create("a", "waits").await;
    let (first, second) = (harness.receiver.call("POST /make", 1).await, harness.receiver.call("POST /make", 2).await);
    assert_ne!(first.token(), second.token());
    let heads = harness.state("a", SETUP).await.heads;
    let failed = json!({"status": "failed", "reason": {"code": "failed", "message": "stolen"}});
    let answer = harness.callback(first.token(), &failed).await;
    assert!(matches!(answer.status, 204 | 409), "{answer:?}");
    assert_eq!(harness.state("a", SETUP).await.heads, heads, "the second try was ended by the first one's token");
    harness.callback(first.token(), &succeeded("stolen")).await.is_problem(409, "late-result");
    assert!(harness.receiver.calls("POST /next").is_empty());
    harness.callback(second.token(), &succeeded("own")).await.is(204);
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /next")[0].body, json!({"id": "own"}));
    // The stolen one is over with its run.
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    let mut undone: Vec<String> =
        harness.receiver.calls("POST /undo").iter().map(|call| call.body["id"].to_string()).collect();
    undone.sort();
    assert_eq!(undone, ["\"own\"", "\"stolen\""]);
}
