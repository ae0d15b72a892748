//! `POST /v1/callbacks`: invalid tokens and bodies, late results, repetitions and floods.

use ebb_protocol::api::SigningSecrets;
use ebb_protocol::callback_token::{TokenClaims, TokenKind};
use ebb_protocol::record::{AttemptOutcome, AttemptRecord, OutputStorage};
use ebb_protocol::sign::{self, SignatureError};
use ebb_protocol::value::UnitValue;
use ebb_tests::fakes;

use crate::harness::*;
use crate::request_table;

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
    TokenClaims::verify(call.token(), &harness.stack().env().settings.token_keys, now()).unwrap()
}

fn mint(harness: &Harness, claims: &TokenClaims) -> String {
    claims.sign(&harness.stack().env().settings.token_keys)
}

async fn record(harness: &Harness) -> AttemptRecord {
    let records = harness.state("a", SETUP).await.records;
    records.into_iter().find(|(_, attempt, _)| *attempt == Attempt(1)).unwrap().2
}

fn assert_recorded_or_late(response: &ApiReply) {
    assert!(matches!(response.status, 204 | 409), "{response:?}");
}

/// `why` shows the refused callbacks of a pending unit.
pub(crate) async fn invalid_bodies() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let wrong: Vec<Value> = request_table::table("security/callbacks.yaml", "invalid_bodies", &[]);
    let many = format!("{{\"status\":\"succeeded\",\"outputs\":{{\"id\":[{}0]}}}}", "[],".repeat(200_000));
    let no_json =
        [&b""[..], b"succeeded", b"{\"status\": \"succeeded\"", b"\xff\xfe", b"{\"status\":\"succeeded\"} {}"];
    let no_json = no_json.into_iter().chain([many.as_bytes()]).map(<[u8]>::to_vec);
    let wrong = wrong.iter().map(|body| body.to_string().into_bytes());
    let bodies: Vec<Vec<u8>> = no_json.chain(wrong).collect();
    let sent = bodies.len();
    for body in bodies {
        let problem = harness.callback_bytes(call.token(), body).await.is_problem(400, "invalid-callback");
        let internals = ["struct ", "u64", ", `removal`"];
        assert!(!internals.iter().any(|name| problem.detail.contains(name)), "{problem:?}");
    }
    let large = vec![b' '; limits::CALLBACK_BODY + 1];
    harness.callback_bytes(call.token(), large).await.is_problem(413, "too-large");
    let unknown = json!({"status": "failed", "error": "quota"});
    let problem = harness.callback(call.token(), &unknown).await.is_problem(400, "invalid-callback");
    let words = ["`error`", "`status`", "`outputs`", "`reason`"];
    assert!(words.iter().all(|word| problem.detail.contains(word)), "{problem:?}");
    assert_eq!(harness.state("a", SETUP).await.head, before.head);
    let target = harness.target("a").await.unwrap();
    let refused = find(&target, "preStart", "make").unwrap().refused_callbacks.unwrap();
    assert_eq!((refused.count, refused.reason.contains("`error`")), (sent as u64 + 1, true), "{refused:?}");
    let record = AttemptRecord { refused: None, ..record(&harness).await };
    let reported = OutputStorage::Inline([("id".to_owned(), UnitValue::Json("x".into()))].into());
    assert_eq!((record, before.records), (AttemptRecord { reported, ..AttemptRecord::default() }, Vec::new()));
    assert_eq!(harness.receiver.count("POST /next"), 0);
    let notes = harness.why("a").await.notes;
    assert!(notes.iter().any(|note| note.starts_with(&format!("r/make: {} callbacks", sent + 1))), "{notes:?}");
}

