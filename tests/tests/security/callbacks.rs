//! `POST /v1/callbacks`: invalid tokens and bodies, late results, repetitions and floods.

use ebb_protocol::api::SigningSecrets;
use ebb_protocol::record::{AttemptOutcome, AttemptRecord};
use ebb_protocol::sign::{self, SignatureError};
use ebb_protocol::token::{TokenClaims, TokenKeys, TokenKind};

use crate::harness::*;

const SETUP: Hook = Hook::PreStart;

/// `next` reads the output of `make`.
const NEXT: &str = r#"  next: {webhook: {url: "RECEIVER/next", body: {id: "${units.make.outputs.id}"}}}
postStop:"#;

fn document(timing: &str) -> String {
    MAKE.replace("postStop:", NEXT).replace("timeout: 5m", timing)
}

/// Starts a sandbox `a` whose unit `make` is accepted.
async fn accepted() -> (Harness, ReceivedCall) {
    let harness = Harness::new().await;
    let call = harness.accepted("waits", &document("timeout: 5m")).await;
    (harness, call)
}

fn claims(harness: &Harness, call: &ReceivedCall) -> TokenClaims {
    harness.stack().env().settings.token_keys.verify(call.token(), now()).unwrap()
}

fn mint(harness: &Harness, claims: &TokenClaims) -> String {
    harness.stack().env().settings.token_keys.mint(claims)
}

/// Returns the record of `make`.
async fn record(harness: &Harness) -> AttemptRecord {
    harness.state("a", SETUP).await.records[0].2.clone()
}

/// Sends callbacks, and checks that each is rejected with a status and code and does not change the run.
async fn assert_rejected(harness: &Harness, rows: &[(&str, Value, u16, &str)]) {
    let before = harness.state("a", SETUP).await;
    for (token, body, status, code) in rows {
        harness.callback(token, body).await.is_problem(*status, code);
        assert_eq!(harness.state("a", SETUP).await, before, "{body}");
    }
    assert_eq!(harness.receiver.count("POST /next"), 0);
}

fn assert_recorded_or_late(response: &ApiReply) {
    assert!(matches!(response.status, 204 | 409), "{response:?}");
}

pub(crate) async fn foreign_tokens() {
    let (harness, call) = accepted().await;
    let foreign = TokenKeys::from_bytes("local", &[7; 32]).unwrap().mint(&claims(&harness, &call));
    let rows = [
        (&*foreign, succeeded("x"), 403, "invalid-token"),
        // An API token is not a callback token.
        (harness.stack().token(), succeeded("x"), 403, "invalid-token"),
    ];
    assert_rejected(&harness, &rows).await;
    let url = harness.url("/v1/callbacks");
    let none = ApiReply::to(&harness.http, &url, None, Method::POST, Some(succeeded("x"))).await;
    none.is_problem(401, "missing-token");
    harness.succeed(&call, "x").await;
    harness.phase("a", TargetState::Ready).await;
}