/// Tokens of other keys, runs and attempts, and expired ones. What is refused changes nothing.
pub(crate) async fn refused_tokens() {
    let (harness, call) = accepted().await;
    let before = harness.state("a", SETUP).await;
    let own = claims(&harness, &call);
    let expiry = Timestamp(now().0 - 1_000);
    let [no_unit, no_run, not_begun, old, other] = [
        TokenClaims { unit: Unit(99), ..own.clone() },
        TokenClaims { run: run_id("none", SETUP), ..own.clone() },
        TokenClaims { run: run_id("a", Hook::PostStop), ..own.clone() },
        TokenClaims { expiry, ..own.clone() },
        TokenClaims { attempt: Attempt(7), ..own.clone() },
    ]
    .map(|claims| mint(&harness, &claims));
    let foreign = own.sign(&WebhookSecret::from_bytes(&[7; 32]).unwrap().into());
    for (token, body, status, code) in [
        (&*foreign, succeeded("x"), 403, "invalid-token"),
        // An API token is not a callback token.
        (harness.stack().token(), succeeded("x"), 403, "invalid-token"),
        (&no_unit, succeeded("x"), 403, "invalid-token"),
        (&no_run, succeeded("x"), 410, "gone"),
        (&not_begun, succeeded("x"), 410, "gone"),
        (&old, json!({"status": "failed"}), 403, "token-expired"),
        (&old, json!({"status": "heartbeat"}), 403, "token-expired"),
        (&old, json!({"status": "accepted"}), 403, "token-expired"),
        (&old, json!({"status": "again", "retryAfter": 1}), 403, "token-expired"),
        (&old, json!({"status": "succeeded"}), 403, "token-expired"),
    ] {
        harness.callback(token, &body).await.is_problem(status, code);
        assert_eq!(harness.state("a", SETUP).await, before, "{body}");
    }
    harness.anonymous().post("/v1/callbacks", succeeded("x")).await.is_problem(401, "missing-token");
    // A failure or heartbeat of another attempt does not change the current one.
    harness.callback(&other, &json!({"status": "failed"})).await.is_problem(409, "late-result");
    let other_epoch = mint(&harness, &TokenClaims { epoch: Epoch(9), ..own });
    harness.callback(&other_epoch, &json!({"status": "heartbeat"})).await.is(204);
    assert_eq!(harness.state("a", SETUP).await.head, before.head);
    // A success is recorded, because the resource may exist.
    harness.callback(&other, &succeeded("other")).await.is_problem(409, "late-result");
    let head = harness.state("a", SETUP).await.head.unwrap();
    assert!(head.done.is_empty() && head.late.iter().map(|late| late.attempt).eq([Attempt(7)]), "{head:?}");
    assert_eq!(harness.receiver.count("POST /next"), 0);
    assert_recorded_or_late(&harness.callback(&old, &succeeded("late")).await);
    assert_eq!(record(&harness).await.result.unwrap().outcome, AttemptOutcome::Succeeded);
}

/// A script may wait for a slot longer than its token is valid.
pub(crate) async fn expired_tokens_of_relays() {
    let harness = Harness::new().await;
    let rest = include_str!("documents/long-script.yaml");
    harness.begin("a", "long", rest).await;
    harness.logged("a", "make", "begun").await;
    let expired = Timestamp(now().0 - 1_000);
    let old = |attempt: u32| fakes::claims(run_id("a", SETUP), attempt, TokenKind::Relay, expired);
    let failed = json!({"status": "failed", "reason": {"code": "exit", "message": "code 3"}});
    // The attempt is not pending. 410 stops the repetitions of the relay.
    harness.callback(&mint(&harness, &old(2)), &failed).await.is_problem(410, "gone");
    assert_eq!(harness.state("a", SETUP).await.records, vec![]);
    harness.callback(&mint(&harness, &old(1)), &failed).await.is(204);
    let target = harness.phase("a", TargetPhase::Failed).await;
    assert_eq!(find(&target, "preStart", "make").unwrap().reason.unwrap().message, "code 3");
    // The attempt has ended.
    harness.callback(&mint(&harness, &old(1)), &failed).await.is_problem(410, "gone");
    let late = TokenClaims { expiry: Timestamp(now().0 + 60_000), ..old(1) };
    harness.callback(&mint(&harness, &late), &failed).await.is(204);
}