pub(crate) async fn invalid_bodies() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let secrets = json!({"id": {"name": "s", "key": "k"}});
    let wrong = json!([
        [], "succeeded", {}, {"status": "finished"}, {"status": "SUCCEEDED"}, {"status": 1},
        {"status": "succeeded", "outputs": ["x"]}, {"status": "succeeded", "v": 2},
        // The body cannot name a unit or run, because the token does.
        {"status": "succeeded", "unit": 1}, {"status": "heartbeat", "unit": 1, "run": "x"},
        {"status": "succeeded", "binary": {"id": "not base64!"}},
        {"status": "succeeded", "outputs": {"id": "x"}, "binary": {"id": "eA=="}},
        // Only a relay may report references.
        {"status": "succeeded", "secrets": secrets}, {"status": "failed", "secrets": secrets},
        {"status": "failed", "objects": [{"object": "Job n/a", "state": "ready"}]},
        {"status": "failed", "reason": {"code": "No quota", "message": "x"}},
        {"status": "failed", "reason": {"code": "no-quota"}}, {"status": "failed", "progress": "3 of 7"},
        {"status": "again"}, {"status": "again", "retryAfter": 86_401}, {"status": "again", "retryAfter": -1},
        {"status": "succeeded", "outputs": {"id": "x"}, "log": "a line"},
    ]);
    let no_json =
        [&b""[..], b"succeeded", b"{\"status\": \"succeeded\"", b"\xff\xfe", b"{\"status\":\"succeeded\"} {}"];
    let wrong = wrong.as_array().unwrap().iter();
    let bodies: Vec<Vec<u8>> = wrong.map(|body| body.to_string().into_bytes()).collect();
    let many = format!("{{\"status\":\"succeeded\",\"outputs\":{{\"id\":[{}0]}}}}", "[],".repeat(200_000));
    let bodies = [bodies, no_json.map(<[u8]>::to_vec).to_vec(), vec![many.into_bytes()]].concat();
    let sent = bodies.len() as u64;
    for body in bodies {
        harness.callback_bytes(call.token(), body).await.is_problem(400, "invalid-callback");
    }
    let large = vec![b' '; limits::CALLBACK_BODY + 1];
    harness.callback_bytes(call.token(), large).await.is_problem(413, "too-large");
    let after = harness.state("a", SETUP).await;
    assert_eq!(after.heads, before.heads);
    let mut record = record(&harness).await;
    assert_eq!(record.refused.take().map(|refused| refused.count), Some(sent));
    assert_eq!((record, before.records), (AttemptRecord::default(), Vec::new()));
    assert_eq!(harness.receiver.count("POST /next"), 0);
}

pub(crate) async fn tokens_of_other_attempts() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let own = claims(&harness, &call);
    // An unknown unit, an unknown run, and a run that has not started.
    let no_unit = mint(&harness, &TokenClaims { unit: Unit(99), ..own.clone() });
    let no_run = mint(&harness, &TokenClaims { run: run_id("none", SETUP), ..own.clone() });
    let not_begun = mint(&harness, &TokenClaims { run: run_id("a", Hook::PostStop), ..own.clone() });
    let rows = [(&*no_unit, 403, "invalid-token"), (&no_run, 410, "gone"), (&not_begun, 410, "gone")];
    assert_rejected(&harness, &rows.map(|(token, status, code)| (token, succeeded("x"), status, code))).await;
    // A failure or heartbeat of another attempt does not change the current one.
    let other_try = mint(&harness, &TokenClaims { attempt: Attempt(7), ..own.clone() });
    harness.callback(&other_try, &json!({"status": "failed"})).await.is_problem(409, "late-result");
    let other_epoch = mint(&harness, &TokenClaims { epoch: Epoch(9), ..own.clone() });
    harness.callback(&other_epoch, &json!({"status": "heartbeat"})).await.is(204);
    assert_eq!(harness.state("a", SETUP).await.heads, before.heads);
    // A success of another attempt is recorded and does not advance the run.
    harness.callback(&other_try, &succeeded("other")).await.is_problem(409, "late-result");
    assert_only_late_success(&harness, own.unit.0, Attempt(7)).await;
    assert_eq!(harness.receiver.count("POST /next"), 0);
    harness.succeed(&call, "own").await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /next")[0].body, json!({"id": "own"}));
}

/// Checks that the head of the setup has one late success and no completed unit.
async fn assert_only_late_success(harness: &Harness, slot: u32, attempt: Attempt) {
    let heads = harness.state("a", SETUP).await.heads;
    assert!(heads[0].head.done.is_empty(), "{heads:?}");
    let late = heads[0].head.late.iter().map(|late| (late.slot, late.attempt)).collect::<Vec<_>>();
    assert_eq!(late, [(slot, attempt)]);
}

pub(crate) async fn expired_tokens() {
    let (harness, call) = accepted().await;
    let old = mint(&harness, &TokenClaims { expiry: Timestamp(now().0 - 1_000), ..claims(&harness, &call) });
    let bodies = [
        json!({"status": "failed"}),
        json!({"status": "heartbeat"}),
        json!({"status": "accepted"}),
        json!({"status": "again", "retryAfter": 1}),
        json!({"status": "succeeded"}),
    ];
    assert_rejected(&harness, &bodies.map(|body| (&*old, body, 403, "token-expired"))).await;
    // A success is recorded, because the resource may exist.
    assert_recorded_or_late(&harness.callback(&old, &succeeded("late")).await);
    assert_eq!(record(&harness).await.result.unwrap().outcome, AttemptOutcome::Succeeded);
}

/// A script may wait for a slot longer than its token is valid.
pub(crate) async fn expired_tokens_of_relays() {
    let harness = Harness::new().await;
    let rest = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  make: {retry: {attempts: 1}, pod: {runner: sh, script: "#!/bin/sh\necho begun\nsleep 60\n"}}
"##;
    harness.begin("a", "long", rest).await;
    harness.logged("a", "make", "begun").await;
    let old = |attempt: u32| TokenClaims {
        run: run_id("a", SETUP),
        unit: Unit(0),
        attempt: Attempt(attempt),
        epoch: Epoch(1),
        expiry: Timestamp(now().0 - 1_000),
        kind: TokenKind::Relay,
        remaining_results: 0,
    };
    let failed = json!({"status": "failed", "reason": {"code": "exit", "message": "code 3"}});
    // The attempt is not pending. 410 stops the repetitions of the relay.
    harness.callback(&mint(&harness, &old(2)), &failed).await.is_problem(410, "gone");
    assert_eq!(harness.state("a", SETUP).await.records, vec![]);
    harness.callback(&mint(&harness, &old(1)), &failed).await.is(204);
    let target = harness.phase("a", TargetState::Failed).await;
    assert_eq!(find(&target, "preStart", "make").unwrap().reason.unwrap().message, "code 3");
    // The attempt has ended.
    harness.callback(&mint(&harness, &old(1)), &failed).await.is_problem(410, "gone");
    let late = TokenClaims { expiry: Timestamp(now().0 + 60_000), ..old(1) };
    harness.callback(&mint(&harness, &late), &failed).await.is(204);
}

pub(crate) async fn outputs_that_break_the_contract() {
    let too_large = "x".repeat(limits::OUTPUT + 1);
    for (outputs, code) in [
        (json!({}), Some("outputMissing")),
        (json!({"other": "x"}), Some("outputMissing")),
        (json!({"id": too_large}), Some("outputTooLarge")),
        // Undeclared outputs are dropped.
        (json!({"id": "x", "more": "y"}), None),
    ] {
        let (harness, call) = accepted().await;
        harness.callback(call.token(), &json!({"status": "succeeded", "outputs": outputs})).await.is(204);
        let phase = if code.is_some() { TargetState::Failed } else { TargetState::Ready };
        let target = harness.phase("a", phase).await;
        let reason = find(&target, "preStart", "make").unwrap().reason.map(|reason| json!(reason.code));
        assert_eq!(reason, code.map(|code| json!(code)));
        assert_eq!(harness.receiver.count("POST /next"), usize::from(code.is_none()));
        let kept = format!("{:?}", harness.state("a", SETUP).await.records);
        assert!(code.is_some() || !kept.contains("more"), "{kept}");
    }
}