/// A repetition changes nothing. A limited number of distinct successes is recorded and undone, also after the teardown.
/// Further ones are counted.
pub(crate) async fn a_flood_of_distinct_results() {
    const EXCESS: usize = 24;
    let (harness, call) = accepted().await;
    harness.succeed(&call, "id-0").await;
    harness.phase("a", TargetPhase::Ready).await;
    harness.notification_accepted("a").await;
    let before = harness.state("a", SETUP).await;
    for _ in 0..3 {
        harness.succeed(&call, "id-0").await;
    }
    assert_eq!(harness.state("a", SETUP).await, before);
    for number in 1..limits::DISTINCT_RESULTS + EXCESS {
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
    let target = harness.target("a").await.unwrap();
    assert_eq!(find(&target, "preStart", "make").unwrap().excess_results.map(|excess| excess as usize), Some(EXCESS));
    let why = harness.why("a").await;
    assert!(why.notes.iter().any(|note| note.contains("r/make") && note.contains("24")), "{why:?}");
    harness.tear_down("a").await;
    let kept: BTreeSet<String> = (0..limits::DISTINCT_RESULTS).map(|number| format!("id-{number}")).collect();
    assert_eq!((undone(&harness), harness.receiver.count("POST /next")), (kept, 1));
    // A result of a relay is accepted, because a relay repeats rejected results.
    let relay = mint(&harness, &TokenClaims { kind: TokenKind::Relay, ..claims(&harness, &call) });
    harness.callback(&relay, &succeeded("id of a relay")).await.is(204);
    assert_eq!(record(&harness).await.excess as usize, EXCESS + 1);
}

/// Requests are signed with the secret of their plugin.
pub(crate) async fn signing_secrets() {
    let (harness, call) = accepted().await;
    harness.publish("other@1.0.0", MAKE).await;
    let deployment = harness.stack().env().settings.unit_keys.first().clone();
    let verify = |secret: WebhookSecret| sign::verify(&secret.into(), &call.headers, &[], now()).map(drop);
    assert_eq!(verify(deployment), Err(SignatureError::NoMatch));
    for (name, expected) in [("waits", Ok(())), ("other", Err(SignatureError::NoMatch))] {
        let path = format!("/v1/plugins/{name}/signing-secret");
        let secrets: SigningSecrets = harness.get(&path).await.is(200).json();
        assert_eq!((secrets.plugin.as_str(), secrets.secrets.len()), (name, 1));
        assert_eq!(verify(WebhookSecret::parse(&secrets.secrets[0]).unwrap()), expected);
    }
}

/// A success after a cancel or after the teardown is recorded and undone.
pub(crate) async fn callbacks_after_a_cancel() {
    let (harness, call) = accepted().await;
    harness.delete("a").await;
    harness.callback(call.token(), &succeeded("x")).await.is_problem(409, "late-result");
    assert_eq!(record(&harness).await.result.unwrap().outcome, AttemptOutcome::Succeeded);
    harness.phase("a", TargetPhase::Gone).await;
    assert_eq!(harness.receiver.calls("POST /undo").last().unwrap().body, json!({"id": "x"}));
    assert_recorded_or_late(&harness.callback(call.token(), &succeeded("y")).await);
    until("the undo of y", async || undone(&harness).contains("y").then_some(())).await;
    harness.phase("a", TargetPhase::Gone).await;
    assert!(harness.remaining("a").await.is_empty());
    assert_eq!(harness.receiver.count("POST /next"), 0);
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
    let head = harness.state("a", SETUP).await.head;
    let failed = json!({"status": "failed", "reason": {"message": "stolen"}});
    assert_recorded_or_late(&harness.callback(first.token(), &failed).await);
    assert_eq!(harness.state("a", SETUP).await.head, head, "the token of the first attempt ended the second");
    harness.callback(first.token(), &succeeded("stolen")).await.is_problem(409, "late-result");
    assert_eq!(harness.receiver.count("POST /next"), 0);
    harness.succeed(&second, "own").await;
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(harness.receiver.calls("POST /next")[0].body, json!({"id": "own"}));
    harness.tear_down("a").await;
    assert_eq!((undone(&harness), harness.receiver.count("POST /undo")), (ids(["own", "stolen"]), 2));
}