pub(crate) async fn repeated_callbacks() {
    let (harness, call) = accepted().await;
    harness.succeed(&call, "one").await;
    harness.phase("a", TargetState::Ready).await;
    harness.notification_accepted("a").await;
    let before = harness.state("a", SETUP).await;
    for _ in 0..3 {
        harness.succeed(&call, "one").await;
    }
    assert_eq!(harness.state("a", SETUP).await, before);
    assert_eq!(harness.receiver.count("POST /next"), 1);
    // A failure after a success does not replace the result.
    assert_recorded_or_late(&harness.callback(call.token(), &json!({"status": "failed"})).await);
    let after = harness.state("a", SETUP).await;
    assert_eq!((&after.heads, &after.records[0].2.result), (&before.heads, &before.records[0].2.result));
    // A different success is recorded too, and both are undone.
    assert_recorded_or_late(&harness.callback(call.token(), &succeeded("two")).await);
    let record = record(&harness).await;
    assert_eq!(record.result, before.records[0].2.result);
    let others: Vec<AttemptOutcome> = record.further_results.iter().map(|result| result.outcome).collect();
    assert!(others.contains(&AttemptOutcome::Succeeded), "{record:?}");
    assert_eq!(harness.receiver.count("POST /next"), 1);
    harness.tear_down("a").await;
    assert_eq!((undone(&harness), harness.receiver.count("POST /undo")), (ids(["one", "two"]), 2));
}

/// Requests are signed with the secret of their plugin.
pub(crate) async fn signing_secrets() {
    let (harness, call) = accepted().await;
    harness.publish("other@1.0.0", MAKE).await;
    let secret = async |name: &str| -> WebhookSecret {
        let path = format!("/v1/plugins/{name}/signing-secret");
        let secrets: SigningSecrets = harness.get(&path).await.is(200).json();
        assert_eq!((secrets.plugin.as_str(), secrets.secrets.len()), (name, 1));
        WebhookSecret::parse(&secrets.secrets[0]).unwrap()
    };
    assert_eq!(call.body, Value::Null);
    let verified = |secret: WebhookSecret| sign::verify(&secret.into(), &call.headers, &[], now());
    assert!(verified(secret("waits").await).is_ok());
    assert_eq!(verified(secret("other").await), Err(SignatureError::NoMatch));
    let deployment = harness.stack().env().settings.unit_keys.first().clone();
    assert_eq!(verified(deployment), Err(SignatureError::NoMatch));
    harness.get("/v1/plugins/nothing/signing-secret").await.is_problem(404, "not-found");
}

/// `why` shows rejected callbacks of a pending unit.
pub(crate) async fn rejected_callbacks_are_shown() {
    let (harness, call) = accepted().await;
    for (body, words) in [
        (json!({"status": "failed", "error": "quota"}), &["`error`", "`status`", "`outputs`", "`reason`"][..]),
        (json!({"status": "succeeded", "outputs": {"id": "x"}, "log": "a line"}), &["`log`", "`progress`"]),
    ] {
        let problem = harness.callback(call.token(), &body).await.is_problem(400, "invalid-callback");
        assert!(words.iter().all(|word| problem.detail.contains(word)), "{problem:?}");
    }
    let target = harness.target("a").await.unwrap();
    let refused = find(&target, "preStart", "make").unwrap().refused_callbacks.unwrap();
    assert_eq!((refused.count, refused.reason.contains("`log`")), (2, true), "{refused:?}");
    let notes = harness.why("a").await.notes;
    assert!(notes.iter().any(|note| note.starts_with("r/make: 2 callbacks")), "{notes:?}");
    // `why` shows the progress.
    harness.callback(call.token(), &json!({"status": "heartbeat", "progress": "3 of 7"})).await.is(204);
    let summary = harness.why("a").await.summary;
    assert!(summary.contains("3 of 7"), "{summary}");
    harness.succeed(&call, "x").await;
    harness.phase("a", TargetState::Ready).await;
}

/// Returns the ids of the results that are recorded.
fn kept_results() -> BTreeSet<String> {
    (0..limits::DISTINCT_RESULTS).map(|number| format!("id-{number}")).collect()
}

/// The number of distinct results that are recorded and undone is limited. Further ones are counted.
pub(crate) async fn a_flood_of_distinct_results() {
    const EXCESS: usize = 24;
    let (harness, call) = accepted().await;
    for number in 0..limits::DISTINCT_RESULTS + EXCESS {
        let response = harness.callback(call.token(), &succeeded(&format!("id-{number}"))).await;
        if number < limits::DISTINCT_RESULTS {
            assert_recorded_or_late(&response);
            assert!(!response.body.contains("too-many-results"), "{response:?}");
        } else {
            response.is_problem(409, "too-many-results");
        }
    }
    // A repetition of a recorded result is not counted.
    let response = harness.callback(call.token(), &succeeded("id-3")).await;
    assert!(!response.body.contains("too-many-results"), "{response:?}");
    harness.phase("a", TargetState::Ready).await;
    let state = harness.state("a", SETUP).await;
    let record = &state.records[0].2;
    assert_eq!((record.further_results.len(), record.excess as usize), (limits::DISTINCT_RESULTS - 1, EXCESS));
    assert!(state.heads[0].head.late.len() <= limits::DISTINCT_RESULTS, "{state:?}");
    let target = harness.target("a").await.unwrap();
    assert_eq!(find(&target, "preStart", "make").unwrap().excess_results.map(|excess| excess as usize), Some(EXCESS));
    let why = harness.why("a").await;
    assert!(why.notes.iter().any(|note| note.contains("r/make") && note.contains("24")), "{why:?}");
    harness.tear_down("a").await;
    assert_eq!(undone(&harness), kept_results());
}

/// The limit applies to a gone instance too, whose undo is reopened by each new result.
pub(crate) async fn a_flood_of_distinct_results_after_the_teardown() {
    let (harness, call) = accepted().await;
    harness.succeed(&call, "id-0").await;
    harness.phase("a", TargetState::Ready).await;
    harness.tear_down("a").await;
    for number in 1..limits::DISTINCT_RESULTS + 4 {
        harness.callback(call.token(), &succeeded(&format!("id-{number}"))).await;
    }
    until("all undos", async || (undone(&harness) == kept_results()).then_some(())).await;
    let state = harness.state("a", SETUP).await;
    assert_eq!(state.records[0].2.excess, 4);
    assert!(state.heads[0].head.late.len() < limits::DISTINCT_RESULTS, "{state:?}");
    // A result of a relay is accepted, because a relay repeats rejected results.
    let relay = mint(&harness, &TokenClaims { kind: TokenKind::Relay, ..claims(&harness, &call) });
    harness.callback(&relay, &succeeded("id of a relay")).await.is(204);
    assert_eq!(record(&harness).await.excess, 5);
}

pub(crate) async fn callbacks_after_a_failure() {
    let harness = Harness::new().await;
    let call = harness.accepted("waits", &document("retry: {attempts: 1}")).await;
    let failure = json!({"status": "failed", "reason": {"code": "no-quota", "message": "no space"}});
    harness.callback(call.token(), &failure).await.is(204);
    harness.phase("a", TargetState::Failed).await;
    let reason = json!({"code": "failed", "message": "no-quota: no space"});
    assert_eq!(harness.notified("a", &["failed"]).await[0]["reason"], reason);
    assert_eq!(harness.remaining("a").await, [("r/make".to_owned(), Certainty::Possible)]);
    harness.callback(call.token(), &failure).await.is(204);
    harness.callback(call.token(), &succeeded("x")).await.is_problem(409, "late-result");
    let target = harness.phase("a", TargetState::Failed).await;
    assert_eq!(states(&target, "preStart", ["make"]), [UnitState::Failed]);
    assert_eq!(harness.receiver.count("POST /next"), 0);
    assert_eq!(harness.remaining("a").await, [("r/make".to_owned(), Certainty::Exists)]);
    assert_eq!(json!(harness.why("a").await.cause.unwrap().reason), reason);
    assert_eq!(json!(find(&target, "preStart", "make").unwrap().reason), reason);
    harness.tear_down("a").await;
    assert_eq!(harness.receiver.calls("POST /undo").last().unwrap().body, json!({"id": "x"}));
}

pub(crate) async fn callbacks_after_a_cancel() {
    let (harness, call) = accepted().await;
    harness.delete("a").await;
    harness.callback(call.token(), &succeeded("x")).await.is_problem(409, "late-result");
    assert_only_late_success(&harness, 0, Attempt(1)).await;
    assert_eq!(record(&harness).await.result.unwrap().outcome, AttemptOutcome::Succeeded);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.count("POST /next"), 0);
    assert_eq!(harness.receiver.calls("POST /undo").last().unwrap().body, json!({"id": "x"}));
    assert!(harness.remaining("a").await.is_empty());
    // The same success is recorded already.
    let undone = harness.receiver.count("POST /undo");
    assert_recorded_or_late(&harness.callback(call.token(), &succeeded("x")).await);
    harness.phase("a", TargetState::Gone).await;
    assert!(harness.receiver.count("POST /undo") <= undone + 1);
}

/// The token of a webhook unit permits reports of the result of its attempt only.
pub(crate) async fn permissions_of_a_callback_token() {
    let (harness, call) = accepted().await;
    // The API rejects it.
    for line in ["GET /v1/targets", "GET /v1/plugins", "GET /v1/targets/sandbox/a"] {
        harness.with_token(call.token(), line, None).await.is_problem(401, "invalid-token");
    }
    // Its texts are shortened and have no control characters.
    let progress = format!("{}\u{1b}[2J{}", "a", "x".repeat(9_000));
    harness.callback(call.token(), &json!({"status": "heartbeat", "progress": progress})).await.is(204);
    let kept = record(&harness).await.progress.unwrap();
    assert!(kept.len() <= limits::MESSAGE && !kept.contains('\u{1b}'), "{kept:?}");
    let reason = json!({"code": "lost", "message": format!("\u{7}{}", "y".repeat(9_000))});
    harness.callback(call.token(), &json!({"status": "failed", "reason": reason})).await.is(204);
    let result = record(&harness).await.result.unwrap();
    let reason = result.reason.unwrap();
    assert!(json!(reason.code) == "failed" && reason.message.starts_with("lost: "), "{reason:?}");
    assert!(reason.message.len() <= limits::MESSAGE && !reason.message.contains('\u{7}'), "{reason:?}");
    assert!(!result.log);
}

/// A token of an earlier attempt cannot end the current one. Its failure is ignored, and its success is recorded for
/// the undo.
pub(crate) async fn tokens_of_earlier_attempts() {
    let harness = Harness::new().await;
    harness.receiver.replies("POST /make", &[503, 202]);
    harness.begin("a", "waits", &document("timeout: 5m\n    retry: {attempts: 3, backoff: 50ms}")).await;
    let (first, second) = (harness.receiver.call("POST /make", 1).await, harness.receiver.call("POST /make", 2).await);
    assert_ne!(first.token(), second.token());
    let heads = harness.state("a", SETUP).await.heads;
    let failed = json!({"status": "failed", "reason": {"message": "stolen"}});
    assert_recorded_or_late(&harness.callback(first.token(), &failed).await);
    assert_eq!(harness.state("a", SETUP).await.heads, heads, "the token of the first attempt ended the second");
    harness.callback(first.token(), &succeeded("stolen")).await.is_problem(409, "late-result");
    assert_eq!(harness.receiver.count("POST /next"), 0);
    harness.succeed(&second, "own").await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /next")[0].body, json!({"id": "own"}));
    harness.callback(first.token(), &succeeded("late")).await.is_problem(409, "late-result");
    assert_eq!(outputs(&harness.target("a").await.unwrap()), json!({"id": {"value": "own"}}));
    assert_eq!(harness.remaining("a").await, [("r/make".to_owned(), Certainty::Exists)]);
    // All results are undone.
    harness.tear_down("a").await;
    assert_eq!((undone(&harness), harness.receiver.count("POST /undo")), (ids(["own", "stolen", "late"]), 3));
    assert_eq!(harness.remaining("a").await, []);
}
